"""Models that a sweep's function builds: structure and cost, from one build at each point."""

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
    module, read = _built_without_numbers(value, point)
    if not is_module(module):
        return module
    check_function(value)
    note_as_new(module)
    from models.tracing import structure_of

    return FunctionModel(
        value, point, read, structure_of(module), type(module).__name__, _cost_of(module, task)
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
    """Return a module's number of parameters and, if it can be traced, the cost of a forward
    pass."""
    import torch

    from models.tracing import mapped_tensors, module_counts, params_of

    params = params_of(module)
    counts = Counts(params, 0, 0)
    if not isinstance(task, Exemplary):
        return counts
    device = next((weights.device for weights in module.parameters()), torch.device("cpu"))
    try:
        # Two examples, since a batch norm has no variance of one.
        example = mapped_tensors(
            task.example_input(), lambda tensor: torch.cat((tensor, tensor)).to(device)
        )
        with torch.random.fork_rng(devices=[]):
            return module_counts(module.train(), example, examples=2)
    except Exception:  # what it computes may need values; and the data may not be there
        return counts


def _read_by(function: Callable[[Point], Any], point: Point) -> tuple[Any, dict[str, Any]]:
    """Return the value of a function at a point, and the axes that it reads, with their values: all
    axes where the value holds the point, which may be read later."""
    values = _WatchedValues(dict(point))
    read, holder = values.read, weakref.ref(values)
    watched = Point({})
    object.__setattr__(watched, "_values", values)
    del values
    built = function(watched)
    del watched
    axes = set(point) if holder() is not None else read
    return built, {axis: point[axis] for axis in point if axis in axes}


class _WatchedValues(Mapping[str, Any]):
    """The axis values of a point; records which of them are read."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self.read: set[str] = set()

    def __getitem__(self, axis: str) -> Any:
        self.read.add(axis)
        return self._values[axis]

    def __iter__(self) -> Iterator[str]:
        self.read.update(self._values)
        return iter(self._values)

    def __len__(self) -> int:
        self.read.update(self._values)
        return len(self._values)
