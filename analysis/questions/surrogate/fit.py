"""A small surrogate of the metric as a function of shape: what to expect of shapes never tried.

A Gaussian process over log2 of the axes (`statistics.gaussian_process`) learns from the shapes'
means and their seed noise. It says how well it predicts each shape from the others before it says
anything else; where it cannot beat their mean, it suggests nothing.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product

import numpy as np

from analysis.questions.surrogate.model import SurrogateModel
from analysis.questions.surrogate.result import (
    Prediction,
    SkillVerdict,
    SurfacePoint,
    SurrogateResult,
    SurrogateSettings,
    TriedShape,
)
from analysis.runs.configurations import describe
from analysis.runs.shape_runs import TASK_AXES, ShapeRuns, to_metric
from analysis.statistics.gaussian_process import group_means
from analysis.statistics.moderated import moderate
from analysis.statistics.values import FloatArray, Interval
from analysis.values import AxisValue, Config, Number, number
from hsweep.errors import UserError

_DEFAULT_SETTINGS = SurrogateSettings()
_FEWEST_SHAPES = 5
_MOST_SHAPES = 600
_MOST_CANDIDATES = 400
_MOST_COMBINATIONS = 20_000
_MOST_BETWEEN = 12
_MOST_SURFACE = 12
_UNKNOWN = Interval(math.nan, math.nan, math.nan)


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
    tried, seed_sd = _learn(runs)
    varying = {*runs.axes, *runs.names, *runs.follows}
    model = SurrogateModel(
        shapes=tried,
        axes=runs.axes,
        names=runs.names,
        fixed={name: value for name, value in runs.shapes[0].config.items() if name not in varying},
        follows=runs.follows,
        reference=_reference(tried, baseline, runs),
        seed_sd=seed_sd,
        goal=runs.goal,
        scale=runs.scale,
        settings=settings,
    )
    return _result(model, runs, [model.complete(shape) for shape in shapes], within)


def predict(
    result: SurrogateResult, shapes: Sequence[Mapping[str, AxisValue]]
) -> tuple[Prediction, ...]:
    """Return what ``result``, fitted or read from JSON, expects of ``shapes``.

    Raises:
        UserError: a shape that lacks an axis or names an unknown one.
    """
    names = [field.name for field in dataclasses.fields(SurrogateModel)]
    model = SurrogateModel(**{name: getattr(result, name) for name in names})
    return model.predictions([model.complete(shape) for shape in shapes])


def _learn(runs: ShapeRuns) -> tuple[tuple[TriedShape, ...], float | None]:
    groups: list[FloatArray] = [np.array(list(shape.quality.values())) for shape in runs.usable]
    sd = moderate(groups).sd
    known = sd[np.isfinite(sd)]
    seed_sd = float(np.sqrt(np.mean(known**2))) if known.size else None
    sd = np.where(np.isfinite(sd), sd, seed_sd or 0.0)
    return tuple(
        TriedShape(
            config=shape.config,
            label=shape.label,
            quality=shape.mean,
            noise=float(own**2 / len(shape.quality)),
            n=len(shape.quality),
            metric=to_metric(shape.mean, runs.goal, runs.scale),
            cost=shape.cost,
            left_out=_UNKNOWN,
        )
        for shape, own in zip(runs.usable, sd, strict=True)
    ), seed_sd


def _reference(
    tried: Sequence[TriedShape], baseline: Mapping[str, AxisValue] | None, runs: ShapeRuns
) -> str:
    if baseline is None:
        return max(tried, key=lambda shape: shape.quality).label
    columns = runs.shapes[0].config
    foreign = [name for name in baseline if name not in columns]
    if foreign:
        raise UserError(
            f"the baseline names {', '.join(foreign)}; the axes are {', '.join(columns)}"
        )
    picked = [
        shape.label
        for shape in tried
        if all(shape.config[name] == value for name, value in baseline.items())
    ]
    if len(picked) != 1:
        raise UserError(
            f"the baseline {describe(dict(baseline))} picks {len(picked)} shapes with full-budget"
            f" runs, need exactly 1; there are: {'; '.join(shape.label for shape in tried[:8])}"
        )
    return picked[0]


def _result(
    model: SurrogateModel, runs: ShapeRuns, asked: list[Config], within: Sequence[str]
) -> SurrogateResult:
    settings = model.settings
    left_out = model.process.leave_one_out()
    quality = np.array([shape.quality for shape in model.shapes])
    count = len(quality)
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
    verdict: SkillVerdict = "predicts" if p <= settings.alpha and explained > 0 else "none"
    suggestions, candidates = (
        _suggestions(model, runs, within) if verdict == "predicts" else ((), 0)
    )
    errors = [found.error for found in model.cost_models.values() if math.isfinite(found.error)]
    surface_axes = _surface_axes(model)
    shapes = tuple(
        dataclasses.replace(shape, left_out=interval)
        for shape, interval in zip(model.shapes, model.intervals(left_out), strict=True)
    )
    coverage = float(inside.mean())
    return SurrogateResult(
        verdict=verdict,
        reason=_reason(explained, p, coverage, count, settings),
        explained=explained,
        error=error,
        error_of_mean=of_mean,
        p=p,
        coverage=coverage,
        seed_sd=model.seed_sd,
        shapes=shapes,
        axes=model.axes,
        logged=model.space.logged,
        names=model.names,
        fixed=model.fixed,
        follows=model.follows,
        excluded=tuple(shape.config for shape in runs.shapes if shape.lost),
        reference=model.reference,
        suggestions=suggestions,
        candidates=candidates,
        cost_error=max(errors) if errors else None,
        predictions=model.predictions(asked),
        surface_axes=surface_axes,
        surface=_surface(model, surface_axes),
        metric=runs.metric,
        goal=model.goal,
        scale=model.scale,
        cost=runs.cost,
        settings=settings,
        warnings=(*runs.warnings, *_warnings(model, runs, count)),
    )


def _root_mean_square(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0


def _reason(
    explained: float,
    p: float,
    coverage: float,
    count: int,
    settings: SurrogateSettings,
) -> str:
    return (
        f"leaving each of {count} shapes out, {explained:.0%} of the variance between shapes is"
        f" predicted from the others (permutation p = {p:.3g});"
        f" {coverage:.0%} of them lie in their {settings.confidence:.0%} intervals"
    )


def _warnings(model: SurrogateModel, runs: ShapeRuns, count: int) -> list[str]:
    found = []
    if count < len(runs.shapes):
        found.append(
            f"{len(runs.shapes) - count} of {len(runs.shapes)} shapes lost runs or have none at"
            " full budget; the surrogate knows nothing of them"
        )
    if model.seed_sd is None:
        found.append("single runs: the seed noise is unknown and its share in any run left out")
    if runs.cost is not None and all(
        model.cost(config) is None for config in _candidates(model, runs, (), 1)
    ):
        found.append(f"{runs.cost} of untried shapes cannot be estimated within 5%")
    return found


def _suggestions(
    model: SurrogateModel, runs: ShapeRuns, within: Sequence[str]
) -> tuple[tuple[Prediction, ...], int]:
    """Return untried shapes that cost less than the reference and are expected to be no worse."""
    limit = model.reference_shape.cost
    if limit is None:
        return (), 0
    smaller = [
        config
        for config in _candidates(model, runs, within, _MOST_CANDIDATES)
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


def _candidates(
    model: SurrogateModel, runs: ShapeRuns, within: Sequence[str], most: int
) -> list[Config]:
    """Return untried shapes: every combination of the values tried and whole numbers between."""
    reference = model.reference_shape.config
    choices: list[list[AxisValue]] = []
    for axis in model.axes:
        if axis in within:
            choices.append([reference[axis]])
        else:
            choices.append(list(_between([float(s.config[axis]) for s in model.shapes])))
    tried = {model.label(shape.config) for shape in runs.shapes}
    found: list[Config] = []
    for values in _combinations(choices):
        config = dict(zip(model.axes, values, strict=True))
        config |= {name: reference[name] for name in model.names}
        if model.label(config) not in tried:
            found.append(config)
    if len(found) > most:
        found = [found[at] for at in np.linspace(0, len(found) - 1, most).astype(int)]
    return found


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


def _surface_axes(model: SurrogateModel) -> tuple[str, ...]:
    ranked = sorted(model.axes, key=lambda axis: {"heads": 0, "depth": 1}.get(axis, 2))
    return tuple(ranked[:2])


def _surface(model: SurrogateModel, axes: tuple[str, ...]) -> tuple[SurfacePoint, ...]:
    """Return predictions over two axes and a step beyond; all others at the reference's values."""
    if len(axes) < 2:
        return ()
    reference = model.reference_shape.config
    grids = [
        _with_ends(
            [float(shape.config[axis]) for shape in model.shapes], axis in model.space.logged
        )
        for axis in axes
    ]
    configs: list[Config] = [
        {**{name: reference[name] for name in (*model.axes, *model.names)}, axes[0]: a, axes[1]: b}
        for a, b in product(*grids)
    ]
    return tuple(
        SurfacePoint(
            config[axes[0]],  # type: ignore[arg-type]
            config[axes[1]],  # type: ignore[arg-type]
            prediction.mean,
            prediction.extrapolates,
            prediction.tried,
        )
        for config, prediction in zip(configs, model.predictions(configs), strict=True)
    )


def _with_ends(values: Sequence[float], logged: bool) -> list[Number]:
    known = _between(values)
    if len(known) > _MOST_SURFACE:
        known = [known[at] for at in np.linspace(0, len(known) - 1, _MOST_SURFACE).astype(int)]
    whole = all(isinstance(value, int) for value in known)
    doubling = logged and len(known) > 1 and known[-1] >= 4 * known[0]
    step = known[-1] - known[-2] if len(known) > 1 else 1
    above = known[-1] * 2 if doubling else known[-1] + step
    below = known[0] / 2 if doubling else known[0] - step
    ends: list[Number] = [number(above)]
    if (below > 0 or not logged) and (not whole or below == int(below)):
        ends.append(number(below))
    return sorted([*known, *ends])
