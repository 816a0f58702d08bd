"""A moving average of the weights, which is what is evaluated."""

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from hsweep.design.recipe import Recipe


def average_of(model: nn.Module, recipe: Recipe) -> AveragedModel | None:
    """Return the average of a model's weights that the recipe asks for; None for none.

    It begins with the weights after the first update. Buffers are those of the model: an average
    of indices would be others, and running statistics are averages already.
    """
    if recipe.ema is None:
        return None
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.ema))  # type: ignore[no-untyped-call]
