"""Hypervolumes of several fronts in one frame, and their differences.

All fronts are scaled by the same extremes and bounded by the same reference point, the worst of
each objective over the shapes of all studies. Draws are paired: a shape that two studies share with
the very same runs is drawn once for both, so its uncertainty cancels in their difference.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis.questions.pareto.fit import area
from analysis.runs.grouped import Shape, seed_spread
from analysis.statistics.moderated import moderate
from analysis.statistics.optional import moocore
from analysis.statistics.values import FloatArray, Interval
from hsweep.design.question import Goal


@dataclass(frozen=True, slots=True)
class Volume:
    """The hypervolume of one front: of the seed means, and of every draw (None: no seed sd)."""

    estimate: float
    draws: FloatArray | None


def volumes(
    fronts: Sequence[Sequence[Shape]],
    goal: Goal,
    costs: Sequence[str],
    draws: int,
    rng_seed: int,
) -> tuple[list[Volume], str]:
    """Return the hypervolume of every front in the common frame, and how it was computed."""
    library = moocore()
    if len(costs) > 1 and library is None:
        return [], "a hypervolume of three or more objectives needs the optional package moocore"
    sign = 1.0 if goal == "min" else -1.0
    means = [_means(shapes, sign, costs) for shapes in fronts]
    every = np.concatenate(means)
    best, worst = every.min(axis=0), every.max(axis=0)
    extent = np.where(worst > best, worst - best, 1.0)

    def measured(points: FloatArray) -> FloatArray:
        scaled = (points - best) / extent
        if library is None or len(costs) == 1:
            return area(scaled[:, :, 0], scaled[:, :, 1])
        reference = np.ones(scaled.shape[2])
        return np.array([float(library.hypervolume(row, ref=reference)) for row in scaled])

    found = []
    for shapes, mean in zip(fronts, means, strict=True):
        drawn = _drawn(shapes, mean, sign, costs, draws, rng_seed)
        estimate = float(measured(mean[None])[0])
        found.append(Volume(estimate, None if drawn is None else measured(drawn)))
    return found, (
        "front of seed means; metric and costs scaled to [0, 1] over the shapes of all studies, "
        "reference point at the worst of each; draws paired"
    )


def volume_interval(volume: Volume, confidence: float) -> Interval:
    """Return a hypervolume with its interval; a draw's front is too good on average, so the draws
    are shifted to the estimate."""
    found = _shifted(volume.estimate, volume.draws, confidence)
    return found._replace(low=max(0.0, found.low)) if found.low < 0 else found


def volume_difference(
    first: Volume, second: Volume, confidence: float
) -> tuple[Interval, float | None]:
    """Return first minus second with its interval, and the share of draws above 0."""
    estimate = first.estimate - second.estimate
    if first.draws is None or second.draws is None:
        return Interval(estimate, np.nan, np.nan), None
    drawn = first.draws - second.draws
    shifted = drawn - drawn.mean() + estimate
    # Where nothing differs neither front is the better one.
    better = float(np.mean(shifted > 1e-12) + 0.5 * np.mean(np.abs(shifted) <= 1e-12))
    return _shifted(estimate, drawn, confidence), better


def _shifted(estimate: float, drawn: FloatArray | None, confidence: float) -> Interval:
    if drawn is None:
        return Interval(estimate, np.nan, np.nan)
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail]) - drawn.mean() + estimate
    return Interval(estimate, float(low), float(high))


def _means(shapes: Sequence[Shape], sign: float, costs: Sequence[str]) -> FloatArray:
    """Return (metric as a loss, costs...) of each shape, shape [shapes, 1 + costs]."""
    return np.array(
        [[sign * item.values.mean(), *(item.costs[name] for name in costs)] for item in shapes]
    )


def _drawn(
    shapes: Sequence[Shape],
    mean: FloatArray,
    sign: float,
    costs: Sequence[str],
    draws: int,
    rng_seed: int,
) -> FloatArray | None:
    """Return draws of the true means, shape [draws, shapes, 1 + costs]; None without a seed sd."""
    drawn = np.repeat(mean[None], draws, axis=0)
    columns = [[sign * item.values for item in shapes]]
    columns += [[item.cost_values[name] for item in shapes] for name in costs]
    for at, groups in enumerate(columns):
        if at > 0 and not any(np.ptp(group) > 0 for group in groups):
            continue
        is_positive = at > 0 and all((group > 0).all() for group in groups)
        spread = (
            seed_spread(shapes)
            if at == 0
            else moderate([np.log(group) for group in groups] if is_positive else groups)
        )
        if not np.isfinite(spread.sd).all():
            if at == 0:
                return None
            continue
        for k, (item, group) in enumerate(zip(shapes, groups, strict=True)):
            # Seeded by its runs: the same runs draw the same, in whichever study they stand.
            content = repr((sorted(item.config.items()), sorted(group.tolist()))).encode()
            rng = np.random.default_rng([rng_seed, at, zlib.crc32(content)])
            t = special.stdtrit(spread.df[k], rng.random(draws))
            inflation = item.inflation if at == 0 else 1.0
            step = spread.sd[k] * np.sqrt(inflation / group.size) * t
            drawn[:, k, at] = mean[k, at] * np.exp(step) if is_positive else mean[k, at] + step
    return drawn
