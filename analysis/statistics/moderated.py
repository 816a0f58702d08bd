"""Seed variances of many configurations, each moderated by all the others (empirical Bayes).

Few seeds estimate a variance poorly; many configurations show which variances are usual. The prior
is fitted by the moments of log s^2 (Smyth 2004, the limma method).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from analysis.statistics.values import FloatArray, Mask

PAIR_SCALE: Final = 0.9539
"""Median of |a - b| for two draws of a normal with sd 1: sqrt(2) * 0.6745."""
_PAIRS_OF: Final = 200
"""Runs of a group up to which every pair is compared."""
_FEWEST_FOR_A_PRIOR = 3
_ROUNDING: Final = 1e-12
CRASH_SD: Final = 6.0
"""Runs this many pooled robust sd below the median of their shape are left out."""


@dataclass(frozen=True, slots=True)
class Moderated:
    """Moderated seed sd per configuration.

    Attributes:
        sd: shape [configurations]; NaN where neither runs nor prior give an sd.
        df: degrees of freedom of each sd.
        prior_sd: s0; None when no prior could be fitted.
        prior_df: d0; infinite when the variances differ by no more than chance.
    """

    sd: FloatArray
    df: FloatArray
    prior_sd: float | None
    prior_df: float | None


def agree(values: FloatArray) -> bool:
    """Whether runs agree exactly, but for the rounding of numbers of their size."""
    return values.size < 2 or bool(np.ptp(values) <= _ROUNDING * np.abs(values).max())


def seed_variance(values: FloatArray) -> tuple[float, float]:
    """Return the variance of runs, 0 where they agree, and its degrees of freedom."""
    variance = 0.0 if agree(values) else float(values.var(ddof=1))
    return variance, float(max(values.size - 1, 0))


def why_unmeasured(groups: Sequence[FloatArray]) -> str:
    """Return why groups of runs do not measure the noise between seeds."""
    agreeing = any(group.size > 1 and agree(group) for group in groups)
    return "no spread between seeds" if agreeing else "single runs"


def moderate(groups: Sequence[FloatArray]) -> Moderated:
    """Return s~_i^2 = (d0 s0^2 + d_i s_i^2) / (d0 + d_i) with d0 + d_i degrees of freedom.

    The degrees of freedom are capped at the sum of all d_i, so that a variance is never taken as
    known. With fewer than three configurations of two runs each there is no prior (d0 = 0). Runs
    that agree exactly (copies, a metric that counts few examples) show no variance that could be
    believed: such a configuration gets the variance of the others.
    """
    return moderate_variances(*np.array([*map(seed_variance, groups)]).reshape(-1, 2).T)


def moderate_variances(variance: FloatArray, df: FloatArray) -> Moderated:
    """Moderate given variances, as `moderate` does those of runs.

    Args:
        variance: variance of each configuration; NaN or 0 where it is not known.
        df: degrees of freedom of each variance; 0 where it is not known.
    """
    df = np.where(variance > 0, df, 0.0)
    known = df > 0
    if not known.any():
        blank = np.full(len(df), np.nan)
        return Moderated(blank, df, None, None)
    variance = np.where(known, np.maximum(variance, 1e-5 * np.median(variance[known])), np.nan)
    if known.sum() < _FEWEST_FOR_A_PRIOR:
        return Moderated(np.sqrt(variance), df, None, None)
    prior_variance, prior_df = _fit_prior(variance[known], df[known])
    if np.isinf(prior_df):
        moderated = np.full(len(df), prior_variance)
    else:
        squares = np.where(known, df * variance, 0.0)
        moderated = (prior_df * prior_variance + squares) / (prior_df + df)
    return Moderated(
        np.sqrt(moderated),
        np.minimum(prior_df + df, df.sum()),
        float(np.sqrt(prior_variance)),
        prior_df,
    )


def screen_crashes(groups: list[FloatArray]) -> list[Mask]:
    """Return for each configuration which runs lie over `CRASH_SD` seed sd below its median.

    Values are oriented so that higher is better. The sd is robust and pooled: the median absolute
    difference of two runs of one configuration. Configurations of one or two runs are left alone.
    """
    pairs = pair_differences(groups)
    sd = float(np.median(pairs)) / PAIR_SCALE if pairs.size else 0.0
    return [
        (group < np.median(group) - CRASH_SD * sd) & (group.size >= 3 and sd > 0)
        for group in groups
    ]


def _fit_prior(variance: FloatArray, df: FloatArray) -> tuple[float, float]:
    """Return (s0^2, d0) by matching mean and variance of log s^2."""
    half = df / 2
    centred = np.log(variance) - special.digamma(half) + np.log(half)
    mean = float(centred.mean())
    excess = float(centred.var(ddof=1) - special.polygamma(1, half).mean())
    if excess <= 0:
        return float(np.exp(mean)), np.inf
    half_prior = _inverse_trigamma(excess)
    return (
        float(np.exp(mean + special.digamma(half_prior) - np.log(half_prior))),
        2 * half_prior,
    )


def _inverse_trigamma(value: float) -> float:
    """Return y with trigamma(y) = value > 0, by Newton's method on 1 / trigamma."""
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, y))
        y += step
        if -step / y < 1e-10:
            break
    return y


def pair_differences(groups: Sequence[FloatArray]) -> FloatArray:
    """Return |a - b| over all pairs within each group, in one array.

    A group of more than 200 runs is represented by 200 runs, evenly spread over its values.
    """
    differences = []
    for group in groups:
        if group.size > _PAIRS_OF:
            places = np.linspace(0, group.size - 1, _PAIRS_OF).round().astype(np.int64)
            group = np.sort(group)[places]
        first, second = np.triu_indices(group.size, 1)
        differences.append(np.abs(group[first] - group[second]))
    return np.concatenate(differences) if differences else np.zeros(0)
