"""Calling a sweep's own functions and objects, which may fail in any way, or be something else."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cache
from inspect import getattr_static
from typing import Any, Final, TypeVar, cast

from hsweep.design.labels import listed
from hsweep.design.metric_names import scale_of
from hsweep.design.own_training import Cost, OwnTask
from hsweep.design.question import Goal, Scale
from hsweep.design.recipe import Recipe
from hsweep.design.space import Point
from hsweep.design.sweep import RESERVED_AXES, Sweep, resolve
from hsweep.design.trial import Resources
from hsweep.errors import UserError, format_error, shown, unknown_name
from models.base import AnyModelConfig, Counts, ModelConfig, TraceableConfig
from models.counts import counts_of
from models.layer_conditioning import is_probed
from tasks.base import DataError, Learnable, Task

_KINDS: Final = (
    ("task", (Task,), "a task (see tasks.base.Task)"),
    (
        "model",
        (ModelConfig, TraceableConfig),
        "an nn.Module, or a model configuration: a frozen dataclass with build(), and counts() or "
        "example_input() (see models.base)",
    ),
    ("recipe", (Recipe,), "a Recipe"),
    ("resources", (Resources,), "a Resources"),
)
_MISSING: Final = object()
_GOALS: Final = ("min", "max")
_METRIC_SCALES: Final = ("error", "accuracy", "loss", "count")

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
            f"the sweep's {what} function failed at {dict(point)}: {format_error(error)}"
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
        raise UserError(f"the sweep's {what} cannot be used: {format_error(error)}") from error


def counted(count: Callable[[Any], Result], model: Any) -> Result:
    """Count a model, or what a point is described by.

    Raises:
        ImpossiblePointError: it raised ValueError.
        UserError: it failed otherwise.
    """
    try:
        return count(model)
    except UserError:
        raise
    except ValueError as error:
        raise ImpossiblePointError(str(error)) from error
    except (Exception, SystemExit, GeneratorExit) as error:
        raise UserError(
            f"the model {shown(model)} cannot be built or counted: {format_error(error)}. If "
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


def with_deciding_metric(sweep: Sweep, task: Learnable) -> Sweep:
    """Return the sweep with the task's main metric where it names none, and with the goal and the
    question's scale that the metric has where it gives none.

    Raises:
        UserError: the sweep does not say what the task's data would have to tell, and these cannot
            be read.
    """
    asked = sweep.question
    if sweep.metric and sweep.goal and (asked is None or asked.scale is not None):
        return sweep
    try:
        metrics = called("task", lambda: tuple(task.metrics))
    except DataError as error:
        raise UserError(
            f"which metrics task {task.name!r} has depends on its data, and these cannot be read: "
            f"{error}"
        ) from error
    if not metrics:
        raise UserError(f"task {task.name!r} has no metrics; it declares them, the main one first")
    name = sweep.metric or metrics[0].name
    # A name that the task does not have is refused where all of its metrics are checked.
    metric = next((each for each in metrics if each.name == name), metrics[0])
    goal: Goal = sweep.goal or metric.goal
    if asked is not None and asked.scale is None:
        scale: Scale = scale_of(name, goal) if metric.scale == "count" else metric.scale
        asked = replace(asked, scale=scale)
    return replace(sweep, metric=name, goal=goal, question=asked)


def check_metrics(task: Learnable, sweep: Sweep) -> None:
    """Refuse a task that does not measure what the sweep decides by, or whose metrics have the name
    of an axis, of a column or of what the probe measures.

    Raises:
        DataError: what is measured depends on data that cannot be read.
        UserError: with what is wrong.
    """
    metrics = called(
        "task", lambda: [(str(each.name), each.goal, each.scale) for each in task.metrics]
    )
    names = [name for name, _, _ in metrics]
    for name, goal, scale in metrics:
        for what, value, kinds in (("goal", goal, _GOALS), ("scale", scale, _METRIC_SCALES)):
            if value not in kinds:
                raise UserError(
                    f"metric {name!r} of task {task.name!r} has the {what} {shown(value)}; it "
                    f"must be {listed([*map(repr, kinds)], 'or')}"
                )
    if sweep.metric not in names:
        raise unknown_name(f"metric of task {task.name!r}", sweep.metric, names)
    for name in names:
        if name in sweep.space.axes:
            raise UserError(
                f"axis {name!r} is also a metric of task {task.name!r}; call the axis otherwise"
            )
        if name in RESERVED_AXES | {"time"}:
            raise UserError(
                f"metric {name!r} of task {task.name!r} is the name of a column that every "
                "table has; call the metric otherwise"
            )
        if sweep.probe is not None and is_probed(name):
            raise UserError(
                f"metric {name!r} of task {task.name!r} is also what the sweep's probe "
                "measures; call the metric otherwise, or leave the probe out"
            )


def check_own_resources(task: OwnTask, resources: Any) -> None:
    """Refuse resources that one's own training cannot have.

    Raises:
        UserError: no Resources, or a command on several nodes.
    """
    if not isinstance(resources, Resources):
        raise UserError(
            "the sweep's resources must be a Resources, or a function of the point that returns "
            f"one; got {shown(resources)}"
        )
    if task.starts_processes and resources.spread:
        raise UserError(
            "a command starts on one node, with all that its processes occupy; spread=True is for "
            "a training function, or the training of a task"
        )


def described_cost(describe: Callable[[Point], Any], point: Point) -> tuple[Counts, int | None]:
    """Return what a sweep's ``describe`` says of a point, and its training memory if it says that.

    Raises:
        ImpossiblePointError: it raised ValueError.
        UserError: it failed otherwise, or returned something else.
    """
    return evaluated("describe", lambda _: _cost_of(describe(point)), point)  # type: ignore[no-any-return]


def _cost_of(told_of_it: Any) -> tuple[Counts, int | None]:
    if isinstance(told_of_it, Counts):
        return told_of_it, None
    if isinstance(told_of_it, (ModelConfig, TraceableConfig)):
        return counts_of(told_of_it), None
    if hasattr(told_of_it, "parameters") and not isinstance(told_of_it, type):
        told_of_it = sum(each.numel() for each in told_of_it.parameters())
    if hasattr(told_of_it, "__index__"):
        told_of_it = Cost(told_of_it)
    if isinstance(told_of_it, Cost):
        counts = Counts({"all": told_of_it.num_params}, told_of_it.flops_per_example or 0, 0)
        return counts, told_of_it.train_memory_bytes
    raise UserError(
        "describe must return a number of parameters, a Cost, a model configuration, an nn.Module "
        f"or models.base.Counts; got {shown(told_of_it)}"
    )


def too_few_tokens(task: Task, model: AnyModelConfig) -> str:
    """Return why a model has too few tokens for a task, empty where it has not or does not say."""
    needed, known = getattr(task, "vocab_size", None), getattr(model, "vocab_size", None)
    if type(needed) is not int or type(known) is not int or known >= needed:
        return ""
    return (
        f"the model's vocab_size {known:,} is below the {needed:,} tokens of task {task.name!r}, "
        f"whose largest id is {needed - 1:,}; raise it to at least {needed:,}"
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
