"""Seed variances of many configurations, each moderated by all the others (empirical Bayes).

Few seeds estimate a variance poorly; many configurations show which variances are usual. The prior
is fitted by the moments of log s^2 (Smyth 2004, the limma method).
"""

import math
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
FAR: Final = 0.01
"""Share of configurations in which chance alone puts a run too far from the others."""
FAR_IN_TESTS: Final = 0.001
"""The same where the best of many is tested; by `FAR` noisy shapes would pass in 7 to 9 %."""
_FEWEST_NEARER: Final = 3


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
    known. With fewer than three configurations of two runs each there is no prior (d0 = 0), and a
    configuration without a variance gets the pooled one. Runs
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
        pooled = df[known] @ variance[known] / df.sum()
        filled, of_all = np.where(known, variance, pooled), np.where(known, df, df.sum())
        return Moderated(np.sqrt(filled), of_all, None, None)
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


def outliers(values: FloatArray, far: float = FAR) -> Mask:
    """Return which runs of one configuration lie too far from its others, on either side.

    From the median outwards each run of the outer half is held against all nearer ones by a t test,
    which chance passes in about a share ``far`` of configurations. By a scale that noisy and quiet
    ones have in common, honest runs of the noisy ones would be left out; on one side alone that
    would favour their configuration. Two runs give no scale, so it takes four.
    """
    astray = np.zeros(values.size, dtype=bool)
    if values.size <= _FEWEST_NEARER:
        return astray
    order = np.argsort(np.abs(values - np.median(values)), kind="stable")
    for number in range(max(values.size // 2 + 1, _FEWEST_NEARER), values.size):
        nearer = values[order[:number]]
        reach = float(special.stdtrit(number - 1, 1 - far / values.size / 2))
        reach *= float(nearer.std(ddof=1)) * math.sqrt(1 + 1 / number)
        if abs(values[order[number]] - nearer.mean()) > reach and not agree(nearer):
            astray[order[number:]] = True
            break
    return astray


def satterthwaite(variances: Sequence[float], df: Sequence[float]) -> float:
    """Return the degrees of freedom of a sum of independent variances."""
    parts = zip(variances, df, strict=True)
    return sum(variances) ** 2 / sum(variance**2 / each for variance, each in parts)


def error_of_difference(
    variances: Sequence[float], df: Sequence[float], usual: float = 0.0
) -> tuple[float, float]:
    """Return the standard error of a candidate's mean less the baseline's, and its degrees of
    freedom; NaN without a measured spread.

    They are no more than with the ``usual`` variance of candidates: the one of many that passes has
    often too small a variance by chance, which would lend it the baseline's degrees of freedom.
    """
    candidate, base = variances
    if not candidate + base > 0 or min(df) < 1:
        return math.nan, math.nan
    pairs = (variances, (max(candidate, usual), base))
    return math.sqrt(candidate + base), min(satterthwaite(pair, df) for pair in pairs)


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
