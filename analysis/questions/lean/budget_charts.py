"""The chart of lean answers at each budget: does a shape's gap to its baseline open or close?"""

from collections.abc import Sequence
from typing import Final

from analysis.charts import palette
from analysis.charts.chart import Axis, Chart, Line, Point, Reference, Series
from analysis.questions.lean.result import Comparison
from analysis.text.numbers import interval_text, number_text
from analysis.values import Number

_MOST_LINES: Final = 12
_SPREAD: Final = 0.02
"""Decades of budget over which the points of one budget are spread."""


def budget_chart(compared: Sequence[Comparison]) -> Chart | None:
    """Return each shape's difference to its baseline against the budget, the choices first;
    None where there is one budget."""
    drawn = [each for each in compared if each.result.budgets and each.result.budgets.answers]
    if not drawn:
        return None
    every = [(each, row) for each in drawn for row in each.result.table]
    every.sort(key=lambda each: each[1].label != each[0].result.choice)
    shown = every[:_MOST_LINES]
    budgets: set[Number] = set()
    layers = []
    for place, (comparison, row) in enumerate(shown):
        found = comparison.result.budgets
        assert found is not None
        name = f"{comparison.heading}, {row.label}" if comparison.heading else row.label
        shift = 10 ** (_SPREAD * (place - (len(shown) - 1) / 2))
        points = [
            Point(
                float(answer.budget) * shift,
                gap.diff.estimate,
                gap.diff,
                hover=f"{name}\n"
                f"{found.at(answer.budget)}: {interval_text(gap.diff)}, {gap.outcome}",
            )
            for answer in found.answers
            for gap in answer.gaps
            if gap.label == row.label
        ]
        budgets |= {answer.budget for answer in found.answers}
        is_choice = row.label == comparison.result.choice
        shade = palette.BLUE if is_choice else palette.GREY
        layers.append(Series(tuple(points), shade, name, is_open=not is_choice, line=Line(1.5)))
    first = drawn[0].result
    assert first.budgets is not None
    left = len(every) - len(shown)
    rest = f" {left} further shapes are in the tables only." if left else ""
    ticks = tuple((float(each), number_text(each)) for each in sorted(budgets))
    return Chart(
        "budget_gaps",
        "Gap to the baseline by budget",
        "Difference of each shape to its baseline by the runs of each budget alone, with "
        f"intervals; filled: the choice; the dashed line is the margin.{rest}",
        Axis(first.budgets.unit or first.budgets.column, "log", ticks=ticks),
        Axis(f"difference in {first.metric} (up is better)"),
        (Reference("y", 0.0), Reference("y", -first.margin, is_dashed=True), *layers),
        is_wide=True,
        legend="beside",
    )
