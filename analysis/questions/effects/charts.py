"""The charts of effects: gains by axis, two axes jointly, shapes of equal cost."""

from dataclasses import dataclass
from typing import Final

from analysis.charts import palette
from analysis.charts.axes import GridAxis, row_axis, value_axis
from analysis.charts.chart import (
    Axis,
    Chart,
    Layer,
    Mark,
    Reference,
    Series,
    Stroke,
    by_look,
    symbol_of,
)
from analysis.questions.effects.result import EffectsResult, EqualCostShape, Interaction, PairGain
from analysis.questions.effects.text import gain_unit, interaction_sentence
from analysis.statistics.bounds import negated
from analysis.statistics.values import Interval
from analysis.text.numbers import (
    cost_text,
    cost_title,
    interval_text,
    number_text,
    p_text,
    percent_text,
)

MAX_ROWS: Final = 40
_EFFECT_LOOKS: Final = {
    "established": Series((), palette.BLUE, "established", interval="x"),
    "not established": Series((), palette.GREY, "not established", is_open=True, interval="x"),
    "pair": Series((), palette.ORANGE, "a matched pair", symbol="diamond"),
}
_GROUP_LOOKS: Final = {
    "best": Series((), palette.BLUE, "best of its group", symbol="star", interval="x"),
    "worse": Series((), palette.VERMILLION, "established as worse", interval="x"),
    "open": Series((), palette.GREY, "not told apart", is_open=True, interval="x"),
}


def effect_charts(result: EffectsResult) -> list[Chart]:
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
    """One line of the chart of effects: a step of an axis, or the mean over its steps."""

    axis: str
    label: str
    effect: Interval
    p_holm: float | None
    is_established: bool
    pairs: tuple[PairGain, ...] = ()
    is_mean: bool = False


def effect_rows(result: EffectsResult) -> list[EffectRow]:
    """Return the axes with their steps, the mean first; beyond `MAX_ROWS` the means alone."""
    alpha = result.settings.alpha
    rows = []
    for axis in result.axes:
        if not axis.pairs or axis.verdict == "answered":
            continue
        name, is_established = f"{axis.axis}, mean", axis.verdict in ("helps", "hurts")
        rows.append(
            EffectRow(axis.axis, name, axis.effect, axis.p_holm, is_established, is_mean=True)
        )
        for step in axis.steps:
            name = f"{number_text(step.low)} → {number_text(step.high)}"
            is_established = step.p_holm is not None and step.p_holm <= alpha
            rows.append(
                EffectRow(axis.axis, name, step.effect, step.p_holm, is_established, step.pairs)
            )
    return rows if len(rows) <= MAX_ROWS else [row for row in rows if row.is_mean][:MAX_ROWS]


def _gain_chart(result: EffectsResult, rows: list[EffectRow]) -> Chart:
    points: list[tuple[str, Mark]] = []
    for at, row in enumerate(rows):
        name = row.label if row.is_mean else f"{row.axis} {row.label}"
        gain = interval_text(row.effect, result.settings.confidence)
        text = f"{name}\n{gain}\nHolm {p_text(row.p_holm)}"
        look = "established" if row.is_established else "not established"
        size = 11 if row.is_mean else 8
        points.append((look, Mark(row.effect.estimate, at, row.effect, hover=text, size=size)))
        for pair in row.pairs:
            text = f"{number_text(pair.gain)} at {pair.held}"
            points.append(("pair", Mark(pair.gain, at, hover=text, size=6, opacity=0.7)))
    unit = gain_unit(result.metric, result.scale)
    return Chart(
        "effects",
        f"What each axis does to {result.metric}",
        f"The gain of one step, in {unit}, with every other axis held: each diamond is a pair of "
        "shapes that differ in that step alone, the circle their mean with its "
        f"{percent_text(result.settings.confidence)} interval over seeds; filled blue is told "
        "from 0 (Holm), and the large circles average an axis' steps.",
        Axis("gain (right is better)"),
        row_axis(
            [row.label for row in rows], bold=(at for at, row in enumerate(rows) if row.is_mean)
        ),
        (Reference("x", 0.0), *by_look(_EFFECT_LOOKS, points)),
        is_wide=True,
        key=f"gain in {unit}",
    )


def _interaction_chart(result: EffectsResult, found: Interaction) -> Chart:
    axis = GridAxis.of([level.first for level in found.levels])
    others = sorted({level.second for level in found.levels})
    layers = []
    for at, (value, shade) in enumerate(
        zip(others, palette.ordered_shades(len(others)), strict=True)
    ):
        name = f"{found.second} = {number_text(value)}"
        points = tuple(
            Mark(
                axis.beside(level.first, at, len(others), 0.06),
                level.metric.estimate,
                level.metric,
                hover=f"{name}\n{found.first} = {number_text(level.first)}\n"
                f"{interval_text(level.metric, result.settings.confidence)}",
            )
            for level in found.levels
            if level.second == value
        )
        layers.append(Series(points, shade, name, symbol=symbol_of(at), line=Stroke()))
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
    cost = result.cost or "cost"
    unit = gain_unit(result.metric, result.scale)
    points: list[tuple[str, Mark]] = []
    layers: list[Layer] = [Reference("x", 0.0)]
    for at, (group, shape) in enumerate(rows):
        if at and group != rows[at - 1][0]:
            layers.append(Reference("y", at - 0.5, palette.AXIS))
        # A group's shapes stand at the cost of its first.
        shared = cost_text(cost, result.equal_cost[group].shapes[0].cost)
        text = (
            f"{shape.label}\n{cost_title(cost)}: {shared}\n"
            f"{result.metric} {number_text(shape.metric, 4)}, {shape.n} runs"
        )
        if shape.behind is None:
            best = Mark(0.0, at, hover=text, size=12, label=shared, label_side="left")
            points.append(("best", best))
        else:
            gain = negated(shape.behind)
            text += f"\nHolm {p_text(shape.p_holm)}"
            look = "worse" if shape.established else "open"
            points.append((look, Mark(gain.estimate, at, gain, hover=text)))
    layers += by_look(_GROUP_LOOKS, points)
    left_out = sum(len(group.shapes) for group in result.equal_cost) - len(rows)
    some = f" {left_out} further shapes are in the table only." if left_out else ""
    return Chart(
        "equal-cost",
        f"Shapes of equal {cost_title(cost)}",
        f"Each block holds shapes within {percent_text(result.settings.tolerance)} of one cost, "
        f"cheapest block at the top, and how far they are behind its best in {unit}; intervals "
        f"hold for all {result.equal_cost_pairs} pairs together.{some}",
        Axis("behind the best (left is worse)"),
        row_axis([shape.label for _, shape in rows]),
        tuple(layers),
        is_wide=True,
        key=f"blocks of equal {cost_title(cost)}, in {unit}",
    )
