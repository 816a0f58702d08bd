"""Is a fall more than diminishing returns? Two convex curves with a break against a single one.

A convex curve of log error in h covers flat, linear, power-law and exponential declines, each with
or without a floor. The gain in fit of two convex pieces is divided by the misfit that remains,
because single head counts may scatter about any curve beyond the noise between seeds.
"""

from itertools import combinations

import numpy as np
from scipy.optimize import nnls

from analysis.statistics.values import FloatArray

_STIFFNESS = 8.0
"""Misfit of two pieces that hardly counts against a break. A larger value detects smaller drops
where head counts do not scatter, but fewer drops of a decade where they do (1 to 10^6 tried)."""
_ENUMERATE_UP_TO = 5
"""Constraints up to which every active set is tried, for all draws at once."""


def convex_misfit(h: FloatArray, m: FloatArray, v: FloatArray) -> FloatArray:
    """Return min over convex f of sum (m - f(h))^2 / v for each row of m and v, both [draws, n]."""
    constraints = len(h) - 2
    if constraints < 1:
        return np.zeros(len(m))
    if constraints <= _ENUMERATE_UP_TO:
        return _misfit_by_active_sets(h, m, v)
    design = _hinge_design(h)
    return np.array(
        [
            nnls(design / np.sqrt(row_v)[:, None], row_m / np.sqrt(row_v))[1] ** 2
            for row_m, row_v in zip(m, v, strict=True)
        ]
    )


def convex_fit(h: FloatArray, m: FloatArray, v: FloatArray) -> FloatArray:
    """Return the convex f(h) = a + b h + sum_j w_j (h - h_j)_+, w >= 0, nearest to m; shape [n]."""
    design = _hinge_design(h)
    weights, _ = nnls(design / np.sqrt(v)[:, None], m / np.sqrt(v))
    return np.asarray(design @ weights, dtype=np.float64)


def break_ratio(h: FloatArray, m: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (Q0 - Q1) / (8 + Q1) and Q1 for each row of m [draws, n], with variances v [n].

    Q0 is the misfit of one convex curve, Q1 the least of separate convex pieces below and from a
    head count, the third or a later one, at which m falls.
    """
    rows = np.broadcast_to(v, m.shape)
    whole = convex_misfit(h, m, rows)
    best = whole.copy()
    for k in range(2, len(h)):
        falls = (m[:, k] < m[:, k - 1]) & (best > 0)
        split = convex_misfit(h[:k], m[falls, :k], rows[falls, :k]) + convex_misfit(
            h[k:], m[falls, k:], rows[falls, k:]
        )
        best[falls] = np.minimum(best[falls], split)
    return (whole - best) / (_STIFFNESS + best), best


def _hinge_design(h: FloatArray) -> FloatArray:
    """Columns 1, -1, h, -h and a hinge at every inner h, for non-negative least squares."""
    centred = h - h[0]
    columns = [np.ones_like(h), -np.ones_like(h), centred, -centred]
    columns += [np.maximum(h - knot, 0.0) for knot in h[1:-1]]
    return np.stack(columns, axis=1)


def _misfit_by_active_sets(h: FloatArray, m: FloatArray, v: FloatArray) -> FloatArray:
    """The dual of the convex fit: the largest g_S' G_SS^-1 g_S over constraint sets S whose
    multipliers are non-negative, with G = C V C' and g = -C m for slope-difference rows C.
    """
    rows = len(h) - 2
    slopes = np.diff(np.diff(np.eye(len(h)), axis=0) / np.diff(h)[:, None], axis=0)
    concavity = -(m @ slopes.T)
    gram = np.einsum("in,bn,jn->bij", slopes, v, slopes)
    best = np.zeros(len(m))
    for size in range(1, rows + 1):
        for active in combinations(range(rows), size):
            index = np.array(active)
            g = concavity[:, index]
            multipliers = np.linalg.solve(gram[:, index[:, None], index], g[..., None])[..., 0]
            value = np.einsum("bi,bi->b", g, multipliers)
            best = np.where((multipliers >= 0).all(axis=1), np.maximum(best, value), best)
    return best
