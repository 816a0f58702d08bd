"""Conditioning in words and tables."""

from collections.abc import Sequence
from typing import Final

from analysis.questions.base import Section
from analysis.questions.conditioning.result import (
    COUPLED,
    ConditioningResult,
    ConditioningVerdict,
    HeadsTrend,
)
from analysis.text.numbers import (
    Tone,
    cost_text,
    cost_title,
    number_text,
    p_text,
)
from analysis.text.tables import Table
from analysis.values import Number

_BADGES: Final[dict[ConditioningVerdict, tuple[str, Tone]]] = {
    "supported": ("conditioning story supported", "found"),
    "contradicted": ("conditioning story contradicted", "absent"),
    "undecided": ("conditioning story undecided", "unknown"),
}
_CAUSES: Final = (
    "A correlation over shapes is evidence for or against the account, not its proof: nothing set "
    "the condition number alone."
)


def conditioning_badge(result: ConditioningResult) -> tuple[str, Tone]:
    same_heads = result.same_heads
    is_by_heads = same_heads is not None and same_heads.p > result.settings.alpha
    if result.verdict == "supported" and is_by_heads:
        return "in accord with the conditioning story, as with heads alone", "partial"
    return _BADGES[result.verdict]


def conditioning_sentences(result: ConditioningResult) -> tuple[str, ...]:
    """Return the verdict with its reason, and then how condition numbers go with heads."""
    sentences = [f"{result.verdict.capitalize()}: {result.reason}."]
    sentences += [_trend_sentence(trend, result.x) for trend in result.trends]
    return tuple(sentences)


def _trend_sentence(trend: HeadsTrend, x: str) -> str:
    condition = f"heads {COUPLED}" if trend.series == COUPLED else trend.series or f"more {x}"
    ends = f"from {number_text(trend.x[0])} to {number_text(trend.x[-1])} {x}"
    test_text = theory = ""
    if trend.test is not None:
        test_text = f" (rank correlation {number_text(trend.test.rho, 2)}, {p_text(trend.test.p)})"
    if trend.predicted:
        theory = f"; the theory says that it {_change_text(trend.x, trend.predicted)}"
    goes = _change_text(trend.x, trend.measured, f" {ends}")
    return f"With {condition}, the condition number {goes}{test_text}{theory}."


def _change_text(x: Sequence[Number], values: Sequence[float], where: str = "") -> str:
    change, highest = values[-1] / values[0], max(values)
    factor = number_text(change if change >= 1 else 1 / change, 2)
    goes = (
        "stays the same" if factor == "1" else f"{'rises' if change > 1 else 'falls'} {factor}-fold"
    )
    peak = f", with a peak at {number_text(x[values.index(highest)])}"
    return f"{goes}{where}{peak * (highest > 1.05 * max(values[0], values[-1]))}"


def conditioning_tables(result: ConditioningResult) -> tuple[Section, ...]:
    return (Section("Condition numbers", shapes_table(result)),)


def shapes_table(result: ConditioningResult) -> Table:
    has_theory = any(shape.prediction is not None for shape in result.shapes)
    header = (
        *("shape", *([cost_title(result.size)] if result.size else []), result.metric, "runs"),
        *("condition number", *(("theory", "measured / theory") if has_theory else ())),
    )
    rows = []
    for shape in result.shapes:
        row = [shape.label]
        if result.size:
            row.append(cost_text(result.size, shape.size))
        row += [number_text(shape.metric, 4), f"{shape.n}{shape.lost.behind}"]
        row.append(number_text(shape.condition))
        if has_theory:
            ratio = shape.condition / shape.prediction if shape.prediction else None
            row += [number_text(shape.prediction), number_text(ratio)]
        rows.append(tuple(row))
    note = f"Geometric means over seeds of the last report, each the mean over layers. {_CAUSES}"
    return Table(header, tuple(rows), note)
