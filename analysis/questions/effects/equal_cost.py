"""Among shapes of equal cost, which one is best, and by how much?

Every pair within a group is tested and Holm runs over all pairs of all groups, so that picking the
best after the fact is paid for. Variances of the differences are moderated over all pairs; the
intervals hold for all pairs together (Bonferroni).
"""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from analysis.questions.effects.contrasts import Contrast, Spread, Unit, lines, p_values
from analysis.questions.effects.result import EffectsSettings, EqualCostGroup, EqualCostShape
from analysis.runs.shape_runs import Shape, ShapeRuns, to_metric
from analysis.statistics.bounds import Span, clipped, negated
from analysis.statistics.moderated import agree, moderate
from analysis.statistics.noninferiority import holm
from analysis.statistics.values import FloatArray, Interval

_PRIOR_SHARE = 1 / 3
"""How much of the prior's degrees of freedom counts. Pairs share shapes, so their variances look
more alike than shapes are: with all of it, a difference was found in 11 % of sweeps without one
where shapes scatter unevenly, with a third in 5 to 7 %; without a prior hardly any true one is
found."""


def equal_cost_groups(
    runs: ShapeRuns, within: Sequence[str], matched: bool, settings: EffectsSettings
) -> tuple[tuple[EqualCostGroup, ...], int]:
    """Return the groups of equal cost, cheapest first, and how many pairs were tested.

    Only shapes with the same names and the same values of ``within`` are grouped.
    """
    held = [*runs.names, *(name for name in within if name in runs.axes)]
    groups = [
        group
        for alike in lines(runs.usable, held)
        for group in cost_groups(alike, settings.tolerance)
    ]
    groups.sort(key=lambda group: (group[0].cost or 0.0, group[0].label))
    units = [Unit((a,), (b,)) for group in groups for a, b in combinations(group, 2)]
    found = _differences(runs, units, matched)
    adjusted = holm(p_values(found))
    tested = sum(p is not None for p in adjusted)
    level = 1 - (1 - settings.confidence) / max(tested, 1)
    table = {
        (id(unit.plus[0]), id(unit.minus[0])): (contrast, p)
        for unit, contrast, p in zip(units, found, adjusted, strict=True)
    }
    span = runs.gain_span
    return tuple(_group(runs, group, table, settings, level, span) for group in groups), tested


def cost_groups(shapes: list[Shape], tolerance: float) -> list[list[Shape]]:
    """Return groups of two or more shapes within ``tolerance`` of their cheapest, from below."""
    priced = sorted(
        (shape for shape in shapes if shape.cost is not None),
        key=lambda shape: (shape.cost or 0.0, shape.label),
    )
    groups: list[list[Shape]] = []
    for shape in priced:
        first = groups[-1][0].cost if groups else None
        if first is not None and (shape.cost or 0.0) <= first * (1 + tolerance):
            groups[-1].append(shape)
        else:
            groups.append([shape])
    return [group for group in groups if len(group) > 1]


def _differences(runs: ShapeRuns, units: list[Unit], matched: bool) -> list[Contrast]:
    if not matched:
        spread = Spread(runs.usable)
        return [spread.contrast([unit], unit.estimate(matched=False)) for unit in units]
    differences: list[FloatArray] = [
        np.array(list(unit.differences().values()), dtype=np.float64) for unit in units
    ]
    size = max(abs(q) for shape in runs.usable for q in shape.quality.values())
    prior = moderate(differences, size=size)
    df = [max(values.size - 1, 0) for values in differences]
    prior_df = 0.0 if prior.prior_df is None else _PRIOR_SHARE * min(prior.prior_df, sum(df))
    found = []
    for unit, values, own in zip(units, differences, df, strict=True):
        if own < 1:
            found.append(Contrast(unit.estimate(matched=False), math.nan, math.nan))
            continue
        own_variance = 0.0 if agree(values, size) else float(values.var(ddof=1))
        squares = prior_df * (prior.prior_sd or 0.0) ** 2 + own * own_variance
        variance = squares / (prior_df + own) or math.nan
        found.append(
            Contrast(float(values.mean()), math.sqrt(variance / values.size), prior_df + own)
        )
    return found


def _group(
    runs: ShapeRuns,
    group: list[Shape],
    table: dict[tuple[int, int], tuple[Contrast, float | None]],
    settings: EffectsSettings,
    level: float,
    span: Span,
) -> EqualCostGroup:
    ranked = sorted(group, key=lambda shape: (-shape.mean, shape.label))
    best = ranked[0]
    rows = [_row(runs, best, None, None, False)]
    for shape in ranked[1:]:
        is_turned = (id(best), id(shape)) not in table
        contrast, p = table[(id(shape), id(best)) if is_turned else (id(best), id(shape))]
        interval = clipped(contrast.interval(level), span)
        if is_turned:
            interval = negated(interval)
        established = p is not None and p <= settings.alpha and interval.estimate > 0
        rows.append(_row(runs, shape, interval, p, established))
    return EqualCostGroup(
        tuple(rows), best.label, tuple(row.label for row in rows if not row.established)
    )


def _row(
    runs: ShapeRuns, shape: Shape, behind: Interval | None, p: float | None, established: bool
) -> EqualCostShape:
    return EqualCostShape(
        config=shape.config,
        label=shape.label,
        cost=shape.cost if shape.cost is not None else math.nan,
        metric=to_metric(shape.mean, runs.goal, runs.scale),
        n=len(shape.quality),
        behind=behind,
        p_holm=p,
        established=established,
    )
