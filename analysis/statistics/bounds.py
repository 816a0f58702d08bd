"""Intervals end where the metric ends: no accuracy lies above 1, no error below 0."""

import math

from analysis.findings.results import Interval
from analysis.runs.scale import FloatArray
from hsweep.design.question import Goal

Range = tuple[float, float]
"""Least and greatest value that a metric can have; infinite where there is no end."""

UNBOUNDED: Range = (-math.inf, math.inf)


def metric_range(values: FloatArray, goal: Goal) -> Range:
    """Return the range of a metric with these values.

    A metric to maximise whose values all lie in [0, 1] is an accuracy or a share; one to minimise
    that is never negative is an error or a loss. Any other may take any value.
    """
    if values.size == 0 or values.min() < 0:
        return UNBOUNDED
    if goal == "min":
        return (0.0, math.inf)
    return (0.0, 1.0) if values.max() <= 1 else UNBOUNDED


def difference_range(bounds: Range) -> Range:
    """Return the range of a difference of two values that lie within ``bounds``."""
    extent = bounds[1] - bounds[0]
    return (-extent, extent)


def clipped(interval: Interval, bounds: Range) -> Interval:
    """Return the interval without what lies outside ``bounds``; an unknown end stays unknown."""
    low, high = bounds
    return Interval(
        interval.estimate,
        interval.low if math.isnan(interval.low) else min(max(interval.low, low), high),
        interval.high if math.isnan(interval.high) else max(min(interval.high, high), low),
    )
