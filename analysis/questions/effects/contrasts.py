"""Averages of differences between shapes, tested by replicate.

A unit is a few shapes with signs: a pair that differs in one axis, or the four corners of a square.
Replicates with the same name share data and order, and what a seed does to one shape it often does
to the next (measured: one seed favours every shallow shape). So the replicate is what varies
independently, and each contributes one number: the contrast over all units. Its t test holds its
level whatever the variances and correlations of the shapes within a replicate; tests that pool the
residuals of single runs gave up to 27% false positives where the seed's effect grows along an axis.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from analysis.runs.grouped import Shape
from analysis.statistics.moderated import Moderated, moderate
from analysis.statistics.values import FloatArray, Interval, Mask

IntArray = NDArray[np.integer[Any]]
LOST: Final = ("", "no full-budget run", "stopped early", "fewer than two seeds in common")
"""Why a unit cannot be used; shapes have the first three as well."""
_NO_WEIGHT: Final = 1e-12
_AT_ONCE: Final = 10_000_000
"""Values of units times replicates that are looked at together, which bounds the memory."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """The average of several units; ``se`` and ``df`` are NaN where seeds cannot tell."""

    estimate: float
    se: float
    df: float

    @property
    def p(self) -> float | None:
        """Two-sided p value of "the average is zero"; None where replicates cannot tell."""
        if not math.isfinite(self.se) or self.se == 0:
            return None
        return float(2 * special.stdtr(self.df, -abs(self.estimate) / self.se))

    def interval(self, confidence: float) -> Interval:
        if not math.isfinite(self.se):
            return Interval(self.estimate, math.nan, math.nan)
        reach = self.se * float(special.stdtrit(self.df, (1 + confidence) / 2))
        return Interval(self.estimate, self.estimate - reach, self.estimate + reach)


@dataclass(frozen=True, slots=True)
class Units:
    """Signed sums of shapes, one a row: the quality of ``plus`` less that of ``minus``.

    Attributes:
        plus, minus: numbers of shapes, shape [units, shapes of that sign].
    """

    plus: IntArray
    minus: IntArray

    def __len__(self) -> int:
        return len(self.plus)

    def __getitem__(self, some: "slice | IntArray | Mask") -> "Units":
        return Units(self.plus[some], self.minus[some])

    @property
    def shapes(self) -> IntArray:
        return np.concatenate([self.plus, self.minus], axis=1)


class Quality:
    """The quality of every shape by replicate.

    Attributes:
        lost: the number in `LOST` of why each shape cannot be compared; 0 where it can.
        size, mean: of each shape's runs.
        by_seed: shape [shapes, replicates that several shapes have]; NaN where there is no run.
    """

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.lost = np.array([2 if s.stopped else 0 if s.values.size else 1 for s in shapes])
        self.size = np.array([shape.quality.size for shape in shapes])
        self.mean = np.array([s.quality.mean() if s.quality.size else math.nan for s in shapes])
        self.seeds = len({name for shape in shapes for name in shape.replicates})
        own = np.repeat(np.arange(len(shapes)), self.size)
        names = np.array([name for shape in shapes for name in shape.replicates], dtype=object)
        every = np.concatenate([np.empty(0), *(shape.quality for shape in shapes)])
        self.largest = float(np.abs(every).max(initial=0.0))
        _, seed, counts = np.unique(names, return_inverse=True, return_counts=True)
        # One that a single shape has tells nothing of a difference.
        is_shared = counts[seed] > 1
        column = np.cumsum(counts > 1) - 1
        self.by_seed = np.full((len(shapes), int((counts > 1).sum())), np.nan)
        self.by_seed[own[is_shared], column[seed[is_shared]]] = every[is_shared]
        self._groups = [shape.quality for shape in shapes]
        self._moderated: Moderated | None = None

    @property
    def moderated(self) -> Moderated:
        """Seed sd of every shape, for replicates that cannot be matched."""
        if self._moderated is None:
            self._moderated = moderate(self._groups)
        return self._moderated

    def differences(self, units: Units) -> FloatArray:
        """Return the units replicate by replicate, NaN where not all shapes have it."""
        found: FloatArray = self.by_seed[units.plus].sum(axis=1)
        if units.minus.shape[1]:
            found = found - self.by_seed[units.minus].sum(axis=1)
        return found

    def moments(self, units: Units) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return of each unit how many replicates all its shapes have, their mean, and the sum of
        squares about it."""
        step = max(1, _AT_ONCE // max(1, self.by_seed.shape[1]))
        parts = []
        for first in range(0, len(units), step):
            found = self.differences(units[first : first + step])
            known = ~np.isnan(found)
            number = known.sum(axis=1)
            mean = np.where(known, found, 0.0).sum(axis=1) / np.maximum(number, 1)
            about = np.where(known, found - mean[:, None], 0.0)
            parts.append((number, mean, (about**2).sum(axis=1)))
        if not parts:
            return np.empty(0, np.int64), np.empty(0), np.empty(0)
        number, mean, squares = (np.concatenate(each) for each in zip(*parts, strict=True))
        return number, mean, squares

    def lost_of(self, units: Units, *, matched: bool) -> IntArray:
        """Return the number in `LOST` of why each unit cannot be used; 0 where it can."""
        found: IntArray = self.lost[units.shapes].max(axis=1, initial=0)
        if matched:
            number, _, _ = self.moments(units)
            found = np.where((found == 0) & (number < 2), 3, found)
        return found

    def estimates(self, units: Units, *, matched: bool) -> FloatArray:
        if matched:
            return self.moments(units)[1]
        found: FloatArray = self.mean[units.plus].sum(axis=1) - self.mean[units.minus].sum(axis=1)
        return found

    def average(self, units: Units, *, matched: bool) -> Contrast:
        """Return the mean of ``units``, each counting once, none of them lost; NaN of none.

        Matched, the variance is that of the replicates' contrasts: with every unit in every
        replicate exactly the one-sample t test over replicates, with gaps its cluster-robust form,
        each unit's residuals scaled by its own number of seeds n as 1/sqrt(n (n - 1)) and the
        degrees of freedom their harmonic mean. Unmatched, shapes are independent with moderated
        variances and Satterthwaite's degrees of freedom.
        """
        if not len(units):
            return Contrast(math.nan, math.nan, math.nan)
        if not matched:
            return self._independent(units)
        found = self.differences(units)
        known = ~np.isnan(found)
        number = known.sum(axis=1)
        mean = np.where(known, found, 0.0).sum(axis=1) / number
        share = np.where(known, found - mean[:, None], 0.0)
        share /= np.sqrt(number * (number - 1))[:, None]
        se = float(np.sqrt(((share.sum(axis=0) / len(units)) ** 2).sum()))
        # Replicates that agree exactly, but for rounding, do not tell how far they scatter.
        if se <= _NO_WEIGHT * self.largest:
            se = math.nan
        return Contrast(float(mean.mean()), se, len(units) / float((1 / (number - 1)).sum()))

    def _independent(self, units: Units) -> Contrast:
        estimate = float(self.estimates(units, matched=False).mean())
        weight = np.bincount(units.plus.ravel(), minlength=len(self.size)).astype(float)
        weight -= np.bincount(units.minus.ravel(), minlength=len(self.size))
        weight /= len(units)
        # One in the middle of a line is added once and taken once.
        used = np.abs(weight) > _NO_WEIGHT
        if (self.size[used] < 2).any():
            return Contrast(estimate, math.nan, math.nan)
        sd, df = self.moderated.sd[used], self.moderated.df[used]
        parts = weight[used] ** 2 * sd**2 / self.size[used]
        variance, below = float(parts.sum()), float((parts**2 / df).sum())
        return Contrast(estimate, math.sqrt(variance), variance**2 / below if below else 1.0)
