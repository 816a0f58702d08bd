"""The absolute differences of the pairs within groups of runs, which tell their spread."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.statistics.values import FloatArray

PAIR_SCALE: Final = 0.9539
"""Median of |a - b| for two draws of a normal with sd 1: sqrt(2) * 0.6745."""
_PAIRS_OF: Final = 200
"""Runs of a group up to which every pair is looked at."""


def pair_differences(groups: Sequence[FloatArray]) -> FloatArray:
    """Return |a - b| over the pairs within each group, one after the other; of a group of more than
    200 runs, over those of 200 evenly spread ones."""
    found = []
    for group in groups:
        if group.size > _PAIRS_OF:
            places = np.linspace(0, group.size - 1, _PAIRS_OF).round().astype(np.int64)
            group = np.sort(group)[places]
        first, second = _pairs(group.size)
        found.append(np.abs(group[first] - group[second]))
    return np.concatenate(found) if found else np.zeros(0)


@lru_cache(maxsize=16)
def _pairs(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    first, second = np.triu_indices(size, 1)
    return first, second
