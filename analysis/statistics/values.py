"""Types that all of the statistics share."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]


class Interval(NamedTuple):
    """An estimate with the ends of its two-sided interval; written to JSON as an array."""

    estimate: float
    low: float
    high: float
