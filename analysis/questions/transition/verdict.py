"""From the evidence of one reading to its verdict."""

from dataclasses import dataclass

import numpy as np

from analysis.questions.transition.cells import SeedNoise
from analysis.questions.transition.coverage import Coverage
from analysis.questions.transition.lengths import PooledSlope, Slopes
from analysis.questions.transition.result import (
    CLAIMS,
    NoneKind,
    TransitionReading,
    TransitionSettings,
    Verdict,
)
from analysis.runs.scale import Thresholds
from analysis.text.numbers import text_below, y_size
from hsweep.design.question import Scale


@dataclass(frozen=True, slots=True)
class Context:
    """What a reading is judged by, besides its cells.

    Attributes:
        settings: with every threshold filled in.
        limits: the thresholds that decide: those of the scale where the settings give none.
        scale: of the metric.
        layers: attention layers of the models.
        counts_heads: the searched axis counts heads, so a retrieval dimension makes sense.
        x, by: the searched axis and the modulating one, which may be None.
        coverage: which trials ended how.
    """

    settings: TransitionSettings
    limits: Thresholds
    scale: Scale
    layers: int
    counts_heads: bool
    x: str
    by: str | None
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth with T, on which a verdict rests besides the drop.

    Attributes:
        slopes: per head count.
        below: pooled for h < h*; None without two lengths.
        above: pooled for h >= h*.
        num_lengths: distinct T.
    """

    slopes: Slopes
    below: PooledSlope | None
    above: PooledSlope | None
    num_lengths: int


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with its reason in words."""

    verdict: Verdict
    reason: str
    none_kind: NoneKind | None = None
    needs_lengths: bool = False


def decide(
    reading: TransitionReading, growth: Growth, noise_words: str, context: Context
) -> Decision:
    """Return the verdict on a reading that has all of its numbers.

    Without measured seed noise nothing is claimed: what would be a verdict with the noise that
    stands in is ``suggested``, and no place outside the range is named.
    """
    decision = _decide_as_measured(reading, growth, context)
    if not reading.noise_gap:
        return decision
    if decision.verdict in (*CLAIMS, "plateau"):
        reason = (
            f"{reading.noise_gap}, so the noise between seeds is not measured and nothing is"
            f" tested; going by {noise_words}, {decision.reason}"
        )
        return Decision("suggested", reason)
    return decision


def _decide_as_measured(reading: TransitionReading, growth: Growth, context: Context) -> Decision:
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
    settings, limits, by = context.settings, context.limits, context.by
    above, below, drop, excess = growth.above, growth.below, reading.drop, reading.excess
    assert drop is not None
    assert excess is not None
    assert reading.width is not None
    t = growth.slopes.quantile(1 - settings.alpha)
    large = drop >= limits.min_drop
    abrupt = reading.p_abrupt is not None and reading.p_abrupt <= settings.alpha
    fall = f"by {_drop_text(reading, context)}"
    if context.scale == "accuracy":
        # The place is that of the largest factor, which need not be that of the most points.
        fall = f"most, by {_bare(drop, context)} ({_drop_text(reading, context)}),"
    drop_words = f"the error falls {fall} on the way to {reading.h_star:g}"
    p_words = (
        "abruptness cannot be tested on this grid"
        if reading.p_abrupt is None
        else f"p = {reading.p_abrupt:.3g} against diminishing returns"
    )
    if abrupt and large and excess >= limits.min_excess:
        words = (
            f"{drop_words}, {_bare(excess, context)} more than the decline before it ({p_words})"
        )
        if above is None:
            if context.by is not None and growth.num_lengths < 2:
                return Decision(
                    "inconclusive",
                    f"{words}; with one value of {by} only, growth with it cannot be judged",
                    needs_lengths=True,
                )
            unknown = "" if by is None else f"; nothing is said about growth with {by}"
            return Decision("transition", f"{words}{unknown}")
        slope_words = f"slope in log {by} from there on {above.estimate:+.2f}"
        if above.estimate - t * above.se > limits.max_growth:
            return Decision("jump_only", f"{words}, but growth with {by} persists ({slope_words})")
        return Decision(
            "transition", f"{words}, and growth with {by} does not persist ({slope_words})"
        )
    if above is not None and below is not None and large:
        change = below.estimate - above.estimate
        surely = change - t * float(np.hypot(below.se, above.se))
        if (
            reading.width <= settings.threshold_width
            and below.estimate > 0
            and above.estimate + t * above.se <= limits.max_growth
            and surely > (0 if below.estimate > limits.max_growth else limits.max_growth)
        ):
            return Decision(
                "threshold",
                f"growth with {by} vanishes at {reading.h_star:g} (slope {below.estimate:+.2f}"
                f" before, {above.estimate:+.2f} from there on) and {drop_words}, but not abruptly:"
                f" {p_words}",
            )
    # Flat: less than would have moved h* up.
    flat = min(limits.min_drop, settings.rho * drop)
    if large and reading.h_star == list(reading.level)[1] and _falls_no_more_than(flat, reading):
        assert reading.later_fall is not None
        return Decision(
            "plateau",
            f"{drop_words}, and no further from there (by at most"
            f" {_size(max(reading.later_fall, 0.0), context)}); one value of {context.x}"
            " below it cannot tell a collapse from diminishing returns",
        )
    return _none(reading, growth, context, abrupt, drop_words, p_words)


def _falls_no_more_than(limit: float, reading: TransitionReading) -> bool:
    """Whether y is shown to fall by no more than ``limit`` after h*."""
    return reading.later_fall is not None and reading.later_fall <= limit


def _none(
    reading: TransitionReading,
    growth: Growth,
    context: Context,
    abrupt: bool,
    drop_words: str,
    p_words: str,
) -> Decision:
    limits, slopes, drop = context.limits, growth.slopes, reading.drop
    assert drop is not None
    large = drop >= limits.min_drop
    lower = slopes.estimate - slopes.quantile(1 - context.settings.alpha) * slopes.se
    kind: NoneKind | None = None
    # After a large drop, growth with T that is left where y falls no more says nothing of a
    # collapse above.
    is_over = large and _falls_no_more_than(limits.min_drop, reading)
    if not reading.noise_gap:
        if lower[-1] > limits.max_growth and not is_over:
            kind = "above_range"
        elif np.isfinite(lower).any() and not (lower > limits.max_growth).any() and not large:
            kind = "below_range"
    if not large:
        size = f"{text_below(drop, limits.min_drop)} {limits.unit}, less than {limits.min_drop:g}"
        if context.scale == "accuracy":
            factor = text_below(10**drop, 10**limits.min_drop)
            needed = _bare(limits.min_drop, context)
            size = f"{_drop_text(reading, context)} (a factor of {factor}), less than {needed}"
        reason = f"the largest drop is {size}"
    elif not abrupt:
        reason = f"{drop_words}, which diminishing returns may explain ({p_words})"
    else:
        assert reading.excess is not None
        beyond, needed = (_bare(y, context) for y in (reading.excess, limits.min_excess))
        reason = (
            f"{drop_words}, of which only {beyond} exceed the decline before it (needs {needed})"
        )
    if kind == "above_range":
        reason += f"; growth with {context.by} is still there at the largest {context.x}"
    elif kind == "below_range":
        reason += f"; growth with {context.by} is shown at no {context.x}"
    return Decision("none", reason, kind)


def _drop_text(reading: TransitionReading, context: Context) -> str:
    assert reading.drop is not None
    return _size(reading.drop, context, reading.drop_points)


def _size(y: float, context: Context, points: float | None = None) -> str:
    if context.scale == "accuracy":
        return y_size(y, context.scale, points)
    return f"{y:.2f} {context.limits.unit}"


def _bare(y: float, context: Context) -> str:
    """Return a difference beside another one whose unit was said."""
    return y_size(y, context.scale) if context.scale == "accuracy" else f"{y:.2f}"


def noise_words(noise: SeedNoise, scale: Scale) -> str:
    """Return what stands in for noise that is not measured."""
    if noise.stand_in is None:
        return "the few seeds there are"
    return f"an assumed seed sd of {y_size(noise.stand_in, scale)}"
