"""Conditioning in words and tables."""

from typing import Final

from analysis.questions.conditioning.result import (
    COUPLED,
    ConditioningResult,
    ConditioningVerdict,
    Course,
    HeadsTrend,
)
from analysis.runs.losses import runs_text
from analysis.statistics.permutation import RankTest
from analysis.text.numbers import (
    NONE,
    Tone,
    cost_text,
    cost_title,
    number_text,
    p_text,
    percent_text,
)
from analysis.text.tables import Table

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
    held = result.same_heads
    if result.verdict == "supported" and held is not None and held.p > result.settings.alpha:
        return "in accord with the conditioning story, as with heads alone", "partial"
    return _BADGES[result.verdict]


def conditioning_sentences(result: ConditioningResult) -> tuple[str, ...]:
    """Return the verdict with its reason, and then how condition numbers go with heads."""
    sentences = [f"{result.verdict.capitalize()}: {result.reason}."]
    sentences += [trend_sentence(trend, result.x) for trend in result.trends]
    if result.theory is not None:
        factor = result.theory.factor
        sentences.append(
            f"Measured condition numbers are {number_text(factor.estimate)} times the predicted "
            f"ones ({number_text(factor.low)} to {number_text(factor.high)})."
        )
    return tuple(sentences)


def trend_sentence(trend: HeadsTrend, x: str) -> str:
    held = f"heads {COUPLED}" if trend.series == COUPLED else trend.series
    where = f"With {held or f'more {x}'}"
    ends = f"from {number_text(trend.x[0])} to {number_text(trend.x[-1])} {x}"
    goes = _course_text(trend.course, trend.change)
    tested = ""
    if trend.test is not None:
        tested = f" (rank correlation {number_text(trend.test.rho, 2)}, {p_text(trend.test.p)})"
    predicted = ""
    if trend.predicted_course is not None and trend.predicted_change is not None:
        same = trend.predicted_course == trend.course
        predicted = f", {'as' if same else 'where'} the theory says it " + _course_text(
            trend.predicted_course, trend.predicted_change
        )
    return f"{where}, the condition number {goes} {ends}{tested}{predicted}."


def _course_text(course: Course, change: float) -> str:
    words = {"constant": "stays the same", "has a peak": "has a peak", "varies": "goes up and down"}
    factor = number_text(change if change >= 1 else 1 / change, 2)
    if course == "falls":
        return f"falls {factor}-fold"
    if course == "rises":
        return f"rises {factor}-fold"
    if course == "constant":
        return words[course]
    ends = f"ends {factor} times {'higher' if change >= 1 else 'lower'}"
    return f"{words.get(course, course)} and {ends}"


def correlations_table(result: ConditioningResult) -> Table:
    size = cost_title(result.size) if result.size else "size"
    listed: tuple[tuple[str, str, RankTest | None], ...] = (
        ("raw", "over all shapes", result.raw),
        ("size_controlled", f"given their {size}", result.size_controlled),
        ("same_size", f"among shapes of equal {size}", result.same_size),
        ("same_heads", f"among shapes of equal {result.x}", result.same_heads),
    )
    rows = [
        _test_row(f"{name}{' (decides)' * (key == result.leading)}", test)
        for key, name, test in listed
        if test is not None
    ]
    rows += [
        _test_row(f"condition number and {result.x}, {trend.series or 'all else held'}", trend.test)
        for trend in result.trends
        if trend.test is not None
    ]
    if result.theory is not None and result.theory.test is not None:
        rows.append(_test_row("measured and predicted condition number", result.theory.test))
    note = (
        f"Spearman's rank correlations, the first rows of log condition number and how good "
        f"{result.metric} is: negative is what the account expects. Shapes are the units, their "
        f"seeds averaged; p from permuting shapes. {_CAUSES}"
    )
    if result.size_share is not None:
        of_condition, of_metric = result.size_share
        note += (
            f" {size[:1].upper()}{size[1:]} account for {percent_text(round(of_condition, 2))} of "
            f"the order of the condition numbers, and for {percent_text(round(of_metric, 2))} of "
            f"that of {result.metric}."
        )
    header = ("correlation", "rho", "95% interval", "p", "shapes", "groups")
    return Table(header, tuple(rows), note)


def _test_row(name: str, test: RankTest) -> tuple[str, ...]:
    interval = test.interval
    return (
        name,
        number_text(test.rho),
        NONE
        if interval is None
        else f"{number_text(interval.low, 2)} to {number_text(interval.high, 2)}",
        number_text(test.p, 2),
        str(test.shapes),
        str(test.groups),
    )


def shapes_table(result: ConditioningResult) -> Table:
    sizes = (cost_title(result.size),) if result.size else ()
    theory = ("theory", "measured / theory") if result.prediction else ()
    layers = tuple(f"layer {index}" for index in range(len(result.layer_names)))
    header = ("shape", *sizes, result.metric, "runs", "condition number", *theory, *layers)
    rows = tuple(
        (
            shape.label,
            *((cost_text(result.size, shape.size),) if result.size else ()),
            number_text(shape.metric, 4),
            runs_text(shape.n, shape.lost),
            number_text(shape.condition),
            *(
                (
                    number_text(shape.prediction),
                    number_text(shape.condition / shape.prediction if shape.prediction else None),
                )
                if theory
                else ()
            ),
            *(number_text(value) for value in shape.layers),
        )
        for shape in result.shapes
    )
    return Table(
        header,
        rows,
        "Geometric means over seeds of the last report; the whole is the mean over layers.",
    )
