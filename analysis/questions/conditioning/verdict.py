"""Whether condition numbers go with results: the correlations over shapes, and what they decide."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.questions.conditioning.result import (
    ConditionedShape,
    ConditioningSettings,
    ConditioningVerdict,
    Leading,
)
from analysis.statistics.permutation import RankTest, partial_rank_test, rank_test
from analysis.statistics.values import FloatArray
from analysis.text.numbers import cost_title, number_text, p_text, percent_text
from hsweep.design.question import Goal


@dataclass(frozen=True, slots=True)
class Correlations:
    """The correlations of condition number and goodness, as `ConditioningResult` names them."""

    num_shapes: int
    raw: RankTest | None
    size_controlled: RankTest | None = None
    same_size: RankTest | None = None
    size_share: tuple[float, float] | None = None
    same_heads: RankTest | None = None


def correlate(
    shapes: Sequence[ConditionedShape],
    goal: Goal,
    settings: ConditioningSettings,
    rng: np.random.Generator,
) -> Correlations:
    """Correlate over shapes: all of them, given their sizes, and among those of about one size."""
    condition = np.array([math.log(shape.condition) for shape in shapes])
    good = (1.0 if goal == "max" else -1.0) * np.array([shape.metric for shape in shapes])

    def among(groups: Sequence[float] | None) -> RankTest | None:
        return rank_test(condition, good, groups=groups, rng=rng, draws=settings.draws)

    raw = among(None)
    heads = [shape.x for shape in shapes if shape.x is not None]
    has_heads = len(set(heads)) > 1 and len(heads) == len(shapes)
    found = Correlations(len(shapes), raw, same_heads=among(heads) if has_heads else None)
    known = [shape.size for shape in shapes if shape.size is not None]
    if raw is None or len(known) < len(shapes):
        return found
    classes = size_classes(np.array(known, dtype=np.float64), settings.same_size)
    if classes.max() == 0:
        return found
    return replace(
        found,
        size_controlled=partial_rank_test(condition, good, classes, rng=rng, draws=settings.draws),
        same_size=among(classes.tolist()),
        size_share=(_explained(condition, classes), _explained(good, classes)),
    )


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


def _explained(values: FloatArray, given: FloatArray) -> float:
    """Return the squared rank correlation."""
    # No test is made, so that no arrangement is drawn.
    test = rank_test(values, given, rng=np.random.default_rng(0), draws=1)
    return test.rho**2 if test is not None else 0.0


def judge(
    found: Correlations, settings: ConditioningSettings, metric: str, size: str | None
) -> tuple[ConditioningVerdict, Leading | None, str]:
    if found.num_shapes < settings.fewest_shapes:
        return (
            "undecided",
            None,
            f"{found.num_shapes} shapes with a condition number are too few for a test: it takes "
            f"{settings.fewest_shapes}",
        )
    if found.raw is None:
        return "undecided", None, f"condition number or {metric} is the same for all shapes"
    leading, test, given, note = _leading(found, settings, cost_title(size) if size else "size")
    if test is None or leading is None:
        return "undecided", None, note
    numbers = f"{correlation_text(test)}{given}"
    if test.p > settings.alpha:
        gone = ""
        if leading != "raw" and found.raw.p <= settings.alpha:
            gone = f"; without regard to size it is {correlation_text(found.raw)}"
        return (
            "undecided",
            leading,
            f"no correlation of condition number and {metric} is established: {numbers}{gone}"
            f"{note}",
        )
    if test.rho > 0:
        return (
            "contradicted",
            leading,
            f"worse conditioned shapes have the better {metric}: {numbers}{note}",
        )
    reason = f"better conditioned shapes have the better {metric}: {numbers}{note}"
    held = found.same_heads
    if held is None:
        return "supported", leading, reason
    reason += f"; among shapes of equally many heads {correlation_text(held)}"
    if held.p > settings.alpha:
        reason += ", so that the condition number is not told apart from the number of heads itself"
    elif held.rho > 0:
        return "undecided", leading, f"{reason}, which is the contrary"
    return "supported", leading, reason


def _leading(
    found: Correlations, settings: ConditioningSettings, size: str
) -> tuple[Leading | None, RankTest | None, str, str]:
    """Return the test that decides, a phrase on what it holds fixed, and a remark."""
    if found.size_share is None:
        return "raw", found.raw, "", ""
    of_condition, of_metric = found.size_share
    same = found.same_size
    confounded = min(found.size_share) >= settings.confounded or found.size_controlled is None
    if not confounded:
        return "size_controlled", found.size_controlled, f" given their {size}", ""
    shares = (
        f"{size} account for {percent_text(round(of_condition, 2))} of the order of the condition "
        f"numbers and {percent_text(round(of_metric, 2))} of that of the results"
    )
    if same is not None and same.smallest_p <= settings.alpha:
        return "same_size", same, f" among shapes of equal {size}", f"; over all, {shares}"
    return (
        None,
        None,
        "",
        f"size and condition number cannot be told apart: {shares}, and too few shapes have equal "
        f"{size}",
    )


def correlation_text(test: RankTest) -> str:
    interval = (
        f", 95% interval {number_text(test.interval.low, 2)} to "
        f"{number_text(test.interval.high, 2)}"
        if test.interval is not None
        else ""
    )
    return (
        f"rank correlation {number_text(test.rho, 2)}{interval} ({p_text(test.p)}, "
        f"{test.shapes} shapes)"
    )
