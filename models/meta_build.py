"""Building a model on the meta device: its shapes without its numbers."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from torch import nn

    from models.base import ModelConfig

_INITIALISERS: Final = frozenset(
    {
        *("uniform_", "normal_", "erfinv_", "clamp_", "mul_", "add_", "fill_", "zero_"),
        # Those of torch.nn.init that are asked as a whole; what they call then is not.
        *("constant_", "kaiming_normal_", "kaiming_uniform_"),
    }
)


class _WithoutNumbers(TorchFunctionMode):
    """Leaves out what would set numbers that a meta tensor does not have.

    An initialisation on the meta device changes nothing, but is traced operation by operation,
    which takes seconds for a model of a hundred layers.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") in _INITIALISERS:
            # Methods are given their tensor first, functions of torch.nn.init by name.
            tensor = args[0] if args else (kwargs or {}).get("tensor")
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def without_numbers() -> Iterator[None]:
    """Let models be built on the meta device, their weights never initialised."""
    with torch.device("meta"), _WithoutNumbers():
        yield


def build_on_meta(config: "ModelConfig") -> "nn.Module":
    """Return the model of ``config`` with meta tensors for parameters, whatever its size."""
    with without_numbers():
        return config.build()
