"""How long trials take, from those that have trained, so that the longest can be handed out first.

Operations alone mislead where a small model is bound by something else, and one's own training may
have none to tell.
"""

import math
from collections.abc import Hashable

from hsweep.design.trial import Trial


class Speeds:
    """Measured seconds for a budget unit, by shape."""

    def __init__(self) -> None:
        self._seconds: dict[Hashable, float] = {}
        self._all_seconds = 0.0
        self._all_operations = 0.0

    def note(self, trial: Trial, seconds: float, units: int) -> None:
        """Note what the ``units`` took that a trial has trained; of a shape the latest counts."""
        if not (units > 0 and seconds > 0):
            return
        shape, each = _shape(trial), seconds / units
        before = self._seconds.get(shape)
        self._seconds[shape] = each
        if trial.forward_flops:
            self._all_seconds += each - (before or 0.0)
            self._all_operations += trial.forward_flops if before is None else 0

    def expected(self, trial: Trial) -> float:
        """Return the seconds of a budget unit: those of its shape, or by its operations and what
        the others took for theirs; before any are known a number that only compares. Infinite where
        nothing says it: what may be long comes first."""
        known = self._seconds.get(_shape(trial))
        if known is not None:
            return known
        if not trial.forward_flops:
            return math.inf
        if not self._all_operations:
            return float(trial.forward_flops)
        return trial.forward_flops * self._all_seconds / self._all_operations


def _shape(trial: Trial) -> Hashable:
    """Return what trials have in common that take equally long: all but the seed and the recipe,
    of which the size of a batch counts."""
    parts = trial.parts
    shape = parts.get("model") or parts.get("point") or repr(sorted(trial.point.items()))
    return shape, parts.get("task"), trial.budget.unit, trial.recipe.batch_size
