"""One update of the weights, without what is the same at every update.

``torch.nn.utils.clip_grad_norm_`` and ``Optimizer.step`` look at every parameter, its type, its
device and its state each time, which takes longer than a small model's update itself. Here that is
looked at once; then the same kernels are called with the same numbers, so the weights are the same
to the bit, and the optimizer's state lies where it always does.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hsweep.design.recipe import Recipe


class _Part(NamedTuple):
    """Parameters that one call of the fused kernel updates, and what it needs besides."""

    parameters: list[Tensor]
    first_moments: list[Tensor]
    second_moments: list[Tensor]
    steps: list[Tensor]
    settings: dict[str, Any]


class Update:
    """Applies the gradients that are there to the weights.

    Args:
        model: whose gradients are clipped, all together.
        optimizer: built for it by ``build_optimizer``; what it remembers is not replaced by others
            from here on.
        recipe: as it was built for.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe) -> None:
        self._optimizer = optimizer
        self._clip_norm = recipe.clip_norm
        self._parameters = list(model.parameters())
        # The order of kernels over parameters of several kinds is the library's affair.
        kinds = {(type(p), p.device, p.dtype) for p in self._parameters}
        self._is_plain = len(kinds) == 1 and next(iter(kinds))[0] is nn.Parameter
        self._is_fused = self._is_plain and recipe.optimizer == "adamw"
        self._parts: list[_Part] | None = None

    def clip(self) -> None:
        """Scale the gradients, all together, down to the recipe's norm if it has one."""
        if self._clip_norm is None:
            return
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if not (self._is_plain and gradients):
            nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
            return
        norms = torch._foreach_norm(gradients, 2.0)
        total = torch.linalg.vector_norm(torch.stack(norms), 2.0)
        torch._foreach_mul_(gradients, torch.clamp(self._clip_norm / (total + 1e-6), max=1.0))

    def step(self, lr: float) -> None:
        """Update the weights.

        Args:
            lr: learning rate.
        """
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        if not self._updated_at_once(lr):
            self._optimizer.step()
            if self._is_fused and self._parts is None:
                self._parts = self._divided()

    def _updated_at_once(self, lr: float) -> bool:
        """Update the weights if it is known how, and each of them has a gradient."""
        if self._parts is None:
            return False
        gradients = [[p.grad for p in part.parameters] for part in self._parts]
        if any(gradient is None for each in gradients for gradient in each):
            return False
        with torch.no_grad():
            for part, its_gradients in zip(self._parts, gradients, strict=True):
                torch._foreach_add_(part.steps, 1)
                torch._fused_adamw_(
                    part.parameters,
                    its_gradients,  # type: ignore[arg-type]
                    part.first_moments,
                    part.second_moments,
                    [],
                    part.steps,
                    lr=lr,
                    **part.settings,
                )
        return True

    def _divided(self) -> list[_Part] | None:
        """Return the parts of the update, None while the optimizer has no state of a parameter."""
        parts: list[_Part] = []
        for group in self._optimizer.param_groups:
            states = [self._optimizer.state.get(p, {}) for p in group["params"]]
            if not all("step" in state for state in states):
                return None
            part = _Part(
                list(group["params"]),
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [state["step"] for state in states],
                _settings(group),
            )
            # What differs in nothing but its name is one call.
            if parts and parts[-1].settings == part.settings:
                _extend(parts[-1], part)
            else:
                parts.append(part)
        return parts


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    beta1, beta2 = group["betas"]
    return {
        "beta1": beta1,
        "beta2": beta2,
        "weight_decay": group["weight_decay"],
        "eps": group["eps"],
        "amsgrad": False,
        "maximize": False,
        "grad_scale": None,
        "found_inf": None,
    }


def _extend(part: _Part, other: _Part) -> None:
    lists: Sequence[tuple[list[Tensor], list[Tensor]]] = (
        (part.parameters, other.parameters),
        (part.first_moments, other.first_moments),
        (part.second_moments, other.second_moments),
        (part.steps, other.steps),
    )
    for mine, theirs in lists:
        mine.extend(theirs)
