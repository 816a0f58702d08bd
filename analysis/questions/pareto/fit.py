"""Which shapes lie on the front of metric and cost, given what the seeds can tell?

Seed means are drawn from their moderated t distributions; a shape's P_front is the share of draws
in which no other shape costs at most as much and is at least as good, with one of the two strict.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Unpack

import numpy as np
import pandas as pd
from scipy import special

from analysis.questions.pareto.result import FrontClass, ParetoResult, ParetoRow, ParetoSettings
from analysis.runs.columns import RunColumns
from analysis.runs.grouped import Shape, grouped, seed_spread
from analysis.runs.scale import metric_span
from analysis.runs.table import Runs
from analysis.statistics.bounds import clipped
from analysis.statistics.dominance import dominated, dominated_share
from analysis.statistics.moderated import Moderated, moderate, why_unmeasured
from analysis.statistics.optional import moocore
from analysis.statistics.values import FloatArray, Interval
from hsweep.design.question import Goal
from hsweep.errors import UserError

_DEFAULT_SETTINGS = ParetoSettings()
MOST_NAMED: Final = 1000
"""Shapes up to which every one that dominates another is named."""
_AT_ONCE: Final = 1_000_000
"""Values of draws times shapes whose volumes are computed together, which bounds the memory."""


def fit(
    table: pd.DataFrame | Runs,
    *,
    config: Sequence[str],
    metric: str | None = None,
    goal: Goal = "max",
    costs: Sequence[str] = ("num_params",),
    nuisance: Sequence[str] = (),
    settings: ParetoSettings = _DEFAULT_SETTINGS,
    **columns: Unpack[RunColumns],
) -> ParetoResult:
    """Return the front of ``metric`` against ``costs`` with its uncertainty.

    Args:
        table: one row a run, or `Runs`, which carry the metric and the columns.
        costs: columns to keep small. A cost that varies between the runs of a shape (latency, wall
            time) is drawn like the metric, on a logarithmic axis where it is positive; the others
            are exact.
        nuisance: columns of settings (a learning rate) of which each shape stands at its best.
        columns: which columns tell runs apart and say how each ended (`RunColumns`).

    Raises:
        UserError: a table that cannot be used, with what to change.
    """
    if not costs:
        raise UserError("name at least one cost column (num_params, ...)")
    runs = Runs.of(table, metric, columns)
    shapes = grouped(runs, config, nuisance, goal=goal, costs=costs, crash_sd=settings.crash_sd)
    found, warnings = shapes.found, list(shapes.warnings)
    sign = 1.0 if goal == "max" else -1.0
    spread = seed_spread(found)
    rng = np.random.default_rng(settings.rng_seed)
    mean = np.array([sign * item.values.mean() for item in found])
    # As many independent runs would scatter as much.
    size = np.array([item.values.size / item.inflation for item in found])
    bounds = metric_span(np.concatenate([item.values for item in found]), goal, None)
    cost = np.array([[item.costs[name] for name in costs] for item in found])
    known, gap = bool(np.isfinite(spread.sd).all()), ""
    mean_draws = _draw(mean, size, spread, settings.draws, rng) if known else mean[None, :]
    cost_draws, notes = _cost_draws(found, costs, cost, settings.draws if known else 1, rng)
    warnings += notes
    if known:
        p_front = 1 - dominated_share(mean_draws, cost_draws)
    else:
        p_front = np.full(len(found), np.nan)
        gap = why_unmeasured([item.values for item in found])
        warnings.append(
            f"how far seeds scatter is not known ({gap}): no probability can be given, and the"
            " front is that of the means as measured"
        )
    hv, hv_note = _hypervolume(mean, cost, mean_draws, cost_draws, known, settings)
    se = spread.sd / np.sqrt(size)
    reach = se * special.stdtrit(spread.df, (1 + settings.confidence) / 2)
    beaten_by = _dominators([item.label for item in found], mean, cost)
    rows = tuple(
        ParetoRow(
            config=item.config,
            label=item.label,
            mean=float(sign * mean[k]),
            se_eb=float(se[k]),
            ci=clipped(_interval(float(sign * mean[k]), float(reach[k])), bounds),
            n=item.values.size,
            values=tuple(item.values.tolist()),
            crash_share=item.crash_share,
            costs=item.costs,
            p_front=float(p_front[k]),
            class_=_front_class(p_front[k], beaten_by[k], settings),
            dominated_by=beaten_by[k],
            lost=item.lost,
            setting=item.tuned.setting if item.tuned else None,
        )
        for k, item in enumerate(found)
    )
    return ParetoResult(
        table=rows,
        hv=hv,
        hv_note=hv_note,
        metric=runs.metric,
        goal=goal,
        costs=tuple(costs),
        prior_sd=spread.prior_sd,
        prior_df=spread.prior_df,
        settings=settings,
        warnings=tuple(warnings),
        nuisance=tuple(nuisance),
        noise_gap=gap,
    )


def _draw(
    mean: FloatArray, size: FloatArray, spread: Moderated, draws: int, rng: np.random.Generator
) -> FloatArray:
    """Return draws of the true means: mean + sd / sqrt(n) * t."""
    t = np.empty((draws, len(mean)))
    for column, df in zip(t.T, spread.df, strict=True):
        column[:] = rng.standard_t(df, draws)
    t *= spread.sd / np.sqrt(size)
    t += mean
    return t


def _cost_draws(
    found: list[Shape],
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


def _interval(centre: float, reach: float) -> Interval:
    return Interval(centre, centre - reach, centre + reach)


def _dominators(labels: Sequence[str], mean: FloatArray, cost: FloatArray) -> list[tuple[str, ...]]:
    """Return for each shape those whose means dominate it, of very many only those on the front."""
    found: list[tuple[str, ...]] = []
    among = np.arange(len(labels))
    if len(labels) > MOST_NAMED:
        among = among[~dominated(mean[None], cost[None])[0]]
    for own, price in zip(mean, cost, strict=True):
        is_as_good = (cost[among] <= price).all(axis=1) & (mean[among] >= own)
        is_better = (cost[among] < price).any(axis=1) | (mean[among] > own)
        found.append(tuple(labels[j] for j in among[is_as_good & is_better]))
    return found


def _front_class(
    probability: float, beaten_by: tuple[str, ...], settings: ParetoSettings
) -> FrontClass:
    if np.isnan(probability):
        return "untested_off" if beaten_by else "untested_on"
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
        return Interval(estimate, np.nan, np.nan), note + "; no interval without a seed spread"
    tail = (1 - settings.confidence) / 2
    volume_draws = np.concatenate(
        [
            volumes((some - best) / extent)
            for some in _losses_drawn(mean_draws, cost_draws, max(1, _AT_ONCE // len(mean)))
        ]
    )
    low, high = np.quantile(volume_draws, [tail, 1 - tail]) - volume_draws.mean() + estimate
    return Interval(estimate, max(0.0, float(low)), float(high)), note


def _losses_drawn(
    mean_draws: FloatArray, cost_draws: FloatArray, step: int
) -> Iterator[FloatArray]:
    """Yield what is minimised, [draws, shapes, 1 + costs], ``step`` draws at a time."""
    for first in range(0, len(mean_draws), step):
        means = mean_draws[first : first + step]
        costs = cost_draws if len(cost_draws) == 1 else cost_draws[first : first + step]
        alike = np.broadcast_to(costs, (len(means), *costs.shape[1:]))
        yield np.concatenate([-means[:, :, None], alike], axis=2)


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
