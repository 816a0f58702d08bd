"""How the error grows with the modulating axis T (sequence length), per head count and pooled.

Slopes are of z in log10 T. The paper's own errors fall with T at the transition, so "no growth" is
tested one-sided, as non-inferiority, never as slope zero.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis.questions.transition.cells import Cells
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
        return float(special.stdtrit(self.t_df, probability))

    def interval(self, estimate: float, se: float, alpha: float) -> Interval:
        """Return the two-sided 1 - alpha interval of a slope."""
        reach = self.quantile(1 - alpha / 2) * se
        return Interval(estimate, estimate - reach, estimate + reach)


@dataclass(frozen=True, slots=True)
class PooledSlope:
    """A slope pooled over head counts (DerSimonian and Laird)."""

    estimate: float
    se: float


def fit_slopes(cells: Cells) -> Slopes:
    x_all = np.log10(cells.grid.lengths)
    num_heads = len(cells.grid.heads)
    estimate, se = np.full(num_heads, np.nan), np.full(num_heads, np.nan)
    chi_square, df = 0.0, 0.0
    for k in range(num_heads):
        present = ~np.isnan(cells.z[k]) & ~np.isnan(x_all)
        if present.sum() < 2:
            continue
        x = x_all[present] - x_all[present].mean()
        z, c = cells.z[k, present], cells.variance[k, present]
        spread = float(x @ x)
        estimate[k] = float(x @ z) / spread
        se[k] = np.sqrt(float(c @ x**2)) / spread
        if present.sum() > 2:
            residual = z - z.mean() - estimate[k] * x
            chi_square += float(residual**2 @ (1 / c))
            df += present.sum() - 2
    phi = max(1.0, chi_square / df) if df else 1.0
    seed_df = float(cells.noise.df.sum())
    t_df = df or (seed_df if seed_df else np.inf)
    return Slopes(estimate, se * np.sqrt(phi), phi, df, t_df)


def mean_levels(cells: Cells, slopes: Slopes) -> tuple[FloatArray, FloatArray]:
    """Return m_h = mean of z over T and its variance, shapes [K].

    Where cells are missing the mean is moved along the head count's own slope to the centre of all
    T (along the median slope, with the spread of the slopes as its error, where it has none).
    """
    x_all = np.log10(cells.grid.lengths)
    has_lengths = not np.isnan(x_all).any()
    num_heads = len(cells.grid.heads)
    level, variance = np.zeros(num_heads), np.zeros(num_heads)
    usual = float(np.nanmedian(slopes.estimate)) if np.isfinite(slopes.estimate).any() else 0.0
    usual_se = float(np.nanstd(slopes.estimate)) if np.isfinite(slopes.estimate).any() else 0.0
    for k in range(num_heads):
        present = ~np.isnan(cells.z[k])
        level[k] = cells.z[k, present].mean()
        variance[k] = slopes.phi * cells.variance[k, present].sum() / present.sum() ** 2
        if has_lengths and not present.all():
            shift = float(x_all.mean() - x_all[present].mean())
            own = np.isfinite(slopes.estimate[k])
            level[k] += shift * (slopes.estimate[k] if own else usual)
            variance[k] += (shift * (slopes.se[k] if own else usual_se)) ** 2
    return level, variance


def pool_slopes(slopes: Slopes, which: Mask) -> PooledSlope | None:
    """Return the DerSimonian-Laird random-effects mean over the head counts in mask ``which``."""
    use = which & np.isfinite(slopes.estimate)
    if not use.any():
        return None
    estimate, variance = slopes.estimate[use], slopes.se[use] ** 2
    weight = 1 / variance
    fixed = float(weight @ estimate / weight.sum())
    excess = float(weight @ (estimate - fixed) ** 2) - (len(estimate) - 1)
    scale = float(weight.sum() - (weight**2).sum() / weight.sum())
    tau2 = max(0.0, excess / scale) if len(estimate) > 1 else 0.0
    weight = 1 / (variance + tau2)
    return PooledSlope(float(weight @ estimate / weight.sum()), float(weight.sum() ** -0.5))


def independence(slopes: Slopes, delta: float, alpha: float) -> tuple[int | None, int | None]:
    """Return (lo, hi) head indices: from hi on z does not grow with T; below lo it surely grows.

    Steps down from the largest head count while the one-sided upper bound stays at or below
    ``delta``; every step must pass, so no correction is needed (intersection-union).
    """
    reach = slopes.quantile(1 - alpha) * slopes.se
    passes = slopes.estimate + reach <= delta
    grows = slopes.estimate - reach > delta
    last_growing = int(np.flatnonzero(grows)[-1]) if grows.any() else -1
    hi = len(passes)
    while hi > 0 and passes[hi - 1]:
        hi -= 1
    if hi == len(passes):
        return None, None
    return min(last_growing + 1, hi), hi
