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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import geometric_mean
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.questions.conditioning.result import (
    COUPLED,
    HEAD_DIM,
    ConditionedShape,
    ConditioningResult,
    ConditioningSettings,
    ConditioningVerdict,
    HeadsTrend,
    Leading,
)
from analysis.runs.grouped import Shape, grouped
from analysis.runs.scale import transform
from analysis.runs.table import Runs
from analysis.statistics.permutation import RankTest, partial_rank_test, rank_test
from analysis.statistics.values import FloatArray
from analysis.text.numbers import cost_title, number_text, p_text, percent_text
from analysis.values import AxisValue, Number, number
from hsweep.design.scales import Goal, Scale
from hsweep.errors import UserError, unknown_name

CONDITION: Final = "condition_number"
PREDICTION: Final = "predicted_condition_number"
CAPPED: Final = "condition_number_capped"
_SAME_SIZE: Final = 1.05
"""Shapes whose sizes differ by less than this factor count as equally large."""
_CONFOUNDED: Final = 0.8
"""Share of the variance of both ranks, condition number's and metric's, from which on size orders
both alike and nothing is left to compare."""
_FEWEST_SHAPES: Final = 5
"""Below so many shapes there is no verdict."""


def has_probe(frame: pd.DataFrame) -> bool:
    return CONDITION in frame.columns and bool(frame[CONDITION].notna().any())


def fit(
    runs: Runs,
    *,
    config: Sequence[str],
    x: str = "heads",
    goal: Goal = "max",
    scale: Scale = "accuracy",
    size: str | None = None,
    settings: ConditioningSettings = ConditioningSettings(),
) -> ConditioningResult:
    """Compare condition numbers with the theory, and with the metric over shapes.

    Args:
        config: columns that name a shape; an empty entry is a value of its own (a coupled
            ``head_dim``).
        x: column of the number of heads; condition numbers are drawn against it if it is among
            ``config``.
        scale: ``error`` averages the seeds' logarithms, others the values.
        size: column of what confounds both; None takes ``num_params`` if it is there.

    Raises:
        UserError: a missing column, a condition number below 1, or no run that has one.
    """
    known = runs.frame.columns
    for name in (CONDITION, *config, *([size] if size else [])):
        if name not in known:
            raise unknown_name("column", name, map(str, known))
    size = size or ("num_params" if "num_params" in known else None)
    extra = [name for name in (PREDICTION, size, CAPPED) if name in known]
    numbers = dict.fromkeys([CONDITION, *(name for name in extra if name and name not in config)])
    shapes_of_runs = grouped(runs, config, goal=goal, numbers=list(numbers), far=0.0)
    warnings = list(shapes_of_runs.warnings)
    masks = [(shape, ~np.isnan(shape.numbers[CONDITION])) for shape in shapes_of_runs.comparable]
    probed_shapes = [shape.some(mask) for shape, mask in masks if mask.any()]
    if unprobed := sum(int((~mask).sum()) for _, mask in masks):
        warnings.append(f"{unprobed} full-budget runs have no {CONDITION} and are left out")
    if not probed_shapes:
        raise UserError(f"no run of the table reached its full budget with a {CONDITION}")
    lowest = min(float(shape.numbers[CONDITION].min()) for shape in probed_shapes)
    if lowest < 1:
        raise UserError(
            f"column {CONDITION!r} holds {lowest!r}; a condition number is at least 1 (is it a "
            "logarithm?)"
        )
    shapes = sorted(
        (_conditioned(shape, x, scale, size) for shape in probed_shapes),
        key=lambda shape: (shape.x is None, shape.x or 0, shape.size or 0, shape.label),
    )
    capped_shares = [_mean(shape.numbers.get(CAPPED)) for shape in probed_shapes]
    if capped := sum(bool(share) for share in capped_shares):
        warnings.append(
            f"{capped} of {len(shapes)} shapes have matrices that are singular to float32; their "
            "condition numbers stand at its limit, so only ranks are to be trusted there"
        )
    if any(shape.n == 1 for shape in shapes):
        warnings.append("some shapes have a single run, so their place is uncertain by its noise")
    rng = np.random.default_rng(0)
    tests = correlations(shapes, goal, settings, rng)
    result = ConditioningResult(
        shapes=tuple(shapes),
        trends=_heads_trends(shapes, x, config, settings, rng),
        x=x,
        metric=runs.metric,
        goal=goal,
        scale=scale,
        size=size,
        settings=settings,
        warnings=tuple(warnings),
        **tests,
    )
    verdict, leading, reason = _judge(result)
    return replace(result, verdict=verdict, leading=leading, reason=reason)


def _conditioned(shape: Shape, x: str, scale: Scale, size: str | None) -> ConditionedShape:
    axes = {k: number(v) if isinstance(v, float) else v for k, v in shape.config.items()}
    heads, values, numbers = axes.get(x), shape.values, shape.numbers
    is_error = scale == "error"
    quality = transform(values, scale, None, x)[0] if is_error else values
    return ConditionedShape(
        config=axes,
        label=shape.label,
        series=_series(axes.get(HEAD_DIM)) if HEAD_DIM in axes else "",
        x=number(heads) if isinstance(heads, int | float) else None,
        n=values.size,
        metric=float(10 ** quality.mean() if is_error else quality.mean()),
        metric_values=tuple(values.tolist()),
        condition=float(np.exp(np.log(numbers[CONDITION]).mean())),
        condition_values=tuple(numbers[CONDITION].tolist()),
        prediction=_mean(numbers.get(PREDICTION)),
        size=_mean(numbers.get(size or "")),
        lost=shape.lost,
    )


def _series(width: AxisValue | None) -> str:
    """Return the curve over heads of a shape: heads of one width, or heads that share a token's."""
    return f"{HEAD_DIM} = {width:g}" if isinstance(width, int | float) else COUPLED


def _mean(values: FloatArray | None) -> float | None:
    known = np.empty(0) if values is None else values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def correlations(
    shapes: Sequence[ConditionedShape],
    goal: Goal,
    settings: ConditioningSettings,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return the correlations over shapes, as `ConditioningResult` names them."""
    condition = np.array([math.log(shape.condition) for shape in shapes])
    good = (1.0 if goal == "max" else -1.0) * np.array([shape.metric for shape in shapes])

    def explained(values: FloatArray) -> float:
        # No test is made, so that no arrangement is drawn.
        test = rank_test(values, classes, rng=np.random.default_rng(0), draws=1)
        return test.rho**2 if test is not None else 0.0

    heads = [shape.x for shape in shapes if shape.x is not None]
    has_heads = len(set(heads)) > 1 and len(heads) == len(shapes)
    tests: dict[str, Any] = {
        name: rank_test(condition, good, groups=groups, rng=rng, draws=settings.draws)
        for name, groups in (("raw", None), *([("same_heads", heads)] if has_heads else []))
    }
    sizes = [shape.size for shape in shapes if shape.size is not None]
    if tests["raw"] is None or len(sizes) < len(shapes):
        return tests
    classes = size_classes(np.array(sizes, dtype=np.float64), _SAME_SIZE)
    if classes.max() > 0:
        tests["size_controlled"] = partial_rank_test(
            condition, good, classes, rng=rng, draws=settings.draws
        )
        tests["size_share"] = explained(condition), explained(good)
    return tests


def size_classes(sizes: FloatArray, factor: float) -> FloatArray:
    """Return the number of each shape's size class, ascending.

    A class begins at its smallest shape and holds all up to ``factor`` times that. Without classes
    shapes of nearly one size would have ranks of size that mean nothing, and both correlations
    with them would be blurred alike, which looks like a correlation of the two.
    """
    classes = np.zeros(sizes.size)
    start, current = -math.inf, -1
    for at in np.argsort(sizes, kind="stable"):
        if current < 0 or sizes[at] > start * factor:
            current, start = current + 1, float(sizes[at])
        classes[at] = current
    return classes


def _judge(result: ConditioningResult) -> tuple[ConditioningVerdict, Leading | None, str]:
    """Return the verdict of a result's correlations, the test that decides, and the reason."""
    settings, metric, raw = result.settings, result.metric, result.raw
    if len(result.shapes) < _FEWEST_SHAPES:
        few = f"{len(result.shapes)} shapes with a condition number are too few for a test"
        return "undecided", None, f"{few}: it takes {_FEWEST_SHAPES}"
    if raw is None:
        return "undecided", None, f"condition number or {metric} is the same for all shapes"
    leading: Leading = "raw"
    test, among = raw, ""
    if result.size_share is not None:
        size = cost_title(result.size) if result.size else "size"
        if min(result.size_share) >= _CONFOUNDED or result.size_controlled is None:
            shares = [percent_text(round(share, 2)) for share in result.size_share]
            return (
                *("undecided", None),
                f"size and condition number cannot be told apart: {size} account for {shares[0]} of"
                f" the order of the condition numbers and {shares[1]} of that of the results",
            )
        leading, test, among = "size_controlled", result.size_controlled, f" given their {size}"
    numbers = f"{_correlation_text(test)}{among}"
    if test.p > settings.alpha:
        raw_text = ""
        if leading != "raw" and raw.p <= settings.alpha:
            raw_text = f"; without regard to size it is {_correlation_text(raw)}"
        none = f"no correlation of condition number and {metric} is established: {numbers}"
        return "undecided", leading, f"{none}{raw_text}"
    direction = "better" if test.rho < 0 else "worse"
    reason = f"{direction} conditioned shapes have the better {metric}: {numbers}"
    same_heads = result.same_heads
    if test.rho > 0:
        return "contradicted", leading, reason
    if same_heads is None:
        return "supported", leading, reason
    reason += f"; among shapes of equally many heads {_correlation_text(same_heads)}"
    if same_heads.p > settings.alpha:
        reason += ", so that the condition number is not told apart from the number of heads itself"
    elif same_heads.rho > 0:
        return "undecided", leading, f"{reason}, which is the contrary"
    return "supported", leading, reason


def _correlation_text(test: RankTest) -> str:
    interval = ""
    if test.interval is not None:
        low, high = (number_text(end, 2) for end in test.interval[1:])
        interval = f", 95% interval {low} to {high}"
    rho = number_text(test.rho, 2)
    return f"rank correlation {rho}{interval} ({p_text(test.p)}, {test.shapes} shapes)"


def _heads_trends(
    shapes: Sequence[ConditionedShape],
    x: str,
    config: Sequence[str],
    settings: ConditioningSettings,
    rng: np.random.Generator,
) -> tuple[HeadsTrend, ...]:
    """Return one trend for each curve over heads that holds two of them."""
    others = [name for name in config if name not in (x, HEAD_DIM)]
    trends = []
    for name in dict.fromkeys(shape.series for shape in shapes):
        blocks: dict[tuple[AxisValue, ...], dict[Number, ConditionedShape]] = {}
        for shape in shapes:
            if shape.series == name and shape.x is not None:
                block = tuple(shape.config[other] for other in others)
                blocks.setdefault(block, {})[shape.x] = shape
        if max(map(len, blocks.values()), default=0) > 1:
            trends.append(_trend(name, list(blocks.values()), settings, rng))
    return tuple(trends)


def _trend(
    series: str,
    blocks: Sequence[Mapping[Number, ConditionedShape]],
    settings: ConditioningSettings,
    rng: np.random.Generator,
) -> HeadsTrend:
    """Return how the condition number goes with heads; the shapes of a block differ in heads."""
    # Means over blocks are comparable only if every block has every number of heads.
    grid = max((sorted(block) for block in blocks), key=len)
    whole = [block for block in blocks if set(grid) <= set(block)]
    predictions = [[block[at].prediction for block in whole] for at in grid]
    known = [[value for value in values if value is not None] for values in predictions]
    is_predicted = all(len(values) == len(whole) for values in known)
    every = [(at, shape) for block in blocks for at, shape in block.items()]
    return HeadsTrend(
        series=series,
        x=tuple(grid),
        measured=tuple(geometric_mean(block[at].condition for block in whole) for at in grid),
        predicted=tuple(map(geometric_mean, known)) if is_predicted else (),
        test=rank_test(
            np.array([at for at, _ in every], dtype=np.float64),
            np.array([math.log(shape.condition) for _, shape in every]),
            groups=[at for at, block in enumerate(blocks) for _ in block],
            rng=rng,
            draws=settings.draws,
        ),
    )
