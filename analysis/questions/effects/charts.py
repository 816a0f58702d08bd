"""The charts of effects: gains by axis, two axes jointly."""

from typing import Final

from analysis.charts import palette
from analysis.charts.axes import GridAxis, row_axis, value_axis
from analysis.charts.chart import (
    Axis,
    Chart,
    Mark,
    Reference,
    Series,
    Stroke,
    by_look,
    symbol_of,
)
from analysis.questions.effects.result import AxisEffect, EffectsResult, Interaction, StepEffect
from analysis.questions.effects.text import gain_unit, interaction_sentence
from analysis.text.numbers import (
    interval_text,
    number_text,
    p_text,
    percent_text,
)

MAX_ROWS: Final = 40
_EFFECT_LOOKS: Final = {
    True: Series((), palette.BLUE, "established", interval="x"),
    False: Series((), palette.GREY, "not established", is_open=True, interval="x"),
    None: Series((), palette.ORANGE, "a matched pair", symbol="diamond"),
}


def effect_charts(result: EffectsResult) -> list[Chart]:
    charts = []
    if rows := effect_rows(result):
        charts.append(_gain_chart(result, rows))
    # The first pair of axes whose combinations are all there.
    if interaction := next((pair for pair in result.interactions if pair.levels), None):
        charts.append(_interaction_chart(result, interaction))
    return charts


def effect_rows(result: EffectsResult) -> list[tuple[AxisEffect, StepEffect | None]]:
    """Return the axes and their steps, an axis' mean (None) first; beyond `MAX_ROWS` the means
    alone."""
    rows: list[tuple[AxisEffect, StepEffect | None]] = []
    for axis in result.axes:
        if axis.pairs and axis.verdict != "answered":
            rows += [(axis, None), *((axis, step) for step in axis.steps)]
    return rows if len(rows) <= MAX_ROWS else [row for row in rows if row[1] is None][:MAX_ROWS]


def _gain_chart(result: EffectsResult, rows: list[tuple[AxisEffect, StepEffect | None]]) -> Chart:
    points: list[tuple[bool | None, Mark]] = []
    labels = []
    for at, (axis, step) in enumerate(rows):
        row = step or axis
        label = f"{axis.axis}, mean"
        is_established = axis.verdict in ("helps", "hurts")
        if step is not None:
            label = f"{number_text(step.low)} → {number_text(step.high)}"
            is_established = step.p_holm is not None and step.p_holm <= result.settings.alpha
        labels.append(label)
        gain = interval_text(row.effect, result.settings.confidence)
        name = f"{axis.axis} {label}" if step else label
        text = f"{name}\n{gain}\nHolm {p_text(row.p_holm)}"
        size = 8 if step else 11
        point = Mark(row.effect.estimate, at, row.effect, hover=text, size=size)
        points.append((is_established, point))
        for pair in step.pairs if step else ():
            text = f"{number_text(pair.gain)} at {pair.held}"
            points.append((None, Mark(pair.gain, at, hover=text, size=6, opacity=0.7)))
    unit = gain_unit(result)
    return Chart(
        "effects",
        f"What each axis does to {result.metric}",
        f"The gain of one step, in {unit}, with every other axis held: each diamond is a pair of "
        "shapes that differ in that step alone, the circle their mean with its "
        f"{percent_text(result.settings.confidence)} interval over seeds; filled blue is told "
        "from 0 (Holm), and the large circles average an axis' steps.",
        Axis("gain (right is better)"),
        row_axis(labels, bold=(at for at, (_, step) in enumerate(rows) if step is None)),
        (Reference("x", 0.0), *by_look(_EFFECT_LOOKS, points)),
        is_wide=True,
        key=f"gain in {unit}",
    )


def _interaction_chart(result: EffectsResult, interaction: Interaction) -> Chart:
    axis = GridAxis.of([level.first for level in interaction.levels])
    others = sorted({level.second for level in interaction.levels})
    confidence = result.settings.confidence
    layers = []
    for at, (value, shade) in enumerate(
        zip(others, palette.ordered_shades(len(others)), strict=True)
    ):
        name = f"{interaction.second} = {number_text(value)}"
        points = tuple(
            Mark(
                axis.beside(level.first, at, len(others), 0.06),
                level.metric.estimate,
                level.metric,
                hover=f"{name}\n{interaction.first} = {number_text(level.first)}\n"
                f"{interval_text(level.metric, confidence)}",
            )
            for level in interaction.levels
            if level.second == value
        )
        layers.append(Series(points, shade, name, symbol=symbol_of(at), line=Stroke()))
    means = [level.metric.estimate for level in interaction.levels]
    return Chart(
        "interaction",
        f"{interaction.first} and {interaction.second} together",
        f"Mean {result.metric} with its {percent_text(confidence)} interval over "
        f"seeds; parallel lines are axes whose gains add up. "
        f"{interaction_sentence(interaction, result)}",
        axis.axis(interaction.first),
        value_axis(result.metric, means, log=result.scale == "error"),
        tuple(layers),
        is_wide=True,
        legend="beside",
    )
