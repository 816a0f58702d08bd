"""An optimizer tried out before any trial has it: a few updates, interrupted and not."""

import copy
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor, nn

from hsweep.design.recipe import Recipe
from hsweep.errors import UserError, format_error
from hsweep.training.checkpoints import from_packed, packed
from hsweep.training.optimizers import build_optimizer, check_arguments, step_at

_UPDATES: Final = 3
"""Before and after the interruption."""


def check_optimizer(recipe: Recipe) -> None:
    """Refuse a recipe's optimizer if it does not exist, does not take its arguments, cannot update
    the weights of usual layers by their gradients alone, or does not go on from a checkpoint as if
    it had never stopped.

    Raises:
        UserError: with what is wrong.
    """
    check_arguments(recipe)
    recipe = replace(recipe, layer_decay=None)
    with torch.random.fork_rng(devices=[]):
        try:
            is_exact = _goes_on_exactly(recipe)
        except UserError:
            raise
        except Exception as error:
            arguments = f" with {dict(recipe.optimizer_args)}" if recipe.optimizer_args else ""
            raise UserError(
                f"the optimizer {recipe.optimizer!r}{arguments} cannot be used: "
                f"{format_error(error)}"
            ) from error
    if not is_exact:
        raise UserError(
            f"the optimizer {recipe.optimizer!r} does not go on from a checkpoint as if it had not "
            "stopped, so a trial would depend on where it was interrupted; choose another"
        )


def _goes_on_exactly(recipe: Recipe) -> bool:
    torch.manual_seed(0)
    model = _Usual()
    optimizer = build_optimizer(model, recipe)
    if hasattr(optimizer, "eval"):
        raise UserError(
            f"the optimizer {recipe.optimizer!r} evaluates other weights than it trains, which is "
            "not done here; choose another (ema= averages weights)"
        )
    for number in range(_UPDATES):
        _update(model, optimizer, number)
    resumed = copy.deepcopy(model)
    other = build_optimizer(resumed, recipe)
    other.load_state_dict(from_packed(packed(optimizer.state_dict())))
    for number in range(_UPDATES, 2 * _UPDATES):
        _update(model, optimizer, number)
    torch.manual_seed(1)
    for number in range(_UPDATES, 2 * _UPDATES):
        _update(resumed, other, number)
    pairs = zip(model.parameters(), resumed.parameters(), strict=True)
    return all(torch.equal(one, another) for one, another in pairs)


def _update(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    optimizer.zero_grad()
    model(torch.Generator().manual_seed(number)).backward()
    step_at(optimizer, 0.01 / (1 + number))


class _Usual(nn.Module):
    """A table, a convolution, a linear map and a norm: weights of one to four dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.convolution = nn.Conv2d(2, 4, 2)
        self.linear = nn.Linear(4, 3)
        self.norm = nn.LayerNorm(3)

    def forward(self, random: torch.Generator) -> Tensor:
        ids = torch.randint(5, (6,), generator=random)
        images = torch.randn(6, 2, 2, 2, generator=random)
        output = self.norm(self.linear(self.table(ids) + self.convolution(images).flatten(1)))
        return (output - torch.randn(6, 3, generator=random)).square().mean()  # type: ignore[no-any-return]
