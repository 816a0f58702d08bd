"""What a transition rests on, where each cell is only known to lie between two ends."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.questions.transition.location import step_drops
from analysis.questions.transition.result import CLAIMS, TransitionResult
from analysis.statistics.values import FloatArray, Mask
from analysis.values import Number

PLACED = (*CLAIMS, "plateau")
"""Verdicts that place a drop."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that an answer rests on.

    Attributes:
        holds: in which draws, shape [B].
        what: what it is about.
        otherwise: what that does where it does not hold, after "may" or "would".
        heads: indices of the head counts that decide it.
    """

    holds: Mask
    what: str
    otherwise: str
    heads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ends:
    """Draws of the ends between which z of every cell lies, shapes [B, K, J]."""

    heads: list[Number]
    lengths: FloatArray
    low: FloatArray
    high: FloatArray

    def drops(self) -> tuple[FloatArray, FloatArray]:
        """Return the smallest and the largest drop of each step, shapes [B, K - 1]."""
        least, most = (
            np.concatenate(
                [
                    step_drops(np.stack([first[:, k], second[:, k + 1]], axis=1))
                    for k in range(len(self.heads) - 1)
                ],
                axis=1,
            )
            for first, second in ((self.low, self.high), (self.high, self.low))
        )
        return least, most

    def slopes(self, first: int, end: int) -> tuple[FloatArray, FloatArray]:
        """Return the smallest and the largest slope in log10 T, shapes [B]: the mean over head
        counts ``first`` to ``end`` - 1; NaN without two lengths."""
        bounds = []
        for k in range(first, end):
            present = ~np.isnan(self.low[0, k])
            if present.sum() < 2:
                continue
            x = np.log10(self.lengths[present])
            x -= x.mean()
            weight = x / (x @ x)
            up, down = np.maximum(weight, 0), np.minimum(weight, 0)
            low, high = self.low[:, k, present], self.high[:, k, present]
            bounds.append((low @ up + high @ down, high @ up + low @ down))
        if not bounds:
            unknown = np.full(len(self.low), np.nan)
            return unknown, unknown
        return np.mean([low for low, _ in bounds], axis=0), np.mean([b for _, b in bounds], axis=0)

    def largest_later_fall(self, star: int) -> FloatArray:
        """Return the largest fall of the mean over T after ``star``, shape [B]."""
        return _later_fall(self.high, self.low, star)

    def smallest_later_fall(self, star: int) -> FloatArray:
        return _later_fall(self.low, self.high, star)


def conditions(ends: Ends, result: TransitionResult) -> Iterator[Condition]:
    """Yield what the answer rests on; each holds in a draw only if it does wherever cells lie."""
    if result.verdict not in PLACED:
        return _no_claim(ends, result)
    return _claim(ends, result)


def _claim(ends: Ends, result: TransitionResult) -> Iterator[Condition]:
    limits, settings, heads = result.limits, result.settings, ends.heads
    assert result.h_star is not None
    assert result.h_peak is not None
    star, peak = heads.index(result.h_star), heads.index(result.h_peak)
    least, most = ends.drops()
    drop = least[:, peak - 1]
    at = (peak - 1, peak)
    below = f"fall below {limits.min_drop:g} {limits.unit}"
    yield Condition(drop >= limits.min_drop, f"the drop at {heads[peak]:g}", below, at)
    enough = np.maximum(limits.d_min, settings.rho * drop)
    for k in range(1, len(heads)):
        if k == peak or np.isnan(most[0, k - 1]):
            continue
        beside = (k - 1, k)
        if peak < k <= star:
            goes_on = least[:, k - 1] >= np.maximum(limits.d_min, settings.rho * most[:, peak - 1])
            yield Condition(goes_on, "the drop", f"end before {heads[star]:g}", beside)
            continue
        if k == star + 1:
            yield Condition(most[:, k - 1] < enough, "the drop", f"go on to {heads[k]:g}", beside)
        is_smaller = most[:, k - 1] < drop
        yield Condition(is_smaller, "the largest drop", f"move to {heads[k]:g}", (*beside, *at))
    if result.verdict == "plateau":
        flat = ends.largest_later_fall(star) <= np.minimum(limits.min_drop, settings.rho * drop)
        yield Condition(flat, "the error", f"fall beyond {heads[star]:g}", at)
        return
    if result.verdict != "threshold":
        abrupt = _excess(least, most, peak, heads) >= limits.min_excess
        yield Condition(abrupt, "the drop", "be no more abrupt than the decline before", at)
    if result.by is None or result.gamma_above is None:
        return
    smallest, largest = ends.slopes(star, len(heads))
    growth, above = f"growth with {result.by}", tuple(range(star, len(heads)))
    if result.verdict == "jump_only":
        yield Condition(
            smallest > limits.max_growth, growth, f"vanish from {heads[star]:g} on", above
        )
    else:
        shown = f"exceed {limits.max_growth:g} from {heads[star]:g} on"
        yield Condition(largest <= limits.max_growth, growth, shown, above)


def _no_claim(ends: Ends, result: TransitionResult) -> Iterator[Condition]:
    """Yield that no step looks like a collapse: abrupt, or one from which growth with T is gone, or
    one to the second head count and no further."""
    limits, settings, heads = result.limits, result.settings, ends.heads
    least, most = ends.drops()
    for k in range(1, len(heads)):
        drop = most[:, k - 1]
        if np.isnan(drop[0]):
            continue
        looks = np.zeros(len(drop), dtype=bool)
        if k >= 2 and len(heads) >= 4:
            looks |= _excess(most, least, k, heads) >= limits.min_excess
        if result.by is not None:
            above, below = ends.slopes(k, len(heads))[0], ends.slopes(0, k)[1]
            change = np.where(below > limits.max_growth, 0.0, limits.max_growth)
            looks |= (above <= limits.max_growth) & (below > 0) & (below - above > change)
        if k == 1:
            flat = np.minimum(limits.min_drop, settings.rho * drop)
            looks |= ends.smallest_later_fall(k) <= flat
        holds = ~(looks & (drop >= limits.min_drop))
        yield Condition(holds, "the error", f"collapse at {heads[k]:g}", (k - 1, k))


def _excess(drop: FloatArray, earlier: FloatArray, peak: int, heads: list[Number]) -> FloatArray:
    """Return the drop at ``peak`` beyond the median earlier drop per head over the same step."""
    steps = np.diff(np.array(heads, dtype=np.float64))
    per_head = (earlier / steps)[:, : peak - 1]
    per_head = per_head[:, np.isfinite(per_head[0])]
    usual = np.median(per_head, axis=1) if per_head.shape[1] else 0.0
    return np.asarray(drop[:, peak - 1] - usual * steps[peak - 1])


def _later_fall(here: FloatArray, later: FloatArray, star: int) -> FloatArray:
    if star + 1 >= here.shape[1]:
        return np.full(len(here), np.inf)
    lowest = np.nanmean(later[:, star + 1 :], axis=2).min(axis=1)
    return np.asarray(np.nanmean(here[:, star], axis=1) - lowest)
