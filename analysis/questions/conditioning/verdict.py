"""Whether condition numbers go with results: the correlations over shapes, and what they decide."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.questions.conditioning.result import (
    ConditionedShape,
    ConditioningResult,
    ConditioningSettings,
    ConditioningVerdict,
    Leading,
)
from analysis.statistics.permutation import RankTest, partial_rank_test, rank_test
from analysis.statistics.values import FloatArray
from analysis.text.numbers import cost_title, number_text, p_text, percent_text
from hsweep.design.question import Goal


def correlations(
    shapes: Sequence[ConditionedShape],
    goal: Goal,
    settings: ConditioningSettings,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return the correlations over shapes, as `ConditioningResult` names them."""
    condition = np.array([math.log(shape.condition) for shape in shapes])
    good = (1.0 if goal == "max" else -1.0) * np.array([shape.metric for shape in shapes])

    def among(groups: Sequence[float] | None) -> RankTest | None:
        return rank_test(condition, good, groups=groups, rng=rng, draws=settings.draws)

    def explained(values: FloatArray) -> float:
        # No test is made, so that no arrangement is drawn.
        test = rank_test(values, classes, rng=np.random.default_rng(0), draws=1)
        return test.rho**2 if test is not None else 0.0

    heads = [shape.x for shape in shapes if shape.x is not None]
    has_heads = len(set(heads)) > 1 and len(heads) == len(shapes)
    found: dict[str, Any] = {"raw": among(None), "same_heads": among(heads) if has_heads else None}
    sizes = [shape.size for shape in shapes if shape.size is not None]
    if found["raw"] is None or len(sizes) < len(shapes):
        return found
    classes = size_classes(np.array(sizes, dtype=np.float64), settings.same_size)
    if classes.max() > 0:
        given_size = partial_rank_test(condition, good, classes, rng=rng, draws=settings.draws)
        found |= {"size_controlled": given_size, "same_size": among(classes.tolist())}
        found["size_share"] = explained(condition), explained(good)
    return found


def size_classes(sizes: FloatArray, factor: float) -> FloatArray:
    """Return the number of each shape's size class, ascending.

    A class begins at its smallest shape and holds all up to ``factor`` times that. Without classes
    shapes of nearly one size would have ranks of size that mean nothing, and both correlations
    with them would be blurred alike, which looks like a correlation of the two.
    """
    found = np.zeros(sizes.size)
    start, current = -math.inf, -1
    for at in np.argsort(sizes, kind="stable"):
        if current < 0 or sizes[at] > start * factor:
            current, start = current + 1, float(sizes[at])
        found[at] = current
    return found


def judge(found: ConditioningResult) -> tuple[ConditioningVerdict, Leading | None, str]:
    """Return the verdict of a result's correlations, the test that decides, and the reason."""
    settings, metric = found.settings, found.metric
    if len(found.shapes) < settings.fewest_shapes:
        few = f"{len(found.shapes)} shapes with a condition number are too few for a test"
        return "undecided", None, f"{few}: it takes {settings.fewest_shapes}"
    if found.raw is None:
        return "undecided", None, f"condition number or {metric} is the same for all shapes"
    leading, test, among, note = _leading(found, found.raw)
    if test is None:
        return "undecided", None, note
    numbers = f"{_correlation_text(test)}{among}"
    if test.p > settings.alpha:
        gone = ""
        if leading != "raw" and found.raw.p <= settings.alpha:
            gone = f"; without regard to size it is {_correlation_text(found.raw)}"
        none = f"no correlation of condition number and {metric} is established: {numbers}"
        return "undecided", leading, f"{none}{gone}{note}"
    which = "better" if test.rho < 0 else "worse"
    reason = f"{which} conditioned shapes have the better {metric}: {numbers}{note}"
    held = found.same_heads
    if test.rho > 0:
        return "contradicted", leading, reason
    if held is None:
        return "supported", leading, reason
    reason += f"; among shapes of equally many heads {_correlation_text(held)}"
    if held.p > settings.alpha:
        reason += ", so that the condition number is not told apart from the number of heads itself"
    elif held.rho > 0:
        return "undecided", leading, f"{reason}, which is the contrary"
    return "supported", leading, reason


def _leading(
    found: ConditioningResult, raw: RankTest
) -> tuple[Leading | None, RankTest | None, str, str]:
    """Return the test that decides, a phrase on what it holds fixed, and a remark."""
    if found.size_share is None:
        return "raw", raw, "", ""
    settings, same = found.settings, found.same_size
    size = cost_title(found.size) if found.size else "size"
    if min(found.size_share) < settings.confounded and found.size_controlled is not None:
        return "size_controlled", found.size_controlled, f" given their {size}", ""
    of_condition, of_metric = (percent_text(round(share, 2)) for share in found.size_share)
    shares = (
        f"{size} account for {of_condition} of the order of the condition numbers and {of_metric} "
        "of that of the results"
    )
    if same is not None and same.smallest_p <= settings.alpha:
        return "same_size", same, f" among shapes of equal {size}", f"; over all, {shares}"
    apart = f"size and condition number cannot be told apart: {shares}"
    return None, None, "", f"{apart}, and too few shapes have equal {size}"


def _correlation_text(test: RankTest) -> str:
    interval = ""
    if test.interval is not None:
        low, high = (number_text(end, 2) for end in test.interval[1:])
        interval = f", 95% interval {low} to {high}"
    rho = number_text(test.rho, 2)
    return f"rank correlation {rho}{interval} ({p_text(test.p)}, {test.shapes} shapes)"
