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


_RANDOM: Final = frozenset({"rand", "randn"})


class _WithoutNumbers(TorchFunctionMode):
    """Skips the operations that initialise a tensor, of meta tensors, which have no numbers.

    An initialisation on the meta device changes nothing, but is traced operation by operation,
    which takes seconds for a model of a hundred layers. Random numbers are asked for by way of
    torch's symbolic shapes, whose import takes a third of a second.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name, named = getattr(func, "__name__", ""), kwargs or {}
        if name in _INITIALISERS:
            # Methods are given their tensor first, functions of torch.nn.init by name.
            tensor = args[0] if args else named.get("tensor")
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        if name in _RANDOM and torch.device(named.get("device") or "meta").type == "meta":
            return torch.empty(*args, **{k: v for k, v in named.items() if k != "generator"})
        return func(*args, **named)


@contextlib.contextmanager
def without_numbers() -> Iterator[None]:
    """Let models be built on the meta device, their weights never initialised."""
    with torch.device("meta"), _WithoutNumbers():
        yield


def build_on_meta(config: "ModelConfig") -> "nn.Module":
    """Return the model of ``config`` with meta tensors for parameters, whatever its size."""
    with without_numbers():
        return config.build()
