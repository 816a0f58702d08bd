"""Images and the weights of convolutions with their channels last in memory."""

from typing import Any

import torch
from torch import Tensor, nn

from hsweep.training.batches import mapped


def with_channels_last(model: nn.Module) -> nn.Module:
    """Lay a model's convolutions out with channels last, and whatever images it is given."""
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.register_forward_pre_hook(_laid_out, with_kwargs=True)
    return model


def has_images(model: nn.Module) -> bool:
    """Whether a model has convolutions over two dimensions, which are what gains by it."""
    return any(isinstance(part, nn.Conv2d | nn.ConvTranspose2d) for part in model.modules())


def _laid_out(_model: nn.Module, args: Any, kwargs: Any) -> Any:
    def change(leaf: Any) -> Any:
        is_image = isinstance(leaf, Tensor) and leaf.ndim == 4 and leaf.is_floating_point()
        return leaf.contiguous(memory_format=torch.channels_last) if is_image else leaf

    return mapped((args, kwargs), change)
