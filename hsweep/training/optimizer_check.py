"""An optimizer tried out before any trial has it: a few updates, interrupted and not."""

import copy
from dataclasses import replace

import torch
from torch import nn

from hsweep.design.recipe import Recipe
from hsweep.errors import UserError, format_error
from hsweep.training.checkpoints import from_packed, packed
from hsweep.training.optimizers import build_optimizer, check_arguments, step_at


def check_optimizer(recipe: Recipe) -> None:
    """Refuse an optimizer that does not exist or take its arguments, that cannot update usual
    weights by their gradients alone, or that does not go on from a checkpoint as if it had never
    stopped: it is tried out on a small model.

    Raises:
        UserError: says why the optimizer is refused.
    """
    check_arguments(recipe)
    name = recipe.optimizer
    recipe = replace(recipe, layer_decay=None)
    with torch.random.fork_rng(devices=[]):
        # Weights of one to four dimensions.
        layers = nn.Conv2d(2, 4, 2), nn.Flatten(), nn.Linear(4, 3), nn.LayerNorm(3)
        model = nn.Sequential(*layers)
        try:
            optimizer = build_optimizer(model, recipe)
            if hasattr(optimizer, "eval"):
                raise UserError(
                    f"the optimizer {name!r} evaluates other weights than it trains, which is not "
                    "done here; choose another (ema= averages weights)"
                )
            _update_some(model, optimizer, seed=0)
            resumed = copy.deepcopy(model)
            other = build_optimizer(resumed, recipe)
            other.load_state_dict(from_packed(packed(optimizer.state_dict())))
            _update_some(model, optimizer, seed=1)
            _update_some(resumed, other, seed=2)
        except UserError:
            raise
        except Exception as error:
            arguments = f" with {dict(recipe.optimizer_args)}" if recipe.optimizer_args else ""
            raise UserError(
                f"the optimizer {name!r}{arguments} cannot be used: {format_error(error)}"
            ) from error
    pairs = zip(model.parameters(), resumed.parameters(), strict=True)
    if not all(torch.equal(first, another) for first, another in pairs):
        raise UserError(
            f"the optimizer {name!r} does not go on from a checkpoint as if it had not stopped, so "
            "a trial would depend on where it was interrupted; choose another"
        )


def _update_some(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    """Update the model three times on examples that are always the same.

    Args:
        seed: of the random numbers that the optimizer may draw.
    """
    torch.manual_seed(seed)
    for number in range(3):
        generator = torch.Generator().manual_seed(number)
        images, targets = (torch.randn(6, *n, generator=generator) for n in ((2, 2, 2), (3,)))
        optimizer.zero_grad()
        (model(images) - targets).square().mean().backward()
        step_at(optimizer, 0.01 / (1 + number))
