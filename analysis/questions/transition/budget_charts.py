"""The charts of an answer at each budget."""

from typing import Final

from analysis.charts import palette
from analysis.charts.axes import GridAxis
from analysis.charts.chart import Axis, Chart, Line, Point, Reference, Series
from analysis.questions.transition.budget_conditions import PLACED
from analysis.questions.transition.budget_result import BudgetAnswer
from analysis.questions.transition.result import TransitionResult
from analysis.statistics.values import Interval
from analysis.text.numbers import interval_text, number_text, y_unit

_PANEL: Final = "budgets"


def budget_charts(result: TransitionResult) -> list[Chart]:
    """Return h* and the growth with T against the budget; none where there is one budget."""
    found = result.budgets
    if found is None or not found.answers:
        return []
    charts = [_location(result, found.answers, found.unit or found.column)]
    if any(answer.gamma_above is not None for answer in found.answers):
        charts.append(_slopes(result, found.answers, found.unit or found.column))
    return charts


def _budget_axis(title: str, answers: tuple[BudgetAnswer, ...]) -> Axis:
    ticks = tuple((float(each.budget), number_text(each.budget)) for each in answers)
    return Axis(title, "log", ticks=ticks)


def _location(result: TransitionResult, answers: tuple[BudgetAnswer, ...], title: str) -> Chart:
    axis = GridAxis.of({cell.x for cell in result.cells})
    layers = []
    for is_placed, name in ((True, "placed"), (False, "no claim")):
        points = tuple(
            Point(
                float(answer.budget),
                axis.at(answer.h_star),
                Interval(
                    axis.at(answer.h_star), axis.at(min(answer.h_set)), axis.at(max(answer.h_set))
                )
                if answer.h_set
                else None,
                hover=f"{title} {number_text(answer.budget)}\n{answer.verdict.replace('_', ' ')}, "
                f"largest drop up to {result.x} = {number_text(answer.h_star)}",
            )
            for answer in answers
            if answer.h_star is not None and (answer.verdict in PLACED) == is_placed
        )
        if points:
            shade = palette.BLUE if is_placed else palette.GREY
            layers.append(Series(points, shade, name, is_open=not is_placed, line=Line(1.5)))
    return Chart(
        "budget_location",
        f"{result.x} by budget",
        "Where the largest drop ends by the runs of each budget alone, with the ends of its set; "
        "open where no collapse is claimed.",
        _budget_axis(title, answers),
        axis.axis(result.x),
        tuple(layers),
        panel_of=_PANEL,
    )


def _slopes(result: TransitionResult, answers: tuple[BudgetAnswer, ...], title: str) -> Chart:
    unit = f"{y_unit(result.scale)} per tenfold {result.by}"
    tolerated = result.limits.max_growth
    layers = []
    for name, shade in (("below", palette.GREY), ("from there on", palette.BLUE)):
        points = tuple(
            Point(
                float(answer.budget),
                slope.estimate,
                slope,
                hover=f"{title} {number_text(answer.budget)}\n{interval_text(slope)} {unit}",
            )
            for answer in answers
            if (slope := answer.gamma_below if name == "below" else answer.gamma_above) is not None
        )
        if points:
            layers.append(Series(points, shade, name, line=Line(1.5)))
    return Chart(
        "budget_slopes",
        f"Growth with {result.by} by budget",
        f"How fast the error grows with {result.by} below the drop and from there on, by the runs "
        "of each budget alone, with 95% intervals; below the dashed line it does not matter.",
        _budget_axis(title, answers),
        Axis(unit),
        (
            Reference("y", 0.0, palette.AXIS),
            Reference("y", tolerated, is_dashed=True, label=f"tolerated\n{number_text(tolerated)}"),
            *layers,
        ),
        panel_of=_PANEL,
    )
