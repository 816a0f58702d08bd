"""Where does the error collapse? A design that trains few of the cells.

1. **Search**, at one length, with one run a head count at first. The fall between two neighbours
   bounds every step that it hides. Each round splits the gap that can hide the largest jump beyond
   a smooth decline, until that is a single step, or until no gap can hide one that counts.
2. **Window.** Fresh runs on both sides of the step, at one head count after it and at one before it
   (the anchor), at more and more lengths and seeds. The runs of the search chose this window, so
   they are no part of its tests.
3. **Decision**, after each rung of that ladder, by two contrasts that are fixed in advance: the
   step falls by more than the decline from the anchor on, or growth with length ends there. Each
   look spends its share of alpha (Pocock 1977), half of it a contrast; giving up spends none. A
   window that does not hold the step that the search had promised is taken into the search, which
   then goes on.
4. **Place** and **growth**: further head counts while the error still falls, then further lengths
   and seeds at h* and after it until growth with length is known.

Drops, limits and standard errors are in units of y on the metric's scale (`analysis.runs.scale`).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import numpy as np
from scipy import special

from analysis.adaptive.rounds import Design, Round
from analysis.runs.scale import Thresholds
from analysis.statistics.values import FloatArray, Interval
from hsweep.design.question import ALPHA
from hsweep.design.search import WINDOW_SEEDS

Cell = tuple[int, int]
_Rung = tuple[Sequence[int], int]
"""Lengths, and the seeds of a cell at each."""
Phase = Literal["search", "window", "place", "growth"]
Verdict = Literal["collapse", "none", "open"]
Growth = Literal["gone", "stays", "open"]


class Run(NamedTuple):
    """One run: the indices of its head count and of its length, and the number of its seed."""

    head: int
    length: int
    seed: int


SEEDS: Final = (2, 2, 2, 3, 5)
"""Seeds of a cell at each rung of the ladder."""
SPARE: Final = 2
"""Seeds that a cell is given beyond its own, where runs fail or scatter."""
SEARCH_SEED: Final = WINDOW_SEEDS
"""Number of the first seed of the search; those before it are the tests'."""
_ATTEMPTS: Final = 3
"""Windows that are tried, at most."""
_FIRST: Final = (6, 5, 9)
"""Head counts that are all searched from the start; of more, the fewest and the most."""
_SCATTER: Final = 1.4
"""Sd of single head counts about a smooth decline, over the scale's smallest."""
_LAST_SURE: Final = 1.3
"""How much more at the last head count, after which nothing shows that the error stays low."""
_POCOCK: Final = (1.0, 0.588, 0.442, 0.364, 0.316)
"""The part of alpha that each of 1, 2, ... looks has, so that all of them together spend it."""
_LEANING: Final = 0.5
"""Standard errors by which the search takes a gap for larger than it looks."""
_BEHIND: Final = 3
"""Steps over which the decline behind a gap is read at least: a collapse may take several."""
_RIVAL: Final = 2.0
"""Standard errors within which another gap is looked at before the leading one is believed."""
_FUTILE: Final = 0.8
"""Level of the bound by which a contrast that cannot be shown any more is given up."""
_PLACED: Final = 1.5
"""Standard errors by which the next fall has to differ from one that would move h*."""
_MOVING: Final = 0.25
"""Share of the drop from which on a further fall moves h*."""
_PRIOR_DF: Final = 2


@dataclass(frozen=True, slots=True)
class Located:
    """The answer of the design.

    Attributes:
        star: index of h*, the head count from which on the error has collapsed; of the step that
            was looked at where the verdict is another one; None where no step was.
        shown_by: the contrast that shows a collapse.
        growth: growth with length from h* on; None where it was not looked at.
        slope: the growth per tenfold length, with its two-sided 1 - alpha interval.
        drop: fall of the error on the step, in the runs of the window; None without one.
        excess: what of it exceeds the decline before; None without an anchor.
        hidden: the largest jump that a gap between searched head counts can hide, and the gap.
        reason: why the verdict is none or open, in words.
    """

    verdict: Verdict
    reason: str = ""
    star: int | None = None
    shown_by: Literal["abruptness", "growth"] | None = None
    growth: Growth | None = None
    slope: Interval | None = None
    drop: float | None = None
    excess: float | None = None
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
class _Cells:
    """The runs of cells so far.

    Attributes:
        first: number of a cell's first seed.
        far: runs of a cell that lie further apart are scattered.
        values: of each cell, in the order of the seeds.
        asked: seeds that each cell has been given.
    """

    first: int
    far: float
    values: defaultdict[Cell, list[float]] = field(default_factory=lambda: defaultdict(list))
    asked: defaultdict[Cell, int] = field(default_factory=lambda: defaultdict(int))

    def fill(self, phase: Phase, seeds: Mapping[Cell, int], why: str) -> Design[Run, None]:
        """Ask for runs until each cell has its number of values, or has failed too often."""
        while runs := [run for each in seeds.items() for run in self._missing(*each)]:
            got = yield Round(phase, tuple(runs), why)
            for run in runs:
                self.asked[run[:2]] += 1
                if (value := got[run]) is not None:
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

    def sd(self, assumed: float) -> tuple[float, int]:
        """Return the sd between seeds, pooled over the cells and with what is assumed at first, and
        its degrees of freedom; runs that got stuck are no noise."""
        groups = [v for c, v in self.values.items() if len(v) > 1 and not self.is_scattered(c)]
        squares = sum(float(np.var(values)) * len(values) for values in groups)
        df = _PRIOR_DF + sum(len(values) - 1 for values in groups)
        return math.sqrt((_PRIOR_DF * assumed**2 + squares) / df), df


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


class _Table(NamedTuple):
    """Cells of the window.

    Attributes:
        heads, lengths: their indices.
        z, noise: their values and the variances of these, shape [heads, lengths].
        df: degrees of freedom of the noise.
    """

    heads: Sequence[int]
    lengths: Sequence[int]
    z: FloatArray
    noise: FloatArray
    df: int

    def quantile(self, probability: float) -> float:
        """Return a quantile of Student's t."""
        return float(special.stdtrit(self.df, probability))


class _Look(NamedTuple):
    """What a window shows at one rung of the ladder: the answer if it were the last, and whether
    the next step is the larger one, this one is too small, and more runs are of no use."""

    answer: Located
    moves_on: bool
    is_small: bool
    is_futile: bool


class _Locator:
    def __init__(
        self, heads: FloatArray, lengths: FloatArray, at: int, limits: Thresholds, alpha: float
    ) -> None:
        self.heads, self.at, self.limits, self.alpha = heads, at, limits, alpha
        self.log_length = np.log10(lengths) if len(lengths) > 1 else np.zeros(1)
        self.search, self.window = (_Cells(seed, limits.min_drop) for seed in (SEARCH_SEED, 0))
        self.learnt: dict[int, float] = {}
        self.ladder = _ladder(len(lengths))
        # How many sds of their scatter the excess must exceed. The search has chosen the largest of
        # the steps: Bonferroni over them.
        steps = max(1, len(heads) - 1)
        self.scatter_sure = float(special.ndtri(1 - ALPHA / steps))

    def run(self) -> Design[Run, Located]:
        answer = Located("none", f"no step falls by {self.limits.min_drop:g} {self.limits.unit}")
        for attempt in range(_ATTEMPTS):
            step = yield from self._search()
            if step is None:
                break
            self.share = _POCOCK[len(self.ladder) - 1] * self.alpha / (attempt + 1) / 2
            answer, is_refuted = yield from self._try(step)
            if not is_refuted:
                break
            self._learn()
            answer = Located("none", answer.reason, answer.star)
        hidden = [(gap.hidden, gap.low, gap.high) for gap in self._gaps() if not gap.is_step]
        return replace(answer, hidden=max(hidden, default=None))

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
        while gaps := [gap for gap in self._gaps() if self._counts(gap)]:
            unsure = [leading := max(gaps)]
            if self._is_confirmed(leading):
                bar = leading.hidden - _RIVAL * leading.se
                unsure = [gap for gap in gaps if gap.hidden > bar and not self._is_confirmed(gap)]
            if not unsure:
                return leading.high
            wide = next((gap for gap in unsure if not gap.is_step), None)
            if wide is None:
                cells = {(k, self.at): 2 for gap in unsure for k in (gap.low, gap.high)}
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
        sd, _ = self.search.sd(self.limits.assumed_sd)
        value, values = self.search.value, self.search.values
        found = {k: (value((k, at)), sd**2 / len(v)) for (k, at), v in values.items() if v}
        found |= {k: (level, sd**2 / 2) for k, level in self.learnt.items()}
        return dict(sorted(found.items()))

    def _gaps(self) -> list[_Gap]:
        """Return the gaps between searched head counts.

        A smooth decline is convex, so inside a gap it falls at least as fast as behind it; what
        falls beyond that may be a jump. It is read off a stretch as wide as the gap, where it can.
        """
        found, last, gaps = self._searched(), len(self.heads) - 1, []
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

    def _anchor(self, step: int) -> int | None:
        """Return the head count before the step from which on its decline is measured: where the
        search makes the excess stand out most."""
        found = self._searched()
        levels = [level for level, _ in found.values()]
        level = np.interp(np.arange(len(self.heads)), list(found), levels)

        def stands_out(k: int) -> float:
            weights = self._weights(k, step)
            excess = weights @ level[[k, step - 1, step]]
            return round(float(excess / np.linalg.norm(weights)), 9)

        return max(range(step - 1), key=stands_out, default=None)

    def _weights(self, anchor: int, step: int) -> FloatArray:
        """Return the contrast of anchor, the head count before the step and the one after it: how
        much further the error falls on the step than it did from the anchor on."""
        far, before, after = self.heads[[anchor, step - 1, step]]
        share = (after - before) / (before - far)
        return np.array([-share, 1 + share, -1.0])

    def _learn(self) -> None:
        """Take what the window has shown into the search, at its length."""
        at, window = self.log_length, self.window
        for k in {k for k, _ in window.values}:
            if known := [j for j in range(len(at)) if window.values[k, j]]:
                values = [window.value((k, j)) for j in known]
                self.learnt[k] = float(np.interp(at[self.at], at[known], values))

    # Window

    def _try(self, promised: int) -> Design[Run, tuple[Located, bool]]:
        """Look at the window around a step, rung by rung; return the answer, and whether the step
        that the search had promised is not there."""
        step, rung = promised, 0
        proof: Located | None = None
        while True:
            anchor, at = self._anchor(step), f"{self.heads[step]:g}"
            around = (step - 1, step, step + 1)[: len(self.heads) - step + 1]
            heads = around if anchor is None else (anchor, *around)
            why = f"is there a collapse at {at}?"
            table = yield from self._table("window", heads, self.ladder[rung], why)
            if not table.lengths:
                return Located("open", f"the runs beside {at} end without a value", step), False
            look = self._look(table, step)
            is_last = rung == len(self.ladder) - 1
            if look.answer.verdict == "collapse":
                proof, seeds = look.answer, self.ladder[rung][1]
                star, is_placed = yield from self._place(proof, step, (table.lengths, seeds))
                if is_placed or is_last:
                    break
            elif proof is None and step == promised and look.moves_on:
                step += 1
                continue
            elif is_last or (proof is None and look.is_futile):
                break
            rung += 1
        if proof is None:
            return look.answer, look.answer.verdict == "none" and look.is_small
        growth, slope = yield from self._growth(star, rung)
        return replace(proof, star=star, growth=growth, slope=slope), False

    def _table(
        self, phase: Phase, heads: Sequence[int], rung: _Rung, why: str
    ) -> Design[Run, _Table]:
        """Ask for cells of the window; return those at lengths where all have values."""
        (lengths, seeds), values = rung, self.window.values
        yield from self.window.fill(phase, {(k, j): seeds for k in heads for j in lengths}, why)
        used = [j for j in lengths if all(values[k, j] for k in heads)]
        sd, df = self.window.sd(self.limits.assumed_sd)
        z = np.array([[self.window.value((k, j)) for j in used] for k in heads])
        number = np.array([[len(values[k, j]) for j in used] for k in heads])
        # A cell differs from its line in log length by about as much as a head count from others.
        return _Table(heads, used, z, sd**2 / number + self.limits.head_sd**2, df)

    def _look(self, table: _Table, step: int) -> _Look:
        limits, level = self.limits, table.z.mean(axis=1)
        variance = table.noise.sum(axis=1) / len(table.lengths) ** 2
        after = table.heads.index(step)
        before = after - 1  # 0 without an anchor
        drop = float(level[before] - level[after])
        further = level[after] - level[-1]  # 0 at the last head count
        gap = float(level[:after].min() - max(level[after], np.median(level[after:])))
        is_large = drop >= limits.min_drop and gap >= limits.min_excess
        reach = table.quantile(0.9) * math.sqrt(variance[before] + variance[after])
        is_small = drop + reach < limits.min_drop
        is_futile = is_small or gap + reach < limits.min_excess
        crit, usual = table.quantile(1 - self.share), table.quantile(_FUTILE)

        excess, growth, no_break, no_end = None, None, True, True
        shown_by: Literal["abruptness", "growth"] | None = None
        if len(table.lengths) > 1:
            low, low_se = self._slope(table, slice(after))
            high, high_se = self._slope(table, slice(after, None))
            growth = self._growth_of(high, high_se, table.quantile(0.95))
            change, change_se = low - high, math.hypot(low_se, high_se)
            least = 0.0 if low > limits.max_growth else limits.max_growth
            if is_large and growth == "gone" and low > 0 and change - crit * change_se > least:
                shown_by = "growth"
            is_known = high - usual * high_se > limits.max_growth
            no_end = is_known or change + usual * change_se < limits.max_growth
        if before:
            weights = self._weights(table.heads[0], step)
            excess = drop - max(0.0, float(-weights[0] * (level[0] - level[before])))
            seed_se = math.sqrt(float(weights**2 @ variance[:3]))
            chance = self.scatter_sure * _SCATTER * limits.head_sd * math.hypot(*weights)
            sure = chance * (_LAST_SURE if step == len(self.heads) - 1 else 1.0)
            if is_large and excess >= max(limits.min_excess, math.hypot(crit * seed_se, sure)):
                shown_by = "abruptness"
            no_break = excess + usual * seed_se < max(limits.min_excess, chance)
        is_futile = is_futile or (no_break and no_end)
        verdict: Verdict = "none" if is_futile and excess is not None else "open"
        reason = (
            f"the error falls by {drop:.2g} {limits.unit} on the step to {self.heads[step]:g}, "
        )
        if shown_by is not None:
            verdict, reason = "collapse", ""
        elif is_small:
            reason += f"less than {limits.min_drop:g}"
        elif excess is None:
            reason += "with no two values below it that could tell a break from a decline"
        else:
            reason += f"{excess:.2g} more than the decline before it"
        answer = Located(verdict, reason, step, shown_by, growth, drop=drop, excess=excess)
        return _Look(answer, further > max(drop, limits.min_drop), is_small, is_futile)

    def _slope(self, table: _Table, side: slice) -> tuple[float, float]:
        """Return growth with log10 length, over head counts by the inverse of its variance, and
        its standard error."""
        x = self.log_length[table.lengths]
        x = x - x.mean()
        total = float(x @ x)
        slope, weight = table.z[side] @ x / total, total**2 / (table.noise[side] @ x**2)
        return float(weight @ slope / weight.sum()), float(1 / math.sqrt(weight.sum()))

    def _growth_of(self, slope: float, se: float, reach: float) -> Growth:
        if slope + reach * se <= self.limits.max_growth:
            return "gone"
        return "stays" if slope - reach * se > self.limits.max_growth else "open"

    # Place and growth

    def _place(self, proof: Located, star: int, rung: _Rung) -> Design[Run, tuple[int, bool]]:
        """Return the index of h*, which moves up while the next step falls by enough, and whether
        it is clear where it ends."""
        least = max(self.limits.d_min, _MOVING * (proof.drop or 0.0))
        while star + 1 < len(self.heads):
            why = f"does it fall on at {self.heads[star + 1]:g}?"
            table = yield from self._table("place", (star, star + 1), rung, why)
            if not (number := len(table.lengths)):
                break
            falls = table.z[0] - table.z[1]
            # Runs that got stuck at one length are no fall that goes on.
            fall = float(np.median(falls) if number > 2 else falls.min())
            reach = _PLACED * math.sqrt(float(table.noise.sum())) / number
            if fall + reach < least:
                break
            if fall - reach < least:
                return star + (fall >= least), False
            star += 1
        return star, True

    def _growth(self, star: int, rung: int) -> Design[Run, tuple[Growth | None, Interval | None]]:
        """Return whether the error still grows with length from h* on, and by how much; ask for
        more lengths and seeds until the first is known."""
        if len(self.log_length) == 1:
            return None, None
        heads, why = range(star, len(self.heads))[:2], "does the error still grow with length?"
        growth: Growth = "open"
        slope: Interval | None = None
        for each in self.ladder[rung:]:
            table = yield from self._table("growth", heads, each, why)
            if len(table.lengths) > 1:
                rise, se = self._slope(table, slice(None))
                growth = self._growth_of(rise, se, table.quantile(0.95))
                reach = se * table.quantile(1 - self.alpha / 2)
                slope = Interval(rise, rise - reach, rise + reach)
            if growth != "open":
                break
        return growth, slope


def _spread(number: int) -> list[int]:
    """Return the indices of the first round."""
    all_of, fewest, most = _FIRST
    count = number if number <= all_of else min(most, max(fewest, math.ceil(number**0.5) + 1))
    return sorted({round(place) for place in np.linspace(0, number - 1, count).tolist()})


def _ladder(lengths: int) -> list[_Rung]:
    """Return the lengths and the seeds a cell of each look: the ends first, then the middle, then
    all, then more seeds."""
    ends, every = {0, lengths - 1}, range(lengths)
    places = (ends, {*ends, lengths // 2}, every, every, every)
    return list(dict.fromkeys(zip(map(tuple, map(sorted, places)), SEEDS, strict=True)))
