"""A small surrogate of the metric as a function of shape: what to expect of shapes never tried.

A Gaussian process over log2 of the axes (`statistics.gaussian_process`) learns from the shapes'
means and their seed noise. It says how well it predicts each shape from the others before it says
anything else; where it cannot beat their mean, it suggests nothing.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import TypeVar

import numpy as np

from analysis.questions.surrogate.model import SurrogateModel
from analysis.questions.surrogate.result import (
    Prediction,
    SurfacePoint,
    SurrogateResult,
    SurrogateSettings,
)
from analysis.runs.shape_runs import TASK_AXES, ShapeRuns
from analysis.statistics.gaussian_process import group_means
from analysis.statistics.moderated import why_unmeasured
from analysis.statistics.values import FloatArray
from analysis.values import AxisValue, Config, Number, number
from hsweep.errors import UserError

Item = TypeVar("Item")

_DEFAULT_SETTINGS = SurrogateSettings()
_FEWEST_SHAPES = 5
_MOST_SHAPES = 600
_MOST_CANDIDATES = 400
_MOST_COMBINATIONS = 20_000
_MOST_BETWEEN = 12
_MOST_SURFACE = 12


def fit(
    runs: ShapeRuns,
    *,
    baseline: Mapping[str, AxisValue] | None = None,
    shapes: Sequence[Mapping[str, AxisValue]] = (),
    within: Sequence[str] = TASK_AXES,
    settings: SurrogateSettings = _DEFAULT_SETTINGS,
) -> SurrogateResult:
    """Learn the metric as a function of shape, and say what it predicts and how well.

    Args:
        runs: the shapes of a table (`analysis.runs.shape_runs.read_shapes`).
        baseline: axis values of the shape to compare with; None takes the best mean.
        shapes: shapes to predict, each a value for every axis.
        within: axes of the task rather than of the model; suggestions keep the reference's value.
        settings: levels, draws, margin, seed.

    Raises:
        UserError: fewer than five shapes with full-budget runs, a baseline that picks none or
            several of them, or a shape to predict that lacks an axis.
    """
    if not runs.axes:
        raise UserError("a surrogate needs an axis of numbers that varies (heads, depth, ...)")
    if not _FEWEST_SHAPES <= len(runs.usable) <= _MOST_SHAPES:
        raise UserError(
            f"a surrogate needs {_FEWEST_SHAPES} to {_MOST_SHAPES} shapes with full-budget runs; "
            f"this table has {len(runs.usable)}, of {len(runs.shapes)} tried"
        )
    named = [tuple(str(shape.config[name]) for name in runs.names) for shape in runs.usable]
    if len(set(named)) == len(named):
        raise UserError(
            f"no two shapes agree in {', '.join(runs.names)}, so none can be predicted from another"
        )
    model = SurrogateModel(runs, baseline, settings)
    asked = [model.complete(shape) for shape in shapes]
    left_out = model.process.leave_one_out()
    quality = np.array([shape.quality for shape in model.shapes])
    sizes = np.array([model.groups.count(group) for group in model.groups])
    # A shape alone with its names leaves nothing to predict it from.
    judged = sizes > 1
    others = np.maximum(sizes - 1, 1) / sizes
    gap = (quality - group_means(quality, model.groups)) / others
    error = _root_mean_square((left_out.centre - quality)[judged])
    of_mean = _root_mean_square(gap[judged])
    explained = 1 - (error / of_mean) ** 2 if of_mean > 0 else 0.0
    shuffled = model.process.shuffled_errors(settings.permutations, settings.rng_seed + 1)
    p = float((1 + (shuffled <= error**2 * (1 + 1e-9)).sum()) / (1 + settings.permutations))
    tail = (1 - settings.confidence) / 2
    inside = (left_out.quantile(tail) <= quality) & (quality <= left_out.quantile(1 - tail))
    coverage = float(inside.mean())
    predicts = p <= settings.alpha and explained > 0
    suggestions, candidates = _suggestions(model, within) if predicts else ((), 0)
    errors = [found.error for found in model.cost_models.values() if math.isfinite(found.error)]
    ranked = sorted(runs.axes, key=lambda axis: {"heads": 0, "depth": 1}.get(axis, 2))
    surface_axes = tuple(ranked[:2])
    return SurrogateResult(
        verdict="predicts" if predicts else "none",
        reason=(
            f"leaving each of {len(quality)} shapes out, {explained:.0%} of the variance between"
            f" shapes is predicted from the others (permutation p = {p:.3g});"
            f" {coverage:.0%} of them lie in their {settings.confidence:.0%} intervals"
        ),
        explained=explained,
        error=error,
        error_of_mean=of_mean,
        p=p,
        coverage=coverage,
        seed_sd=model.seed_sd,
        shapes=tuple(
            dataclasses.replace(shape, left_out=interval)
            for shape, interval in zip(model.shapes, model.intervals(left_out), strict=True)
        ),
        axes=runs.axes,
        logged=model.space.logged,
        names=runs.names,
        fixed=model.fixed,
        follows=runs.follows,
        excluded=tuple(shape.config for shape in runs.shapes if shape.lost),
        reference=model.reference.label,
        suggestions=suggestions,
        candidates=candidates,
        cost_error=max(errors) if errors else None,
        predictions=model.predictions(asked),
        surface_axes=surface_axes,
        surface=_surface(model, surface_axes),
        metric=runs.metric,
        goal=runs.goal,
        scale=runs.scale,
        cost=runs.cost,
        settings=settings,
        warnings=(*runs.warnings, *_warnings(model)),
        nuisance=runs.nuisance,
    )


def _root_mean_square(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0


def _warnings(model: SurrogateModel) -> list[str]:
    runs, found = model.runs, []
    if lost := len(runs.shapes) - len(model.shapes):
        found.append(
            f"{lost} of {len(runs.shapes)} shapes lost runs or have none at full budget; the"
            " surrogate knows nothing of them"
        )
    if model.seed_sd is None:
        gap = why_unmeasured([np.array([*shape.quality.values()]) for shape in runs.usable])
        found.append(f"{gap}: the seed noise is unknown and its share in any run left out")
    untried = _candidates(model, (), 1)
    if runs.cost is not None and all(model.cost(config) is None for config in untried):
        found.append(f"{runs.cost} of untried shapes cannot be estimated within 5%")
    return found


def _suggestions(
    model: SurrogateModel, within: Sequence[str]
) -> tuple[tuple[Prediction, ...], int]:
    """Return untried shapes that cost less than the reference and are expected to be no worse, and
    how many were looked at."""
    limit = model.reference.cost
    if limit is None:
        return (), 0
    smaller = [
        config
        for config in _candidates(model, within, _MOST_CANDIDATES)
        if (cost := model.cost(config)) is not None and cost < limit
    ]
    found = [
        prediction
        for prediction in model.predictions(smaller)
        if not prediction.extrapolates and prediction.p_no_worse >= 0.5
    ]
    best: dict[float, Prediction] = {}
    for prediction in sorted(found, key=lambda prediction: -prediction.p_no_worse):
        best.setdefault(prediction.cost or 0.0, prediction)
    ranked = [best[cost] for cost in sorted(best)]
    return tuple(ranked[: model.settings.suggestions]), len(smaller)


def _candidates(model: SurrogateModel, within: Sequence[str], most: int) -> list[Config]:
    """Return untried shapes: every combination of the values tried and whole numbers between."""
    runs, reference = model.runs, model.reference.config
    choices: list[Sequence[AxisValue]] = [
        [reference[axis]]
        if axis in within
        else _between([float(shape.config[axis]) for shape in model.shapes])
        for axis in runs.axes
    ]
    tried = {model.label(shape.config) for shape in runs.shapes}
    named = {name: reference[name] for name in runs.names}
    combined = (
        dict(zip(runs.axes, values, strict=True)) | named for values in _combinations(choices)
    )
    return _evenly([config for config in combined if model.label(config) not in tried], most)


def _evenly(items: list[Item], most: int) -> list[Item]:
    if len(items) <= most:
        return items
    return [items[at] for at in np.linspace(0, len(items) - 1, most).astype(int)]


def _combinations(choices: Sequence[Sequence[AxisValue]]) -> Iterator[tuple[AxisValue, ...]]:
    """Yield every combination, the last axis changing fastest; of very many, some from all over.

    A random search tries each value of an axis once: the combinations of hundreds of values of
    several axes are more than any memory holds.
    """
    total = math.prod(map(len, choices))
    if total <= _MOST_COMBINATIONS:
        yield from product(*choices)
        return
    for chosen in range(_MOST_COMBINATIONS):
        at = chosen * (total - 1) // (_MOST_COMBINATIONS - 1)
        values: list[AxisValue] = []
        for values_of_axis in reversed(choices):
            at, place = divmod(at, len(values_of_axis))
            values.append(values_of_axis[place])
        yield tuple(reversed(values))


def _between(values: Sequence[float]) -> list[Number]:
    """Return the values and whole numbers between: all if few, else the geometric middles."""
    known = sorted(set(values))
    if any(value != int(value) for value in known):
        return [number(value) for value in known]
    low, high = int(known[0]), int(known[-1])
    if high - low < _MOST_BETWEEN:
        return list(range(low, high + 1))
    middles = {round(math.sqrt(a * b)) if a > 0 else round((a + b) / 2) for a, b in pairwise(known)}
    return sorted({int(value) for value in known} | middles)


def _surface(model: SurrogateModel, axes: tuple[str, ...]) -> tuple[SurfacePoint, ...]:
    """Return predictions over two axes and a step beyond; all others at the reference's values."""
    if len(axes) < 2:
        return ()
    runs, reference = model.runs, model.reference.config
    held = {name: reference[name] for name in (*runs.axes, *runs.names)}
    grids = [
        _with_ends(
            [float(shape.config[axis]) for shape in model.shapes], axis in model.space.logged
        )
        for axis in axes
    ]
    places = list(product(*grids))
    configs: list[Config] = [held | {axes[0]: first, axes[1]: second} for first, second in places]
    return tuple(
        SurfacePoint(first, second, found.mean, found.extrapolates, found.tried)
        for (first, second), found in zip(places, model.predictions(configs), strict=True)
    )


def _with_ends(values: Sequence[float], logged: bool) -> list[Number]:
    known = _evenly(_between(values), _MOST_SURFACE)
    whole = all(isinstance(value, int) for value in known)
    doubling = logged and len(known) > 1 and known[-1] >= 4 * known[0]
    step = known[-1] - known[-2] if len(known) > 1 else 1
    above = known[-1] * 2 if doubling else known[-1] + step
    below = known[0] / 2 if doubling else known[0] - step
    ends: list[Number] = [number(above)]
    if (below > 0 or not logged) and (not whole or below == int(below)):
        ends.append(number(below))
    return sorted([*known, *ends])
