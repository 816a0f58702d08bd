"""Conditioning: does better conditioned attention go with better results, and as the theory says?

Paper L ("Leaner Transformers: More Heads, Less Depth", arXiv 2505.20802, figure 2 and theorem 3.2)
explains why more heads help by the condition number of [A_1 .. A_h], the heads' outputs side by
side: more heads, a smaller condition number, and so a better optimum. Both links can be looked at.
For a fixed width of heads the theory's Gaussian matrices say (sqrt D + sqrt N) / |sqrt D - sqrt N|
for D = heads * head_dim columns and N tokens, and no change at all where heads share a width.

Shapes are the units: their seeds are averaged first, since seeds of one shape are not independent
evidence about shapes. Size confounds the second link, as larger shapes are better and (with heads
of fixed width) better conditioned, so the correlation given the size decides.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Unpack

import numpy as np
import pandas as pd

from analysis.questions.conditioning.result import (
    COUPLED,
    HEAD_DIM,
    ConditionedShape,
    ConditioningResult,
    ConditioningSettings,
)
from analysis.questions.conditioning.trends import heads_trends, theory_check
from analysis.questions.conditioning.verdict import correlations, judge
from analysis.runs.columns import RunColumns
from analysis.runs.grouped import Shape, grouped
from analysis.runs.scale import transform
from analysis.runs.table import Runs
from analysis.statistics.values import FloatArray
from analysis.values import Config, number
from hsweep.design.question import Goal, Scale
from hsweep.errors import UserError, unknown_name

CONDITION: Final = "condition_number"
PREDICTION: Final = "predicted_condition_number"
CAPPED: Final = "condition_number_capped"
LAYER_PREFIX: Final = "condition_number_layer_"
EMBED_DIM: Final = "embed_dim"


def has_probe(frame: pd.DataFrame) -> bool:
    return CONDITION in frame.columns and bool(frame[CONDITION].notna().any())


def fit(
    table: pd.DataFrame | Runs,
    *,
    config: Sequence[str],
    metric: str | None = None,
    x: str = "heads",
    goal: Goal = "max",
    scale: Scale = "accuracy",
    condition: str = CONDITION,
    prediction: str | None = None,
    size: str | None = None,
    settings: ConditioningSettings | None = None,
    **columns: Unpack[RunColumns],
) -> ConditioningResult:
    """Compare condition numbers with the theory, and with the metric over shapes.

    Args:
        table: one row a run, or `Runs`, which carry the metric and the columns.
        config: columns that name a shape; an empty entry is a value of its own (a coupled
            ``head_dim``).
        x: column of the number of heads; condition numbers are drawn against it if it is among
            ``config``.
        scale: ``error`` averages the seeds' logarithms, others the values.
        condition: column of the condition number, at least 1.
        prediction: column of the theory's value; None takes ``predicted_condition_number`` if it
            is there.
        size: column of what confounds both; None takes ``num_params`` if it is there.
        columns: which columns tell runs apart and say how each ended (`RunColumns`).

    Raises:
        UserError: a missing column, a condition number below 1, or no run that has one.
    """
    runs = Runs.of(table, metric, columns)
    known = runs.frame.columns
    for name in (condition, *config, *(each for each in (prediction, size) if each)):
        if name not in known:
            raise unknown_name("column", name, map(str, known))
    prediction = prediction or (PREDICTION if PREDICTION in known else None)
    size = size or ("num_params" if "num_params" in known else None)
    layers = tuple(str(name) for name in known if str(name).startswith(LAYER_PREFIX))
    extra = [name for name in (prediction, size, CAPPED, EMBED_DIM) if name in known]
    numbers = dict.fromkeys([condition, *(n for n in extra if n and n not in config), *layers])
    chosen = settings or ConditioningSettings()
    found = grouped(runs, config, goal=goal, numbers=list(numbers))
    warnings = list(found.warnings)
    has_number = [(shape, ~np.isnan(shape.numbers[condition])) for shape in found.found]
    measured = [shape.some(own) for shape, own in has_number if own.any()]
    if unmeasured := sum(int((~own).sum()) for _, own in has_number):
        warnings.append(f"{unmeasured} full-budget runs have no {condition} and are left out")
    if not measured:
        raise UserError(f"no run of the table reached its full budget with a {condition}")
    least = min(float(shape.numbers[condition].min()) for shape in measured)
    if least < 1:
        raise UserError(
            f"column {condition!r} holds {least!r}; a condition number is at least 1 (is it a "
            "logarithm?)"
        )
    shapes = sorted(
        (_conditioned(s, x, scale, (condition, prediction, size), layers) for s in measured),
        key=lambda shape: (shape.x is None, shape.x or 0, shape.size or 0, shape.label),
    )
    shapes = _without_twins(shapes, x, warnings)
    if capped := sum(bool(shape.capped) for shape in shapes):
        warnings.append(
            f"{capped} of {len(shapes)} shapes have matrices that are singular to float32; their "
            "condition numbers stand at its limit, so only ranks are to be trusted there"
        )
    if any(shape.n == 1 for shape in shapes):
        warnings.append("some shapes have a single run, so their place is uncertain by its noise")
    rng = np.random.default_rng(chosen.rng_seed)
    tests = correlations(shapes, goal, chosen, rng)
    result = ConditioningResult(
        shapes=tuple(shapes),
        trends=heads_trends(shapes, x, config, chosen, rng),
        theory=theory_check(shapes, chosen, rng),
        layer_names=layers,
        x=x,
        condition=condition,
        prediction=prediction,
        metric=runs.metric,
        goal=goal,
        scale=scale,
        size=size,
        settings=chosen,
        warnings=tuple(warnings),
        **tests,
    )
    verdict, leading, reason = judge(result)
    return replace(result, verdict=verdict, leading=leading, reason=reason)


def _conditioned(
    shape: Shape,
    x: str,
    scale: Scale,
    roles: tuple[str, str | None, str | None],
    layers: Sequence[str],
) -> ConditionedShape:
    condition, prediction, size = roles
    axes = {k: number(v) if isinstance(v, float) else v for k, v in shape.config.items()}
    heads, values, numbers = axes.get(x), shape.values, shape.numbers
    embed_dim = _mean(numbers.get(EMBED_DIM)) or axes.get(EMBED_DIM)
    is_error = scale == "error"
    quality = transform(values, scale, None, x)[0] if is_error else values
    return ConditionedShape(
        config=axes,
        label=shape.label,
        series=_series(axes, x, embed_dim if isinstance(embed_dim, int | float) else math.nan),
        x=number(heads) if isinstance(heads, int | float) else None,
        n=values.size,
        metric=float(10 ** quality.mean() if is_error else quality.mean()),
        metric_values=tuple(values.tolist()),
        condition=_geometric_mean(numbers[condition]),
        condition_values=tuple(numbers[condition].tolist()),
        prediction=_mean(numbers.get(prediction or "")),
        layers=tuple(_geometric_mean(numbers[name]) for name in layers),
        size=_mean(numbers.get(size or "")),
        capped=_mean(numbers.get(CAPPED)),
        lost=shape.lost,
    )


def _series(axes: Config, x: str, embed_dim: float) -> tuple[str, ...]:
    """Return the curves over heads that a shape lies on.

    Heads that share ``embed_dim`` and heads of a given width are two curves; they meet where the
    shared width is the given one.
    """
    if HEAD_DIM not in axes or not isinstance(axes.get(x), int | float):
        return ("",)
    heads, width = float(axes[x]), axes[HEAD_DIM]
    if not isinstance(width, int | float):
        shared = embed_dim / heads
        fits = math.isfinite(shared) and shared == int(shared)
        return (COUPLED, f"{HEAD_DIM} = {int(shared)}") if fits else (COUPLED,)
    own = f"{HEAD_DIM} = {width:g}"
    return (COUPLED, own) if width * heads == embed_dim else (own,)


def _without_twins(
    shapes: Sequence[ConditionedShape], x: str, warnings: list[str]
) -> list[ConditionedShape]:
    """Leave out the second name of one model: a shared width given as a number as well."""
    found: dict[Any, ConditionedShape] = {}
    for shape in shapes:
        held = tuple((name, value) for name, value in shape.config.items() if name != HEAD_DIM)
        twin = (held, frozenset(shape.series)) if len(shape.series) > 1 else (shape.label,)
        found.setdefault(twin, shape)
    if len(found) < len(shapes):
        warnings.append(
            f"{len(shapes) - len(found)} shapes are other shapes under another name (a {HEAD_DIM} "
            f"equal to {EMBED_DIM} / {x}) and are left out"
        )
    return list(found.values())


def _mean(values: FloatArray | None) -> float | None:
    known = np.empty(0) if values is None else values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _geometric_mean(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(np.exp(np.log(known).mean())) if known.size else math.nan
