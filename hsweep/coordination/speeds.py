"""How long trials take, measured on those that have trained: the longest are handed out first, and
the time left is estimated from it.

The number of operations alone misleads where memory or overhead bounds a small model, and is not
known of a user's own training.
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
        """Note that a trial has trained ``units`` in so many seconds; of a shape the latest time
        counts."""
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
        """Return the seconds of a budget unit, for comparisons: as measured for the trial's shape,
        else in proportion to its operations (without any measurement, the operations themselves).
        Infinite for unknown operations: a trial that may be long comes first."""
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
        """Return the seconds of a budget unit: as measured for the trial's shape, else from a line
        fitted to the times of other shapes over their operations; None before any measurement."""
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
    """Return a key that trials share which take equally long: model, task and batch size."""
    parts = trial.parts
    shape = parts.get("model") or parts.get("point") or repr(sorted(trial.point.items()))
    return shape, parts.get("task"), trial.budget.unit, trial.recipe.batch_size
