"""Intervals of quantities that have a range: no accuracy above 1, no error below 0.

A mean's interval is computed where the range has no end: on the log-odds between two ends, on the
logarithm above one (delta method: the standard error of g(x) is |g'(x)| times that of x). What is
not a mean of such a quantity (a difference, a mixture's quantile) is cut at the ends.
"""

import math
from collections.abc import Iterable
from typing import Final

from scipy.special import expit, logit

from analysis.statistics.values import Interval
from hsweep.design.question import Goal, Scale

Span = tuple[float, float]
"""The ends of a range; infinite where there is none."""

ANYWHERE: Final[Span] = (-math.inf, math.inf)
SHARE: Final[Span] = (0.0, 1.0)
AT_LEAST_0: Final[Span] = (0.0, math.inf)
_MOST: Final = 300.0
"""Exponent up to which an interval's end stays a number."""


def metric_span(values: Iterable[float], goal: Goal, scale: Scale | None) -> Span:
    """Return the range of a metric, of which ``values`` were seen.

    An error has none below 0, an accuracy lies from 0 to 1. Of a metric without a scale the values
    have to tell: one that is maximised and was never seen outside 0 to 1 is taken for a share, one
    that is minimised and was never seen below 0 for an error; so is a loss.
    """
    if scale == "accuracy":
        return SHARE
    if scale == "error":
        return AT_LEAST_0
    seen = [value for value in values if math.isfinite(value)]
    if not seen or min(seen) < 0:
        return ANYWHERE
    if goal == "min":
        return AT_LEAST_0
    return SHARE if max(seen) <= 1 else ANYWHERE


def difference_span(span: Span, times: int = 1) -> Span:
    """Return the range of a difference of two such values, or of ``times`` of them added up."""
    reach = times * (span[1] - span[0])
    return -reach, reach


def clipped(interval: Interval, span: Span) -> Interval:
    """Return an interval and its estimate cut at the ends of a range; NaN stays NaN."""
    low, high = span
    return Interval(
        *(value if math.isnan(value) else min(max(value, low), high) for value in interval)
    )


def mean_interval(mean: float, reach: float, span: Span) -> Interval:
    """Return the interval of a mean that stays inside the range.

    Args:
        mean: the estimate.
        reach: half the width that the interval has where nothing bounds it: a quantile times the
            standard error of the mean.
        span: the range.
    """
    low, high = span
    plain = Interval(mean, mean - reach, mean + reach)
    if not math.isfinite(reach) or not math.isfinite(low) or not low < mean < high:
        return clipped(plain, span)
    if math.isinf(high):
        factor = math.exp(min(reach / (mean - low), _MOST))
        below, above = low + (mean - low) / factor, low + (mean - low) * factor
        return clipped(Interval(mean, min(below, mean), max(above, mean)), span)
    share = (mean - low) / (high - low)
    turn = reach / (high - low) / (share * (1 - share))
    below, above = (
        low + (high - low) * float(expit(logit(share) + sign * turn)) for sign in (-1, 1)
    )
    # There and back the logarithm rounds: the mean lies inside all the same.
    return clipped(Interval(mean, min(below, mean), max(above, mean)), span)
