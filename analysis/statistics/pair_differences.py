"""The median of the absolute differences of all pairs within groups, exactly, also of very many.

Two thousand runs of a cell have two million pairs. They are not all written down: a sample says
about where the middle lies, the pairs around it are looked at one by one, and those below are
counted.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.statistics.values import FloatArray

_ALL_PAIRS: Final = 2_000_000
"""Pairs up to which all are written down."""
_SAMPLE: Final = 50_000
_ROUNDING: Final = 1e-12
"""Relative width around a bound within which pairs are compared with it one by one."""


def median_difference(groups: Sequence[FloatArray]) -> float:
    """Return the median of |a - b| over the pairs within each of ``groups``; NaN without a pair."""
    sizes = [group.size for group in groups]
    number = sum(size * (size - 1) // 2 for size in sizes)
    if not number:
        return float("nan")
    if number <= _ALL_PAIRS:
        return float(np.median(np.concatenate([_differences(group) for group in groups])))
    ordered = [np.sort(group) for group in groups if group.size > 1]
    sample = np.sort(np.concatenate([_some(group, number) for group in ordered]))
    low, high = (number - 1) // 2, number // 2
    share = 0.01
    while True:
        ends = np.clip([0.5 - share, 0.5 + share], 0.0, 1.0) * (sample.size - 1)
        least = sample[int(ends[0])] if share < 0.5 else 0.0
        most = sample[int(np.ceil(ends[1]))] if share < 0.5 else np.inf
        below, around = _around(ordered, float(least), float(most))
        if below <= low and high < below + around.size:
            middle = np.partition(around, [low - below, high - below])
            return float(np.mean(middle[[low - below, high - below]]))
        share *= 4


def _differences(group: FloatArray) -> FloatArray:
    first, second = _pairs(group.size)
    return np.asarray(np.abs(group[first] - group[second]))


@lru_cache(maxsize=16)
def _pairs(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    first, second = np.triu_indices(size, 1)
    return first, second


def _some(group: FloatArray, number: int) -> FloatArray:
    """Return differences of evenly spread pairs of a sorted group, as many as are its share."""
    pairs = group.size * (group.size - 1) // 2
    distances = np.arange(1, group.size)
    # A distance d between places stands for group.size - d pairs.
    behind = np.cumsum(group.size - distances)
    count = max(1, round(_SAMPLE * pairs / number))
    places = ((np.arange(count) + 0.5) * (pairs / count)).astype(np.int64)
    at = np.searchsorted(behind, places, side="right")
    first = behind[at] - 1 - places
    return np.asarray(group[first + distances[at]] - group[first])


def _around(groups: Sequence[FloatArray], least: float, most: float) -> tuple[int, FloatArray]:
    """Return how many differences are below ``least``, and all those from there to ``most``."""
    below, found = 0, []
    for group in groups:
        places = np.arange(group.size)
        # Rounding of a sum is relative to its terms.
        start = np.searchsorted(
            group, group + least - _ROUNDING * (np.abs(group) + least), side="left"
        )
        start = np.maximum(start, places + 1)
        if np.isinf(most):
            end = np.full(group.size, group.size)
        else:
            end = np.searchsorted(
                group, group + most + _ROUNDING * (np.abs(group) + most), side="right"
            )
        end = np.maximum(end, start)
        below += int((start - places - 1).sum())
        lengths = end - start
        first = np.repeat(places, lengths)
        offset = np.repeat(np.cumsum(lengths) - lengths, lengths)
        second = np.arange(first.size) - offset + np.repeat(start, lengths)
        differences = np.abs(group[second] - group[first])
        below += int((differences < least).sum())
        found.append(differences[(differences >= least) & (differences <= most)])
    return below, np.concatenate(found)
