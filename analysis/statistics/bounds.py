"""Intervals of quantities that have a range: no accuracy above 1, no error below 0.

A mean's interval is computed on a scale without ends: on the log-odds between two ends, on the
logarithm above one end (delta method: the standard error of g(x) is |g'(x)| times that of x). The
interval of anything else (a difference, a mixture's quantile) is cut at the ends.
"""

import math
from typing import Final

from scipy.special import expit, logit

from analysis.statistics.values import Interval

Span = tuple[float, float]
"""The ends of a range; infinite where there is none."""

ANYWHERE: Final[Span] = (-math.inf, math.inf)
SHARE: Final[Span] = (0.0, 1.0)
AT_LEAST_0: Final[Span] = (0.0, math.inf)
_MOST: Final = 300.0
"""Exponent up to which an interval's end stays a number."""


def difference_span(span: Span) -> Span:
    """Return the range of a difference of two values."""
    reach = span[1] - span[0]
    return -reach, reach


def negated(interval: Interval) -> Interval:
    """Return the interval of the quantity with the opposite sign."""
    return Interval(-interval.estimate, -interval.high, -interval.low)


def clipped(interval: Interval, span: Span) -> Interval:
    """Return an interval and its estimate cut at the ends of a range; NaN stays NaN."""
    low, high = span
    return Interval(
        *(value if math.isnan(value) else min(max(value, low), high) for value in interval)
    )


def mean_interval(mean: float, reach: float, span: Span) -> Interval:
    """Return the interval of a mean that stays inside the range; ``reach`` is half its width
    without bounds, a quantile times the standard error of the mean."""
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
    # The logarithm and its inverse round: the mean must stay inside the interval.
    return clipped(Interval(mean, min(below, mean), max(above, mean)), span)


def share_of(hits: int, of: int) -> Interval:
    """Return a share with its 95 % Wilson interval."""
    from scipy.stats import binomtest  # slow to import

    ends = binomtest(hits, of).proportion_ci(method="wilson")
    return Interval(hits / of, float(ends.low), float(ends.high))
