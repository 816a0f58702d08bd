"""From the evidence of one reading to its verdict."""

from dataclasses import dataclass

import numpy as np

from analysis.questions.transition.lengths import PooledSlope, Slopes
from analysis.questions.transition.result import CLAIMS, NoneKind, Verdict


@dataclass(frozen=True, slots=True)
class Limits:
    """The thresholds that decide, filled in for the metric's scale."""

    alpha: float
    min_drop: float
    min_excess: float
    delta_T: float  # noqa: N815
    threshold_width: int
    rho: float
    unit: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a verdict rests on.

    Attributes:
        h_star: the candidate head count, in words.
        star: index of that head count.
        noise_gap: why the seed noise counts as not measured; empty where it does not.
        noise_words: what stands in for it.
        drop: largest single drop.
        width: steps that the collapse takes.
        later_fall: upper bound of how much further y falls after h*; None where nothing follows.
        excess: part of it that the earlier decline does not explain.
        p_abrupt: p value against diminishing returns; None when it cannot be tested.
        below: pooled slope for h < h*; None without two lengths.
        above: pooled slope for h >= h*.
        slopes: slope per head count.
        asks_about_growth: the sweep has a modulating axis.
        num_lengths: distinct T.
    """

    h_star: str
    star: int
    noise_gap: str
    noise_words: str
    drop: float
    width: int
    excess: float
    later_fall: float | None
    p_abrupt: float | None
    below: PooledSlope | None
    above: PooledSlope | None
    slopes: Slopes
    asks_about_growth: bool
    num_lengths: int


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with its reason in words."""

    verdict: Verdict
    reason: str
    none_kind: NoneKind | None = None
    needs_lengths: bool = False


def decide(evidence: Evidence, limits: Limits) -> Decision:
    """Return the verdict.

    Without measured seed noise nothing is claimed: what would be a verdict with the noise that
    stands in is ``suggested``, and no place outside the range is named.
    """
    decision = _decide_as_measured(evidence, limits)
    if not evidence.noise_gap:
        return decision
    if decision.verdict in (*CLAIMS, "plateau"):
        reason = (
            f"{evidence.noise_gap}, so the noise between seeds is not measured and nothing is"
            f" tested; going by {evidence.noise_words}, {decision.reason}"
        )
        return Decision("suggested", reason)
    return decision


def _decide_as_measured(evidence: Evidence, limits: Limits) -> Decision:
    """Return the verdict, taking the seed noise for known.

    ``transition``: abrupt beyond diminishing returns, a large drop with a large unexplained part,
    and no growth with T left at h >= h*. ``jump_only``: the same, but growth persists.
    ``threshold``: growth with T below h* that vanishes from h* on and surely changes there (by more
    than counts as none, where it is no more than that itself), with a large drop in few steps,
    where abruptness was not shown; a decline spread over many steps, along which growth with T
    fades, is none. ``plateau``: a large drop to the second head count, which no test can tell from
    diminishing returns, and shown not to fall further from there. Else ``none``. A jump whose
    growth with T was asked about but seen at one length only is ``inconclusive``.
    """
    t = evidence.slopes.quantile(1 - limits.alpha)
    large = evidence.drop >= limits.min_drop
    abrupt = evidence.p_abrupt is not None and evidence.p_abrupt <= limits.alpha
    above, below = evidence.above, evidence.below
    drop_words = f"y falls by {evidence.drop:.2f} {limits.unit} on the way to {evidence.h_star}"
    p_words = (
        "abruptness cannot be tested on this grid"
        if evidence.p_abrupt is None
        else f"p = {evidence.p_abrupt:.3g} against diminishing returns"
    )
    if abrupt and large and evidence.excess >= limits.min_excess:
        words = f"{drop_words}, {evidence.excess:.2f} more than the decline before it ({p_words})"
        if above is None:
            if evidence.asks_about_growth and evidence.num_lengths < 2:
                return Decision(
                    "inconclusive",
                    f"{words}; with one length only, growth with T cannot be judged",
                    needs_lengths=True,
                )
            return Decision("transition", f"{words}; nothing is said about growth with T")
        slope_words = f"slope in log T from there on {above.estimate:+.2f}"
        if above.estimate - t * above.se > limits.delta_T:
            return Decision("jump_only", f"{words}, but growth with T persists ({slope_words})")
        return Decision(
            "transition", f"{words}, and growth with T does not persist ({slope_words})"
        )
    if above is not None and below is not None and large:
        change = below.estimate - above.estimate
        surely = change - t * float(np.hypot(below.se, above.se))
        if (
            evidence.width <= limits.threshold_width
            and below.estimate > 0
            and above.estimate + t * above.se <= limits.delta_T
            and surely > (0 if below.estimate > limits.delta_T else limits.delta_T)
        ):
            return Decision(
                "threshold",
                f"growth with T vanishes at {evidence.h_star} (slope {below.estimate:+.2f} before,"
                f" {above.estimate:+.2f} from there on) and {drop_words}, but not abruptly:"
                f" {p_words}",
            )
    # Flat: less than would have moved h* up.
    flat = min(limits.min_drop, limits.rho * evidence.drop)
    if large and evidence.star == 1 and _falls_no_more_than(flat, evidence):
        assert evidence.later_fall is not None
        return Decision(
            "plateau",
            f"{drop_words}, and no further from there (by at most"
            f" {max(evidence.later_fall, 0.0):.2f} {limits.unit}); one head count below it cannot"
            " tell a collapse from diminishing returns",
        )
    return _none(evidence, limits, large, abrupt, drop_words, p_words, t)


def _falls_no_more_than(limit: float, evidence: Evidence) -> bool:
    """Whether y is shown to fall by no more than ``limit`` after h*."""
    return evidence.later_fall is not None and evidence.later_fall <= limit


def _none(
    evidence: Evidence,
    limits: Limits,
    large: bool,
    abrupt: bool,
    drop_words: str,
    p_words: str,
    t: float,
) -> Decision:
    slopes = evidence.slopes
    lower = slopes.estimate - t * slopes.se
    kind: NoneKind | None = None
    # After a large drop, growth with T that is left where y falls no more says nothing of a
    # collapse above.
    is_over = large and _falls_no_more_than(limits.min_drop, evidence)
    if evidence.noise_gap:
        kind = None
    elif np.isfinite(lower[-1]) and lower[-1] > limits.delta_T and not is_over:
        kind = "above_range"
    elif (
        np.isfinite(lower).any()
        and not np.any(lower[np.isfinite(lower)] > limits.delta_T)
        and not large
    ):
        kind = "below_range"
    if not large:
        reason = (
            f"the largest drop is {evidence.drop:.2f} {limits.unit}, less than {limits.min_drop:g}"
        )
    elif not abrupt:
        reason = f"{drop_words}, which diminishing returns may explain ({p_words})"
    else:
        reason = (
            f"{drop_words}, of which only {evidence.excess:.2f} exceed the decline before it"
            f" (needs {limits.min_excess:g})"
        )
    if kind == "above_range":
        reason += "; growth with T is still there at the largest head count"
    elif kind == "below_range":
        reason += "; growth with T is shown at no head count"
    return Decision("none", reason, kind)
