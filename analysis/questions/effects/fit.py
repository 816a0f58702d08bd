"""What does one axis do with the others held?

Matched pairs of shapes that differ in one axis alone give each axis its gain per step; squares of
four give the interaction of two axes. Only full-budget runs count: a shape that lost runs to early
stopping is a bound, so the pairs it belongs to are lost, and counted as such.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import pandas as pd

from analysis.questions.effects.contrasts import LOST, Contrast, Quality, Units
from analysis.questions.effects.grid import ShapeGrid
from analysis.questions.effects.result import (
    AxisEffect,
    EffectsResult,
    EffectsSettings,
    EffectVerdict,
    Interaction,
    Level,
    PairGain,
    StepEffect,
)
from analysis.runs.grouped import Grouped
from analysis.runs.scale import metric_span, to_metric
from analysis.statistics.bounds import ANYWHERE, Span, clipped, difference_span, mean_interval
from analysis.statistics.noninferiority import holm
from analysis.statistics.values import IntArray, Interval
from hsweep.errors import UserError

_MATCHED: Final = (
    "two-sided t test over replicates: each seed gives one contrast, averaged over the matched"
    " pairs, with one degree of freedom less than seeds"
)
_UNMATCHED: Final = (
    "two-sided t test of independent runs with moderated seed variances and Satterthwaite's degrees"
    " of freedom (no two shapes have two seeds in common)"
)


def fit(
    shapes: Grouped,
    *,
    answered: Sequence[str] = (),
    settings: EffectsSettings = EffectsSettings(),
) -> EffectsResult:
    """Return the effect of every axis, and their interactions.

    Args:
        answered: axes that a question with a test of its own asks about. Here they get means and no
            verdict: two tests of one thing, one of them weaker, would contradict each other.

    Raises:
        UserError: fewer than two axes that vary, an axis that is not finite, or no matched pair.
    """
    grid, quality = ShapeGrid.of(shapes), Quality(shapes.shapes)
    if len(grid.ordered) + len(grid.names) < 2 or not grid.ordered:
        varying = ", ".join((*grid.ordered, *grid.names)) or "nothing"
        raise UserError(
            f"effects need two axes that vary, at least one of numbers; what varies is {varying}"
        )
    pairs = {axis: grid.pairs(axis) for axis in grid.ordered}
    lost = np.concatenate([quality.loss_codes(units) for units in pairs.values()])
    quality.matched = shapes.are_replicates_named and bool((lost == 0).any())
    if not quality.matched:
        lost = np.concatenate([quality.loss_codes(units) for units in pairs.values()])
    _need_pairs(grid, lost)
    ends = [float(end(s.values)) for s in shapes.comparable for end in (np.min, np.max)]
    span = metric_span(ends, shapes.goal, shapes.scale)
    # The range of a gain: unbounded in decades, that of a difference in the metric's unit.
    gains = (-100.0, 100.0) if shapes.scale == "accuracy" else difference_span(span)
    comparison = _Comparison(
        shapes, grid, quality, span, ANYWHERE if shapes.scale == "error" else gains, settings
    )
    effects = _axes(comparison, pairs, answered)
    tested_axes = [axis for axis in effects if axis.verdict != "answered"]
    gap = ""
    if tested_axes and all(axis.p is None for axis in tested_axes):
        gap = "no spread between seeds" if (quality.size > 1).any() else "single runs"
    return EffectsResult(
        axes=effects,
        interactions=_interactions(comparison, pairs, answered),
        test=_MATCHED if quality.matched else _UNMATCHED,
        matched=quality.matched,
        replicates=quality.seeds,
        tried=len(shapes.shapes),
        lost=_reasons(quality.lost),
        held=grid.names,
        follows=grid.follows,
        metric=shapes.metric,
        goal=shapes.goal,
        scale=shapes.scale,
        settings=settings,
        warnings=(*shapes.warnings, *_warnings(grid, effects, quality, gap)),
        nuisance=shapes.nuisance,
        noise_gap=gap,
    )


@dataclass(frozen=True)
class _Comparison:
    """The shapes and how they are compared; ``span`` and ``gains`` are the ranges of the metric and
    of a gain."""

    shapes: Grouped
    grid: ShapeGrid
    quality: Quality
    span: Span
    gains: Span
    settings: EffectsSettings

    def usable(self, units: Units) -> tuple[Units, dict[str, int]]:
        """Return the units that are not lost, and why the others are, with their number."""
        lost = self.quality.loss_codes(units)
        return units[lost == 0], _reasons(lost)


def _need_pairs(grid: ShapeGrid, lost: IntArray) -> None:
    if not lost.size:
        raise UserError(
            f"no two shapes differ in one axis alone (axes: {', '.join(grid.ordered)}); a grid has"
            " such pairs, a random search seldom does"
        )
    if (lost > 0).all():
        reasons = ", ".join(f"{count} to {reason}" for reason, count in _reasons(lost).items())
        raise UserError(
            f"all {lost.size} pairs of shapes that differ in one axis are lost: {reasons}"
        )


def _reasons(lost: IntArray) -> dict[str, int]:
    counts = np.bincount(lost, minlength=len(LOST)).tolist()
    reasons = {
        reason: count for reason, count in zip(LOST, counts, strict=True) if reason and count
    }
    return dict(sorted(reasons.items()))


def _verdict(contrast: Contrast, p_holm: float | None, alpha: float) -> EffectVerdict:
    if p_holm is None:
        return "untested"
    if p_holm > alpha:
        return "unclear"
    return "helps" if contrast.estimate > 0 else "hurts"


def _axes(
    comparison: _Comparison, pairs: dict[str, Units], answered: Sequence[str]
) -> tuple[AxisEffect, ...]:
    grid, quality, settings = comparison.grid, comparison.quality, comparison.settings
    usable = {axis: comparison.usable(units) for axis, units in pairs.items()}

    def mean_of(axis: str, units: Units) -> Contrast:
        contrast = quality.average(units)
        # Of what the question tests itself, nothing that could pass for a test.
        return Contrast(contrast.estimate, math.nan, math.nan) if axis in answered else contrast

    steps = []
    for axis, (units, _) in usable.items():
        ends = {"low": units.minus[:, 0], "high": units.plus[:, 0]}
        ranks = pd.DataFrame({end: grid.ranks[axis][shapes] for end, shapes in ends.items()})
        step = ranks.groupby(["low", "high"]).ngroup().to_numpy()
        for some in (units[step == at] for at in range(step.max(initial=-1) + 1)):
            steps.append((axis, some, mean_of(axis, some)))
    means = {axis: mean_of(axis, units) for axis, (units, _) in usable.items()}
    step_effects: dict[str, list[StepEffect]] = {axis: [] for axis in pairs}
    for (axis, units, mean), p_holm in zip(steps, holm([c.p for *_, c in steps]), strict=True):
        effect = clipped(mean.interval(settings.confidence), comparison.gains)
        low, high = (grid.values(axis, ends[:1, 0])[0] for ends in (units.minus, units.plus))
        gains, seeds = quality.estimates(units), quality.matching(units)[0]
        rows = zip(units.minus[:, 0].tolist(), gains.tolist(), seeds.tolist(), strict=True)
        gains_by_pair = tuple(PairGain(grid.other_values(axis, s), gain, n) for s, gain, n in rows)
        step_effects[axis].append(StepEffect(low, high, effect, mean.p, p_holm, gains_by_pair))
    effects = []
    for (axis, mean), p_holm in zip(
        means.items(), holm([c.p for c in means.values()]), strict=True
    ):
        shapes_of_axis = np.unique(np.concatenate([pairs[axis].plus, pairs[axis].minus]))
        verdict = _verdict(mean, p_holm, settings.alpha)
        units, lost = usable[axis]
        effects.append(
            AxisEffect(
                axis=axis,
                values=tuple(sorted(set(grid.values(axis, shapes_of_axis)))),
                effect=clipped(mean.interval(settings.confidence), comparison.gains),
                df=mean.df if math.isfinite(mean.df) else None,
                p=mean.p,
                p_holm=p_holm,
                verdict="answered" if axis in answered else verdict,
                pairs=len(units),
                improved=sum(pair.gain > 0 for step in step_effects[axis] for pair in step.pairs),
                lost=lost,
                steps=tuple(step_effects[axis]),
            )
        )
    return tuple(effects)


def _interactions(
    comparison: _Comparison, pairs: dict[str, Units], answered: Sequence[str]
) -> tuple[Interaction, ...]:
    grid, settings = comparison.grid, comparison.settings
    axis_pairs = [axes for axes in combinations(grid.ordered, 2) if not set(axes) <= set(answered)]
    axis_pairs.sort(key=lambda axes: set(axes) != {"heads", "depth"})
    squares = {(a, b): grid.squares(pairs[a], pairs[b]) for a, b in axis_pairs}
    usable = {axes: comparison.usable(units) for axes, units in squares.items() if len(units)}
    means = {axes: comparison.quality.average(units) for axes, (units, _) in usable.items()}
    span = difference_span(comparison.gains)
    return tuple(
        Interaction(
            *axes,
            effect=clipped(mean.interval(settings.confidence), span),
            p=mean.p,
            p_holm=p_holm,
            verdict=_verdict(mean, p_holm, settings.alpha),
            squares=len(usable[axes][0]),
            lost=usable[axes][1],
            levels=_levels(comparison, *axes),
        )
        for (axes, mean), p_holm in zip(
            means.items(), holm([c.p for c in means.values()]), strict=True
        )
    )


def _levels(comparison: _Comparison, first: str, second: str) -> tuple[Level, ...]:
    """Return the mean metric of each combination over the settings that hold them all."""
    grid, quality = comparison.grid, comparison.quality
    usable = np.flatnonzero(quality.lost == 0)
    place = grid.group([first, second])[usable]
    plane = grid.group(grid.others(first, second))[usable]
    whole = np.bincount(plane)[plane] == len(set(place.tolist()))
    levels = []
    for cell in np.unique(place[whole]):
        shapes = usable[whole & (place == cell)]
        mean = quality.mean_of(shapes).interval(comparison.settings.confidence)
        first_value, second_value = (grid.values(axis, shapes[:1])[0] for axis in (first, second))
        levels.append(Level(first_value, second_value, _as_metric(mean, comparison)))
    return tuple(levels)


def _as_metric(quality: Interval, comparison: _Comparison) -> Interval:
    """Return the interval of a mean quality as one of the metric, inside the metric's range.

    A mean error's is symmetric in decades as it stands; an accuracy's is in points.
    """
    goal, scale = comparison.shapes.goal, comparison.shapes.scale
    metric = to_metric(quality.estimate, goal, scale)
    if scale == "error":
        ends = (to_metric(end, goal, scale) for end in (quality.high, quality.low))
        return Interval(metric, *ends)
    reach = (quality.high - quality.estimate) / (100 if scale == "accuracy" else 1)
    return mean_interval(metric, reach, comparison.span)


def _warnings(
    grid: ShapeGrid, effects: Sequence[AxisEffect], quality: Quality, gap: str
) -> list[str]:
    warnings = [
        f"{name} moves with {by}; what {by} does includes it" for name, by in grid.follows.items()
    ]
    if grid.names:
        names = ", ".join(grid.names)
        warnings.append(f"{names} holds names: pairs agree in it, and it has no steps of its own")
    if lost := int((quality.lost > 0).sum()):
        pairs = sum(sum(axis.lost.values()) for axis in effects)
        warnings.append(
            f"{lost} of {len(quality.lost)} shapes cannot be compared, and {pairs} matched pairs"
            " are lost with them"
        )
    tested = any(axis.verdict != "answered" for axis in effects)
    if gap:
        warnings.append(
            f"{gap}: no effect can be tested without seeds that tell how far they scatter"
        )
    elif tested and quality.matched and quality.seeds == 2:
        warnings.append(
            "two seeds leave one degree of freedom: only huge effects can be established"
        )
    return warnings
