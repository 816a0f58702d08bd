"""Which shapes lie on the front of metric and cost, as far as the seeds can tell?

Seed means are drawn from their moderated t distributions; a shape's P_front is the share of draws
in which no other shape costs at most as much and is at least as good, with one of the two strict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

import numpy as np
from scipy import special

from analysis.questions.pareto.result import FrontClass, ParetoResult, ParetoRow, ParetoSettings
from analysis.runs.grouped import Grouped
from analysis.runs.scale import metric_span
from analysis.statistics.bounds import clipped
from analysis.statistics.dominance import dominated, dominated_share
from analysis.statistics.moderated import (
    Moderated,
    moderate,
    moderate_variances,
    why_unmeasured,
)
from analysis.statistics.values import FloatArray, Interval, Mask

_CHUNK_VALUES: Final = 1_000_000
"""Values of draws times shapes whose volumes are computed together, which bounds the memory."""


def fit(shapes: Grouped, settings: ParetoSettings = ParetoSettings()) -> ParetoResult:
    """Return the front of shapes with its uncertainty.

    A cost that varies between the runs of a shape (latency, wall time) is drawn like the metric, on
    a logarithmic axis where it is positive; the others are exact.
    """
    items, sign = shapes.comparable, 1.0 if shapes.goal == "max" else -1.0
    draws = FrontDraws.of(shapes, settings)
    spread, warnings, gap = draws.spread, [*shapes.warnings, *draws.notes], ""
    p_front = np.full(len(items), np.nan)
    if draws.is_known:
        p_front = 1 - dominated_share(draws.means, draws.costs)
    else:
        gap = why_unmeasured([shape.values for shape in items])
        warnings.append(
            f"how far seeds scatter is not known ({gap}): no probability can be given, and the"
            " front is that of the means as measured"
        )
    volumes, hv_note = draws.volumes([np.ones(len(items), bool)])
    means = (sign * draws.mean).tolist()
    reach = special.stdtrit(spread.df, (1 + settings.confidence) / 2)
    reach *= spread.sd / np.sqrt(draws.size)
    bounds = metric_span(np.concatenate([shape.values for shape in items]), shapes.goal, None)
    beaten = dominated(draws.mean[None], draws.cost[None])[0].tolist()
    rows = tuple(
        ParetoRow(
            **shape.row_fields,
            ci=clipped(Interval(mean, mean - half, mean + half), bounds),
            p_front=chance,
            class_=_front_class(chance, is_dominated, settings),
            is_dominated=is_dominated,
        )
        for shape, mean, half, chance, is_dominated in zip(
            items, means, reach.tolist(), p_front.tolist(), beaten, strict=True
        )
    )
    return ParetoResult(
        table=rows,
        hv=volume_interval(volumes[0], settings.confidence) if volumes else None,
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
        items, sign = shapes.comparable, 1.0 if shapes.goal == "max" else -1.0
        rng = np.random.default_rng(settings.rng_seed)
        spread = moderate_variances(*np.array([shape.seed_variance for shape in items]).T)
        mean = np.array([sign * shape.values.mean() for shape in items])
        size = np.array([shape.values.size / shape.inflation for shape in items])
        cost = np.array([[shape.costs[name] for name in shapes.costs] for shape in items])
        is_known = bool(np.isfinite(spread.sd).all())
        means, costs = mean[None, :], cost[None]
        notes: list[str] = []
        if is_known:
            means = _draw(mean, size, spread, settings.draws, rng)
            costs, notes = _cost_draws(shapes, cost, settings.draws, rng)
        if same is not None:
            means, costs = means[:, list(same)], costs[:, list(same)]
        return cls(mean, size, cost, spread, means, costs, is_known, tuple(notes))

    def volumes(self, parts: Sequence[Mask]) -> tuple[list[FloatArray], str]:
        """Return the hypervolume of the front of each part of the shapes, all in one frame, and how
        they were computed.

        Each is an array: the volume of the seed means, and then that of every draw, of which there
        are none where no seed sd is known. A draw adds noise to means that hold some already, so
        its front is too good on average; the draws are centred on the first. (Best-of-seeds
        fronts and averages of per-seed fronts are biased upwards; the front of seed means hardly
        is.)
        """
        if len(self.mean) < 2:
            return [], "a hypervolume needs at least two shapes"
        if self.cost.shape[1] > 1 and find_spec("moocore") is None:
            missing = "a hypervolume of three or more objectives needs the optional package moocore"
            return [], missing
        losses = _losses(self.mean[None], self.cost[None])
        best, worst = losses[0].min(axis=0), losses[0].max(axis=0)
        extent = np.where(worst > best, worst - best, 1.0)

        def volumes_of(points: FloatArray) -> FloatArray:
            scaled = (points - best) / extent
            if scaled.shape[2] == 2:
                return area(scaled[:, :, 0], scaled[:, :, 1])
            from moocore import hypervolume

            reference = np.ones(scaled.shape[2])
            return np.array([float(hypervolume(row, ref=reference)) for row in scaled])

        step = max(1, _CHUNK_VALUES // len(self.mean))
        chunks = [slice(first, first + step) for first in range(0, len(self.means), step)]
        costs = np.broadcast_to(self.costs, (len(self.means), *self.cost.shape))
        volumes = []
        for part in parts:
            volume = volumes_of(losses[:, part])
            if self.is_known:
                chunk_volumes = [
                    volumes_of(_losses(self.means[at, part], costs[at, part])) for at in chunks
                ]
                draws = np.concatenate(chunk_volumes)
                volume = np.concatenate([volume, draws - draws.mean() + volume])
            volumes.append(volume)
        note = (
            "front of seed means; metric and costs scaled to [0, 1] over the shapes, reference"
            " point at the worst of each"
        )
        return volumes, note if self.is_known else note + "; no interval without a seed spread"


def volume_interval(volume: FloatArray, confidence: float, low: float = 0.0) -> Interval:
    """Return a hypervolume (see `FrontDraws.volumes`) with its interval, at least ``low``; NaN
    without draws."""
    tail = (1 - confidence) / 2
    ends = np.quantile(volume[1:], [tail, 1 - tail]) if volume.size > 1 else np.full(2, np.nan)
    return Interval(*(float(end) for end in (volume[0], np.maximum(ends[0], low), ends[1])))


def _losses(means: FloatArray, costs: FloatArray) -> FloatArray:
    """Return what is minimised, shape [draws, shapes, 1 + costs]."""
    return np.concatenate([-means[:, :, None], costs], axis=2)


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
    shapes: Grouped, cost: FloatArray, draws: int, rng: np.random.Generator
) -> tuple[FloatArray, list[str]]:
    """Return costs [draws or 1, shapes, costs], and what to know of those that vary.

    Times scatter in proportion to their size, so positive costs are drawn by the moderated
    deviations of their logarithms: cost * exp(sd / sqrt(n) * t).
    """
    cost_draws = cost[None]
    known: list[str] = []
    for column, name in enumerate(shapes.costs):
        groups = [shape.numbers[name] for shape in shapes.comparable]
        if not any(np.ptp(group) > 0 for group in groups):
            continue
        size = np.array([group.size for group in groups], dtype=np.float64)
        is_positive = all((group > 0).all() for group in groups)
        spread = moderate([np.log(group) for group in groups] if is_positive else groups)
        if not np.isfinite(spread.sd).all():
            continue
        if not known:
            cost_draws = np.repeat(cost_draws, draws, axis=0)
        known.append(name)
        mean_cost = cost[:, column]
        drawn = _draw(mean_cost * (not is_positive), size, spread, draws, rng)
        cost_draws[:, :, column] = mean_cost * np.exp(drawn) if is_positive else drawn
    named = ", ".join(known)
    return cost_draws, [f"costs that vary between seeds are drawn too: {named}"] if known else []


def _front_class(probability: float, is_dominated: bool, settings: ParetoSettings) -> FrontClass:
    if np.isnan(probability):
        return "untested_off" if is_dominated else "untested_on"
    if probability >= 1 - settings.alpha:
        return "on"
    return "off" if probability <= settings.alpha else "undecided"


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
