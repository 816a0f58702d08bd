"""A moving average of the weights, which is what is evaluated."""

import copy

import torch
from torch import Tensor, nn

from hsweep.design.recipe import Recipe


class Average(nn.Module):
    """An exponential moving average of a model's weights, in a copy of it.

    It begins with the weights after the first update. Buffers are those of the model: an average
    of indices would be others, and running statistics are averages already. The numbers are those
    of ``torch.optim.swa_utils.AveragedModel``, which counts on the device, so that each update
    would wait for it.

    Args:
        model: as it is before the first update.
        decay: what stays of the average at an update, in (0, 1).

    Attributes:
        module: the copy.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.module = copy.deepcopy(model)
        self._decay = decay
        self._has_begun = False

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the average towards the model's weights."""
        average: list[Tensor] = [*self.module.parameters()]
        weights: list[Tensor] = [*model.parameters()]
        if self._has_begun:
            torch._foreach_lerp_(average, weights, 1 - self._decay)
        else:
            torch._foreach_copy_(average, weights)
            self._has_begun = True
        for own, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
            own.copy_(buffer)

    def get_extra_state(self) -> bool:
        """Return whether there was an update."""
        return self._has_begun

    def set_extra_state(self, state: bool) -> None:
        """Note whether there was an update."""
        self._has_begun = state


def average_of(model: nn.Module, recipe: Recipe) -> Average | None:
    """Return the average of a model's weights that the recipe asks for; None for none."""
    return None if recipe.ema is None else Average(model, recipe.ema)
