"""Measured training times, by which the longest trials start first and the time left is estimated.

The number of operations alone misleads where memory or overhead bounds a small model, and it is
unknown for a user's own training.
"""

import math
from collections.abc import Hashable
from statistics import fmean

from hsweep.design.trial import Trial
from hsweep.planning.calibration import fitted


class Speeds:
    """Measured seconds for a budget unit, by shape."""

    def __init__(self) -> None:
        self._measured: dict[Hashable, tuple[int, float]] = {}
        self._per_operation: float | None = None
        self._line: tuple[float, float] | None = None

    def note(self, trial: Trial, seconds: float, units: int) -> None:
        """Note the ``seconds`` in which a trial has trained ``units``; the latest time of a shape
        counts."""
        if units > 0 and seconds > 0:
            self._measured[_shape(trial)] = trial.forward_flops, seconds / units
            self._per_operation = self._line = None

    def expected(self, trial: Trial) -> float:
        """Return the seconds of a budget unit, for comparisons: as measured for the trial's shape,
        else in proportion to its operations (without any measurement, the operations themselves).
        Infinite for unknown operations: a trial that may be long comes first."""
        measurement = self._measured.get(_shape(trial))
        if measurement is not None:
            return measurement[1]
        if not trial.forward_flops:
            return math.inf
        if self._per_operation is None:
            pairs = [pair for pair in self._measured.values() if pair[0]]
            seconds = sum(seconds for _, seconds in pairs)
            self._per_operation = seconds / sum(number for number, _ in pairs) if pairs else 1.0
        return trial.forward_flops * self._per_operation

    @property
    def mean(self) -> float | None:
        """The mean seconds of a budget unit over all shapes; None before any measurement."""
        return fmean(seconds for _, seconds in self._measured.values()) if self._measured else None

    def seconds(self, trial: Trial) -> float | None:
        """Return the seconds of a budget unit: as measured for the trial's shape, else from a line
        fitted to the times of other shapes over their operations; None before any measurement."""
        measurement = self._measured.get(_shape(trial))
        if measurement is not None:
            return measurement[1]
        if not self._measured:
            return None
        if self._line is None:
            self._line = fitted(
                [[float(max(1, n)), seconds] for n, seconds in self._measured.values()]
            )
        constant, slope = self._line
        return constant + slope * max(1, trial.forward_flops)


def _shape(trial: Trial) -> Hashable:
    """Return the parts of a trial that determine its speed: model, task and batch size."""
    parts = trial.parts
    shape = parts.get("model") or parts.get("point") or repr(sorted(trial.point.items()))
    return shape, parts.get("task"), trial.budget.unit, trial.recipe.batch_size
