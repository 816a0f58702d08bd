"""What does one axis do with the others held?

Matched pairs of shapes that differ in one axis alone give each axis its gain per step; squares of
four give the interaction of two axes; shapes of equal cost are compared with each other. Only
full-budget runs count: a shape that lost runs to early stopping is a bound, so the pairs it belongs
to are lost, and counted as such.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations

from analysis.questions.effects.contrasts import (
    Contrast,
    Spread,
    Step,
    Unit,
    are_matched,
    average,
    lines,
    pairs,
    squares,
)
from analysis.questions.effects.equal_cost import equal_cost_groups
from analysis.questions.effects.result import (
    AxisEffect,
    EffectsResult,
    EffectsSettings,
    EffectVerdict,
    Interaction,
    Level,
    PairGain,
    Square,
    StepEffect,
)
from analysis.runs.shape_runs import TASK_AXES, Shape, ShapeRuns, to_metric
from analysis.statistics.bounds import Span, clipped, difference_span, mean_interval
from analysis.statistics.noninferiority import holm
from analysis.statistics.values import Interval
from analysis.values import number
from hsweep.errors import UserError

_DEFAULT_SETTINGS = EffectsSettings()
_MATCHED = (
    "two-sided t test over replicates: each seed gives one contrast, averaged over the matched"
    " pairs, with one degree of freedom less than seeds"
)
_UNMATCHED = (
    "two-sided t test of independent runs with moderated seed variances and Satterthwaite's degrees"
    " of freedom (no two shapes have two seeds in common)"
)


def fit(
    runs: ShapeRuns,
    *,
    within: Sequence[str] = TASK_AXES,
    answered: Sequence[str] = (),
    settings: EffectsSettings = _DEFAULT_SETTINGS,
) -> EffectsResult:
    """Return the effect of every axis, their interactions and the best shapes of equal cost.

    Args:
        runs: the shapes of a table (`analysis.runs.shape_runs.read_shapes`).
        within: axes of the task rather than of the model; shapes of equal cost are compared within
            one value of each, as they are within one value of each name.
        answered: axes that a question with a test of its own asks about. Here they get means and no
            verdict: two tests of one thing, one of them weaker, would contradict each other.
        settings: error rate, interval level, what counts as equal cost.

    Raises:
        UserError: fewer than two axes that vary, or no matched pair.
    """
    if len(runs.axes) + len(runs.names) < 2 or not runs.axes:
        varying = ", ".join((*runs.axes, *runs.names)) or "nothing"
        raise UserError(
            f"effects need two axes that vary, at least one of numbers; what varies is {varying}"
        )
    grids = {axis: pairs(runs, axis) for axis in runs.axes}
    units = [unit for grid in grids.values() for found in grid.values() for _, unit in found]
    _need_pairs(runs, units)
    matched = runs.are_replicates_named and are_matched(units)
    spread = Spread(runs.usable)
    axes = _axes(grids, matched, spread, answered, runs.gain_span, settings)
    alike = tuple(dict.fromkeys((*within, *answered)))
    equal_cost, compared = equal_cost_groups(runs, alike, matched, settings)
    seeds = {seed for shape in runs.usable for seed in shape.quality}
    return EffectsResult(
        axes=axes,
        interactions=_interactions(runs, matched, spread, answered, settings),
        equal_cost=equal_cost,
        equal_cost_pairs=compared,
        test=_MATCHED if matched else _UNMATCHED,
        matched=matched,
        replicates=len(seeds),
        tried=len(runs.shapes),
        lost=_count(shape.lost for shape in runs.shapes),
        held=runs.names,
        follows=runs.follows,
        metric=runs.metric,
        goal=runs.goal,
        scale=runs.scale,
        cost=runs.cost,
        settings=settings,
        warnings=(*runs.warnings, *_warnings(runs, axes, matched, len(seeds))),
        nuisance=runs.nuisance,
        noise_gap=_noise_gap(runs, axes),
    )


def _need_pairs(runs: ShapeRuns, units: list[Unit]) -> None:
    axes = ", ".join(runs.axes)
    if not units:
        raise UserError(
            f"no two shapes differ in one axis alone (axes: {axes}); a grid has such pairs, a"
            " random search seldom does"
        )
    if all(unit.lost(matched=False) for unit in units):
        lost = _count(unit.lost(matched=False) for unit in units)
        reasons = ", ".join(f"{count} to {reason}" for reason, count in lost.items())
        raise UserError(
            f"all {len(units)} pairs of shapes that differ in one axis are lost: {reasons}"
        )


def _count(reasons: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(reason for reason in reasons if reason).items()))


def _verdict(contrast: Contrast, p_holm: float | None, alpha: float) -> EffectVerdict:
    if p_holm is None:
        return "untested"
    if p_holm > alpha:
        return "unclear"
    return "helps" if contrast.estimate > 0 else "hurts"


def _axes(
    grids: dict[str, dict[Step, list[tuple[str, Unit]]]],
    matched: bool,
    spread: Spread,
    answered: Sequence[str],
    span: Span,
    settings: EffectsSettings,
) -> tuple[AxisEffect, ...]:
    kept = {
        axis: {
            step: units
            for step, found in grid.items()
            if (units := [(held, unit) for held, unit in found if not unit.lost(matched)])
        }
        for axis, grid in grids.items()
    }

    def mean_of(axis: str, units: list[Unit]) -> Contrast:
        found = average(units, matched, spread)
        # Of what the question tests itself, nothing that could pass for a test.
        return Contrast(found.estimate, math.nan, math.nan) if axis in answered else found

    means = {
        axis: mean_of(axis, [unit for found in grid.values() for _, unit in found])
        for axis, grid in kept.items()
    }
    steps = {
        (axis, step): mean_of(axis, [unit for _, unit in found])
        for axis, grid in kept.items()
        for step, found in grid.items()
    }
    step_holm = dict(zip(steps, holm([contrast.p for contrast in steps.values()]), strict=True))
    axis_holm = holm([contrast.p for contrast in means.values()])
    effects = []
    for (axis, mean), p_holm in zip(means.items(), axis_holm, strict=True):
        done = tuple(
            StepEffect(
                step[0],
                step[1],
                clipped(steps[axis, step].interval(settings.confidence), span),
                steps[axis, step].p,
                step_holm[axis, step],
                tuple(
                    PairGain(held, unit.estimate(matched), len(unit.seeds()))
                    for held, unit in found
                ),
            )
            for step, found in kept[axis].items()
        )
        gains = [pair.gain for step in done for pair in step.pairs]
        effects.append(
            AxisEffect(
                axis=axis,
                values=tuple(sorted({value for step in grids[axis] for value in step})),
                effect=clipped(mean.interval(settings.confidence), span),
                df=mean.df if math.isfinite(mean.df) else None,
                p=mean.p,
                p_holm=p_holm,
                verdict="answered" if axis in answered else _verdict(mean, p_holm, settings.alpha),
                pairs=len(gains),
                improved=sum(gain > 0 for gain in gains),
                lost=_count(
                    unit.lost(matched) for found in grids[axis].values() for _, unit in found
                ),
                steps=done,
            )
        )
    return tuple(effects)


def _interactions(
    runs: ShapeRuns,
    matched: bool,
    spread: Spread,
    answered: Sequence[str],
    settings: EffectsSettings,
) -> tuple[Interaction, ...]:
    asked = [pair for pair in combinations(runs.axes, 2) if not set(pair) <= set(answered)]
    ordered = sorted(asked, key=lambda pair: set(pair) != {"heads", "depth"})
    grids = {pair: grid for pair in ordered if (grid := squares(runs, *pair))}
    kept = {
        pair: {
            at: units
            for at, found in grid.items()
            if (units := [unit for unit in found if not unit.lost(matched)])
        }
        for pair, grid in grids.items()
    }
    means = {
        pair: average([unit for found in grid.values() for unit in found], matched, spread)
        for pair, grid in kept.items()
    }
    adjusted = holm([contrast.p for contrast in means.values()])
    span = difference_span(runs.gain_span)
    return tuple(
        Interaction(
            first=pair[0],
            second=pair[1],
            effect=clipped(mean.interval(settings.confidence), span),
            p=mean.p,
            p_holm=p_holm,
            verdict=_verdict(mean, p_holm, settings.alpha),
            squares=tuple(
                Square(
                    at[0],
                    at[1],
                    clipped(average(found, matched, spread).interval(settings.confidence), span),
                    len(found),
                )
                for at, found in kept[pair].items()
            ),
            lost=_count(unit.lost(matched) for found in grids[pair].values() for unit in found),
            levels=_levels(runs, pair, spread, settings),
        )
        for (pair, mean), p_holm in zip(means.items(), adjusted, strict=True)
    )


def _levels(
    runs: ShapeRuns, pair: tuple[str, str], spread: Spread, settings: EffectsSettings
) -> tuple[Level, ...]:
    """Return the mean metric of each combination over the settings that hold them all."""
    first, second = pair
    others = [name for name in (*runs.axes, *runs.names) if name not in pair]

    def place(shape: Shape) -> tuple[float, float]:
        return float(shape.config[first]), float(shape.config[second])

    cells: dict[tuple[float, float], list[Shape]] = {}
    combined = set(map(place, runs.usable))
    for plane in lines(runs.usable, others):
        if len(plane) == len(combined):
            for shape in plane:
                cells.setdefault(place(shape), []).append(shape)
    found = []
    span = runs.span
    for (a, b), shapes in sorted(cells.items()):
        units = [Unit((shape,), ()) for shape in shapes]
        own = are_matched(units) and all(not unit.lost(matched=True) for unit in units)
        mean = average(units, own, spread).interval(settings.confidence)
        found.append(Level(number(a), number(b), _as_metric(mean, runs, span)))
    return tuple(found)


def _as_metric(quality: Interval, runs: ShapeRuns, span: Span) -> Interval:
    """Return the interval of a mean quality as one of the metric, inside the metric's range.

    A mean error's is symmetric in decades as it stands; an accuracy's is in points.
    """
    metric = to_metric(quality.estimate, runs.goal, runs.scale)
    reach = quality.high - quality.estimate
    if runs.scale == "error":
        ends = (to_metric(end, runs.goal, runs.scale) for end in (quality.high, quality.low))
        return Interval(metric, *ends)
    if runs.scale == "accuracy":
        reach /= 100
    return mean_interval(metric, reach, span)


def _warnings(
    runs: ShapeRuns, axes: tuple[AxisEffect, ...], matched: bool, seeds: int
) -> list[str]:
    found = []
    if runs.names:
        names = ", ".join(runs.names)
        found.append(f"{names} holds names: pairs agree in it, and it has no steps of its own")
    lost = _count(shape.lost for shape in runs.shapes)
    if lost:
        reasons = ", ".join(f"{count} with {reason}" for reason, count in lost.items())
        found.append(
            f"{sum(lost.values())} of {len(runs.shapes)} shapes cannot be compared ({reasons}), and"
            f" {sum(sum(axis.lost.values()) for axis in axes)} matched pairs are lost with them"
        )
    tested = [axis for axis in axes if axis.verdict != "answered"]
    if gap := _noise_gap(runs, axes):
        found.append(f"{gap}: no effect can be tested without seeds that tell how far they scatter")
    elif tested and matched and seeds == 2:
        found.append("two seeds leave one degree of freedom: only huge effects can be established")
    return found


def _noise_gap(runs: ShapeRuns, axes: Sequence[AxisEffect]) -> str:
    """Return why no effect could be tested; empty where one was, or none was asked for."""
    tested = [axis for axis in axes if axis.verdict != "answered"]
    if not tested or any(axis.p is not None for axis in tested):
        return ""
    has_two = any(len(shape.quality) > 1 for shape in runs.usable)
    return "no spread between seeds" if has_two else "single runs"
