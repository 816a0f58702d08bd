"""Where does the error collapse? A design that trains few of the cells.

1. **Search**, at one length, with one run a head count at first. The fall between two neighbours
   bounds every step that it hides. Each round splits the gap that can hide the largest jump beyond
   a smooth decline, until that is a single step, or until no gap can hide one that counts.
2. **Window.** Fresh runs at the head counts beside the step and at some before them, at more and
   more lengths and seeds. The runs of the search chose this window, so they are no part of its
   tests. An axis of few values is its own window.
3. **Decision**, after each rung of that ladder, by the judge of a grid (`judge` beside this file)
   over the cells that are there, at a share of alpha. A window that does not hold the step that the
   search had promised is taken into the search, which then goes on.
4. **Growth**: further lengths and seeds at h* and after it until growth with length is known.

Drops, limits and standard errors are in units of y on the metric's scale (`analysis.runs.scale`).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import numpy as np

from analysis.questions.transition.cells import (
    Grid,
    Growth,
    SeedNoise,
    Verdict,
    read_cells,
    seed_noise,
)
from analysis.questions.transition.growth import fit_slopes, pool_slopes
from analysis.questions.transition.judge import judge_runs
from analysis.questions.transition.limits import FIRST_BREAK, WINDOW_SEEDS
from analysis.rounds.design import Design, Round
from analysis.runs.scale import Thresholds
from analysis.statistics.values import FloatArray, Interval
from hsweep.design.scales import ALPHA

Cell = tuple[int, int]
_Rung = tuple[Sequence[int], int, int]
"""Lengths, the seeds of a cell at each, and the head counts of a window."""
Phase = Literal["search", "window", "growth"]


class Run(NamedTuple):
    """One run: the indices of its head count and of its length, and the number of its seed."""

    head: int
    length: int
    seed: int


SEEDS: Final = (2, 2, 2, 3)
"""Seeds of a cell at each rung of the ladder."""
_HEADS: Final = (6, 6, 7, 7)
"""Head counts of the window at each rung: how far single ones scatter is known by many."""
GRID_SEEDS: Final = 3
"""Seeds a cell of the grid that a search never exceeds."""
_USED_UP: Final = f"a grid with {GRID_SEEDS} seeds would have no more runs"
SPARE: Final = 2
"""Seeds that a cell is given beyond its own, where runs fail or scatter."""
SEARCH_SEED: Final = WINDOW_SEEDS
"""Number of the first seed of the search; those before it are the tests'."""
_ATTEMPTS: Final = 3
"""Windows that are tried, at most."""
_FIRST: Final = (6, 5, 9)
"""Head counts that are all searched from the start; of more, the fewest and the most."""
_SHARES: Final = (0.5, 0.5, 0.6, 1.0)
"""The part of alpha that each look has. All looks judge the same head counts by a scatter that is
larger than most have, so that together they stay within alpha (docs/notes/transitions.md)."""
_LEANING: Final = 0.5
"""Standard errors by which the search takes a gap for larger than it looks."""
_BEHIND: Final = 3
"""Steps over which the decline behind a gap is read at least: a collapse may take several."""
_RIVAL: Final = 2.0
"""Standard errors within which another gap is looked at before the leading one is believed."""
_FUTILE: Final = 0.8
"""Level of the bound by which a contrast that cannot be shown any more is given up."""
_PRIOR_DF: Final = 2
_DRAWS: Final = 499
"""Declines drawn for each look."""
_HOPELESS: Final = 0.25
"""Share of declines that look as abrupt, from which on more seeds are of no use."""


@dataclass(frozen=True, slots=True)
class Located:
    """The answer of the design.

    Attributes:
        star: index of h*, the head count from which on the error has collapsed; of the step that
            was looked at where the verdict is another one; None where no step was.
        places: the indices of the set of places.
        shown_by: the contrast that shows a collapse.
        growth: growth with length from h* on; None where it was not looked at.
        slope: the growth per tenfold length, with its two-sided 1 - alpha interval.
        drop: fall of the error on the step, in the runs of the window; None without one.
        excess: what of it exceeds the decline before; None without an anchor.
        p, scatter, survives: of the test that shows a collapse (see `judge`).
        hidden: the largest further jump that may lie between two head counts, and these two.
        reason: why the verdict is none or open, in words.
    """

    verdict: Verdict
    reason: str = ""
    star: int | None = None
    places: tuple[int, ...] = ()
    shown_by: Literal["abruptness", "growth"] | None = None
    growth: Growth | None = None
    slope: Interval | None = None
    drop: float | None = None
    excess: float | None = None
    p: float | None = None
    scatter: float | None = None
    survives: float | None = None
    hidden: tuple[float, int, int] | None = None


class _Gap(NamedTuple):
    """Two neighbours among the searched head counts, by index.

    ``drop`` is the fall between them, ``hidden`` the part of it that a smooth decline does not
    explain: the largest jump that may lie inside; both with ``_LEANING`` standard errors ``se``.
    """

    hidden: float
    drop: float
    low: int
    high: int
    se: float

    @property
    def is_step(self) -> bool:
        return self.high - self.low == 1


@dataclass
class _Room:
    """How many runs may still be asked for."""

    left: int


@dataclass
class _Cells:
    """The runs of cells so far.

    Attributes:
        first: number of a cell's first seed.
        far: runs of a cell that lie further apart are scattered.
        room: for further runs.
        values: of each cell, in the order of the seeds.
        asked: seeds that each cell has been given.
        smallest: the smallest value above an error of 0.
    """

    first: int
    far: float
    room: "_Room"
    smallest: float = math.inf
    values: defaultdict[Cell, list[float]] = field(default_factory=lambda: defaultdict(list))
    asked: defaultdict[Cell, int] = field(default_factory=lambda: defaultdict(int))

    def fill(self, phase: Phase, seeds: Mapping[Cell, int], why: str) -> Design[Run, None]:
        """Ask for runs until each cell has its number of values, or has failed too often."""
        while runs := [run for each in seeds.items() for run in self._missing(*each)][
            : self.room.left
        ]:
            self.room.left -= len(runs)
            got = yield Round(phase, tuple(runs), why)
            values = [value for value in got.values() if value is not None and value > -math.inf]
            self.smallest = min([self.smallest, *values])
            for run in runs:
                self.asked[run[:2]] += 1
                value = got[run]
                if value == -math.inf:  # no error at all: half the smallest so far
                    value = None if math.isinf(self.smallest) else self.smallest - math.log10(2)
                if value is not None:
                    self.values[run[:2]].append(value)

    def _missing(self, cell: Cell, number: int) -> Iterator[Run]:
        asked, lacking = self.asked[cell], number - len(self.values[cell])
        if lacking <= 0 and self.is_scattered(cell):
            lacking = 1  # one by one: it may settle
        for seed in range(asked, min(asked + lacking, number + SPARE)):
            yield Run(*cell, self.first + seed)

    def is_scattered(self, cell: Cell) -> bool:
        values = self.values[cell]
        return bool(values) and max(values) - min(values) > self.far

    def value(self, cell: Cell) -> float:
        """Return the value of a cell: of two runs the mean, of more the median, of runs that lie
        far apart the best, since the others got stuck."""
        values = self.values[cell]
        if self.is_scattered(cell):
            return min(values)
        return float(np.mean(values) if len(values) < 3 else np.median(values))

    def sd(self, assumed: float) -> float:
        """Return the sd between seeds, pooled over the cells and with what is assumed at first;
        runs that got stuck are no noise."""
        groups = [v for c, v in self.values.items() if len(v) > 1 and not self.is_scattered(c)]
        squares = sum(float(np.var(values)) * len(values) for values in groups)
        df = _PRIOR_DF + sum(len(values) - 1 for values in groups)
        return math.sqrt((_PRIOR_DF * assumed**2 + squares) / df)


def locate(
    heads: Sequence[float],
    lengths: Sequence[float],
    at: int,
    limits: Thresholds,
    alpha: float = ALPHA,
) -> Design[Run, Located]:
    """Ask for the runs that locate a transition; return where it is.

    Args:
        heads: the values of the searched axis, ascending.
        lengths: those of the modulating axis, ascending; one value without such an axis.
        at: index of the length of the search.
    """
    return _Locator(np.array(heads, float), np.array(lengths), at, limits, alpha).run()


class _Look(NamedTuple):
    """What a window shows at one rung of the ladder: the answer if it were the last, h* if there is
    a collapse, and whether the step that was looked at is too small, and more runs are of no use.
    """

    answer: Located
    star: int
    is_small: bool
    is_futile: bool


class _Locator:
    def __init__(
        self, heads: FloatArray, lengths: FloatArray, at: int, limits: Thresholds, alpha: float
    ) -> None:
        self.heads, self.at, self.limits, self.alpha = heads, at, limits, alpha
        self.lengths = np.array(lengths, float) if len(lengths) > 1 else np.array([np.nan])
        self.room = _Room(GRID_SEEDS * len(heads) * len(lengths))
        self.search, self.window = (
            _Cells(seed, limits.min_drop, self.room) for seed in (SEARCH_SEED, 0)
        )
        # So few head counts need no search.
        self.is_whole = len(heads) <= _HEADS[0]
        self.learnt: dict[int, float] = {}
        self.ladder = _ladder(len(lengths), len(heads))

    def run(self) -> Design[Run, Located]:
        answer = Located("none", f"no step falls by {self.limits.min_drop:g} {self.limits.unit}")
        for attempt in range(1 if self.is_whole else _ATTEMPTS):
            step = 1 if self.is_whole else (yield from self._search())
            if step is None:
                break
            self.budget = self.alpha / (attempt + 1)
            answer, is_refuted = yield from self._try(step)
            if not is_refuted:
                break
            self._learn()
            answer = Located("none", answer.reason, answer.star)
        lost = self._lost() or (_USED_UP if step is None and not self.room.left else "")
        if lost and answer.verdict == "none":
            answer = replace(answer, verdict="open", reason=lost)
        self._learn()
        star, jump = answer.star or 0, (answer.verdict == "collapse" and answer.drop) or 0.0
        # Two equal jumps look like one decline: the one that is known is put aside.
        found = {k: (y + jump * (k >= star), of_y) for k, (y, of_y) in self._searched().items()}
        gaps = [gap for gap in self._gaps(found) if not {gap.low, gap.high} <= {*self.learnt}]
        hidden = [(gap.hidden, gap.low, gap.high) for gap in gaps]
        return replace(answer, hidden=max(hidden, default=None))

    def _lost(self) -> str:
        """Return in words where every run has failed; empty where none is."""
        tried = {
            k: False
            for cells in (self.search, self.window)
            for (k, _), n in cells.asked.items()
            if n
        }
        for cells in (self.search, self.window):
            tried |= {k: True for (k, _), values in cells.values.items() if values}
        lost = [f"{self.heads[k]:g}" for k in sorted(tried) if not tried[k]]
        return f"every run at {', '.join(lost)} has failed" if lost else ""

    # Search

    def _search(self) -> Design[Run, int | None]:
        """Return the index of the head count that ends the leading step; None if no gap can hide
        one that counts."""
        if not self.search.values:
            first = dict.fromkeys(((k, self.at) for k in _spread(len(self.heads))), 1)
            # Everything before it is compared with the last one.
            first[len(self.heads) - 1, self.at] = 2
            yield from self.search.fill(
                "search", first, "one run at head counts that are spread out"
            )
        while self.room.left and (gaps := [gap for gap in self._gaps() if self._counts(gap)]):
            unsure = [leading := max(gaps)]
            if self._is_confirmed(leading):
                bar = leading.hidden - _RIVAL * leading.se
                unsure = [gap for gap in gaps if gap.hidden > bar and not self._is_confirmed(gap)]
            if not unsure:
                return leading.high
            wide = next((gap for gap in unsure if not gap.is_step), None)
            if wide is None:
                at = [(k, self.at) for gap in unsure for k in (gap.low, gap.high)]
                cells = {cell: 2 + self.search.is_scattered(cell) for cell in at}
                why = "a second run where one step leads"
            else:
                middle = (wide.low + wide.high) // 2
                cells = {(min(self._untried(wide), key=lambda k: abs(k - middle)), self.at): 1}
                between = f"{self.heads[wide.low]:g} and {self.heads[wide.high]:g}"
                why = f"between {between} the error falls by {wide.drop:.2g}"
            yield from self.search.fill("search", cells, why)
        return None

    def _counts(self, gap: _Gap) -> bool:
        """Whether a gap can hide a jump that counts, and there is something left to look at."""
        is_large = gap.hidden >= self.limits.min_excess and gap.drop >= self.limits.min_drop
        return is_large and (gap.is_step or bool(self._untried(gap)))

    def _untried(self, gap: _Gap) -> list[int]:
        """Return the head counts in a gap that have not been run; those that have been end without
        a value."""
        return [k for k in range(gap.low + 1, gap.high) if not self.search.asked[k, self.at]]

    def _is_confirmed(self, gap: _Gap) -> bool:
        """Whether a gap is a single step with two runs at both ends, or three that lie apart."""
        return gap.is_step and all(
            k in self.learnt
            or len(self.search.values[k, self.at]) >= 2 + self.search.is_scattered((k, self.at))
            or self.search.asked[k, self.at] >= 2 + SPARE
            for k in (gap.low, gap.high)
        )

    def _searched(self) -> dict[int, tuple[float, float]]:
        """Return the value at each searched head count, and its variance between seeds."""
        sd = self.search.sd(self.limits.assumed_sd)
        value, values = self.search.value, self.search.values
        found = {k: (value((k, at)), sd**2 / len(v)) for (k, at), v in values.items() if v}
        found |= {k: (level, sd**2 / 2) for k, level in self.learnt.items()}
        return dict(sorted(found.items()))

    def _gaps(self, found: Mapping[int, tuple[float, float]] | None = None) -> list[_Gap]:
        """Return the gaps between searched head counts, or between ``found`` ones.

        A smooth decline is convex, so inside a gap it falls at least as fast as behind it; what
        falls beyond that may be a jump. It is read off a stretch as wide as the gap, where it can.
        """
        found, last, gaps = found or self._searched(), len(self.heads) - 1, []
        for low, high in pairwise(found):
            far = self.heads - self.heads[high]
            least = max(-far[low], far[min(high + _BEHIND, last)])
            se = math.sqrt(found[low][1] + found[high][1])
            drop, smooth = found[low][0] - found[high][0] + _LEANING * se, 0.0
            if behind := [k for k in found if k > high]:
                end = next((k for k in behind if far[k] >= least), behind[-1])
                noise = math.sqrt(found[high][1] + found[end][1])
                decline = found[high][0] - found[end][0] - _LEANING * noise
                smooth = max(0.0, float(-far[low] / far[end] * decline))
            gaps.append(_Gap(drop - smooth, drop, low, high, se))
        return gaps

    def _window(self, step: int, size: int, further: int) -> list[int]:
        """Return so many neighbouring head counts, half of them before a step, and further ones
        behind: the decline is known step by step, and none of them can hide a larger fall."""
        first = max(0, min(step - size // 2, len(self.heads) - size))
        return list(range(first, min(first + size + further, len(self.heads))))

    def _learn(self) -> None:
        """Take what the window has shown into the search, at its length."""
        at, window = np.log10(np.nan_to_num(self.lengths, nan=1.0)), self.window
        for k in {k for k, _ in window.values}:
            if known := [j for j in range(len(at)) if window.values[k, j]]:
                values = [window.value((k, j)) for j in known]
                self.learnt[k] = float(np.interp(at[self.at], at[known], values))

    # Window

    def _try(self, step: int) -> Design[Run, tuple[Located, bool]]:
        """Look at the window around a step, rung by rung; return the answer, and whether the step
        that the search had promised is not there."""
        proof: Located | None = None
        at, further = f"is there a collapse at {self.heads[step]:g}?", 0
        rungs = enumerate(self.ladder)
        rung, (lengths, seeds, size) = next(rungs)
        while True:
            heads = self._window(step, size, further)
            why = "where does the error fall?" if self.is_whole else at
            cells = {(k, j): seeds for k in heads for j in lengths}
            yield from self.window.fill("window", cells, why)
            used = [j for j in lengths if all(self.window.values[k, j] for k in heads)]
            if not used:
                reason = f"runs beside {self.heads[step]:g} end without a value"
                if not self.room.left:
                    reason = _USED_UP
                return Located("open", self._lost() or reason, step), False
            is_last = rung == len(self.ladder) - 1 or not self.room.left
            self.share = _SHARES[-1 if is_last else rung - len(self.ladder)] * self.budget
            look = self._look(heads, used, step)
            if proof is not None:  # where it lies is all that is still asked
                proof = replace(proof, star=look.star, places=look.answer.places)
            elif look.answer.verdict == "collapse":
                proof = look.answer
            if proof is not None:
                if proof.star == heads[-1] < len(self.heads) - 1 and self.room.left:
                    further += 2  # it may go on falling
                    continue
                at = "which head count ends the fall?"
                is_last |= len(proof.places) == 1 or seeds > SEEDS[0]
            if is_last or (proof is None and look.is_futile):
                break
            rung, (lengths, seeds, size) = next(rungs)
        if proof is None:
            return look.answer, look.answer.verdict == "none" and look.is_small
        return (yield from self._growth(proof, rung)), False

    def _cells(self, heads: Sequence[int], lengths: Sequence[int]) -> tuple[Grid, SeedNoise]:
        """Return cells of the window as those of a grid."""
        values = self.window.values
        runs = tuple(tuple(np.sort(values[k, j]) for j in lengths) for k in heads)
        grid = Grid(self.heads[list(heads)], self.lengths[list(lengths)], runs)
        return grid, seed_noise(grid, self.limits, None)

    def _look(self, heads: Sequence[int], lengths: Sequence[int], step: int) -> _Look:
        """Judge cells of the window as those of a grid are."""
        limits, (grid, noise) = self.limits, self._cells(heads, lengths)
        judge, judged = judge_runs(grid, noise, limits, self.share, _DRAWS)
        falls, level = judged.falls, judge.level
        peak, star = int(falls.peak[0]), int(falls.star[0])
        drop, excess = float(falls.drop[0]), float(falls.excess[0])
        after = peak if self.is_whole else heads.index(step)
        usual = judge.slopes.quantile(_FUTILE)
        variance = judge.variance[after] + judge.variance[after - 1] + 2 * limits.head_sd**2
        fall = float(level[after - 1] - level[after])
        is_small = fall + judge.slopes.quantile(0.9) * math.sqrt(variance) < limits.min_drop
        (low, low_se), (high, high_se) = judged.below[:, 0], judged.above[:, 0]
        change = low - high + usual * math.hypot(low_se, high_se)
        ends = high - usual * high_se <= limits.max_growth and change >= limits.max_growth
        is_futile = is_small or (judged.p[0] > _HOPELESS and not ends)
        places = judge.place_set(_DRAWS, np.random.default_rng(0))
        place = Located("open", star=heads[star], places=tuple(heads[k] for k in places))
        if judged.collapses[0] and not noise.gap_beside(peak, grid.heads):
            answer = replace(
                place,
                verdict="collapse",
                shown_by="abruptness" if judged.abrupt[0] else "growth",
                drop=drop,
                excess=excess,
                p=float(judged.p[0]),
                scatter=float(judged.scatter[0]),
                survives=judge.survived_scatter() if judged.abrupt[0] else None,
            )
            return _Look(answer, heads[star], False, False)
        reason = f"the error falls by {fall:.2g} {limits.unit} on the step to {grid.heads[after]:g}"
        if is_small:
            reason += f", less than {limits.min_drop:g}"
        elif after < FIRST_BREAK:
            reason += ", with no two values below it that could tell a break from a decline"
        else:
            reason += f", and {100 * judged.p[0]:.2g} % of declines look as abrupt"
        verdict: Verdict = "none" if is_futile and (is_small or after >= FIRST_BREAK) else "open"
        answer = replace(place, verdict=verdict, reason=reason, star=heads[after], drop=fall)
        return _Look(replace(answer, excess=excess), heads[star], is_small, is_futile)

    def _growth(self, proof: Located, rung: int) -> Design[Run, Located]:
        """Return a collapse with how the error grows with length from h* on; ask for more lengths
        and seeds until it is known whether it does."""
        assert proof.star is not None
        if len(self.lengths) == 1:
            return proof
        heads, values = range(proof.star, len(self.heads))[:2], self.window.values
        why = "does the error still grow with length?"
        for lengths, seeds, _ in self.ladder[rung:]:
            cells = {(k, j): seeds for k in heads for j in lengths}
            yield from self.window.fill("growth", cells, why)
            known = [place for place, runs in values.items() if runs]
            window, used = (sorted({*axis}) for axis in zip(*known, strict=True))
            slopes = fit_slopes(read_cells(*self._cells(window, used), None))
            at = np.isin(window, heads)
            if (pooled := pool_slopes(slopes.estimate[None], slopes.se, at)) is None:
                continue
            rise, se = (float(number) for (number,) in pooled)
            most, reach = self.limits.max_growth, slopes.quantile(0.95) * se
            growth: Growth = "open" if abs(rise - most) < reach else "stays"
            growth = "gone" if rise + reach <= most else growth
            proof = replace(proof, growth=growth, slope=slopes.interval(rise, se, self.alpha))
            if growth != "open":
                break
        return proof if proof.growth else replace(proof, growth="open")


def _spread(number: int) -> list[int]:
    """Return the indices of the first round."""
    all_of, fewest, most = _FIRST
    count = number if number <= all_of else min(most, max(fewest, math.ceil(number**0.5) + 1))
    return sorted({round(place) for place in np.linspace(0, number - 1, count).tolist()})


def _ladder(lengths: int, heads: int) -> list[_Rung]:
    """Return the lengths, seeds a cell and head counts of each look: the ends first, then the
    middle, then all, then more seeds."""
    ends, every = {0, lengths - 1}, range(lengths)
    sizes = (min(heads, size) for size in _HEADS)
    places = (ends, {*ends, lengths // 2}, every, every)
    return list(dict.fromkeys(zip(map(tuple, map(sorted, places)), SEEDS, sizes, strict=True)))
