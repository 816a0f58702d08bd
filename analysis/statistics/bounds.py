"""Intervals of quantities that have a range: no accuracy above 1, no error below 0."""

import math
from typing import Final

from analysis.statistics.values import Interval

Span = tuple[float, float]
"""The ends of a range; infinite where there is none."""

ANYWHERE: Final[Span] = (-math.inf, math.inf)
SHARE: Final[Span] = (0.0, 1.0)
AT_LEAST_0: Final[Span] = (0.0, math.inf)


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


def share_of(hits: int, of: int) -> Interval:
    """Return a share with its 95 % Wilson interval."""
    from scipy.stats import binomtest  # slow to import

    ends = binomtest(hits, of).proportion_ci(method="wilson")
    return Interval(hits / of, float(ends.low), float(ends.high))
