"""The recipe's optimizer, made and used without torch's compiler.

Making one of torch's optimizers imports ``torch._dynamo``: its methods are told at their first call
not to be compiled. That import takes nearly as long as torch's own, in every worker, and here no
optimizer is compiled. So the same methods are called without what surrounds them.
"""

import inspect

import torch
from torch import nn

from hsweep.design.recipe import Recipe


def build_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return the recipe's optimizer; vectors and scalars are exempt from weight decay."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.betas[0])
    return AdamW(groups, lr=recipe.lr, betas=recipe.betas, fused=True)


def step_at(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()


class AdamW(torch.optim.AdamW):
    """``torch.optim.AdamW``, the same to the bit; it takes no closure and calls no step hooks."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        _adam_step(self, closure)


_adam_step = inspect.unwrap(torch.optim.Adam.step)
