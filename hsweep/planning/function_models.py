"""Models that a sweep's function builds: what they are and cost, from one build at each point."""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hsweep.design.function_model import (
    FunctionModel,
    check_function,
    is_module,
    note_as_new,
)
from hsweep.design.space import Point
from hsweep.errors import UserError
from models.base import Counts
from tasks.base import Exemplary

if TYPE_CHECKING:
    from torch import nn


def model_at(value: Any, point: Point, task: Any) -> Any:
    """Return a sweep's model at a point; a module that its function builds as a ``FunctionModel``.

    The module is built on torch's meta device where that works, without memory for its weights.

    Args:
        value: the sweep's ``model``.
        point: where.
        task: that the model learns; its ``example_input`` tells what a forward pass costs.

    Raises:
        UserError: a module in place of a function, or a function whose code cannot be found.
    """
    if is_module(value):
        name = type(value).__name__
        raise UserError(
            f"the sweep's model is a {name} that is built already, and every trial needs a new "
            f"one; give a function of the point that builds it, as in model=lambda p: {name}(...)"
        )
    if not callable(value) or hasattr(value, "__dataclass_fields__"):
        return value
    found, read = _built_without_numbers(value, point)
    if not is_module(found):
        return found
    check_function(value)
    note_as_new(found)
    from models.tracing import structure_of

    return FunctionModel(
        value, point, read, structure_of(found), type(found).__name__, _cost_of(found, task)
    )


def _built_without_numbers(function: Callable[[Point], Any], point: Point) -> tuple[Any, Any]:
    import torch

    from models.meta_build import without_numbers

    with torch.random.fork_rng(devices=[]):
        # What needs values cannot be built without; what fails otherwise fails again, and says why.
        with contextlib.suppress(Exception), without_numbers():
            return _read_by(function, point)
        return _read_by(function, point)


def _cost_of(module: "nn.Module", task: Any) -> Counts:
    """Return a module's parameters, and what a forward pass costs where that can be told."""
    import torch

    from models.tracing import mapped_tensors, module_counts, params_of

    params = params_of(module)
    unknown = Counts(params, 0, 0)
    if not isinstance(task, Exemplary):
        return unknown
    device = next((each.device for each in module.parameters()), torch.device("cpu"))
    try:
        # Two examples, since a batch norm has no variance of one.
        example = mapped_tensors(
            task.example_input(), lambda tensor: torch.cat((tensor, tensor)).to(device)
        )
        with torch.random.fork_rng(devices=[]):
            return module_counts(module.train(), example, examples=2)
    except Exception:  # what it computes may need values; and the data may not be there
        return unknown


def _read_by(function: Callable[[Point], Any], point: Point) -> tuple[Any, dict[str, Any]]:
    """Return what a function returns at a point, and the axes that it reads, with their values:
    all of them where what it returns holds the point, which may be read later."""
    watched = _WatchedPoint(point)
    read, holder = watched._read, weakref.ref(watched)
    found = function(watched)
    del watched
    axes = set(point) if holder() is not None else read
    return found, {axis: point[axis] for axis in point if axis in axes}


class _WatchedPoint(Point):
    """A point that notes which of its axes are read."""

    __slots__ = ("__weakref__", "_read")
    _read: set[str]

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        object.__setattr__(self, "_read", set())

    def __getitem__(self, axis: str) -> Any:
        self._read.add(axis)
        return super().__getitem__(axis)

    def __contains__(self, axis: object) -> bool:
        self._read.add(str(axis))
        return super().__contains__(axis)

    def get(self, axis: str, default: Any = None) -> Any:
        """Return the axis's value, or ``default`` if the space does not have it."""
        self._read.add(axis)
        return super().get(axis, default)

    def has(self, values: Mapping[str, Any]) -> bool:
        """Whether the point has all these axis values."""
        self._read.update(values)
        return super().has(values)

    def __iter__(self) -> Iterator[str]:
        self._read.update(self._values)
        return super().__iter__()

    def __len__(self) -> int:
        self._read.update(self._values)
        return super().__len__()

    def __hash__(self) -> int:
        self._read.update(self._values)
        return super().__hash__()

    def __repr__(self) -> str:
        self._read.update(self._values)
        return super().__repr__()
