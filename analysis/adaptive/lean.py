"""Which is the leanest shape that is no worse than the baseline? A race for it.

Every cheaper shape has one run at first, then those that may still win have 3, 5 and 8, and the
baseline, with which all are compared, has more. After each of these looks

- a shape is **established** by a one-sided test of "worse by the margin or more", at its look's
  share of alpha (`_ESTABLISH`; Bonferroni over the looks) and by Holm over all cheaper shapes,
  raced or not (Maurer and Bretz 2013 for group-sequential tests). Dearer shapes then leave;
- a shape **leaves** once it is unlikely to be established by its last look, given its runs so far.
  Leaving spends no alpha: it costs power alone;
- the cheapest go on: so many that one of them is likely to be established, and the others wait.

Where none is left that could be established, those that have left go on if all of them may be shown
to be worse by more than the margin, again by Holm and with alpha divided over the looks.

Each shape has its own seed variance (Welch). Few seeds measure it badly, so it is moderated by that
of all shapes, which counts for no more degrees of freedom than shapes whose standard deviations
differ by half leave it (Smyth 2004).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

import numpy as np
from scipy import special

from analysis.adaptive.rounds import Design, Round
from analysis.statistics.moderated import screen_crashes
from hsweep.design.question import ALPHA
from hsweep.design.search import BASELINE_MORE, RACE_SEEDS

Outcome = Literal["established", "excluded", "undecided", "left early", "not raced", "failed"]

SEEDS: Final = (1, 3, 5, RACE_SEEDS)
"""Runs of a shape at each look."""
BASELINE_SEEDS: Final = (3, 5, 8, RACE_SEEDS + BASELINE_MORE)
"""Those of the baseline."""
_SPARE: Final = 2
"""Seeds that stand in where runs of a look fail."""
_ESTABLISH: Final = (0.0, 0.1, 0.3, 0.6)
"""Share of alpha that each look has to establish a shape."""
_EXCLUDE: Final = (0.1, 0.3, 0.3, 0.3)
"""Share of alpha that each look has to exclude one."""
_PRIOR_DF: Final = 4.0
"""Degrees of freedom of the variance that all shapes have in common."""
_HOPELESS: Final = (0.01, 0.05, 0.05, 0.05)
"""A shape leaves where its chance to be established is below this."""
_LEADING: Final = 0.9
"""Shapes wait where one of the cheaper ones is established with this chance."""
_CRASH_SD: Final = 6.0


class Run(NamedTuple):
    """One run: the index of its shape, and the number of its seed."""

    shape: int
    seed: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The shapes that are compared with a baseline.

    Attributes:
        baseline: its index.
        cheaper: indices of the shapes that cost less, the cheapest first.
    """

    baseline: int
    cheaper: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """What the race has shown of a shape.

    Attributes:
        seeds: its runs that count.
        diff: how much better it is than the baseline, with its standard error and degrees of
            freedom; NaN without a measured spread.
        p: one-sided p value of "worse by the margin or more", and ``p_worse`` of "worse by no
            more", both after Holm and for all looks; 1 where they were not tested.
        outcome: ``established`` and ``excluded`` are tested; ``left early`` was unlikely to be
            established, ``not raced`` had cheaper ones before it, ``failed`` has too few values,
            ``undecided`` has had all its runs.
    """

    shape: int
    seeds: int = 0
    diff: float = math.nan
    se: float = math.nan
    df: float = math.nan
    p: float = 1.0
    p_worse: float = 1.0
    outcome: Outcome = "not raced"


@dataclass(frozen=True, slots=True)
class Raced:
    """The end of a race: where each of the cheaper shapes stands, the cheapest first."""

    standings: tuple[Standing, ...]


def race(
    comparisons: Sequence[Comparison], margin: float, alpha: float = ALPHA
) -> Design[Run, tuple[Raced, ...]]:
    """Ask for the runs that find the leanest shape of each comparison; return how these ended.

    The values of the runs are of a metric of which more is better. Comparisons are raced side by
    side, each at its part of ``alpha``.

    Args:
        margin: how much worse still counts as equal.
    """
    races = [_Race(each, margin, alpha / len(comparisons)) for each in comparisons]
    while asked := [run for each in races for run in each.runs()]:
        why = "; ".join(dict.fromkeys(each.why for each in races if each.why))
        got = yield Round("race", tuple(asked), why)
        for run in asked:
            next(each for each in races if run.shape in each.looks).take(run, got[run])
    return tuple(each.raced for each in races)


@dataclass
class _Race:
    """One comparison.

    Attributes:
        looks: the look that each shape has come to, or that its runs are asked for.
        tested: looks that were taken, of each shape.
        values: of each shape, in the order of the seeds.
        asked: seeds that each shape has been given.
        why: what the runs that were asked for last are to tell, in words; empty for none.
    """

    comparison: Comparison
    margin: float
    alpha: float
    looks: dict[int, int] = field(init=False)
    tested: dict[int, int] = field(default_factory=dict)
    values: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    asked: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    standings: dict[int, Standing] = field(init=False)
    why: str = ""

    def __post_init__(self) -> None:
        cheaper = self.comparison.cheaper
        self.standings = {shape: Standing(shape) for shape in cheaper}
        self.looks = dict.fromkeys((self.comparison.baseline, *cheaper), 0)
        self._chances: dict[int, tuple[float, float]] = {}
        self.is_over = not cheaper
        self._asks_first = "one run of every cheaper shape, three of the baseline"

    @property
    def raced(self) -> Raced:
        return Raced(tuple(self.standings.values()))

    def take(self, run: Run, value: float | None) -> None:
        """Note the value of a run, None for one that has none."""
        self.asked[run.shape] += 1
        if value is not None:
            self.values[run.shape].append(value)

    def runs(self) -> list[Run]:
        """Return the runs to train next; none at the end."""
        while not self.is_over:
            if asked := [run for shape in self.looks for run in self._missing(shape)]:
                self.why = self.why or self._asks_first
                return asked
            self.why = ""
            self._look()
        return []

    def _missing(self, shape: int) -> list[Run]:
        looks = BASELINE_SEEDS if shape == self.comparison.baseline else SEEDS
        wanted, asked = looks[self.looks[shape]], self.asked[shape]
        lacking = wanted - len(self.values[shape])
        last = min(asked + lacking, wanted + _SPARE, looks[-1])
        return [Run(shape, seed) for seed in range(asked, last)]

    def _look(self) -> None:
        """Test the shapes that have come to a further look, and choose those that go on."""
        base = self.comparison.baseline
        new = [k for k in self.standings if self.tested.get(k) != self.looks[k]]
        for k in new:
            self.tested[k] = self.looks[k]
        spread = self._spread()
        if base not in spread or spread[base].size < 2:
            self.is_over = True
            self.standings = {k: Standing(k, outcome="failed") for k in self.standings}
            return
        for k in new:
            self.standings[k] = self._standing(k, spread)
        self._judge()
        going_on = self._next(spread)
        if not going_on:
            self.is_over = True
            return
        for k in going_on:
            self.looks[k] += 1
        self.looks[base] = max(self.looks[base], *(self.looks[k] for k in going_on))

    def _spread(self) -> dict[int, "_Sample"]:
        """Return the usable runs of each shape, with a variance that the others moderate."""
        shapes = [k for k in self.looks if self.values[k]]
        groups = [np.array(self.values[k]) for k in shapes]
        crashed = screen_crashes(groups, _CRASH_SD)
        groups = [group[~bad] for group, bad in zip(groups, crashed, strict=True)]
        own = [(group.size - 1, float(group.var()) * group.size) for group in groups]
        total_df, total = sum(df for df, _ in own), sum(squares for _, squares in own)
        usual = total / total_df if total_df else math.nan
        samples = {}
        for k, group, (df, squares) in zip(shapes, groups, own, strict=True):
            prior = min(_PRIOR_DF, total_df - df)
            variance = (prior * usual + squares) / (prior + df) if prior + df else math.nan
            samples[k] = _Sample(float(group.mean()), group.size, variance, prior + df)
        return samples

    def _standing(self, k: int, spread: Mapping[int, "_Sample"]) -> Standing:
        base = spread[self.comparison.baseline]
        is_last = self.looks[k] == len(SEEDS) - 1
        if k not in spread or (self.looks[k] and spread[k].size < 2):
            return Standing(k, len(self.values[k]), outcome="failed")
        outcome: Outcome = "undecided" if is_last else "not raced"
        own, error = spread[k], _error(spread[k], base)
        return Standing(k, own.size, own.mean - base.mean, *error, outcome=outcome)

    def _judge(self) -> None:
        """Establish and exclude shapes, each by Holm's steps over all of them."""
        self._step_down("established", _ESTABLISH, 1.0)
        self._step_down("excluded", _EXCLUDE, -1.0)

    def _step_down(self, outcome: Outcome, shares: Sequence[float], sign: float) -> None:
        left = sum(each.outcome != outcome for each in self.standings.values())
        tests = []
        for k, each in self.standings.items():
            share = shares[self.looks[k]]
            if each.outcome not in (outcome, "failed") and share and each.se > 0:
                t = sign * (each.diff + self.margin) / each.se
                tests.append((float(special.stdtr(each.df, -t)) / share, k))
        highest = 0.0
        for p, k in sorted(tests):
            highest = max(highest, min(1.0, p * left))
            each, is_shown = self.standings[k], highest <= self.alpha
            shown = outcome if is_shown else each.outcome
            if sign > 0:
                self.standings[k] = replace(each, outcome=shown, p=highest)
            else:
                self.standings[k] = replace(each, outcome=shown, p_worse=highest)
            left -= is_shown

    def _next(self, spread: Mapping[int, "_Sample"]) -> list[int]:
        """Return the shapes that go on to their next look."""
        open_, accepted = [], False
        for k, each in self.standings.items():
            if each.outcome == "established":
                accepted = True
                break
            if each.outcome == "not raced":
                chance = self._chance(k, spread, 1.0)
                if chance < _HOPELESS[self.looks[k]]:
                    self.standings[k] = replace(each, outcome="left early")
                else:
                    open_.append((k, chance))
        leading, missed = [], 1.0
        for k, chance in open_:
            leading.append(k)
            missed *= 1 - chance
            if missed < 1 - _LEADING:
                break
        if leading:
            number = "shape" if len(leading) == 1 else "shapes"
            self.why = f"can one of the {len(leading)} cheapest {number} left be established?"
            return leading
        rest = [each for each in self.standings.values() if each.outcome != "excluded"]
        if accepted or not rest or any(each.outcome != "left early" for each in rest):
            return []
        if any(
            self._chance(each.shape, spread, -1.0) < _HOPELESS[self.looks[each.shape]]
            for each in rest
        ):
            return []
        self.why = "are all cheaper shapes worse by more than the margin?"
        return [each.shape for each in rest]

    def _chance(self, k: int, spread: Mapping[int, "_Sample"], sign: float) -> float:
        """Return the chance that the last look establishes a shape, or excludes it (``sign`` -1),
        given its runs so far."""
        each, own, base = self.standings[k], spread[k], spread[self.comparison.baseline]
        if not each.se > 0:
            return 1.0
        outcome, shares = ("established", _ESTABLISH) if sign > 0 else ("excluded", _EXCLUDE)
        left = sum(other.outcome != outcome for other in self.standings.values())
        last = own.at(SEEDS[-1]), base.at(BASELINE_SEEDS[-1])
        se, df = _error(*last)
        needed = se * float(special.stdtrit(df, 1 - shares[-1] * self.alpha / left))
        ahead = sign * (each.diff + self.margin) - needed
        to_come = math.sqrt(max(each.se**2 - se**2, 1e-12 * each.se**2))
        return float(special.stdtr(each.df, ahead / to_come))


class _Sample(NamedTuple):
    """The runs of a shape: their mean, number, and variance with its degrees of freedom."""

    mean: float
    size: int
    variance: float
    df: float

    def at(self, size: int) -> "_Sample":
        """Return the sample with so many runs, if it stays as it is."""
        return self._replace(size=size, df=self.df + size - self.size)


def _error(own: _Sample, base: _Sample) -> tuple[float, float]:
    """Return the standard error of a difference and its degrees of freedom (Satterthwaite)."""
    parts = [sample.variance / sample.size for sample in (own, base)]
    total = sum(parts)
    if not total > 0:
        return math.nan, math.nan
    df = total**2 / sum(part**2 / each.df for part, each in zip(parts, (own, base), strict=True))
    return math.sqrt(total), float(df)
