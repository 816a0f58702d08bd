"""How condition numbers go with heads, and how they stand beside the theory's."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import geometric_mean
from typing import Final

import numpy as np

from analysis.questions.conditioning.result import (
    HEAD_DIM,
    ConditionedShape,
    ConditioningSettings,
    Course,
    HeadsTrend,
    TheoryCheck,
)
from analysis.statistics.permutation import rank_test
from analysis.statistics.values import Interval
from analysis.values import AxisValue, Number

_SAME: Final = 0.02
"""Predictions within about 2 % of each other count as the same in a course, and so do measured
values within two standard errors of their difference, or within this if seeds say less."""
_SAME_WITHOUT_SEEDS: Final = 0.1
"""How far single runs may differ and count as the same."""
_COURSES: Final[dict[tuple[int, ...], Course]] = {
    (): "constant",
    (-1,): "falls",
    (1,): "rises",
    (1, -1): "has a peak",
    (-1, 1): "has a trough",
}
Block = Mapping[Number, ConditionedShape]
"""Shapes that differ in heads alone, by their number of heads."""


def heads_trends(
    shapes: Sequence[ConditionedShape],
    x: str,
    config: Sequence[str],
    settings: ConditioningSettings,
    rng: np.random.Generator,
) -> tuple[HeadsTrend, ...]:
    """Return one trend for each curve over heads that holds two of them."""
    others = [name for name in config if name not in (x, HEAD_DIM)]
    found = []
    for name in dict.fromkeys(series for shape in shapes for series in shape.series):
        blocks: dict[tuple[AxisValue, ...], dict[Number, ConditionedShape]] = {}
        for shape in shapes:
            if name in shape.series and shape.x is not None:
                held = tuple(shape.config[other] for other in others)
                blocks.setdefault(held, {})[shape.x] = shape
        if max(map(len, blocks.values()), default=0) > 1:
            found.append(_trend(name, list(blocks.values()), settings, rng))
    return tuple(found)


def _trend(
    series: str, blocks: Sequence[Block], settings: ConditioningSettings, rng: np.random.Generator
) -> HeadsTrend:
    # Means over blocks are comparable only if every block has every number of heads.
    grid = max((sorted(block) for block in blocks), key=len)
    whole = [block for block in blocks if set(grid) <= set(block)]
    measured = [geometric_mean(block[at].condition for block in whole) for at in grid]
    theory = [[block[at].prediction for block in whole] for at in grid]
    known = [[each for each in values if each is not None] for values in theory]
    complete = all(len(values) == len(whole) for values in known)
    predicted = [geometric_mean(values) for values in known] if complete else []
    listed = [(at, shape) for block in blocks for at, shape in block.items()]
    return HeadsTrend(
        series=series,
        x=tuple(grid),
        measured=tuple(measured),
        predicted=tuple(predicted),
        course=course(measured, _seed_tolerance(whole)),
        predicted_course=course(predicted) if predicted else None,
        change=measured[-1] / measured[0],
        predicted_change=predicted[-1] / predicted[0] if predicted else None,
        test=rank_test(
            np.array([at for at, _ in listed], dtype=np.float64),
            np.array([math.log(shape.condition) for _, shape in listed]),
            groups=[at for at, block in enumerate(blocks) for _ in block],
            rng=rng,
            draws=settings.draws,
        ),
    )


def course(values: Sequence[float], tolerance: float = _SAME) -> Course:
    """Return how a sequence of condition numbers goes; smaller steps than ``tolerance`` are none.

    Args:
        values: condition numbers at growing numbers of heads.
        tolerance: in logarithms; 0.02 is about 2 %.
    """
    steps = [math.log(after / before) for before, after in pairwise(values)]
    signs = [1 if step > 0 else -1 for step in steps if abs(step) > tolerance]
    turns = [sign for at, sign in enumerate(signs) if at == 0 or sign != signs[at - 1]]
    return _COURSES.get(tuple(turns), "varies")


def _seed_tolerance(blocks: Sequence[Block]) -> float:
    """Return two standard errors of the difference of two points of a curve."""
    shapes = [shape for block in blocks for shape in block.values() if shape.n > 1]
    if not shapes:
        return _SAME_WITHOUT_SEEDS
    seeds = [np.log(np.array(shape.condition_values)) for shape in shapes]
    df = sum(each.size - 1 for each in seeds)
    variance = sum(float(((each - each.mean()) ** 2).sum()) for each in seeds) / df
    runs = sum(each.size for each in seeds) / len(seeds) * len(blocks)
    return max(_SAME, 2 * math.sqrt(2 * variance / runs))


def theory_check(
    shapes: Sequence[ConditionedShape], settings: ConditioningSettings, rng: np.random.Generator
) -> TheoryCheck | None:
    """Return measured beside predicted condition numbers; None without a prediction."""
    pairs = [
        (shape.condition, shape.prediction)
        for shape in shapes
        if shape.prediction is not None and math.isfinite(shape.prediction)
    ]
    if not pairs:
        return None
    measured, predicted = np.log(np.array(pairs)).T
    ratios = measured - predicted
    factor = Interval(*np.exp([ratios.mean(), ratios.min(), ratios.max()]).tolist())
    # Predictions are computed, so what differs by rounding alone is the same.
    rounded = np.round(predicted, 9)
    return TheoryCheck(factor, rank_test(rounded, measured, rng=rng, draws=settings.draws))
