"""How the error grows with the modulating axis T (sequence length), per head count and pooled.

Slopes are of z in log10 T. The paper's own errors fall with T at the transition, so "no growth" is
tested one-sided, as non-inferiority, never as slope zero.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis.questions.transition.cells import Cells
from analysis.statistics.random_effects import random_effects
from analysis.statistics.values import FloatArray, Interval, Mask


@dataclass(frozen=True, slots=True)
class Slopes:
    """Growth of z with log10 T.

    Attributes:
        estimate: slope per head count, shape [K]; NaN with fewer than two T.
        se: its standard error.
        phi: over-dispersion of cells about their lines, pooled over h, at least 1.
        df: degrees of freedom of phi; 0 when no head count has three T.
        t_df: degrees of freedom of intervals.
    """

    estimate: FloatArray
    se: FloatArray
    phi: float
    df: float
    t_df: float

    def quantile(self, probability: float) -> float:
        """Return a quantile of Student's t."""
        return float(special.stdtrit(self.t_df, probability))

    def interval(self, estimate: float, se: float, alpha: float) -> Interval:
        """Return the two-sided 1 - alpha interval of a slope."""
        reach = self.quantile(1 - alpha / 2) * se
        return Interval(estimate, estimate - reach, estimate + reach)


def _weights(cells: Cells) -> FloatArray:
    """Return the weight of each cell's z in the slope of its head count, shape [K, J].

    The weights are NaN at a head count with fewer than two T, and 0 at a missing cell.
    """
    x = np.broadcast_to(np.log10(cells.grid.lengths), cells.z.shape)
    x = np.where(np.isnan(cells.z), np.nan, x)
    enough = (~np.isnan(x)).sum(axis=1) > 1
    weights = np.full(x.shape, np.nan)
    centred = x[enough] - np.nanmean(x[enough], axis=1, keepdims=True)
    weights[enough] = np.nan_to_num(centred / np.nansum(centred**2, axis=1, keepdims=True))
    return weights


def slopes_of(cells: Cells, z: FloatArray) -> FloatArray:
    """Return the slope of each head count in versions of the cells, [B, K, J] to [B, K]."""
    return np.asarray(np.einsum("bkj,kj->bk", np.nan_to_num(z), _weights(cells)))


def fit_slopes(cells: Cells) -> Slopes:
    """Return the growth at each head count, its error widened by how cells scatter."""
    x_all = np.log10(cells.grid.lengths)
    weights = _weights(cells)
    estimate = slopes_of(cells, cells.z[None])[0]
    se = np.sqrt((np.nan_to_num(cells.variance) * weights**2).sum(axis=1))
    chi_square, df = 0.0, 0.0
    for k in np.flatnonzero((~np.isnan(cells.z)).sum(axis=1) > 2):
        present = ~np.isnan(cells.z[k]) & ~np.isnan(x_all)
        x, z = x_all[present] - x_all[present].mean(), cells.z[k, present]
        residual = z - z.mean() - estimate[k] * x
        chi_square += float(residual**2 @ (1 / cells.variance[k, present]))
        df += present.sum() - 2
    phi = max(1.0, chi_square / df) if df else 1.0
    t_df = df or float(cells.noise.known_df.min())
    return Slopes(estimate, se * np.sqrt(phi), phi, df, t_df)


def _shifts(cells: Cells) -> FloatArray:
    """Return how far in log10 T the centre of the present cells lies below the centre of all T,
    shape [K]."""
    x = np.log10(cells.grid.lengths)
    if np.isnan(x).any():
        return np.zeros(len(cells.z))
    present = ~np.isnan(cells.z)
    return np.asarray(x.mean() - (present * x).sum(axis=1) / present.sum(axis=1))


def mean_levels(cells: Cells, z: FloatArray) -> FloatArray:
    """Return the mean over T of versions of the cells, [B, K, J] to [B, K].

    Where cells are missing the mean is moved along the head count's slope to the centre of all T
    (along the median slope where the head count has none).
    """
    levels = np.nanmean(z, axis=2)
    shifts = _shifts(cells)
    if not shifts.any():
        return np.asarray(levels)
    slopes = slopes_of(cells, z)
    if np.isnan(slopes).all():
        return np.asarray(levels)
    usual = np.nanmedian(slopes, axis=1, keepdims=True)
    return np.asarray(levels + shifts * np.where(np.isnan(slopes), usual, slopes))


def level_variance(cells: Cells, slopes: Slopes) -> FloatArray:
    """Return the variance of the levels as measured, shape [K].

    Where a head count borrows the median slope, the spread of all slopes is the slope's error.
    """
    counts = (~np.isnan(cells.z)).sum(axis=1)
    variance = slopes.phi * np.nansum(cells.variance, axis=1) / counts**2
    has_slopes = np.isfinite(slopes.estimate).any()
    usual = float(np.nanstd(slopes.estimate)) if has_slopes else 0.0
    se = np.where(np.isfinite(slopes.se), slopes.se, usual)
    return np.asarray(variance + (_shifts(cells) * se) ** 2)


def pool_slopes(
    estimate: FloatArray, se: FloatArray, heads: Mask
) -> tuple[FloatArray, FloatArray] | None:
    """Return the DerSimonian-Laird random-effects mean of slopes [B, K] over the head counts in
    mask ``heads``, and its standard error; None where none of these has a slope."""
    use = heads & np.isfinite(se)
    if not use.any():
        return None
    slopes, variance = estimate[:, use], np.maximum(se[use], 1e-12) ** 2
    _, weights = random_effects(slopes, variance)
    total = weights.sum(axis=1)
    return (weights * slopes).sum(axis=1) / total, total**-0.5
