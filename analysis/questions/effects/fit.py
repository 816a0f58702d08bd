"""What does one axis do with the others held?

Matched pairs of shapes that differ in one axis alone give each axis its gain per step; squares of
four give the interaction of two axes; shapes of equal cost are compared with each other. Only
full-budget runs count: a shape that lost runs to early stopping is a bound, so the pairs it belongs
to are lost, and counted as such.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Final

import numpy as np

from analysis.questions.effects.axes import Axes
from analysis.questions.effects.contrasts import LOST, Contrast, IntArray, Quality, Units
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
from analysis.runs.grouped import TASK_AXES, Grouped
from analysis.runs.scale import metric_span, to_metric
from analysis.statistics.bounds import ANYWHERE, Span, clipped, difference_span, mean_interval
from analysis.statistics.noninferiority import holm
from analysis.statistics.values import Interval
from hsweep.design.question import Goal, Scale
from hsweep.errors import UserError

_DEFAULT_SETTINGS: Final = EffectsSettings()
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
    within: Sequence[str] = TASK_AXES,
    answered: Sequence[str] = (),
    settings: EffectsSettings = _DEFAULT_SETTINGS,
) -> EffectsResult:
    """Return the effect of every axis, their interactions and the best shapes of equal cost.

    Args:
        shapes: of a table (`analysis.runs.grouped`).
        within: axes of the task rather than of the model; shapes of equal cost are compared within
            one value of each, as they are within one value of each name.
        answered: axes that a question with a test of its own asks about. Here they get means and no
            verdict: two tests of one thing, one of them weaker, would contradict each other.
        settings: error rate, interval level, what counts as equal cost.

    Raises:
        UserError: fewer than two axes that vary, an axis that is not finite, or no matched pair.
    """
    axes, quality = Axes.of(shapes), Quality(shapes.shapes)
    if len(axes.ordered) + len(axes.names) < 2 or not axes.ordered:
        varying = ", ".join((*axes.ordered, *axes.names)) or "nothing"
        raise UserError(
            f"effects need two axes that vary, at least one of numbers; what varies is {varying}"
        )
    pairs = {axis: axes.pairs(axis) for axis in axes.ordered}
    _need_pairs(axes, pairs, quality)
    matched = shapes.are_replicates_named and any(
        (quality.lost_of(units, matched=True) == 0).any() for units in pairs.values()
    )
    asked = _Asked(shapes, axes, quality, matched, tuple(answered), settings)
    effects = _axes(asked, pairs)
    alike = tuple(dict.fromkeys((*within, *answered)))
    equal_cost, compared = equal_cost_groups(
        shapes, axes, quality, alike, matched, asked.gain_span, settings
    )
    gap = _noise_gap(quality, effects)
    return EffectsResult(
        axes=effects,
        interactions=_interactions(asked),
        equal_cost=equal_cost,
        equal_cost_pairs=compared,
        test=_MATCHED if matched else _UNMATCHED,
        matched=matched,
        replicates=quality.seeds,
        tried=len(shapes.shapes),
        lost=_reasons(quality.lost),
        held=axes.names,
        follows=axes.follows,
        metric=shapes.metric,
        goal=shapes.goal,
        scale=shapes.scale,
        cost=next(iter(shapes.costs), None),
        settings=settings,
        warnings=(*shapes.warnings, *_warnings(axes, effects, quality, matched, gap)),
        nuisance=shapes.nuisance,
        noise_gap=gap,
    )


@dataclass(frozen=True)
class _Asked:
    """The shapes and how they are compared."""

    shapes: Grouped
    axes: Axes
    quality: Quality
    matched: bool
    answered: tuple[str, ...]
    settings: EffectsSettings

    @cached_property
    def span(self) -> Span:
        """The range of the metric."""
        ends = (float(end(s.values)) for s in self.shapes.found for end in (np.min, np.max))
        return metric_span(ends, self.shapes.goal, self.shapes.scale)

    @property
    def gain_span(self) -> Span:
        """The range of a gain: unbounded in decades, that of a difference in the metric's unit."""
        if self.shapes.scale == "accuracy":
            return (-100.0, 100.0)
        return ANYWHERE if self.shapes.scale == "error" else difference_span(self.span)

    def kept(self, units: Units) -> tuple[Units, dict[str, int]]:
        """Return the units that are not lost, and why the others are, with their number."""
        lost = self.quality.lost_of(units, matched=self.matched)
        return units[lost == 0], _reasons(lost)

    def average(self, units: Units) -> Contrast:
        return self.quality.average(units, matched=self.matched)


def _need_pairs(axes: Axes, pairs: dict[str, Units], quality: Quality) -> None:
    number = sum(map(len, pairs.values()))
    if not number:
        raise UserError(
            f"no two shapes differ in one axis alone (axes: {', '.join(axes.ordered)}); a grid has"
            " such pairs, a random search seldom does"
        )
    lost = np.concatenate([quality.lost_of(units, matched=False) for units in pairs.values()])
    if (lost > 0).all():
        reasons = ", ".join(f"{count} to {reason}" for reason, count in _reasons(lost).items())
        raise UserError(f"all {number} pairs of shapes that differ in one axis are lost: {reasons}")


def _reasons(lost: IntArray) -> dict[str, int]:
    counts = np.bincount(lost, minlength=len(LOST)).tolist()
    found = {reason: count for reason, count in zip(LOST, counts, strict=True) if reason and count}
    return dict(sorted(found.items()))


def _verdict(contrast: Contrast, p_holm: float | None, alpha: float) -> EffectVerdict:
    if p_holm is None:
        return "untested"
    if p_holm > alpha:
        return "unclear"
    return "helps" if contrast.estimate > 0 else "hurts"


def _runs_of(*keys: IntArray) -> Iterator[slice]:
    """Yield the slices along which sorted keys stay the same."""
    if not len(keys[0]):
        return
    changes = np.logical_or.reduce([np.diff(key, prepend=-1) != 0 for key in keys])
    starts = [*np.flatnonzero(changes).tolist(), len(keys[0])]
    yield from (slice(a, b) for a, b in pairwise(starts))


def _axes(asked: _Asked, pairs: dict[str, Units]) -> tuple[AxisEffect, ...]:
    axes, settings, span = asked.axes, asked.settings, asked.gain_span
    kept, lost = {}, {}
    for axis, units in pairs.items():
        kept[axis], lost[axis] = asked.kept(units)

    def mean_of(axis: str, units: Units) -> Contrast:
        found = asked.average(units)
        # Of what the question tests itself, nothing that could pass for a test.
        is_answered = axis in asked.answered
        return Contrast(found.estimate, math.nan, math.nan) if is_answered else found

    steps = {
        (axis, some.start): (units[some], mean_of(axis, units[some]))
        for axis, units in kept.items()
        for some in _runs_of(axes.rank[axis][units.minus[:, 0]], axes.rank[axis][units.plus[:, 0]])
    }
    step_holm = dict(zip(steps, holm([c.p for _, c in steps.values()]), strict=True))
    means = {axis: mean_of(axis, units) for axis, units in kept.items()}
    effects = []
    for (axis, mean), p_holm in zip(
        means.items(), holm([c.p for c in means.values()]), strict=True
    ):
        own = {key: found for key, found in steps.items() if key[0] == axis}
        done = tuple(
            _step(asked, axis, units, contrast, step_holm[key])
            for key, (units, contrast) in own.items()
        )
        gains = [pair.gain for step in done for pair in step.pairs]
        is_answered = axis in asked.answered
        tried = sorted({*pairs[axis].plus.ravel().tolist(), *pairs[axis].minus.ravel().tolist()})
        effects.append(
            AxisEffect(
                axis=axis,
                values=tuple(sorted(set(axes.values(axis, np.array(tried, dtype=np.int64))))),
                effect=clipped(mean.interval(settings.confidence), span),
                df=mean.df if math.isfinite(mean.df) else None,
                p=mean.p,
                p_holm=p_holm,
                verdict="answered" if is_answered else _verdict(mean, p_holm, settings.alpha),
                pairs=len(gains),
                improved=sum(gain > 0 for gain in gains),
                lost=lost[axis],
                steps=done,
            )
        )
    return tuple(effects)


def _step(
    asked: _Asked, axis: str, units: Units, contrast: Contrast, p_holm: float | None
) -> StepEffect:
    low, high = (asked.axes.values(axis, shapes[:1, 0])[0] for shapes in (units.minus, units.plus))
    gains = asked.quality.estimates(units, matched=asked.matched).tolist()
    seeds = asked.quality.moments(units)[0].tolist()
    return StepEffect(
        low,
        high,
        clipped(contrast.interval(asked.settings.confidence), asked.gain_span),
        contrast.p,
        p_holm,
        tuple(
            PairGain(asked.axes.held(axis, shape), gain, number)
            for shape, gain, number in zip(units.minus[:, 0].tolist(), gains, seeds, strict=True)
        ),
    )


def _interactions(asked: _Asked) -> tuple[Interaction, ...]:
    axes, settings = asked.axes, asked.settings
    named = [p for p in combinations(axes.ordered, 2) if not set(p) <= set(asked.answered)]
    named.sort(key=lambda pair: set(pair) != {"heads", "depth"})
    grids = {pair: units for pair in named if len(units := axes.squares(*pair))}
    kept = {pair: asked.kept(units) for pair, units in grids.items()}
    means = {pair: asked.average(units) for pair, (units, _) in kept.items()}
    span = difference_span(asked.gain_span)
    return tuple(
        Interaction(
            first=pair[0],
            second=pair[1],
            effect=clipped(mean.interval(settings.confidence), span),
            p=mean.p,
            p_holm=p_holm,
            verdict=_verdict(mean, p_holm, settings.alpha),
            squares=tuple(_squares(asked, pair, kept[pair][0], span)),
            lost=kept[pair][1],
            levels=_levels(asked, pair),
        )
        for (pair, mean), p_holm in zip(
            means.items(), holm([c.p for c in means.values()]), strict=True
        )
    )


def _squares(asked: _Asked, pair: tuple[str, str], units: Units, span: Span) -> Iterator[Square]:
    corners = [(name, units.plus[:, at]) for name in pair for at in (1, 0)]
    for some in _runs_of(*(asked.axes.rank[name][shapes] for name, shapes in corners)):
        a, b, c, d = (asked.axes.values(name, shapes[some][:1])[0] for name, shapes in corners)
        mean = asked.average(units[some]).interval(asked.settings.confidence)
        yield Square((a, b), (c, d), clipped(mean, span), some.stop - some.start)


def _levels(asked: _Asked, pair: tuple[str, str]) -> tuple[Level, ...]:
    """Return the mean metric of each combination over the settings that hold them all."""
    axes, quality = asked.axes, asked.quality
    usable = np.flatnonzero(quality.lost == 0)
    plane = axes.group(axes.others(*pair))[usable]
    place = axes.group(pair)[usable]
    whole = np.bincount(plane)[plane] == len(set(place.tolist()))
    found, span = [], asked.span
    order = np.argsort(place[whole], kind="stable")
    shapes, places = usable[whole][order], place[whole][order]
    for some in _runs_of(places):
        units = Units(shapes[some, None], np.empty((some.stop - some.start, 0), np.int64))
        matched = bool((quality.lost_of(units, matched=True) == 0).all())
        mean = quality.average(units, matched=matched).interval(asked.settings.confidence)
        first, second = (axes.values(name, shapes[some][:1])[0] for name in pair)
        metric = _as_metric(mean, asked.shapes.goal, asked.shapes.scale, span)
        found.append(Level(first, second, metric))
    return tuple(found)


def _as_metric(quality: Interval, goal: Goal, scale: Scale | None, span: Span) -> Interval:
    """Return the interval of a mean quality as one of the metric, inside the metric's range.

    A mean error's is symmetric in decades as it stands; an accuracy's is in points.
    """
    metric = to_metric(quality.estimate, goal, scale)
    reach = quality.high - quality.estimate
    if scale == "error":
        ends = (to_metric(end, goal, scale) for end in (quality.high, quality.low))
        return Interval(metric, *ends)
    return mean_interval(metric, reach / 100 if scale == "accuracy" else reach, span)


def _warnings(
    axes: Axes, effects: Sequence[AxisEffect], quality: Quality, matched: bool, gap: str
) -> list[str]:
    found = [
        f"{name} moves with {by}; what {by} does includes it" for name, by in axes.follows.items()
    ]
    if axes.names:
        named = ", ".join(axes.names)
        found.append(f"{named} holds names: pairs agree in it, and it has no steps of its own")
    if lost := int((quality.lost > 0).sum()):
        pairs = sum(sum(axis.lost.values()) for axis in effects)
        found.append(
            f"{lost} of {len(quality.lost)} shapes cannot be compared, and {pairs} matched pairs"
            " are lost with them"
        )
    tested = any(axis.verdict != "answered" for axis in effects)
    if gap:
        found.append(f"{gap}: no effect can be tested without seeds that tell how far they scatter")
    elif tested and matched and quality.seeds == 2:
        found.append("two seeds leave one degree of freedom: only huge effects can be established")
    return found


def _noise_gap(quality: Quality, effects: Sequence[AxisEffect]) -> str:
    """Return why no effect could be tested; empty where one was, or none was asked for."""
    tested = [axis for axis in effects if axis.verdict != "answered"]
    if not tested or any(axis.p is not None for axis in tested):
        return ""
    return "no spread between seeds" if (quality.size > 1).any() else "single runs"
