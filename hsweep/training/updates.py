"""Updates of a trial's weights by the gradients that are there, and what a report says of them."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn

from hsweep.design.recipe import Recipe
from hsweep.training.learned import Learned
from hsweep.training.optimizers import set_rate, step_at


class Updates:
    """Updates of one trial."""

    def __init__(self, learned: Learned, recipe: Recipe) -> None:
        self._learned, self._recipe = learned, recipe
        self._parameters = list(learned.model.parameters())
        self._lr = 0.0
        self._norm: Tensor | None = None

    def apply(self, lr: float) -> None:
        """Update the weights at this learning rate, and their average."""
        learned, clip_norm = self._learned, self._recipe.clip_norm
        if learned.scaler is not None:
            learned.scaler.unscale_(learned.optimizer)
        if clip_norm is not None:
            self._norm = nn.utils.clip_grad_norm_(self._parameters, clip_norm)
        if learned.scaler is not None:
            set_rate(learned.optimizer, lr)
            learned.scaler.step(learned.optimizer)
            learned.scaler.update()
        else:
            step_at(learned.optimizer, lr)
        if learned.average is not None:
            learned.average.update(learned.model)
        self._lr = lr

    def gradient_norm(self) -> float:
        """Return the norm of the last update's gradient, before it was clipped."""
        return float(norm_of(self._parameters) if self._norm is None else self._norm)

    def figures(
        self, count: int, batch_size: int, started: float, clock: Callable[[], float]
    ) -> dict[str, Any]:
        """Return what a report says of the last of ``count`` updates, and of their speed.

        Args:
            count: since the last report; of none there is nothing to be said.
            batch_size: examples in the last batch, in all processes.
            started: when the first of them began, by the clock.
            clock: asked again once the device is done with them.
        """
        if not count:
            return {}
        norm = self.gradient_norm()  # waits for the device
        return figures_of(self._lr, norm, count * batch_size, clock() - started)


def figures_of(lr: float, grad_norm: float, examples: int, seconds: float) -> dict[str, Any]:
    """Return these figures under their names in a ``Report``; a norm that is not finite is None."""
    return {
        "learning_rate": lr,
        "grad_norm": grad_norm if math.isfinite(grad_norm) else None,
        "examples_per_second": examples / seconds if seconds > 0 else None,
    }


def norm_of(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Return the norm of all gradients together; a scalar."""
    return nn.utils.get_total_norm([each.grad for each in parameters if each.grad is not None])
