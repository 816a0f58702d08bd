"""Calling a sweep's own functions and objects, which may fail in any way, or be something else."""

from collections.abc import Callable, Hashable
from functools import cache
from inspect import getattr_static
from typing import Any, Final, TypeVar, cast

from hsweep.design.recipe import Recipe
from hsweep.design.space import Point
from hsweep.design.sweep import resolve
from hsweep.design.trial import Resources
from hsweep.errors import UserError, shown, told
from models.base import AnyModelConfig, ModelConfig, TraceableConfig
from tasks.base import DataError, Task

_KINDS: Final = (
    ("task", (Task,), "a task (see tasks.base.Task)"),
    (
        "model",
        (ModelConfig, TraceableConfig),
        "a model configuration: a frozen dataclass with build(), and counts() or "
        "example_input() (see models.base)",
    ),
    ("recipe", (Recipe,), "a Recipe"),
    ("resources", (Resources,), "a Resources"),
)
_MISSING: Final = object()

Result = TypeVar("Result")


class ImpossiblePointError(Exception):
    """A sweep's function declared its point impossible."""


def evaluated(what: str, value: Any, point: Point) -> Any:
    """Evaluate one of a sweep's functions.

    Raises:
        ImpossiblePointError: it raised ValueError.
        UserError: it failed otherwise.
    """
    try:
        return resolve(value, point)
    except UserError:
        raise
    except DataError as error:
        raise UserError(f"the task's data cannot be used: {error}") from error
    except ValueError as error:
        raise ImpossiblePointError(str(error)) from error
    except (Exception, SystemExit, GeneratorExit) as error:
        raise UserError(
            f"the sweep's {what} function failed at {dict(point)}: {told(error)}"
        ) from error


def called(what: str, function: Callable[[], Result]) -> Result:
    """Call a function that uses a sweep's own objects.

    Raises:
        DataError: of a task.
        UserError: they failed otherwise.
    """
    try:
        return function()
    except (UserError, DataError):
        raise
    except (Exception, SystemExit, GeneratorExit) as error:
        raise UserError(f"the sweep's {what} cannot be used: {told(error)}") from error


def counted(count: Callable[[Any], Result], model: AnyModelConfig) -> Result:
    """Count a model.

    Raises:
        ImpossiblePointError: it raised ValueError.
        UserError: it failed otherwise.
    """
    try:
        return count(model)
    except ValueError as error:
        raise ImpossiblePointError(str(error)) from error
    except (Exception, SystemExit, GeneratorExit) as error:
        raise UserError(
            f"the model {shown(model)} cannot be built or counted: {told(error)}. If "
            "its shape is impossible, let the sweep's model function raise ValueError: the plan "
            "then skips the point and says why"
        ) from error


def check_kinds(task: Any, model: Any, recipe: Any, resources: Any) -> None:
    """Refuse what a sweep's functions returned in place of something else.

    Raises:
        UserError: with what it must be.
    """
    for value, (what, kinds, is_a) in zip((task, model, recipe, resources), _KINDS, strict=True):
        if not any(_is_a(value, kind) for kind in kinds):
            raise UserError(
                f"the sweep's {what} must be {is_a}, or a function of the point that returns one; "
                f"got {shown(value)}"
            )


def _is_a(value: Any, kind: type) -> bool:
    """Whether ``value`` is of the class ``kind``, or has every attribute of the protocol ``kind``.

    Unlike isinstance with a protocol it evaluates no property: a task's metrics may need its data.
    """
    if not getattr(kind, "_is_protocol", False):
        return isinstance(value, kind)
    if isinstance(value, type):
        return False
    return all(
        getattr_static(value, name, _MISSING) is not _MISSING
        for name in _not_of_class(kind, cast(Hashable, type(value)))
    )


@cache
def _not_of_class(protocol: type, kind: Hashable) -> tuple[str, ...]:
    """Return the attributes of a protocol that not every object of a class has by its class."""
    assert isinstance(kind, type)
    return tuple(
        name
        for name in dir(protocol)
        if not name.startswith("_") and not any(name in vars(base) for base in kind.__mro__)
    )
