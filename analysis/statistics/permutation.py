"""Rank correlation with a permutation test.

Labels are exchanged within groups only, so differences between groups (size, depth) cannot cause a
correlation. The null hypothesis is that within a group every arrangement of the labels was as
likely as the observed one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from analysis.statistics.values import FloatArray, Interval

_TIE: Final = 1e-9
_CHUNK_VALUES: Final = 4_000_000
"""Labels that are permuted together, which bounds the memory."""


@dataclass(frozen=True, slots=True)
class RankTest:
    """A rank correlation with its permutation test.

    Attributes:
        rho: Spearman's correlation; of ranks within groups where there are several.
        interval: approximate 95 % interval; None with too few units.
        p: two-sided p value.
        shapes: number of units compared.
        groups: number of groups within which labels were exchanged.
    """

    rho: float
    interval: Interval | None
    p: float
    shapes: int
    groups: int


def rank_test(
    first: FloatArray,
    second: FloatArray,
    *,
    rng: np.random.Generator,
    draws: int,
    groups: Sequence[float] | None = None,
) -> RankTest | None:
    """Return Spearman's correlation within groups and its permutation test.

    Ranks are taken and centred within each group, and correlated over all groups. With one group
    this is Spearman's rho (ties share their mean rank).

    Args:
        first, second: one finite number a unit.
        draws: number of arrangements; p is twice (1 + #{as far out}) / (1 + draws).
        groups: the group of each unit; None puts all units into one group.

    Returns:
        None without a correlation: fewer than two units in every group, or no variation.
    """
    labels = np.zeros(first.size) if groups is None else np.asarray(groups, dtype=np.float64)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    members = [group for group in members if group.size > 1]
    if not members:
        return None
    left = np.concatenate([_centred_ranks(first[group]) for group in members])
    right = np.concatenate([_centred_ranks(second[group]) for group in members])
    sizes = [group.size for group in members]
    return _permutation_test(left, right, sizes, np.zeros(left.size), rng, draws)


def partial_rank_test(
    first: FloatArray,
    second: FloatArray,
    control: FloatArray,
    *,
    rng: np.random.Generator,
    draws: int,
) -> RankTest | None:
    """Return Spearman's partial correlation given a third quantity, and its permutation test.

    The part that is linear in the ranks of ``control`` is removed from the ranks of both
    quantities. The second's residuals are permuted, added to the linear part, and made residuals
    again (Freedman and Lane 1983, Journal of Business and Economic Statistics 1:292). The test is
    nearly exact: on simulated shapes whose size drives both quantities, at most 8 % of the tests at
    5 % were positive, unless size accounts for over 80 % of both (then up to 45 %: do not test).

    Args:
        control: one number a unit; equal values share a rank, so round rough values.

    Returns:
        None where ``control`` explains one of the two quantities.
    """
    base = _centred_ranks(control)
    base = base / max(math.sqrt(float(base @ base)), _TIE)
    left, right = (
        ranks - base * float(base @ ranks) for ranks in map(_centred_ranks, (first, second))
    )
    if min(float(left @ left), float(right @ right)) < _TIE * first.size**3:
        return None
    return _permutation_test(left, right, [first.size], base, rng, draws)


def _permutation_test(
    left: FloatArray,
    right: FloatArray,
    sizes: Sequence[int],
    base: FloatArray,
    rng: np.random.Generator,
    draws: int,
) -> RankTest | None:
    """Test the correlation of two centred scores against arrangements of the second.

    The second is permuted within blocks of these ``sizes``; its part along ``base`` is removed
    from every arrangement.
    """
    scale = math.sqrt(float(left @ left) * float(right @ right))
    if scale < _TIE:
        return None
    rho = float(left @ right) / scale
    blocks = np.split(right, np.cumsum(sizes)[:-1])
    as_low = as_high = 0
    for start in range(0, draws, step := max(1, _CHUNK_VALUES // left.size)):
        shape = (min(step, draws - start), 1)
        arranged = np.concatenate(
            [rng.permuted(np.tile(block, shape), axis=1) for block in blocks], axis=1
        )
        arranged -= np.outer(arranged @ base, base)
        lengths = np.sqrt(np.einsum("ij,ij->i", arranged, arranged) * float(left @ left))
        correlations = np.divide(
            arranged @ left, lengths, out=np.zeros(len(lengths)), where=lengths > _TIE
        )
        as_low += int(np.count_nonzero(correlations <= rho + _TIE))
        as_high += int(np.count_nonzero(correlations >= rho - _TIE))
    controls = int(base.any()) + len(sizes) - 1
    return RankTest(
        rho=min(1.0, max(-1.0, rho)),
        interval=correlation_interval(rho, left.size - controls),
        # The observed order is one of the arrangements.
        p=min(1.0, 2 * (1 + min(as_low, as_high)) / (1 + draws)),
        shapes=left.size,
        groups=len(sizes),
    )


def correlation_interval(rho: float, units: int) -> Interval | None:
    """Return an approximate 95 % interval of a rank correlation; None with fewer than five units.

    Fisher's transformation with the variance (1 + rho^2 / 2) / (n - 3) of Bonett and Wright (2000,
    Psychometrika 65:23).
    """
    if units < 5 or abs(rho) > 1 - _TIE:
        return None
    half = float(special.ndtri(0.975)) * math.sqrt((1 + rho**2 / 2) / (units - 3))
    centre = math.atanh(rho)
    return Interval(rho, math.tanh(centre - half), math.tanh(centre + half))


def _centred_ranks(values: FloatArray) -> FloatArray:
    from scipy.stats import rankdata  # slow to import, and few analyses rank

    ranks: FloatArray = np.asarray(rankdata(values), dtype=np.float64)
    centred: FloatArray = ranks - ranks.mean()
    return centred
