"""A model that a function of the point builds: any ``torch.nn.Module``."""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from hsweep.errors import UserError, shown
from models.base import Counts

if TYPE_CHECKING:
    from torch import nn

_BUILT: Final[weakref.WeakValueDictionary[int, "nn.Module"]] = weakref.WeakValueDictionary()
"""The modules that model functions have returned and that are still alive, by their ids."""


@dataclass(frozen=True, slots=True)
class FunctionModel:
    """The module that a function builds at a point.

    Attributes:
        function: builds a new module from a point at every call.
        point: the argument of the function.
        read: the axes that the function reads, with their values.
        structure: hash of the module's classes, and of the names and shapes of its weights. It
            tells models apart that depend on more than code and point, such as a file.
        name: the module's class.
        cost: what the module costs; activations and operations are 0 where they are not known.
    """

    function: Callable[[Any], Any] = field(compare=False)
    point: Mapping[str, Any]
    read: Mapping[str, Any]
    structure: str
    name: str
    cost: Counts = field(compare=False)

    def __hash__(self) -> int:
        return hash((self.point, self.structure))

    def build(self) -> "nn.Module":
        """Return a new module, initialised from torch's global generator.

        Raises:
            UserError: the function returns no module, or one that it has returned before: every
                trial begins with weights of its own.
        """
        module = self.function(self.point)
        if not is_module(module):
            raise UserError(
                f"the sweep's model function returned {shown(module)}; it returns an nn.Module, or "
                "a model configuration (see models.base)"
            )
        note_as_new(module)
        return module  # type: ignore[no-any-return]

    def counts(self) -> Counts:
        """Return the costs of the module."""
        return self.cost

    def key_content(self) -> Mapping[str, Any]:
        """Return the content of this model for keys, without its code."""
        return {"function": self.function, "read": self.read, "structure": self.structure}


def model_name(model: Any) -> str:
    """Return the name of the class of a model, as messages give it."""
    return model.name if isinstance(model, FunctionModel) else type(model).__name__


def note_as_new(module: "nn.Module") -> None:
    """Refuse a module that a model function has returned before, with UserError."""
    if _BUILT.get(id(module)) is module:
        raise UserError(
            f"the sweep's model function returned the same {type(module).__name__} twice, whose "
            "weights two trials would share; let it build a new module at each call"
        )
    _BUILT[id(module)] = module


def is_module(value: Any) -> bool:
    """Whether a value is an ``nn.Module``; torch is not imported for it."""
    return any(
        kind.__module__ == "torch.nn.modules.module" and kind.__name__ == "Module"
        for kind in type(value).__mro__
    )


def check_function(function: Any) -> None:
    """Refuse a model function whose code cannot be found, with UserError."""
    while isinstance(function, partial):
        function = function.func
    if not isinstance(function, FunctionType | type):
        raise UserError(
            "the function that builds a module is a def, a lambda, a class or functools.partial "
            f"of one, so that its code is known; got {shown(function)}"
        )
