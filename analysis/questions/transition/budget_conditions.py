"""What a transition rests on, where each cell is only known to lie between two ends."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.questions.transition.lengths import Slopes
from analysis.questions.transition.location import step_drops
from analysis.questions.transition.result import CLAIMS, TransitionResult
from analysis.statistics.values import FloatArray, Mask
from analysis.text.numbers import y_size
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


def conditions(ends: Ends, result: TransitionResult, slopes: Slopes) -> Iterator[Condition]:
    """Yield what the answer rests on; each holds in a draw only if it does wherever cells lie.

    Args:
        slopes: growth with T as the answer has it.
    """
    if result.verdict not in PLACED:
        return _no_claim(ends, result, slopes)
    return _claim(ends, result)


def _claim(ends: Ends, result: TransitionResult) -> Iterator[Condition]:
    limits, settings, heads = result.limits, result.settings, ends.heads
    assert result.h_star is not None
    assert result.h_peak is not None
    star, peak = heads.index(result.h_star), heads.index(result.h_peak)
    least, most = ends.drops()
    drop = least[:, peak - 1]
    at = (peak - 1, peak)
    below = f"fall below {y_size(limits.min_drop, result.scale)}"
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


def _no_claim(ends: Ends, result: TransitionResult, slopes: Slopes) -> Iterator[Condition]:
    """Yield that no step may come to be a collapse: abrupt, or one from which growth with T is
    gone, or one to the second head count and no further.

    As in the answer, growth with T has to change by more than its standard error tells.
    """
    limits, settings, heads = result.limits, result.settings, ends.heads
    least, most = ends.drops()
    for k in range(1, len(heads)):
        if np.isnan(most[0, k - 1]):
            continue
        is_peak = _may_be_largest(least, most, k) & (most[:, k - 1] >= limits.min_drop)
        looks = np.zeros(len(most), dtype=bool)
        if k >= 2 and len(heads) >= 4:
            looks |= is_peak & (_excess(most, least, k, heads) >= limits.min_excess)
        # The drop may go on from the largest one to where growth with T is gone.
        goes_on = is_peak
        for star in range(k, min(k + settings.threshold_width, len(heads))):
            if star > k:
                enough = np.maximum(limits.d_min, settings.rho * least[:, k - 1])
                goes_on = goes_on & (most[:, star - 1] >= enough)
            looks |= goes_on & _growth_may_vanish(ends, result, slopes, star)
        if k == 1:
            flat = np.minimum(limits.min_drop, settings.rho * most[:, 0])
            looks |= is_peak & (ends.smallest_later_fall(k) <= flat)
        yield Condition(~looks, "the error", f"collapse at {heads[k]:g}", (k - 1, k))


def _may_be_largest(least: FloatArray, most: FloatArray, k: int) -> Mask:
    others = np.delete(least, k - 1, axis=1)
    others = others[:, ~np.isnan(others[0])]
    if not others.shape[1]:
        return np.ones(len(most), dtype=bool)
    return np.asarray(most[:, k - 1] >= others.max(axis=1))


def _growth_may_vanish(ends: Ends, result: TransitionResult, slopes: Slopes, star: int) -> Mask:
    """Return in which draws growth with T may be there below a head count and gone from it on."""
    known = slopes.se[np.isfinite(slopes.se)] if result.by is not None else np.zeros(0)
    below, above = ends.slopes(0, star)[1], ends.slopes(star, len(ends.heads))[0]
    if not known.size:
        return np.zeros(len(below), dtype=bool)
    sides = slopes.se[:star], slopes.se[star:]
    # The least that a pooled slope's standard error can be.
    errors = [float(np.nansum(1 / side**2)) ** -0.5 for side in sides if np.isfinite(side).any()]
    if len(errors) < 2:
        return np.zeros(len(below), dtype=bool)
    delta, t = result.limits.max_growth, slopes.quantile(1 - result.settings.alpha)
    surely = below - above - t * float(np.hypot(*errors))
    change = np.where(below > delta, 0.0, delta)
    return np.asarray((above + t * errors[1] <= delta) & (below > 0) & (surely > change))


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
