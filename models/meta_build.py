"""Building a model on the meta device: its shapes without its numbers."""

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from torch import nn

    from models.base import ModelConfig

_INITIALISERS: Final = frozenset(
    {"uniform_", "normal_", "erfinv_", "clamp_", "mul_", "add_", "fill_", "zero_"}
)


class _WithoutNumbers(TorchFunctionMode):
    """Leaves out what would set numbers that a meta tensor does not have.

    An initialisation on the meta device changes nothing, but is traced operation by operation,
    which takes seconds for a model of a hundred layers.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        is_filling = getattr(func, "__name__", "") in _INITIALISERS
        if is_filling and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))


def build_on_meta(config: "ModelConfig") -> "nn.Module":
    """Return the model of ``config`` with meta tensors for parameters, whatever its size."""
    with torch.device("meta"), _WithoutNumbers():
        return config.build()
