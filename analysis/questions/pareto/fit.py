"""Which shapes lie on the front of metric and cost, given what the seeds can tell?

Seed means are drawn from their moderated t distributions; a shape's P_front is the share of draws
in which no other shape costs at most as much and is at least as good, with one of the two strict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Unpack

import numpy as np
import pandas as pd
from scipy import special

from analysis.questions.pareto.result import FrontClass, ParetoResult, ParetoRow, ParetoSettings
from analysis.runs.columns import RunColumns
from analysis.runs.grouped import Grouped, Shape, grouped, seed_spread
from analysis.runs.scale import metric_span
from analysis.runs.table import Runs
from analysis.statistics.bounds import clipped
from analysis.statistics.dominance import dominated, dominated_share
from analysis.statistics.moderated import Moderated, moderate, why_unmeasured
from analysis.statistics.optional import moocore
from analysis.statistics.values import FloatArray, Interval, Mask
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
        config: columns that name a shape.
        costs: columns to keep small. A cost that varies between the runs of a shape (latency, wall
            time) is drawn like the metric, on a logarithmic axis where it is positive; the others
            are exact.
        nuisance: columns of settings (a learning rate) of which each shape stands at its best.
        columns: which columns tell runs apart and say how each ended (`RunColumns`).

    Raises:
        UserError: a table that cannot be used, with what to change.
    """
    runs = Runs.of(table, metric, columns)
    return fit_front(front_shapes(runs, config, nuisance, goal, costs, settings), settings)


def front_shapes(
    runs: Runs,
    config: Sequence[str],
    nuisance: Sequence[str],
    goal: Goal,
    costs: Sequence[str],
    settings: ParetoSettings,
) -> Grouped:
    """Return the shapes of a front.

    Raises:
        UserError: no cost, or a table that cannot be used.
    """
    if not costs:
        raise UserError("name at least one cost column (num_params, ...)")
    return grouped(runs, config, nuisance, goal=goal, costs=costs, crash_sd=settings.crash_sd)


def fit_front(shapes: Grouped, settings: ParetoSettings) -> ParetoResult:
    """Return the front of shapes with its uncertainty."""
    found, sign = shapes.found, 1.0 if shapes.goal == "max" else -1.0
    drawn = FrontDraws.of(shapes, settings)
    mean, spread = drawn.mean, drawn.spread
    warnings, gap = [*shapes.warnings, *drawn.notes], ""
    if drawn.is_known:
        p_front = 1 - dominated_share(drawn.means, drawn.costs)
    else:
        p_front = np.full(len(found), np.nan)
        gap = why_unmeasured([shape.values for shape in found])
        warnings.append(
            f"how far seeds scatter is not known ({gap}): no probability can be given, and the"
            " front is that of the means as measured"
        )
    volumes, hv_note = drawn.volumes([np.ones(len(found), bool)])
    se = spread.sd / np.sqrt(drawn.size)
    reach = se * special.stdtrit(spread.df, (1 + settings.confidence) / 2)
    bounds = metric_span(np.concatenate([shape.values for shape in found]), shapes.goal, None)
    beaten_by = _dominators([shape.label for shape in found], mean, drawn.cost)
    rows = tuple(
        ParetoRow(
            config=shape.config,
            label=shape.label,
            mean=float(sign * mean[k]),
            ci=clipped(_interval(float(sign * mean[k]), float(reach[k])), bounds),
            n=shape.values.size,
            values=tuple(shape.values.tolist()),
            crash_share=shape.crash_share,
            costs=shape.costs,
            p_front=float(p_front[k]),
            class_=_front_class(p_front[k], beaten_by[k], settings),
            dominated_by=beaten_by[k],
            lost=shape.lost,
            setting=shape.tuned.setting if shape.tuned else None,
        )
        for k, shape in enumerate(found)
    )
    return ParetoResult(
        table=rows,
        hv=volumes[0].interval(settings.confidence) if volumes else None,
        hv_note=hv_note,
        metric=shapes.metric,
        goal=shapes.goal,
        costs=shapes.costs,
        prior_sd=spread.prior_sd,
        prior_df=spread.prior_df,
        settings=settings,
        warnings=tuple(warnings),
        nuisance=shapes.nuisance,
        noise_gap=gap,
    )


@dataclass(frozen=True, slots=True)
class Volume:
    """The hypervolume of one front: of the seed means, and of every draw (None: no seed sd)."""

    estimate: float
    draws: FloatArray | None

    def interval(self, confidence: float) -> Interval:
        """Return it with the interval over the draws.

        A draw adds noise to means that hold some already, so its front is too good on average; the
        draws are shifted to the estimate before the interval is taken.
        """
        low, high = self.ends(confidence)
        return Interval(self.estimate, max(0.0, low) if low < 0 else low, high)

    def ends(self, confidence: float) -> tuple[float, float]:
        if self.draws is None:
            return np.nan, np.nan
        tail = (1 - confidence) / 2
        ends = np.quantile(self.draws, [tail, 1 - tail]) - self.draws.mean() + self.estimate
        return float(ends[0]), float(ends[1])


@dataclass(frozen=True)
class FrontDraws:
    """Shapes with draws of their true means and costs.

    Attributes:
        mean: of each shape, turned so that higher is better, shape [shapes].
        size: as many independent runs would scatter as much, shape [shapes].
        cost: shape [shapes, costs].
        means: shape [draws, shapes].
        costs: shape [draws or 1, shapes, costs].
        is_known: whether seeds tell how far they scatter; else the one draw is what was measured.
        notes: what to know of costs that vary.
    """

    mean: FloatArray
    size: FloatArray
    cost: FloatArray
    spread: Moderated
    means: FloatArray
    costs: FloatArray
    is_known: bool
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, shapes: Grouped, settings: ParetoSettings, same: Sequence[int] | None = None
    ) -> "FrontDraws":
        """Return the draws of shapes; ``same`` names for each one that has the very same runs, so
        that what is uncertain of both is drawn once."""
        found, sign = shapes.found, 1.0 if shapes.goal == "max" else -1.0
        rng = np.random.default_rng(settings.rng_seed)
        spread = seed_spread(found)
        mean = np.array([sign * shape.values.mean() for shape in found])
        size = np.array([shape.values.size / shape.inflation for shape in found])
        cost = np.array([[shape.costs[name] for name in shapes.costs] for shape in found])
        is_known = bool(np.isfinite(spread.sd).all())
        means, costs = mean[None, :], cost[None]
        notes: list[str] = []
        if is_known:
            means = _draw(mean, size, spread, settings.draws, rng)
            costs, notes = _cost_draws(found, shapes.costs, cost, settings.draws, rng)
        if same is not None:
            means = means[:, list(same)]
            costs = costs[:, list(same)]
        return cls(mean, size, cost, spread, means, costs, is_known, tuple(notes))

    def volumes(self, parts: Sequence[Mask]) -> tuple[list[Volume], str]:
        """Return the hypervolume of the front of each part of the shapes, all in one frame, and how
        they were computed.

        Best-of-seeds fronts and averages of per-seed fronts are biased upwards; the front of seed
        means hardly is.
        """
        if len(self.mean) < 2:
            return [], "a hypervolume needs at least two shapes"
        library = moocore()
        if self.cost.shape[1] > 1 and library is None:
            missing = "a hypervolume of three or more objectives needs the optional package moocore"
            return [], missing
        losses = np.concatenate([-self.mean[:, None], self.cost], axis=1)
        best, worst = losses.min(axis=0), losses.max(axis=0)
        extent = np.where(worst > best, worst - best, 1.0)

        def measured(points: FloatArray) -> FloatArray:
            scaled = (points - best) / extent
            if library is None or scaled.shape[2] == 2:
                return area(scaled[:, :, 0], scaled[:, :, 1])
            reference = np.ones(scaled.shape[2])
            return np.array([float(library.hypervolume(row, ref=reference)) for row in scaled])

        found = []
        for part in parts:
            draws = None
            if self.is_known:
                step = max(1, _AT_ONCE // len(self.mean))
                firsts = range(0, len(self.means), step)
                draws = np.concatenate([measured(self._losses(part, f, f + step)) for f in firsts])
            found.append(Volume(float(measured(losses[None, part])[0]), draws))
        note = (
            "front of seed means; metric and costs scaled to [0, 1] over the shapes, reference"
            " point at the worst of each"
        )
        return found, note if self.is_known else note + "; no interval without a seed spread"

    def _losses(self, part: Mask, first: int, end: int) -> FloatArray:
        """Return what is minimised in some draws, shape [draws, shapes of the part, 1 + costs]."""
        means = self.means[first:end, part]
        costs = self.costs if len(self.costs) == 1 else self.costs[first:end]
        alike = np.broadcast_to(costs[:, part], (len(means), *costs[:, part].shape[1:]))
        return np.concatenate([-means[:, :, None], alike], axis=2)


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
