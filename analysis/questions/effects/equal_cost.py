"""Among shapes of equal cost, which one is best, and by how much?

Every pair within a group is tested and Holm runs over all pairs of all groups, so that picking the
best after the fact is paid for. Variances of the differences are moderated over all pairs; the
intervals hold for all pairs together (Bonferroni).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy import special

from analysis.questions.effects.axes import Axes, cost_groups
from analysis.questions.effects.contrasts import Contrast, IntArray, Quality, Units
from analysis.questions.effects.result import EffectsSettings, EqualCostGroup, EqualCostShape
from analysis.runs.grouped import Grouped
from analysis.runs.scale import to_metric
from analysis.statistics.bounds import Span, clipped
from analysis.statistics.moderated import moderate_variances
from analysis.statistics.noninferiority import holm
from analysis.statistics.values import FloatArray, Interval

_PRIOR_SHARE: Final = 1 / 3
"""How much of the prior's degrees of freedom counts. Pairs share shapes, so their variances look
more alike than shapes are: with all of it, a difference was found in 11 % of sweeps without one
where shapes scatter unevenly, with a third in 5 to 7 %; without a prior hardly any true one is
found."""
_MOST_PAIRS: Final = 200_000
"""Pairs that are tested; of more, those of each group's best alone, and the others count in Holm's
family as not rejected."""


def equal_cost_groups(
    shapes: Grouped,
    axes: Axes,
    quality: Quality,
    within: Sequence[str],
    matched: bool,
    span: Span,
    settings: EffectsSettings,
) -> tuple[tuple[EqualCostGroup, ...], int]:
    """Return the groups of equal cost, cheapest first, and how many pairs were tested.

    Only shapes with the same names and the same values of ``within`` are grouped.

    Args:
        span: the range of a difference in quality.
    """
    if not shapes.costs:
        return (), 0
    held = [*axes.names, *(name for name in within if name in axes.ordered)]
    alike = np.where(quality.lost == 0, axes.group(held), -1)
    cost = np.array([shape.costs[shapes.costs[0]] for shape in shapes.shapes])
    labels = [shape.label for shape in shapes.shapes]
    groups = cost_groups(alike, cost, labels, settings.tolerance)
    # The best stands first.
    groups = [
        np.array(sorted(g.tolist(), key=lambda k: (-quality.mean[k], labels[k]))) for g in groups
    ]
    units, of_best = _pairs(groups)
    every = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    estimate, se, df = _differences(quality, units, matched)
    tested = np.isfinite(se) & (se != 0)
    p = np.full(len(units), np.nan)
    p[tested] = 2 * special.stdtr(df[tested], -np.abs(estimate[tested]) / se[tested])
    adjusted = holm([None if np.isnan(each) else each for each in p.tolist()], every - len(units))
    number = int(tested.sum()) + every - len(units)
    level = 1 - (1 - settings.confidence) / max(number, 1)
    found = []
    for group, first in zip(groups, of_best, strict=True):
        rows = [_row(shapes, quality, group[0], cost)]
        for at, shape in enumerate(group[1:].tolist(), first):
            contrast = Contrast(float(estimate[at]), float(se[at]), float(df[at]))
            p_holm = adjusted[at]
            rows.append(
                _row(
                    shapes,
                    quality,
                    shape,
                    cost,
                    behind=clipped(contrast.interval(level), span),
                    p_holm=p_holm,
                    established=p_holm is not None
                    and p_holm <= settings.alpha
                    and contrast.estimate > 0,
                )
            )
        unbeaten = tuple(row.label for row in rows if not row.established)
        found.append(EqualCostGroup(tuple(rows), rows[0].label, unbeaten))
    return tuple(found), number


def _pairs(groups: Sequence[IntArray]) -> tuple[Units, list[int]]:
    """Return the pairs of every group, the better first, and where those of each best begin."""
    every = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    plus, minus, of_best, count = [], [], [], 0
    for group in groups:
        first, second = np.triu_indices(len(group), 1)
        if every > _MOST_PAIRS:
            first, second = first[: len(group) - 1], second[: len(group) - 1]
        plus.append(group[first])
        minus.append(group[second])
        of_best.append(count)
        count += len(first)
    none = np.empty(0, np.int64)
    return Units(*(np.concatenate([none, *side])[:, None] for side in (plus, minus))), of_best


def _differences(
    quality: Quality, units: Units, matched: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the differences of pairs with their standard errors and degrees of freedom; NaN where
    seeds cannot tell."""
    alone = quality.estimates(units, matched=False)
    unknown = np.full(len(units), np.nan)
    if not matched:
        sd, df, size = quality.moderated.sd, quality.moderated.df, quality.size
        a, b = units.plus[:, 0], units.minus[:, 0]
        parts = np.stack([sd[k] ** 2 / np.maximum(size[k], 1) for k in (a, b)])
        with np.errstate(invalid="ignore", divide="ignore"):
            below = (parts**2 / np.stack([df[a], df[b]])).sum(axis=0)
            joint = parts.sum(axis=0) ** 2 / below
        known = np.minimum(size[a], size[b]) > 1
        return alone, np.where(known, np.sqrt(parts.sum(axis=0)), unknown), joint
    number, mean, squares = quality.moments(units)
    own = np.maximum(number - 1, 0)
    variance = squares / np.maximum(own, 1)
    # But for rounding, as of seeds that agree exactly.
    variance[np.sqrt(squares) <= 1e-12 * quality.largest] = 0.0
    prior = moderate_variances(np.where(own > 0, variance, np.nan), own.astype(np.float64))
    shared = 0.0
    if prior.prior_df is not None:
        shared = _PRIOR_SHARE * min(prior.prior_df, float(own.sum()))
    pooled = shared * (prior.prior_sd or 0.0) ** 2 + own * variance
    with np.errstate(invalid="ignore", divide="ignore"):
        se = np.sqrt(pooled / (shared + own) / number)
    se[(own < 1) | (se == 0)] = np.nan
    return np.where(own < 1, alone, mean), se, shared + own


def _row(
    shapes: Grouped,
    quality: Quality,
    at: int,
    cost: FloatArray,
    *,
    behind: Interval | None = None,
    p_holm: float | None = None,
    established: bool = False,
) -> EqualCostShape:
    shape = shapes.shapes[at]
    return EqualCostShape(
        config=shape.config,
        label=shape.label,
        cost=float(cost[at]),
        metric=to_metric(float(quality.mean[at]), shapes.goal, shapes.scale),
        n=int(quality.size[at]),
        behind=behind,
        p_holm=p_holm,
        established=established,
    )
