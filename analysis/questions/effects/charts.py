"""The charts of effects: gains by axis, two axes jointly, shapes of equal cost."""

from dataclasses import dataclass
from typing import Final

from analysis.charts import palette
from analysis.charts.axes import GridAxis, row_axis, value_axis
from analysis.charts.chart import (
    Axis,
    Chart,
    Layer,
    Line,
    Point,
    Reference,
    Series,
    Symbol,
    symbol_of,
)
from analysis.findings.effect_results import EffectsResult, EqualCostShape, Interaction
from analysis.findings.results import Interval
from analysis.words.effect_wording import gain_unit, interaction_sentence
from analysis.words.wording import (
    cost_text,
    cost_title,
    interval_text,
    number_text,
    p_text,
    percent_text,
)

MAX_ROWS: Final = 40


def effect_charts(result: EffectsResult) -> list[Chart]:
    """Return the charts, leaving out what has nothing to show."""
    found = []
    if rows := effect_rows(result):
        found.append(_gain_chart(result, rows))
    # The first pair of axes whose combinations are all there.
    if interaction := next((each for each in result.interactions if each.levels), None):
        found.append(_interaction_chart(result, interaction))
    if shapes := equal_cost_shapes(result):
        found.append(_equal_cost_chart(result, shapes))
    return found


@dataclass(frozen=True, slots=True)
class EffectRow:
    """One line of the chart of effects.

    Attributes:
        axis: the axis it belongs to.
        label: the step, or the axis itself.
        effect: its gain with the interval.
        p_holm: after Holm.
        gains: gain and held values of each pair.
        is_mean: whether it is the mean over the axis' steps.
        established: whether it is told from 0.
    """

    axis: str
    label: str
    effect: Interval
    p_holm: float | None
    gains: tuple[tuple[float, str], ...]
    is_mean: bool
    established: bool


def effect_rows(result: EffectsResult) -> list[EffectRow]:
    """Return the axes with their steps, the mean first; beyond `MAX_ROWS` the means alone."""
    alpha = result.settings.alpha
    rows = []
    for axis in result.axes:
        if not axis.pairs or axis.verdict == "answered":
            continue
        is_told = axis.verdict in ("helps", "hurts")
        name = f"{axis.axis}, mean"
        rows.append(EffectRow(axis.axis, name, axis.effect, axis.p_holm, (), True, is_told))
        rows += [
            EffectRow(
                axis.axis,
                f"{number_text(step.low)} → {number_text(step.high)}",
                step.effect,
                step.p_holm,
                tuple((pair.gain, pair.held) for pair in step.pairs),
                False,
                step.p_holm is not None and step.p_holm <= alpha,
            )
            for step in axis.steps
        ]
    return rows if len(rows) <= MAX_ROWS else [row for row in rows if row.is_mean][:MAX_ROWS]


def _gain_chart(result: EffectsResult, rows: list[EffectRow]) -> Chart:
    """Draw each axis' gain and that of its steps, every matched pair a point."""
    layers: list[Layer] = [Reference("x", 0.0)]
    pairs = tuple(
        Point(gain, at, hover=f"{number_text(gain)} at {held}", size=6, opacity=0.7)
        for at, row in enumerate(rows)
        for gain, held in row.gains
    )
    for established, shade, name in (
        (True, palette.BLUE, "established"),
        (False, palette.GREY, "not established"),
    ):
        points = tuple(
            Point(
                row.effect.estimate,
                at,
                row.effect.low,
                row.effect.high,
                hover=f"{row.axis} {row.label}\n"
                f"{interval_text(row.effect, result.settings.confidence)}\n"
                f"Holm {p_text(row.p_holm)}",
                size=11 if row.is_mean else 8,
            )
            for at, row in enumerate(rows)
            if row.established == established
        )
        if points:
            layers.append(Series(points, shade, name, is_open=not established, interval="x"))
    if pairs:
        layers.append(Series(pairs, palette.ORANGE, "a matched pair", symbol="diamond"))
    unit = gain_unit(result.metric, result.scale)
    return Chart(
        "effects",
        f"What each axis does to {result.metric}",
        f"The gain of one step, in {unit}, with every other axis "
        "held: each diamond is a pair of shapes that "
        "differ in that step alone, the circle their mean with its "
        f"{percent_text(result.settings.confidence)} interval over seeds; filled blue is told "
        "from 0 (Holm), and the large circles average an axis' steps.",
        Axis(f"gain in {unit} (right is better)"),
        row_axis(
            [row.label for row in rows], bold=(at for at, row in enumerate(rows) if row.is_mean)
        ),
        tuple(layers),
        is_wide=True,
        legend="page",
    )


def _interaction_chart(result: EffectsResult, found: Interaction) -> Chart:
    """Draw the mean metric along one axis, a line for each value of the other."""
    axis = GridAxis.of([level.first for level in found.levels])
    others = sorted({level.second for level in found.levels})
    layers = []
    for at, (value, shade) in enumerate(
        zip(others, palette.ordered_shades(len(others)), strict=True)
    ):
        name = f"{found.second} = {number_text(value)}"
        points = tuple(
            Point(
                axis.beside(level.first, at, len(others), 0.06),
                level.metric.estimate,
                level.metric.low,
                level.metric.high,
                hover=f"{name}\n{found.first} = {number_text(level.first)}\n"
                f"{interval_text(level.metric, result.settings.confidence)}",
            )
            for level in found.levels
            if level.second == value
        )
        layers.append(Series(points, shade, name, symbol=symbol_of(at), line=Line()))
    means = [level.metric.estimate for level in found.levels]
    return Chart(
        "interaction",
        f"{found.first} and {found.second} together",
        f"Mean {result.metric} with its {percent_text(result.settings.confidence)} interval over "
        f"seeds; parallel lines are axes whose gains add up. "
        f"{interaction_sentence(found, result)}",
        axis.axis(found.first),
        value_axis(result.metric, means, log=result.scale == "error"),
        tuple(layers),
        is_wide=True,
        legend="beside",
    )


def equal_cost_shapes(result: EffectsResult) -> list[tuple[int, EqualCostShape]]:
    """Return the shapes with the number of their group, as many whole groups as have room.

    They stand best first in each group.
    """
    found: list[tuple[int, EqualCostShape]] = []
    for at, group in enumerate(result.equal_cost):
        if len(found) + len(group.shapes) > MAX_ROWS:
            break
        found += [(at, shape) for shape in group.shapes]
    return found


def _equal_cost_chart(result: EffectsResult, rows: list[tuple[int, EqualCostShape]]) -> Chart:
    """Draw how far each shape is behind the best of equal cost."""
    cost = result.cost or "cost"
    # Groups by their first shape's cost.
    costs = {
        at: cost_text(cost, group.shapes[0].cost) for at, group in enumerate(result.equal_cost)
    }
    layers: list[Layer] = [Reference("x", 0.0)]
    layers += [
        Reference("y", at - 0.5, palette.AXIS)
        for at in range(1, len(rows))
        if rows[at][0] != rows[at - 1][0]
    ]
    looks: tuple[tuple[str, palette.Shade, Symbol, bool], ...] = (
        ("best of its group", palette.BLUE, "star", False),
        ("established as worse", palette.VERMILLION, "circle", False),
        ("not told apart", palette.GREY, "circle", True),
    )
    for name, shade, symbol, is_open in looks:
        points = []
        for at, (group, shape) in enumerate(rows):
            if _group_name(shape) == name:
                behind = shape.behind or Interval(0.0, 0.0, 0.0)
                text = (
                    f"{shape.label}\n{cost_title(cost)}: {costs[group]}\n"
                    f"{result.metric} {number_text(shape.metric, 4)}, {shape.n} runs"
                )
                text += f"\nHolm {p_text(shape.p_holm)}" if shape.behind else ""
                points.append(Point(-behind.estimate, at, -behind.high, -behind.low, hover=text))
        if points:
            layers.append(
                Series(tuple(points), shade, name, symbol=symbol, is_open=is_open, interval="x")
            )
    left_out = sum(len(group.shapes) for group in result.equal_cost) - len(rows)
    some = f" {left_out} further shapes are in the table only." if left_out else ""
    unit = gain_unit(result.metric, result.scale)
    return Chart(
        "equal-cost",
        f"Shapes of equal {cost_title(cost)}",
        f"Each block holds shapes within {percent_text(result.settings.tolerance)} of one cost, "
        "cheapest block at the top, and how far they are behind its best in "
        f"{unit}; intervals hold for all "
        f"{result.equal_cost_pairs} pairs together.{some}",
        Axis(f"behind the best of equal cost, {unit} (left is worse)"),
        row_axis(
            [
                f"{shape.label}  {costs[group]}" if shape.behind is None else shape.label
                for group, shape in rows
            ]
        ),
        tuple(layers),
        is_wide=True,
        legend="page",
    )


def _group_name(shape: EqualCostShape) -> str:
    if shape.behind is None:
        return "best of its group"
    return "established as worse" if shape.established else "not told apart"
