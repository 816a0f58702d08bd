"""What does one axis do with the others held?

Matched pairs of shapes that differ in one axis alone give each axis its gain per step; squares of
four give the interaction of two axes. Only full-budget runs count: a shape that lost runs to early
stopping is a bound, so the pairs it belongs to are lost, and counted as such.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np

from analysis.questions.effects.contrasts import LOST, Quality, Units
from analysis.questions.effects.grid import ShapeGrid
from analysis.questions.effects.result import (
    Effect,
    EffectsResult,
    EffectsSettings,
    EffectVerdict,
)
from analysis.runs.grouped import Grouped
from analysis.runs.scale import metric_span
from analysis.statistics.bounds import ANYWHERE, Span, clipped, difference_span
from analysis.statistics.noninferiority import holm
from analysis.statistics.values import IntArray
from analysis.values import Number
from hsweep.errors import UserError

_MATCHED: Final = (
    "two-sided t test over replicates: each seed gives one contrast, averaged over the matched"
    " pairs, with one degree of freedom less than seeds"
)
_UNMATCHED: Final = (
    "two-sided t test of independent runs with moderated seed variances and Satterthwaite's degrees"
    " of freedom (no two shapes have two seeds in common)"
)
_Family = Sequence[tuple[tuple[str, ...], tuple[Number, ...], Units]]
"""What is tested together: the axes and values of each effect, and the shapes that tell it."""


def fit(
    shapes: Grouped,
    *,
    answered: Sequence[str] = (),
    settings: EffectsSettings = EffectsSettings(),
) -> EffectsResult:
    """Return the effect of every axis, and their interactions.

    Args:
        answered: axes that a question with a test of its own asks about. Here they are held: two
            tests of one thing, one of them weaker, would contradict each other.

    Raises:
        UserError: fewer than two axes that vary, an axis that is not finite, or no matched pair.
    """
    grid, quality = ShapeGrid.of(shapes, answered), Quality(shapes.shapes)
    if len(grid.ordered) + len(grid.names) < 2 or not grid.ordered:
        varying = ", ".join((*grid.ordered, *grid.names)) or "nothing"
        beside = f" besides {', '.join(answered)}, as the question asks" if answered else ""
        raise UserError(
            f"effects need two axes that vary, at least one of numbers{beside}; what varies is "
            f"{varying}"
        )
    pairs = {axis: grid.pairs(axis) for axis in grid.ordered}
    lost = np.concatenate([quality.loss_codes(units) for units in pairs.values()])
    quality.matched = shapes.are_replicates_named and bool((lost == 0).any())
    if not quality.matched:
        lost = np.concatenate([quality.loss_codes(units) for units in pairs.values()])
    _need_pairs(grid, lost)
    span = _gains(shapes)
    axes = _effects(
        [((axis,), grid.values(axis, units), units) for axis, units in pairs.items()],
        *(quality, span, settings),
    )
    gap = ""
    if all(axis.p is None for axis in axes):
        gap = "no spread between seeds" if (quality.size > 1).any() else "single runs"
    steps = [
        ((axis,), grid.values(axis, step), step)
        for axis, units in pairs.items()
        for step in grid.steps(axis, units)
    ]
    crossed = list(combinations(grid.ordered, 2))
    crossed.sort(key=lambda axes: set(axes) != {"heads", "depth"})
    squares = [(axes, (), grid.squares(*(pairs[axis] for axis in axes))) for axes in crossed]
    squares = [effect for effect in squares if len(effect[2])]
    return EffectsResult(
        axes=axes,
        steps=_effects(steps, quality, span, settings),
        interactions=_effects(squares, quality, difference_span(span), settings),
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
        warnings=(*shapes.warnings, *_warnings(grid, axes, quality, gap, answered)),
        nuisance=shapes.nuisance,
        noise_gap=gap,
    )


def _gains(shapes: Grouped) -> Span:
    """Return the range of a gain: unbounded in decades, that of a difference in the metric's unit
    otherwise."""
    if shapes.scale == "error":
        return ANYWHERE
    if shapes.scale == "accuracy":
        return -100.0, 100.0
    ends = [float(end(s.values)) for s in shapes.comparable for end in (np.min, np.max)]
    return difference_span(metric_span(ends, shapes.goal, shapes.scale))


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


def _effects(
    family: _Family, quality: Quality, span: Span, settings: EffectsSettings
) -> tuple[Effect, ...]:
    """Return the effects of a family that shares its error rate."""
    lost = [quality.loss_codes(units) for _, _, units in family]
    usable = [units[codes == 0] for (_, _, units), codes in zip(family, lost, strict=True)]
    means = [quality.average(units) for units in usable]
    effects = []
    for (axes, values, _), codes, units, mean, p_holm in zip(
        family, lost, usable, means, holm([mean.p for mean in means]), strict=True
    ):
        verdict: EffectVerdict = "helps" if mean.estimate > 0 else "hurts"
        if p_holm is None or p_holm > settings.alpha:
            verdict = "untested" if p_holm is None else "unclear"
        effects.append(
            Effect(
                axes,
                values,
                gain=clipped(mean.interval(settings.confidence), span),
                df=mean.df if math.isfinite(mean.df) else None,
                p=mean.p,
                p_holm=p_holm,
                verdict=verdict,
                units=len(units),
                improved=int((quality.estimates(units) > 0).sum()),
                lost=_reasons(codes),
            )
        )
    return tuple(effects)


def _warnings(
    grid: ShapeGrid,
    axes: Sequence[Effect],
    quality: Quality,
    gap: str,
    answered: Sequence[str],
) -> list[str]:
    warnings = [
        f"{name} moves with {by}; what {by} does includes it" for name, by in grid.follows.items()
    ]
    for name in grid.names:
        why = "holds names" if name not in answered else "is what the question asks about"
        warnings.append(f"{name} {why}: pairs agree in it, and it has no steps here")
    if lost := int((quality.lost > 0).sum()):
        pairs = sum(sum(axis.lost.values()) for axis in axes)
        warnings.append(
            f"{lost} of {len(quality.lost)} shapes cannot be compared, and {pairs} matched pairs"
            " are lost with them"
        )
    if gap:
        warnings.append(
            f"{gap}: no effect can be tested without seeds that tell how far they scatter"
        )
    elif quality.matched and quality.seeds == 2:
        warnings.append(
            "two seeds leave one degree of freedom: only huge effects can be established"
        )
    return warnings
