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
from analysis.questions.conditioning.verdict import correlate, judge
from analysis.runs.columns import RunColumns, plain
from analysis.runs.grouped import describe
from analysis.runs.losses import Losses, losses_named
from analysis.runs.scale import transform
from analysis.runs.statuses import DROPPED
from analysis.runs.table import Runs
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
    metric: str | None = None,
    config: Sequence[str],
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
        metric: the result.
        config: columns that name a shape; an empty entry is a value of its own (a coupled
            ``head_dim``).
        x: column of the number of heads; condition numbers are drawn against it if it is among
            ``config``.
        goal: whether the metric is minimised or maximised.
        scale: ``error`` averages the seeds' logarithms, others the values.
        condition: column of the condition number, at least 1.
        prediction: column of the theory's value; None takes ``predicted_condition_number`` if it
            is there.
        size: column of what confounds both; None takes ``num_params`` if it is there.
        settings: every choice.
        columns: which columns tell runs apart and say how each ended (`RunColumns`); without a
            column ``seed`` the runs of a shape are numbered.

    Raises:
        UserError: a missing column, a condition number below 1, or no run that has one.
    """
    given = Runs.of(table, metric, columns)
    frame, metric = given.frame, given.metric
    if goal not in ("min", "max"):
        raise unknown_name("goal", goal, ("min", "max"))
    if not config:
        raise UserError("name at least one configuration column (heads, depth, ...)")
    for name in (condition, *config, *(each for each in (prediction, size) if each)):
        if name not in frame.columns:
            raise unknown_name("column", name, map(str, frame.columns))
    chosen = settings or ConditioningSettings()
    prediction = prediction or (PREDICTION if PREDICTION in frame.columns else None)
    size = size or ("num_params" if "num_params" in frame.columns else None)
    layers = tuple(str(name) for name in frame.columns if str(name).startswith(LAYER_PREFIX))
    extra = [each for each in (prediction, size) if each is not None]
    numbers = [*extra, *layers, *(name for name in (CAPPED,) if name in frame.columns)]
    if EMBED_DIM in frame.columns and HEAD_DIM in config and EMBED_DIM not in config:
        numbers.append(EMBED_DIM)
    runs, warnings = given.rows(list(config), [condition, *dict.fromkeys(numbers)])
    groups = _usable(runs, list(config), condition, warnings)
    shapes = sorted(
        (
            _shape(rows, lost, config, x, metric, scale, condition, prediction, size, layers)
            for rows, lost in groups
        ),
        key=lambda shape: (shape.x is None, shape.x or 0, shape.size or 0, shape.label),
    )
    shapes = _without_twins(shapes, x, warnings)
    if named := losses_named([(shape.label, shape.lost) for shape in shapes]):
        warnings.append(f"some means are those of the runs that were left: {named}")
    capped = sum(bool(shape.capped) for shape in shapes)
    if capped:
        warnings.append(
            f"{capped} of {len(shapes)} shapes have matrices that are singular to float32; their "
            "condition numbers stand at its limit, so only ranks are to be trusted there"
        )
    if any(shape.n == 1 for shape in shapes):
        warnings.append("some shapes have a single run, so their place is uncertain by its noise")
    rng = np.random.default_rng(chosen.rng_seed)
    found = correlate(shapes, goal, chosen, rng)
    verdict, leading, reason = judge(found, chosen, metric, size)
    return ConditioningResult(
        verdict=verdict,
        reason=reason,
        leading=leading,
        raw=found.raw,
        size_controlled=found.size_controlled,
        same_size=found.same_size,
        same_heads=found.same_heads,
        size_share=found.size_share,
        trends=heads_trends(shapes, x, config, chosen, rng),
        theory=theory_check(shapes, chosen, rng),
        shapes=tuple(shapes),
        layer_names=layers,
        x=x,
        condition=condition,
        prediction=prediction,
        metric=metric,
        goal=goal,
        scale=scale,
        size=size,
        settings=chosen,
        warnings=tuple(warnings),
    )


def _usable(
    runs: pd.DataFrame, config: list[str], condition: str, warnings: list[str]
) -> list[tuple[pd.DataFrame, Losses]]:
    """Return the full-budget runs of each shape that lost none to early stopping, and how many
    others gave no number."""
    if (runs[condition].dropna() < 1).any():
        raise UserError(
            f"column {condition!r} holds {float(runs[condition].min())!r}; a condition number is "
            "at least 1 (is it a logarithm?)"
        )
    groups = [rows for _, rows in runs.groupby(config, sort=True)]
    whole = [rows for rows in groups if not rows["status"].isin(DROPPED).any()]
    if len(whole) < len(groups):
        warnings.append(
            f"{len(groups) - len(whole)} shapes lost runs to early stopping and are left out: the "
            "runs they kept are those that did well"
        )
    done = [rows.loc[rows["complete"]] for rows in whole]
    found = [rows.loc[rows[condition].notna()] for rows in done]
    unmeasured = sum(len(rows) for rows in done) - sum(len(rows) for rows in found)
    if unmeasured:
        warnings.append(f"{unmeasured} full-budget runs have no {condition} and are left out")
    losses = [Losses.of(rows["status"]) for rows in whole]
    pairs = list(zip(found, losses, strict=True))
    gone = [
        (describe(_axes(rows, config)), lost)
        for rows, (left, lost) in zip(whole, pairs, strict=True)
        if left.empty
    ]
    if named := losses_named(gone):
        warnings.append(f"some shapes have no run that is left: {named}")
    usable = [(rows, lost) for rows, lost in pairs if not rows.empty]
    if not usable:
        raise UserError(f"no run of the table reached its full budget with a {condition}")
    return usable


def _axes(rows: pd.DataFrame, config: Sequence[str]) -> Config:
    values = {name: plain(rows[name].iloc[0]) for name in config}
    return {
        name: number(value) if isinstance(value, float) else value for name, value in values.items()
    }


def _shape(
    rows: pd.DataFrame,
    lost: Losses,
    config: Sequence[str],
    x: str,
    metric: str,
    scale: Scale,
    condition: str,
    prediction: str | None,
    size: str | None,
    layers: Sequence[str],
) -> ConditionedShape:
    axes = _axes(rows, config)
    values = rows["value"].to_numpy(np.float64)
    is_error = scale == "error"
    y, _ = transform(values, "error" if is_error else "loss", None, metric)
    embed_dim = float(rows[EMBED_DIM].iloc[0]) if EMBED_DIM in rows.columns else math.nan
    heads = axes.get(x)
    return ConditionedShape(
        config=axes,
        label=describe(axes),
        series=_series(axes, x, embed_dim),
        x=number(heads) if isinstance(heads, int | float) else None,
        n=len(rows),
        metric=float(10 ** y.mean()) if is_error else float(y.mean()),
        metric_values=tuple(values.tolist()),
        condition=_geometric_mean(rows[condition]),
        condition_values=tuple(rows[condition].astype(float).tolist()),
        prediction=_mean(rows, prediction),
        layers=tuple(_geometric_mean(rows[name]) for name in layers),
        size=_mean(rows, size),
        capped=_mean(rows, CAPPED if CAPPED in rows.columns else None),
        lost=lost,
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


def _mean(rows: pd.DataFrame, column: str | None) -> float | None:
    if column is None:
        return None
    known = rows[column].dropna()
    return float(known.mean()) if len(known) else None


def _geometric_mean(column: "pd.Series[Any]") -> float:
    known = column.dropna().to_numpy(np.float64)
    return float(np.exp(np.log(known).mean())) if known.size else math.nan
