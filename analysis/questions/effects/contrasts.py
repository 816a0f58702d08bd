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
from itertools import groupby, pairwise

import numpy as np
from scipy import special

from analysis.runs.configurations import describe
from analysis.runs.shape_runs import Shape, ShapeRuns
from analysis.statistics.moderated import Moderated, moderate
from analysis.statistics.values import FloatArray, Interval
from analysis.values import Number, number

Step = tuple[Number, Number]

_NO_WEIGHT = 1e-12
NO_SHARED_SEED = "fewer than two seeds in common"


@dataclass(frozen=True, slots=True)
class Unit:
    """A signed sum of shapes: the quality of ``plus`` less that of ``minus``."""

    plus: tuple[Shape, ...]
    minus: tuple[Shape, ...]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return (*self.plus, *self.minus)

    def lost(self, matched: bool) -> str:
        """Return why the unit cannot be used, empty if it can."""
        reasons = sorted({shape.lost for shape in self.shapes} - {""}, reverse=True)
        if reasons:
            return reasons[0]
        return NO_SHARED_SEED if matched and len(self.seeds()) < 2 else ""

    def seeds(self) -> list[str]:
        common = set.intersection(*(set(shape.quality) for shape in self.shapes))
        return sorted(common)

    def differences(self) -> dict[str, float]:
        return {
            seed: sum(shape.quality[seed] for shape in self.plus)
            - sum(shape.quality[seed] for shape in self.minus)
            for seed in self.seeds()
        }

    def estimate(self, matched: bool) -> float:
        if matched:
            return float(np.mean(list(self.differences().values())))
        return sum(shape.mean for shape in self.plus) - sum(shape.mean for shape in self.minus)


@dataclass(frozen=True, slots=True)
class Contrast:
    """The average of several units; ``se``, ``df`` and ``p`` are NaN where seeds cannot tell."""

    estimate: float
    se: float
    df: float

    @property
    def p(self) -> float | None:
        """Two-sided p value of "the average is zero"."""
        return p_values([self])[0]

    def interval(self, confidence: float) -> Interval:
        if not math.isfinite(self.se):
            return Interval(self.estimate, math.nan, math.nan)
        reach = self.se * float(special.stdtrit(self.df, (1 + confidence) / 2))
        return Interval(self.estimate, self.estimate - reach, self.estimate + reach)


def p_values(contrasts: Sequence[Contrast]) -> list[float | None]:
    """Return the p value of each contrast; None where replicates cannot tell or do not differ."""
    known = [at for at, each in enumerate(contrasts) if math.isfinite(each.se) and each.se != 0]
    found: list[float | None] = [None] * len(contrasts)
    scores = np.array([abs(contrasts[at].estimate) / contrasts[at].se for at in known])
    df = np.array([contrasts[at].df for at in known])
    for at, p in zip(known, np.asarray(2 * special.stdtr(df, -scores)), strict=True):
        found[at] = float(p)
    return found


def are_matched(units: Sequence[Unit]) -> bool:
    """Whether the replicates of these units can be matched: any unit has two in common."""
    return any(not unit.lost(matched=True) for unit in units)


def average(units: Sequence[Unit], matched: bool, spread: "Spread") -> Contrast:
    """Return the mean of ``units``, each counting once, none of them lost; NaN of none.

    Matched, the variance is that of the replicates' contrasts: with every unit in every replicate
    exactly the one-sample t test over replicates, with gaps its cluster-robust form, each unit's
    residuals scaled by its own number of seeds n as 1/sqrt(n (n - 1)) and the degrees of freedom
    their harmonic mean. Unmatched, shapes are independent with moderated variances and
    Satterthwaite's degrees of freedom.
    """
    if not units:
        return Contrast(math.nan, math.nan, math.nan)
    estimate = float(np.mean([unit.estimate(matched) for unit in units]))
    if not matched:
        return spread.contrast(units, estimate)
    scores: dict[str, float] = {}
    sizes = []
    for unit in units:
        found = unit.differences()
        mean, n = float(np.mean(list(found.values()))), len(found)
        sizes.append(n - 1)
        for seed, value in found.items():
            share = (value - mean) / math.sqrt(n * (n - 1))
            scores[seed] = scores.get(seed, 0.0) + share / len(units)
    se = math.sqrt(sum(score**2 for score in scores.values()))
    # Replicates that agree exactly, but for rounding, do not tell how far they scatter.
    shapes = [shape for unit in units for shape in unit.shapes]
    if se <= _NO_WEIGHT * max(abs(value) for shape in shapes for value in shape.quality.values()):
        se = math.nan
    return Contrast(estimate, se, len(sizes) / sum(1 / size for size in sizes))


class Spread:
    """Moderated seed sd of every usable shape, for replicates that cannot be matched."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._index = {id(shape): at for at, shape in enumerate(shapes)}
        self._sizes = [len(shape.quality) for shape in shapes]
        groups: list[FloatArray] = [
            np.array(list(shape.quality.values()), dtype=np.float64) for shape in shapes
        ]
        self.moderated: Moderated = moderate(groups)

    def contrast(self, units: Sequence[Unit], estimate: float) -> Contrast:
        """Return the average with its standard error from the shapes' own variances."""
        weights: dict[int, float] = {}
        for unit in units:
            for shapes, sign in ((unit.plus, 1.0), (unit.minus, -1.0)):
                for shape in shapes:
                    at = self._index[id(shape)]
                    weights[at] = weights.get(at, 0.0) + sign / len(units)
        parts, spread = [], []
        for at, weight in weights.items():
            if abs(weight) < _NO_WEIGHT:  # in the middle of a line: added once, taken once
                continue
            if self._sizes[at] < 2:
                return Contrast(estimate, math.nan, math.nan)
            parts.append(weight**2 * float(self.moderated.sd[at]) ** 2 / self._sizes[at])
            spread.append(float(self.moderated.df[at]))
        variance = sum(parts)
        below = sum(part**2 / df for part, df in zip(parts, spread, strict=True))
        return Contrast(estimate, math.sqrt(variance), variance**2 / below if below else 1.0)


def pairs(runs: ShapeRuns, axis: str) -> dict[Step, list[tuple[str, Unit]]]:
    """Return the steps of ``axis`` with their pairs, each with the values held in words.

    A pair are neighbours on a line of tried shapes along which only ``axis`` changes; where a shape
    of the line cannot be compared its pairs are there too, so that they can be counted as lost.
    """
    others = [name for name in (*runs.axes, *runs.names) if name != axis]
    found: dict[Step, list[tuple[str, Unit]]] = {}
    for line in lines(runs.shapes, others):
        line.sort(key=lambda shape: float(shape.config[axis]))
        for low, high in pairwise(line):
            step = (number(float(low.config[axis])), number(float(high.config[axis])))
            held = describe({name: low.config[name] for name in others})
            found.setdefault(step, []).append((held, Unit((high,), (low,))))
    return dict(sorted(found.items()))


def squares(runs: ShapeRuns, first: str, second: str) -> dict[tuple[Step, Step], list[Unit]]:
    """Return the 2 x 2 squares of neighbouring values of two axes, all other axes held."""
    others = [name for name in (*runs.axes, *runs.names) if name not in (first, second)]
    found: dict[tuple[Step, Step], list[Unit]] = {}
    for plane in lines(runs.shapes, others):
        at = {(s.config[first], s.config[second]): s for s in plane}
        rows = sorted({float(s.config[first]) for s in plane})
        columns = sorted({float(s.config[second]) for s in plane})
        for a, b in pairwise(rows):
            for c, d in pairwise(columns):
                corners = [at.get(key) for key in ((b, d), (a, c), (b, c), (a, d))]
                if None not in corners:
                    up, down, left, right = (shape for shape in corners if shape is not None)
                    step = ((number(a), number(b)), (number(c), number(d)))
                    found.setdefault(step, []).append(Unit((up, down), (left, right)))
    return dict(sorted(found.items()))


def lines(shapes: Sequence[Shape], held: Sequence[str]) -> list[list[Shape]]:
    """Return the shapes in groups that agree in every axis of ``held``."""

    def key(shape: Shape) -> tuple[str, ...]:
        return tuple(repr(shape.config[name]) for name in held)

    return [list(group) for _, group in groupby(sorted(shapes, key=key), key)]
