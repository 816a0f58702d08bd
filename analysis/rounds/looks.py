"""Looks at shapes whose seeds are added a few at a time: their runs, and how these scatter.

Each shape has its own seed variance (Welch). Few seeds measure it badly, so what chooses the shapes
that go on moderates it by that of all shapes, which counts for no more degrees of freedom than
shapes whose standard deviations differ by half leave it (Smyth 2004).
"""

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy import special

from analysis.statistics.moderated import FAR_IN_TESTS, agree, error_of_difference, outliers

_SPARE: Final = 2
"""Seeds that stand in where runs of a look fail."""
_PRIOR_DF: Final = 3.0
"""Degrees of freedom of the variance that all shapes have in common."""


class Run(NamedTuple):
    """One run: the index of its shape, and the number of its seed."""

    shape: int
    seed: int


class Sample(NamedTuple):
    """The runs of a shape: their mean, number, and variance with its degrees of freedom, moderated
    and of its ``own``, which is the moderated one where its runs tell none."""

    mean: float
    size: int
    variance: float
    df: float
    own: float

    def at(self, size: int) -> "Sample":
        """Return the sample with so many runs, if it stays as it is."""
        return self._replace(size=size, df=self.df + size - self.size)


class Looks(ABC):
    """Shapes that are looked at several times.

    Attributes:
        sizes: runs of each shape at each of its looks.
        looks: the look that the runs of each shape that has begun are asked for.
        values: of each shape, in the order of the seeds.
        asked: seeds that each shape has been given.
        samples: the usable runs of each shape that has some, at the last look.
        why: what the runs are to tell, in words; empty at the end.
    """

    def __init__(self, sizes: Mapping[int, Sequence[int]], why: str) -> None:
        self.sizes, self.why = sizes, why
        self.looks = dict.fromkeys(sizes, 0)
        self.values: defaultdict[int, list[float]] = defaultdict(list)
        self.asked: defaultdict[int, int] = defaultdict(int)
        self.samples: dict[int, Sample] = {}

    def take(self, run: Run, value: float | None) -> None:
        """Note the value of a run, None for one that has none."""
        self.asked[run.shape] += 1
        if value is not None:
            self.values[run.shape].append(value)

    def runs(self) -> list[Run]:
        """Return the runs to train next; none at the end."""
        while self.why:
            if asked := [run for shape in self.looks for run in self._missing(shape)]:
                return asked
            self._sample()
            self._look()
        return []

    def _missing(self, shape: int) -> list[Run]:
        sizes, asked = self.sizes[shape], self.asked[shape]
        wanted = sizes[self.looks[shape]]
        lacking = wanted - len(self.values[shape])
        last = min(asked + lacking, wanted + _SPARE, sizes[-1])
        return [Run(shape, seed) for seed in range(asked, last)]

    @abstractmethod
    def _look(self) -> None:
        """Judge the shapes by their samples, choose those that go on and say why."""

    def _sample(self) -> None:
        """Take the usable runs of each shape, with a variance that the others moderate."""
        shapes = [k for k in self.looks if self.values[k]]
        groups = [np.array(self.values[k]) for k in shapes]
        groups = [group[~outliers(group, FAR_IN_TESTS)] for group in groups]
        squares = [float(group.var()) * group.size for group in groups]
        total_df = sum(group.size - 1 for group in groups)
        usual = sum(squares) / max(1, total_df)
        self.samples = {}
        for k, group, own in zip(shapes, groups, squares, strict=True):
            prior = min(_PRIOR_DF, total_df - group.size + 1)
            df = prior + group.size - 1
            variance = (prior * usual + own) / df if df else math.nan
            measured = variance if agree(group) else own / (group.size - 1)
            self.samples[k] = Sample(float(group.mean()), group.size, variance, df, measured)

    def error(self, k: int, other: int, *, is_last: bool = False) -> tuple[float, float]:
        """Return the standard error of the difference of two shapes and its degrees of freedom
        (Satterthwaite), now or at their last look; NaN without a measured spread."""
        pair = [self.samples[shape] for shape in (k, other)]
        if is_last:
            pair = [self.samples[shape].at(self.sizes[shape][-1]) for shape in (k, other)]
        parts = [sample.variance / sample.size for sample in pair]
        return error_of_difference(parts, [sample.df for sample in pair])

    def chance(self, k: int, other: int, ahead: float, level: float) -> float:
        """Return the chance that a one-sided test at the last look, at ``level``, tells that the
        difference of two shapes lies beyond a bound, which it passes by ``ahead`` now."""
        se, df = self.error(k, other)
        if not se > 0:
            return 1.0
        last_se, last_df = self.error(k, other, is_last=True)
        needed = last_se * float(special.stdtrit(last_df, 1 - level))
        to_come = math.sqrt(max(se**2 - last_se**2, 1e-12 * se**2))
        return float(special.stdtr(df, (ahead - needed) / to_come))
