"""Which shapes lie on the front of metric and cost, given what the seeds can tell?

Seed means are drawn from their moderated t distributions; a shape's P_front is the share of draws
in which no other shape costs at most as much and is at least as good, with one of the two strict.
"""

from collections.abc import Sequence
from typing import Unpack

import numpy as np
import pandas as pd
from scipy import stats

from analysis.findings.results import (
    FrontClass,
    Interval,
    ParetoResult,
    ParetoRow,
    ParetoSettings,
)
from analysis.runs.columns import RunColumns
from analysis.runs.configurations import Configuration, group_configurations
from analysis.runs.scale import FloatArray
from analysis.statistics.attainment import attainment
from analysis.statistics.moderated import Moderated, moderate
from analysis.statistics.optional import moocore
from hsweep.design.question import Goal

_DEFAULT_SETTINGS = ParetoSettings()


def fit(
    table: pd.DataFrame,
    *,
    config: Sequence[str],
    metric: str,
    goal: Goal = "max",
    costs: Sequence[str] = ("num_params",),
    settings: ParetoSettings = _DEFAULT_SETTINGS,
    **columns: Unpack[RunColumns],
) -> ParetoResult:
    """Return the front of ``metric`` against ``costs`` with its uncertainty.

    Args:
        table: one row a run.
        config: columns that name a shape.
        metric: column of the result.
        goal: whether it is minimised or maximised.
        costs: columns to keep small. A cost that varies between the runs of a shape (latency, wall
            time) is drawn like the metric, on a logarithmic axis where it is positive; the others
            are exact.
        settings: draws, seed, class limits, epsilon.
        columns: which columns tell runs apart and say how each ended (`RunColumns`).

    Raises:
        UserError: a table that cannot be used, with what to change.
    """
    grouped = group_configurations(
        table,
        config=config,
        metric=metric,
        goal=goal,
        costs=costs,
        crash_sd=settings.crash_sd,
        **columns,
    )
    found, warnings = grouped.found, grouped.warnings
    sign = 1.0 if goal == "max" else -1.0
    rng = np.random.default_rng(settings.rng_seed)
    quality = [sign * item.values for item in found]
    spread = moderate(quality)
    mean = np.array([values.mean() for values in quality])
    size = np.array([values.size for values in quality], dtype=np.float64)
    cost = np.array([[item.costs[name] for name in costs] for item in found])
    known = bool(np.isfinite(spread.sd).all())
    mean_draws = _draw(mean, size, spread, settings.draws, rng) if known else mean[None, :]
    cost_draws, notes = _cost_draws(found, costs, cost, settings.draws if known else 1, rng)
    warnings += notes
    if known:
        p_front = 1 - dominated(mean_draws, cost_draws, 0.0).mean(axis=0)
        p_epsilon = 1 - dominated(mean_draws, cost_draws, settings.epsilon).mean(axis=0)
    else:
        p_front = p_epsilon = np.full(len(found), np.nan)
        warnings.append(
            "some seed sd is unknown (single runs): no probability can be given, every shape is"
            " undecided and dominated_by compares single runs"
        )
    hv, hv_note = _hypervolume(mean, cost, mean_draws, cost_draws, known, settings)
    rows = tuple(
        _row(k, found, mean, spread, size, sign, cost, p_front, p_epsilon, settings)
        for k in range(len(found))
    )
    surfaces, attainment_note = attainment(found, goal, len(costs))
    return ParetoResult(
        table=rows,
        hv=hv,
        hv_note=hv_note,
        epsilon=settings.epsilon,
        metric=metric,
        goal=goal,
        costs=tuple(costs),
        prior_sd=spread.prior_sd,
        prior_df=spread.prior_df,
        settings=settings,
        warnings=tuple(warnings),
        attainment=surfaces,
        attainment_note=attainment_note,
    )


def dominated(quality: FloatArray, cost: FloatArray, epsilon: float) -> FloatArray:
    """Return in which draws each shape is dominated, shape [draws, shapes].

    Args:
        quality: higher is better, shape [draws, shapes].
        cost: lower is better, shape [draws or 1, shapes, costs].
        epsilon: a cheaper shape also dominates if it is worse by no more than this.
    """
    result = np.zeros(quality.shape, dtype=bool)
    for k in range(quality.shape[1]):
        at_most = (cost <= cost[:, k : k + 1]).all(axis=2)
        cheaper = at_most & (cost < cost[:, k : k + 1]).any(axis=2)
        equal = at_most & ~cheaper
        own = quality[:, k : k + 1]
        beats = (cheaper & (quality >= own - epsilon)) | (equal & (quality > own))
        result[:, k] = beats.any(axis=1)
    return result.astype(np.float64)


def _draw(
    mean: FloatArray, size: FloatArray, spread: Moderated, draws: int, rng: np.random.Generator
) -> FloatArray:
    """Return draws of the true means: mean + sd / sqrt(n) * t."""
    t = np.stack([rng.standard_t(df, draws) for df in spread.df], axis=1)
    return np.asarray(mean + spread.sd / np.sqrt(size) * t, dtype=np.float64)


def _cost_draws(
    found: list[Configuration],
    costs: Sequence[str],
    cost: FloatArray,
    draws: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, list[str]]:
    """Return costs [draws or 1, shapes, costs], and what to know of those that vary.

    Times scatter in proportion to their size, so positive costs are drawn by the moderated
    deviations of their logarithms: cost * exp(sd / sqrt(n) * t).
    """
    noisy = [name for name in costs if any(np.ptp(item.cost_values[name]) > 0 for item in found)]
    if draws == 1 or not noisy:
        return cost[None], []
    drawn = np.repeat(cost[None], draws, axis=0)
    known: list[str] = []
    for column, name in enumerate(costs):
        if name not in noisy:
            continue
        groups = [item.cost_values[name] for item in found]
        size = np.array([group.size for group in groups], dtype=np.float64)
        is_positive = all((group > 0).all() for group in groups)
        spread = moderate([np.log(group) for group in groups] if is_positive else groups)
        if not np.isfinite(spread.sd).all():
            continue
        known.append(name)
        if is_positive:
            relative = _draw(np.zeros(len(found)), size, spread, draws, rng)
            drawn[:, :, column] = cost[:, column] * np.exp(relative)
        else:
            drawn[:, :, column] = _draw(cost[:, column], size, spread, draws, rng)
    notes = []
    if known:
        notes.append(f"costs that vary between seeds are drawn too: {', '.join(known)}")
    if unknown := [name for name in noisy if name not in known]:
        notes.append(
            f"costs that vary between seeds, by how much is not known (single runs), so their "
            f"means are taken as exact: {', '.join(unknown)}"
        )
    return drawn, notes


def _row(
    k: int,
    found: list[Configuration],
    mean: FloatArray,
    spread: Moderated,
    size: FloatArray,
    sign: float,
    cost: FloatArray,
    p_front: FloatArray,
    p_epsilon: FloatArray,
    settings: ParetoSettings,
) -> ParetoRow:
    item = found[k]
    se = float(spread.sd[k] / np.sqrt(size[k]))
    reach = se * float(stats.t.ppf((1 + settings.confidence) / 2, spread.df[k]))
    centre = float(sign * mean[k])
    beaten_by = [
        other.label
        for j, other in enumerate(found)
        if (cost[j] <= cost[k]).all()
        and mean[j] >= mean[k]
        and ((cost[j] < cost[k]).any() or mean[j] > mean[k])
    ]
    return ParetoRow(
        config=item.config,
        label=item.label,
        mean=centre,
        se_eb=se,
        ci=Interval(centre, centre - reach, centre + reach),
        n=int(size[k]),
        values=tuple(float(value) for value in item.values),
        crash_share=item.crash_share,
        costs=item.costs,
        p_front=float(p_front[k]),
        class_=_front_class(p_front[k], settings),
        dominated_by=tuple(beaten_by),
        p_epsilon=float(p_epsilon[k]),
        epsilon_class=_front_class(p_epsilon[k], settings),
        lost=item.lost,
    )


def _front_class(probability: float, settings: ParetoSettings) -> FrontClass:
    if probability >= settings.on:
        return "on"
    return "off" if probability <= settings.off else "undecided"


def _hypervolume(
    mean: FloatArray,
    cost: FloatArray,
    mean_draws: FloatArray,
    cost_draws: FloatArray,
    known: bool,
    settings: ParetoSettings,
) -> tuple[Interval | None, str]:
    """Return the hypervolume of the front of seed means and its interval over the draws.

    Best-of-seeds fronts and averages of per-seed fronts are biased upwards; the front of seed means
    hardly is. A draw adds noise to means that hold some already, so its front is too good on
    average; the draws are shifted to the estimate before the interval is taken.
    """
    if len(mean) < 2:
        return None, "a hypervolume needs at least two shapes"
    num_costs = cost.shape[1]
    library = moocore()
    if num_costs > 1 and library is None:
        return None, "a hypervolume of three or more objectives needs the optional package moocore"
    losses = np.concatenate([-mean[:, None], cost], axis=1)
    best, worst = losses.min(axis=0), losses.max(axis=0)
    extent = np.where(worst > best, worst - best, 1.0)
    centre = (losses - best) / extent
    drawn = np.concatenate(
        [
            -mean_draws[:, :, None],
            np.broadcast_to(cost_draws, (len(mean_draws), *cost_draws.shape[1:])),
        ],
        axis=2,
    )
    drawn = (drawn - best) / extent

    def volumes(points: FloatArray) -> FloatArray:
        if library is None or num_costs == 1:
            return area(points[:, :, 0], points[:, :, 1])
        reference = np.ones(points.shape[2])
        return np.array([float(library.hypervolume(row, ref=reference)) for row in points])

    estimate = float(volumes(centre[None])[0])
    note = (
        "front of seed means; metric and costs scaled to [0, 1] over the shapes, reference point at"
        " the worst of each"
    )
    if not known:
        return Interval(estimate, np.nan, np.nan), note + "; no interval from single runs"
    tail = (1 - settings.confidence) / 2
    volume_draws = volumes(drawn)
    low, high = np.quantile(volume_draws, [tail, 1 - tail]) - volume_draws.mean() + estimate
    return Interval(estimate, max(0.0, float(low)), float(high)), note


def area(loss: FloatArray, cost: FloatArray) -> FloatArray:
    """Return the area dominated by the points of each row, both minimised, within (-inf, 1]^2.

    Args:
        loss: shape [draws, shapes].
        cost: shape [draws, shapes].
    """
    order = np.argsort(cost, axis=1, kind="stable")
    sorted_cost = np.minimum(np.take_along_axis(cost, order, axis=1), 1.0)
    best = np.minimum.accumulate(np.take_along_axis(loss, order, axis=1), axis=1)
    until_next = np.diff(sorted_cost, axis=1, append=1.0)
    return np.asarray((np.maximum(1.0 - best, 0.0) * until_next).sum(axis=1), dtype=np.float64)
