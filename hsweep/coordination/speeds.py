"""How long trials take, from those that have trained: the longest are handed out first, and what is
left takes so long.

Operations alone mislead where a small model is bound by something else, and one's own training may
have none to tell.
"""

import math
from collections.abc import Hashable
from statistics import fmean

from hsweep.design.trial import Trial
from hsweep.planning.calibration import fitted


class Speeds:
    """Measured seconds for a budget unit, by shape."""

    def __init__(self) -> None:
        self._seconds: dict[Hashable, float] = {}
        self._operations: dict[Hashable, int] = {}
        self._fit: tuple[float, float] | None = None
        self._all_seconds = 0.0
        self._all_operations = 0.0

    def note(self, trial: Trial, seconds: float, units: int) -> None:
        """Note what the ``units`` took that a trial has trained; of a shape the latest counts."""
        if not (units > 0 and seconds > 0):
            return
        shape, each = _shape(trial), seconds / units
        before = self._seconds.get(shape)
        self._seconds[shape], self._operations[shape] = each, trial.forward_flops
        self._fit = None
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

    @property
    def mean(self) -> float | None:
        """The seconds of a budget unit, over the shapes; None before any are known."""
        return fmean(self._seconds.values()) if self._seconds else None

    def seconds(self, trial: Trial) -> float | None:
        """Return the seconds of a budget unit: those of its shape, or what a line through those of
        the others says for its operations; None before any are known."""
        if (known := self._seconds.get(_shape(trial))) is not None:
            return known
        if not self._seconds:
            return None
        if self._fit is None:
            of = self._operations
            self._fit = fitted(
                [[float(max(1, of[shape])), each] for shape, each in self._seconds.items()]
            )
        constant, slope = self._fit
        return constant + slope * max(1, trial.forward_flops)


def _shape(trial: Trial) -> Hashable:
    """Return what trials have in common that take equally long: all but the seed and the recipe,
    of which the size of a batch counts."""
    parts = trial.parts
    shape = parts.get("model") or parts.get("point") or repr(sorted(trial.point.items()))
    return shape, parts.get("task"), trial.budget.unit, trial.recipe.batch_size
