"""One-sided tests against a margin: Holm's correction, power, and the seeds that a power needs."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from scipy import special

from analysis.statistics.moderated import satterthwaite

MOST_SEEDS: Final = 200
MAX_SEEDS: Final = 50
"""Most seeds of one shape that an answer asks for."""


def holm(p_values: Sequence[float | None], dropped: int = 0) -> list[float | None]:
    """Return Holm's adjusted p values; None stays None and does not count, ``dropped`` further
    candidates count as not rejected."""
    order = sorted(
        (k for k, p in enumerate(p_values) if p is not None), key=lambda k: p_values[k] or 0.0
    )
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, k in enumerate(order):
        highest = max(highest, min(1.0, (len(order) + dropped - rank) * (p_values[k] or 0.0)))
        adjusted[k] = highest
    return adjusted


def power(
    margin: float,
    n: int,
    candidates: int,
    alpha: float,
    sds: tuple[float, float] = (1.0, 1.0),
    kept: float = 1.0,
) -> float:
    """Return the probability to establish a candidate of n seeds that equals the baseline.

    The lean question's test: t with Satterthwaite's degrees of freedom, at Holm's first level (the
    other candidates are taken to be hopeless); under exact equality its statistic is a non-central
    t.

    Args:
        margin: how much worse still counts as equal.
        candidates, alpha: how many were tried, at which family-wise error rate.
        sds: seed standard deviations of the two, in the unit of the margin.
        kept: share of the baseline's seeds that are not lost.
    """
    seeds = (n, math.floor(n * kept + 1e-9))
    if min(seeds) < 2:
        return 0.0
    variances = [sd * sd / size for sd, size in zip(sds, seeds, strict=True)]
    total, df = sum(variances), satterthwaite(variances, [size - 1 for size in seeds])
    critical = special.stdtrit(df, 1 - alpha / candidates)
    missed = float(special.nctdtr(df, margin / math.sqrt(total), critical))
    # No number where next to nothing is missed: the margin is over 30 standard errors.
    return 1.0 if math.isnan(missed) else 1 - missed


def seeds_for(
    margin: float,
    candidates: int,
    alpha: float,
    target: float,
    sds: tuple[float, float] = (1.0, 1.0),
    most: int = MOST_SEEDS,
    kept: float = 1.0,
) -> int | None:
    """Return the fewest seeds with which ``power`` reaches ``target``; None if over ``most``.

    The power grows with the seeds, so the number is found by bisection.
    """

    def reaches(n: int) -> bool:
        return power(margin, n, candidates, alpha, sds, kept) >= target

    seeds = range(2, most + 1)
    return next(iter(seeds[bisect_left(seeds, True, key=reaches) :]), None)


def confirming_seeds(margin_over_sd: float, alpha: float) -> int:
    """Return the seeds with which a confirmation of one equal shape succeeds nine times in ten.

    One more than ``power`` gives: unequal sample variances cost degrees of freedom.
    """
    return max((seeds_for(margin_over_sd, 1, alpha, 0.9) or MOST_SEEDS) + 1, 3)
