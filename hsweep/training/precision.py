"""The numbers that a recipe's losses, gradients and evaluations are computed in."""

import contextlib
from collections.abc import Iterator
from typing import Final

import torch

from hsweep.design.recipe import Recipe

Autocast = contextlib.AbstractContextManager[object, bool | None]
"""What losses and evaluations are computed under; it can be entered again and again."""

_NARROW: Final = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def autocast_of(recipe: Recipe, device: torch.device) -> Autocast:
    """Return what losses and evaluations of a recipe are computed under."""
    if recipe.precision in _NARROW:
        return torch.autocast(device.type, dtype=_NARROW[recipe.precision])
    # Autocast that is switched off takes its time all the same.
    return contextlib.nullcontext()


def scaler_of(recipe: Recipe, device: torch.device) -> torch.amp.GradScaler | None:
    """Return what keeps small gradients from vanishing in float16; None where they do not."""
    return torch.amp.GradScaler(device.type) if recipe.precision == "float16" else None


@contextlib.contextmanager
def products_in(recipe: Recipe) -> Iterator[None]:
    """Have float32 products on CUDA computed in TensorFloat-32 if the recipe says so.

    In float32 they are computed as torch is set up, which is in full; only convolutions of cuDNN
    are in TensorFloat-32 unless torch is told otherwise.
    """
    before = torch.get_float32_matmul_precision()
    if recipe.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        if recipe.precision == "tf32":
            torch.set_float32_matmul_precision(before)
