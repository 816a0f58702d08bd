"""In which draws is a shape dominated? The same answer as comparing all pairs, sooner.

A shape is dominated by a shape that costs at most as much and is at least as good, with one of the
two strict. It is enough to compare with shapes on the front: if B dominates A and C dominates B,
then C dominates A.
"""

from typing import Final

import numpy as np

from analysis.statistics.values import FloatArray, Mask

_CHUNK_VALUES: Final = 4_000_000
"""Values (draws times shapes) that are processed together, which bounds the memory."""


def dominated(quality: FloatArray, cost: FloatArray) -> Mask:
    """Return in which draws each shape is dominated, shape [draws, shapes].

    Args:
        quality: higher is better, finite, shape [draws, shapes].
        cost: lower is better, shape [draws or 1, shapes, costs].
    """
    if cost.shape[0] == 1:
        return _by_exact_costs(quality, cost[0])
    return np.array(
        [_in_one_draw(row, cost[draw]) for draw, row in enumerate(quality)], dtype=bool
    ).reshape(quality.shape)


def dominated_share(quality: FloatArray, cost: FloatArray) -> FloatArray:
    """Return the share of draws in which each shape is dominated, shape [shapes].

    The arguments are those of `dominated`; draws are processed in blocks.
    """
    draws, shapes = quality.shape
    step = max(1, _CHUNK_VALUES // max(shapes, 1))
    counts = np.zeros(shapes, dtype=np.int64)
    for first in range(0, draws, step):
        some = slice(first, first + step)
        costs = cost if cost.shape[0] == 1 else cost[some]
        counts += dominated(quality[some], costs).sum(axis=0)
    return np.asarray(counts / draws, dtype=np.float64)


def _by_exact_costs(quality: FloatArray, cost: FloatArray) -> Mask:
    """Return the dominated shapes, from cheap to dear: the best quality among all cheaper shapes is
    the best among the nearest cheaper ones."""
    points, group = np.unique(cost, axis=0, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    # Shapes are rows, so that the best of a few shapes is read from contiguous memory.
    equal = np.maximum.reduceat(quality.T[order], starts, axis=0)
    cheaper = np.full(equal.shape, -np.inf)
    if points.shape[1] == 1:
        np.maximum.accumulate(equal[:-1], axis=0, out=cheaper[1:])
    else:
        reached = np.empty(equal.shape)
        for at, point in enumerate(points):
            if below := _nearest_below(points[:at], point):
                np.maximum.reduce(reached[below], axis=0, out=cheaper[at])
            np.maximum(cheaper[at], equal[at], out=reached[at])
    return np.asarray((quality <= cheaper[group].T) | (quality < equal[group].T), dtype=bool)


def _nearest_below(points: FloatArray, point: FloatArray) -> list[int]:
    """Return the points that cost at most as much, without those that lie below another of them.

    ``points`` are sorted by their first cost, then their second and so on.
    """
    remaining = np.flatnonzero((points <= point).all(axis=1))
    nearest_points = []
    while remaining.size:
        nearest = int(remaining[-1])
        nearest_points.append(nearest)
        remaining = remaining[~(points[remaining] <= points[nearest]).all(axis=1)]
    return nearest_points


def _in_one_draw(quality: FloatArray, cost: FloatArray) -> Mask:
    """Return the dominated shapes, by comparing all with each undominated one in turn; of shapes
    with equal quality and costs, with one."""
    beaten = np.zeros(len(quality), dtype=bool)
    remaining = np.lexsort((-quality, *cost.T[::-1]))
    while remaining.size:
        at = remaining[0]
        at_most = (cost[at] <= cost).all(axis=1)
        is_cheaper = at_most & (cost[at] < cost).any(axis=1)
        better = quality[at] > quality
        beaten |= (is_cheaper & (quality[at] >= quality)) | (at_most & better)
        is_other = (cost[remaining] < cost[at]).any(axis=1)
        remaining = remaining[(quality[remaining] > quality[at]) | is_other]
    return beaten
