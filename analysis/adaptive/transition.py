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
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import numpy as np
from scipy import special

from analysis.adaptive.rounds import Design, Round
from analysis.adaptive.rounds import Values as RoundValues
from analysis.runs.scale import Thresholds
from analysis.statistics.values import FloatArray
from hsweep.design.question import ALPHA
from hsweep.design.search import WINDOW_SEEDS

Cell = tuple[int, int]
Phase = Literal["search", "window", "place", "growth"]
Verdict = Literal["collapse", "none", "open"]
Growth = Literal["gone", "stays", "open"]


class Run(NamedTuple):
    """One run: the indices of its head count and of its length, and the number of its seed."""

    head: int
    length: int
    seed: int


Values = RoundValues[Run]
_Rounds = Generator[Round[Run], Values, None]

SEEDS: Final = (2, 2, 2, 3, 5)
"""Seeds of a cell at each rung of the ladder."""
SPARE: Final = 2
"""Seeds that a cell is given beyond its own, where runs fail or scatter."""
SEARCH_SEED: Final = WINDOW_SEEDS
"""Number of the first seed of the search; those before it are the tests'."""
_ATTEMPTS: Final = 3
"""Windows that are tried, at most."""
_ALL_AT_ONCE: Final = 6
"""Head counts that are all searched from the start."""
_FIRST: Final = (5, 9)
"""Fewest and most head counts of the first round, where there are more."""
_SCATTER: Final = 1.4
"""Sd of single head counts about a smooth decline, over the scale's smallest."""
_SCATTER_SURE: Final = 2.2
"""How many of these the excess must exceed; the search has chosen the largest of several."""
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


@dataclass
class _Cells:
    """The runs of cells so far.

    Attributes:
        phase: for which they are asked.
        first: number of a cell's first seed.
        values: of each cell, in the order of the seeds.
        asked: seeds that each cell has been given.
    """

    phase: Phase
    first: int
    far: float
    values: defaultdict[Cell, list[float]] = field(default_factory=lambda: defaultdict(list))
    asked: defaultdict[Cell, int] = field(default_factory=lambda: defaultdict(int))

    def fill(self, seeds: Mapping[Cell, int], why: str, phase: Phase | None = None) -> _Rounds:
        """Ask for runs until each cell has its number of values, or has failed too often."""
        while runs := [
            run for cell, number in seeds.items() for run in self._missing(cell, number)
        ]:
            got = yield Round(phase or self.phase, tuple(runs), why)
            for run in runs:
                cell = run.head, run.length
                self.asked[cell] += 1
                if (value := got[run]) is not None:
                    self.values[cell].append(value)

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
        groups = [
            v for cell, v in self.values.items() if len(v) > 1 and not self.is_scattered(cell)
        ]
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
    axes = np.asarray(heads, float), np.asarray(lengths, float)
    return _Locator(*axes, at, limits, alpha).run()


@dataclass
class _Look:
    """What a window shows at one rung of the ladder."""

    drop: float
    excess: float | None
    further: float | None
    abrupt: bool
    vanishing: bool
    growth: Growth | None
    is_futile: bool
    is_small: bool


class _Locator:
    def __init__(
        self, heads: FloatArray, lengths: FloatArray, at: int, limits: Thresholds, alpha: float
    ) -> None:
        self.heads, self.at, self.limits, self.alpha = heads, at, limits, alpha
        self.log_length = np.log10(lengths) if len(lengths) > 1 else np.zeros(1)
        self.search = _Cells("search", SEARCH_SEED, limits.min_drop)
        self.window = _Cells("window", 0, limits.min_drop)
        self.learnt: dict[int, float] = {}
        self.ladder = _ladder(len(lengths))
        self.scatter = _SCATTER * limits.head_sd

    def run(self) -> Design[Run, Located]:
        answer = Located("none")
        for attempt in range(_ATTEMPTS):
            step = yield from self._search()
            if step is None:
                break
            self.share = _POCOCK[len(self.ladder) - 1] * self.alpha / (attempt + 1) / 2
            answer, look = yield from self._try(step)
            if answer.verdict != "none" or not look.is_small:
                return answer
            self._learn()
        return self._without(answer)

    # Search

    def _search(self) -> Generator[Round[Run], Values, int | None]:
        """Return the index of the head count that ends the leading step; None if no gap can hide
        one that counts."""
        if not self.search.values:
            first = dict.fromkeys(((k, self.at) for k in _spread(len(self.heads))), 1)
            # Everything before it is compared with the last one.
            first[len(self.heads) - 1, self.at] = 2
            yield from self.search.fill(first, "one run at head counts that are spread out")
        while True:
            gaps = [gap for gap in self._gaps() if self._counts(gap) and self._between(gap) != []]
            if not gaps:
                return None
            leading = max(gaps)
            unsure = [leading]
            if leading.high - leading.low == 1 and self._is_confirmed(leading):
                bar = leading.hidden - _RIVAL * leading.se
                unsure = [gap for gap in gaps if gap.hidden > bar and not self._is_confirmed(gap)]
            if not unsure:
                return leading.high
            wide = next((gap for gap in unsure if gap.high - gap.low > 1), None)
            if wide is not None:
                middle = (wide.low + wide.high) // 2
                place = min(self._between(wide) or (), key=lambda k: abs(k - middle))
                between = f"{self.heads[wide.low]:g} and {self.heads[wide.high]:g}"
                why = f"between {between} the error falls by {wide.drop:.2g}"
                yield from self.search.fill({(place, self.at): 1}, why)
                continue
            ends = {(k, self.at): 2 for gap in unsure for k in (gap.low, gap.high)}
            yield from self.search.fill(ends, "a second run where one step leads")

    def _counts(self, gap: _Gap) -> bool:
        return gap.hidden >= self.limits.min_excess and gap.drop >= self.limits.min_drop

    def _between(self, gap: _Gap) -> list[int] | None:
        """Return the head counts in a gap that have not been run; None for a single step. Those
        that have been end without a value."""
        if gap.high - gap.low == 1:
            return None
        return [k for k in range(gap.low + 1, gap.high) if not self.search.asked[k, self.at]]

    def _is_confirmed(self, gap: _Gap) -> bool:
        """Whether a gap is a single step with two runs at both ends, or three that lie apart."""
        return gap.high - gap.low == 1 and all(
            k in self.learnt
            or len(self.search.values[k, self.at]) >= 2 + self.search.is_scattered((k, self.at))
            or self.search.asked[k, self.at] >= 2 + SPARE
            for k in (gap.low, gap.high)
        )

    def _searched(self) -> dict[int, tuple[float, float]]:
        """Return the value at each searched head count, and its variance between seeds."""
        sd, _ = self.search.sd(self.limits.assumed_sd)
        found = {
            k: (self.search.value((k, self.at)), sd**2 / len(values))
            for (k, _), values in self.search.values.items()
            if values
        }
        found |= {k: (level, sd**2 / 2) for k, level in self.learnt.items()}
        return dict(sorted(found.items()))

    def _gaps(self) -> list[_Gap]:
        """Return the gaps between searched head counts.

        A smooth decline is convex, so inside a gap it falls at least as fast as behind it; what
        falls beyond that may be a jump. It is read off a stretch as wide as the gap, where it can.
        """
        found = self._searched()
        gaps = []
        for low, high in pairwise(found):
            width = self.heads[high] - self.heads[low]
            behind = [k for k in found if k > high]
            drop = found[low][0] - found[high][0]
            se = math.hypot(*(math.sqrt(found[k][1]) for k in (low, high)))
            smooth = 0.0
            if behind:
                far = self.heads[min(high + _BEHIND, len(self.heads) - 1)] - self.heads[high]
                least = max(width, far)
                wide = (k for k in behind if self.heads[k] - self.heads[high] >= least)
                end = next(wide, behind[-1])
                share = width / (self.heads[end] - self.heads[high])
                noise = math.sqrt(found[high][1] + found[end][1])
                smooth = share * (found[high][0] - found[end][0] - _LEANING * noise)
            lean = _LEANING * se
            gaps.append(_Gap(drop - max(0.0, smooth) + lean, drop + lean, low, high, se))
        return gaps

    def _anchor(self, step: int) -> int | None:
        """Return the head count before the step from which on its decline is measured: where the
        search makes the excess stand out most."""
        found = self._searched()
        places, levels = list(found), [level for level, _ in found.values()]
        level = np.interp(np.arange(len(self.heads)), places, levels)
        best, anchor = -math.inf, None
        for k in range(step - 1):
            weights = self._weights(k, step)
            noise = float(np.sum(weights**2)) * (self.scatter**2 + self.limits.assumed_sd**2)
            excess = float(weights @ level[[k, step - 1, step]])
            if excess / math.sqrt(noise) > best + 1e-9:
                best, anchor = excess / math.sqrt(noise), k
        return anchor

    def _weights(self, anchor: int, step: int) -> FloatArray:
        """Return the contrast of anchor, the head count before the step and the one after it: how
        much further the error falls on the step than it did from the anchor on."""
        share = self._share(anchor, step)
        return np.array([-share, 1 + share, -1.0])

    def _share(self, anchor: int, step: int) -> float:
        heads = self.heads
        return float((heads[step] - heads[step - 1]) / (heads[step - 1] - heads[anchor]))

    def _learn(self) -> None:
        """Take what the window has shown into the search, at its length."""
        for k in {k for k, _ in self.window.values}:
            known = [j for j in range(len(self.log_length)) if self.window.values[k, j]]
            if known:
                values = [self.window.value((k, j)) for j in known]
                at = self.log_length
                self.learnt[k] = float(np.interp(at[self.at], at[known], values))

    # Window

    def _try(self, step: int) -> Generator[Round[Run], Values, tuple[Located, _Look]]:
        """Look at the window around a step, rung by rung."""
        anchor, has_moved, rung = self._anchor(step), False, 0
        star, proof = None, None
        while True:
            lengths, seeds = self.ladder[rung]
            heads = [k for k in (anchor, step - 1, step, step + 1) if k is not None]
            heads = [k for k in dict.fromkeys(heads) if k < len(self.heads)]
            cells = {(k, j): seeds for k in heads for j in lengths}
            why = f"is there a collapse at {self.heads[step]:g}?"
            yield from self.window.fill(cells, why)
            used = [j for j in lengths if all(self.window.values[k, j] for k in heads)]
            if not used:
                return self._failed(step), _NOTHING
            look = self._look(anchor, step, heads, used)
            is_last = rung == len(self.ladder) - 1
            if look.abrupt or look.vanishing:
                proof = look
                star, is_placed = yield from self._place(step, used, seeds, look.drop)
                if is_placed or is_last:
                    break
            elif star is None and not has_moved and self._belongs_to_next(look):
                step, has_moved = step + 1, True
                anchor = self._anchor(step)
                continue
            elif is_last or (star is None and look.is_futile):
                break
            rung += 1
        if star is None or proof is None:
            return self._not_shown(step, look), look
        growth = yield from self._growth(star, rung)
        shown_by: Literal["abruptness", "growth"] = "abruptness" if proof.abrupt else "growth"
        found = Located(
            "collapse", "", star, shown_by, growth, proof.drop, proof.excess, self._hidden()
        )
        return found, proof

    def _belongs_to_next(self, look: _Look) -> bool:
        """Whether the step after the one that was looked at is the larger one."""
        return look.further is not None and look.further > max(look.drop, self.limits.min_drop)

    def _look(
        self, anchor: int | None, step: int, heads: Sequence[int], lengths: Sequence[int]
    ) -> _Look:
        limits = self.limits
        sd, df = self.window.sd(limits.assumed_sd)
        quantile = partial(_quantile, df)
        z, noise = self._cells(heads, lengths, sd)
        level, variance = z.mean(axis=1), noise.sum(axis=1) / len(lengths) ** 2
        of = {k: i for i, k in enumerate(heads)}
        before, after = of[step - 1], of[step]
        drop = float(level[before] - level[after])
        drop_se = math.sqrt(variance[before] + variance[after])
        below = [of[k] for k in heads if k < step]
        above = [of[k] for k in heads if k >= step]
        gap = float(level[below].min() - max(level[after], np.median(level[above])))
        is_large = drop >= limits.min_drop and gap >= limits.min_excess
        reach = quantile(0.9) * drop_se
        is_small = drop + reach < limits.min_drop
        is_futile = is_small or gap + reach < limits.min_excess
        crit = quantile(1 - self.share)

        excess, abrupt, no_break = None, False, True
        if anchor is not None:
            weights, trio = self._weights(anchor, step), [of[anchor], before, after]
            decline = level[of[anchor]] - level[before]
            excess = drop - max(0.0, float(decline) * self._share(anchor, step))
            seed_se = math.sqrt(float(weights**2 @ variance[trio]))
            sure = _SCATTER_SURE * (_LAST_SURE if step == len(self.heads) - 1 else 1.0)
            chance = sure * self.scatter * math.sqrt(float(weights @ weights))
            needed = max(limits.min_excess, math.hypot(crit * seed_se, chance))
            abrupt = is_large and excess >= needed
            usual = max(limits.min_excess, chance * _SCATTER_SURE / sure)
            no_break = is_futile or excess + quantile(_FUTILE) * seed_se < usual
        growth, vanishing, no_end = None, False, True
        if len(lengths) > 1:
            slopes = self._slopes(z, noise, lengths)
            (low, low_se), (high, high_se) = (_pooled(slopes, side) for side in (below, above))
            growth = self._growth_of(high, high_se, quantile(0.95))
            change, change_se = low - high, math.hypot(low_se, high_se)
            least = 0.0 if low > limits.max_growth else limits.max_growth
            is_sure = low > 0 and change - crit * change_se > least
            vanishing = is_large and growth == "gone" and is_sure
            no_end = (
                is_futile
                or high - quantile(_FUTILE) * high_se > limits.max_growth
                or change + quantile(_FUTILE) * change_se < limits.max_growth
            )
        further = float(level[after] - level[of[step + 1]]) if step + 1 in of else None
        return _Look(
            drop, excess, further, abrupt, vanishing, growth, no_break and no_end, is_small
        )

    def _cells(
        self, heads: Sequence[int], lengths: Sequence[int], sd: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the values of cells and their variances, shape [heads, lengths]."""
        z = [[self.window.value((k, j)) for j in lengths] for k in heads]
        number = [[len(self.window.values[k, j]) for j in lengths] for k in heads]
        # A cell differs from its line in log length by about as much as a head count from others.
        return np.array(z), sd**2 / np.array(number) + self.limits.head_sd**2

    def _slopes(
        self, z: FloatArray, noise: FloatArray, lengths: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]:
        """Return growth with log10 length at each head count, and its variance."""
        x = self.log_length[list(lengths)]
        x = x - x.mean()
        total = float(x @ x)
        return z @ x / total, noise @ x**2 / total**2

    def _growth_of(self, slope: float, se: float, reach: float) -> Growth:
        if slope + reach * se <= self.limits.max_growth:
            return "gone"
        return "stays" if slope - reach * se > self.limits.max_growth else "open"

    # Place and growth

    def _place(
        self, step: int, lengths: Sequence[int], seeds: int, drop: float
    ) -> Generator[Round[Run], Values, tuple[int, bool]]:
        """Return the index of h*, which moves up while the next step falls by enough, and whether
        it is clear where it ends."""
        star, least = step, max(self.limits.d_min, _MOVING * drop)
        while star + 1 < len(self.heads):
            cells = {(k, j): seeds for k in (star, star + 1) for j in lengths}
            yield from self.window.fill(
                cells, f"does it fall on at {self.heads[star + 1]:g}?", "place"
            )
            used = [j for j in lengths if self.window.values[star + 1, j]]
            if not used:
                break
            sd, _ = self.window.sd(self.limits.assumed_sd)
            z, noise = self._cells((star, star + 1), used, sd)
            falls = z[0] - z[1]
            # Runs that got stuck at one length are no fall that goes on.
            fall = float(np.median(falls) if len(used) > 2 else falls.min())
            reach = _PLACED * math.sqrt(float(noise.sum())) / len(used)
            if fall + reach < least:
                break
            if fall - reach < least:
                return star + (fall >= least), False
            star += 1
        return star, True

    def _growth(self, star: int, rung: int) -> Generator[Round[Run], Values, Growth | None]:
        """Return whether the error still grows with length from h* on; ask for more lengths and
        seeds until that is known."""
        if len(self.log_length) == 1:
            return None
        heads = [k for k in (star, star + 1) if k < len(self.heads)]
        growth: Growth = "open"
        for lengths, seeds in self.ladder[rung:]:
            cells = {(k, j): seeds for k in heads for j in lengths}
            yield from self.window.fill(cells, "does the error still grow with length?", "growth")
            used = [j for j in lengths if all(self.window.values[k, j] for k in heads)]
            if len(used) < 2:
                continue
            sd, df = self.window.sd(self.limits.assumed_sd)
            slopes = self._slopes(*self._cells(heads, used, sd), used)
            slope, se = _pooled(slopes, range(len(heads)))
            growth = self._growth_of(slope, se, _quantile(df, 0.95))
            if growth != "open":
                break
        return growth

    # Answers without a collapse

    def _hidden(self) -> tuple[float, int, int] | None:
        gaps = [gap for gap in self._gaps() if gap.high - gap.low > 1]
        if not gaps:
            return None
        widest = max(gaps)
        return widest.hidden, widest.low, widest.high

    def _without(self, last: Located) -> Located:
        """Return the answer where no gap is left that can hide a collapse."""
        reason = f"no step falls by {self.limits.min_drop:g} {self.limits.unit}"
        return Located("none", last.reason or reason, last.star, hidden=self._hidden())

    def _not_shown(self, step: int, look: _Look) -> Located:
        at = f"{self.heads[step]:g}"
        fall = f"the error falls by {look.drop:.2g} {self.limits.unit} on the step to {at}"
        if look.is_small:
            reason = f"{fall}, less than {self.limits.min_drop:g}"
        elif look.excess is None:
            reason = f"{fall}, with no two values below it that could tell a break from a decline"
        else:
            reason = f"{fall}, {look.excess:.2g} more than the decline before it"
        verdict: Verdict = "none" if look.is_futile and look.excess is not None else "open"
        return Located(
            verdict, reason, step, None, look.growth, look.drop, look.excess, self._hidden()
        )

    def _failed(self, step: int) -> Located:
        at = f"{self.heads[step]:g}"
        return Located("open", f"the runs beside {at} end without a value", step)


_NOTHING: Final = _Look(0.0, None, None, False, False, None, True, False)


def _quantile(df: float, probability: float) -> float:
    """Return a quantile of Student's t."""
    return float(special.stdtrit(df, probability))


def _pooled(slopes: tuple[FloatArray, FloatArray], side: Sequence[int]) -> tuple[float, float]:
    """Return the mean slope of head counts by the inverse of its variance, and its se."""
    slope, variance = (part[list(side)] for part in slopes)
    weight = 1 / variance
    return float(weight @ slope / weight.sum()), float(1 / math.sqrt(weight.sum()))


def _spread(number: int) -> list[int]:
    """Return the indices of the first round."""
    if number <= _ALL_AT_ONCE:
        return list(range(number))
    fewest, most = _FIRST
    count = min(most, max(fewest, math.ceil(math.sqrt(number)) + 1))
    return sorted({round(place) for place in np.linspace(0, number - 1, count).tolist()})


def _ladder(lengths: int) -> list[tuple[list[int], int]]:
    """Return the lengths and the seeds a cell of each look: the ends first, then the middle, then
    all, then more seeds."""
    ends, every = sorted({0, lengths - 1}), list(range(lengths))
    places = (ends, sorted({*ends, lengths // 2}), every, every, every)
    rungs: list[tuple[list[int], int]] = []
    for rung in zip(places, SEEDS, strict=True):
        if rung not in rungs:
            rungs.append(rung)
    return rungs
