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
from functools import cached_property
from typing import Final

import numpy as np
from scipy import special

from analysis.runs.grouped import Shape
from analysis.statistics.moderated import Moderated, moderate, satterthwaite
from analysis.statistics.values import FloatArray, IntArray, Interval, Mask

LOST: Final = ("", "no full-budget run", "stopped early", "fewer than two seeds in common")
"""Why a unit cannot be used; shapes have the first three as well."""
ROUNDING: Final = 1e-12


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

    def __getitem__(self, some: IntArray | Mask) -> "Units":
        return Units(self.plus[some], self.minus[some])


class Quality:
    """The quality of every shape by replicate.

    Attributes:
        lost: the number in `LOST` of why each shape cannot be compared; 0 where it can.
        size, mean: of each shape's runs.
        by_seed: shape [shapes, replicates that several shapes have]; NaN where there is no run.
        matched: whether replicates of one name are compared with each other; if not, runs count as
            independent.
    """

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.lost = np.array([2 if s.stopped else 0 if s.values.size else 1 for s in shapes])
        self.size = np.array([shape.quality.size for shape in shapes])
        self.mean = np.array([s.quality.mean() if s.quality.size else math.nan for s in shapes])
        shape_of_run = np.repeat(np.arange(len(shapes)), self.size)
        names = np.array([name for shape in shapes for name in shape.replicates], dtype=object)
        qualities = np.concatenate([np.empty(0), *(shape.quality for shape in shapes)])
        self.largest = float(np.abs(qualities).max(initial=0.0))
        seed_names, seed, counts = np.unique(names, return_inverse=True, return_counts=True)
        self.seeds = len(seed_names)
        # One that a single shape has tells nothing of a difference.
        is_shared = counts[seed] > 1
        column = np.cumsum(counts > 1) - 1
        self.by_seed = np.full((len(shapes), int((counts > 1).sum())), np.nan)
        self.by_seed[shape_of_run[is_shared], column[seed[is_shared]]] = qualities[is_shared]
        self.matched = True
        self._groups = [shape.quality for shape in shapes]

    @cached_property
    def moderated(self) -> Moderated:
        """Seed sd of every shape, for replicates that are not matched."""
        return moderate(self._groups)

    def matching(self, units: Units) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return of each unit how many replicates all its shapes have, their mean, and what each
        lies from it, shape [units, replicates]; 0 where it is missing."""
        differences = self.by_seed[units.plus].sum(axis=1) - self.by_seed[units.minus].sum(axis=1)
        known = ~np.isnan(differences)
        number = known.sum(axis=1)
        mean = np.where(known, differences, 0.0).sum(axis=1) / np.maximum(number, 1)
        return number, mean, np.where(known, differences - mean[:, None], 0.0)

    def loss_codes(self, units: Units) -> IntArray:
        """Return the number in `LOST` of why each unit cannot be used; 0 where it can."""
        shapes = np.concatenate([units.plus, units.minus], axis=1)
        lost: IntArray = self.lost[shapes].max(axis=1, initial=0)
        if self.matched:
            number, _, _ = self.matching(units)
            lost = np.where((lost == 0) & (number < 2), 3, lost)
        return lost

    def estimates(self, units: Units) -> FloatArray:
        if self.matched:
            return self.matching(units)[1]
        differences: FloatArray = self.mean[units.plus].sum(axis=1) - self.mean[units.minus].sum(
            axis=1
        )
        return differences

    def average(self, units: Units) -> Contrast:
        """Return the mean of ``units``, each counting once, none of them lost; NaN of none."""
        if not len(units):
            return Contrast(math.nan, math.nan, math.nan)
        return self._by_replicate(units) if self.matched else self._independent(units)

    def _by_replicate(self, units: Units) -> Contrast:
        """Return the mean with the variance of the replicates' contrasts.

        With every unit in every replicate it is exactly the one-sample t test over replicates, with
        gaps its cluster-robust form, each unit's residuals scaled by its own number of seeds n as
        1/sqrt(n (n - 1)) and the degrees of freedom their harmonic mean.
        """
        number, mean, residual = self.matching(units)
        share = (residual / np.sqrt(number * (number - 1))[:, None]).sum(axis=0) / len(units)
        se = float(np.sqrt((share**2).sum()))
        # Replicates that agree exactly, but for rounding, do not tell how far they scatter.
        if se <= ROUNDING * self.largest:
            se = math.nan
        return Contrast(float(mean.mean()), se, len(units) / float((1 / (number - 1)).sum()))

    def _independent(self, units: Units) -> Contrast:
        """Return the mean of independent shapes with moderated variances and Satterthwaite's
        degrees of freedom."""
        weight = np.bincount(units.plus.ravel(), minlength=len(self.size)).astype(float)
        weight -= np.bincount(units.minus.ravel(), minlength=len(self.size))
        weight /= len(units)
        # One in the middle of a line is added once and taken once.
        members = np.abs(weight) > ROUNDING
        estimate = float(weight[members] @ self.mean[members])
        if (self.size[members] < 2).any():
            return Contrast(estimate, math.nan, math.nan)
        sd, df = self.moderated.sd[members], self.moderated.df[members]
        parts = weight[members] ** 2 * sd**2 / self.size[members]
        below = satterthwaite(parts.tolist(), df.tolist()) if parts.any() else 1.0
        return Contrast(estimate, math.sqrt(parts.sum()), below)
