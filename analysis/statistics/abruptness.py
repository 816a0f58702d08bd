"""Is the collapse more than diminishing returns? A test against every convex decline at once.

A convex curve of log error in h covers flat, linear, power-law and exponential declines, each with
or without a floor. The statistic is how much better two convex pieces with a break fit than one
convex curve; its null distribution is simulated from the best convex curve.
"""

from itertools import combinations

import numpy as np
from scipy.optimize import nnls

from analysis.statistics.values import FloatArray

_ASSUMED_DF = 2.0
"""Degrees of freedom granted to a seed sd that is assumed or borrowed from other head counts."""
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


def break_gain(h: FloatArray, m: FloatArray, v: FloatArray, at_least: float = 0.0) -> FloatArray:
    """Return S = Q0 - min_k Q1(k) for each row of m and v [draws, n].

    Q0 is the misfit of one convex curve, Q1(k) that of separate convex pieces below and from the
    k-th head count; k starts at the third and m must fall there. Rows whose Q0 is below
    ``at_least`` cannot reach it and return 0.
    """
    whole = convex_misfit(h, m, v)
    gain = np.zeros(len(m))
    rows = np.flatnonzero((whole > 0) & (whole >= at_least))
    if rows.size == 0:
        return gain
    best = whole[rows].copy()
    for k in range(2, len(h)):
        falls = m[rows, k] < m[rows, k - 1]
        split = convex_misfit(h[:k], m[rows, :k], v[rows, :k]) + convex_misfit(
            h[k:], m[rows, k:], v[rows, k:]
        )
        best = np.where(falls, np.minimum(best, split), best)
    gain[rows] = whole[rows] - best
    return gain


def abruptness_p(
    h: FloatArray,
    level: FloatArray,
    variance: FloatArray,
    seed_df: FloatArray,
    pooled_df: float,
    draws: int,
    rng: np.random.Generator,
) -> float:
    """Return the p value of a break against diminishing returns.

    Args:
        h: head counts, shape [K], K >= 4.
        level: mean y over T at each, shape [K].
        variance: their variances, shape [K].
        seed_df: degrees of freedom of each seed sd, shape [K]; 2 are granted at least.
        pooled_df: degrees of freedom of the over-dispersion; 0 takes it as known.
        draws: simulated sweeps.
        rng: source of randomness.
    """
    observed = float(break_gain(h, level[None, :], variance[None, :])[0])
    null = convex_fit(h, level, variance)
    m = null + np.sqrt(variance) * rng.standard_normal((draws, len(h)))
    v = np.broadcast_to(variance, m.shape).copy()
    for k, df in enumerate(seed_df):
        believed = max(df, _ASSUMED_DF)
        v[:, k] *= rng.chisquare(believed, draws) / believed
    if pooled_df > 0:
        v *= (rng.chisquare(pooled_df, draws) / pooled_df)[:, None]
    if observed <= 1e-12:
        return 1.0
    exceed = int(np.sum(break_gain(h, m, v, at_least=observed) >= observed))
    return (1 + exceed) / (draws + 1)


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
    gaps = np.diff(h)
    rows = len(h) - 2
    slopes = np.zeros((rows, len(h)))
    for row in range(rows):
        slopes[row, row] = 1 / gaps[row]
        slopes[row, row + 1] = -1 / gaps[row] - 1 / gaps[row + 1]
        slopes[row, row + 2] = 1 / gaps[row + 1]
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
