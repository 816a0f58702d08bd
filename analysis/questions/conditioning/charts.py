"""The charts of conditioning: against heads with the theory, and the metric against it."""

import dataclasses
from typing import Final

from analysis.charts import palette
from analysis.charts.axes import GridAxis, value_axis
from analysis.charts.chart import Chart, Mark, Series, Stroke, by_look, symbol_of
from analysis.charts.picks import short_label
from analysis.questions.conditioning.result import HEAD_DIM, ConditioningResult
from analysis.statistics.values import Interval
from analysis.text.numbers import number_text
from hsweep.design.labels import varying_axes

MAX_LABELS: Final = 24
"""Up to so many shapes bear their names in the chart."""


def conditioning_charts(result: ConditioningResult) -> list[Chart]:
    charts = []
    if result.trends:
        charts.append(_heads_chart(result))
    if len(result.shapes) > 1:
        charts.append(_metric_chart(result))
    return charts


def _series_shades(result: ConditioningResult) -> dict[str, palette.Shade]:
    """Return the colour of each series, the same in all charts."""
    names = [trend.series for trend in result.trends]
    listed = list(dict.fromkeys([*names, *(shape.series for shape in result.shapes)]))
    return dict(zip(listed, palette.shades_for(listed), strict=True))


def _heads_chart(result: ConditioningResult) -> Chart:
    axis = GridAxis.of([x for trend in result.trends for x in trend.x])
    shades = _series_shades(result)
    layers: list[Series] = []
    theory: list[Series] = []
    for at, trend in enumerate(result.trends):
        shade, symbol, name = shades[trend.series], symbol_of(at), trend.series or "measured"
        marks = []
        for x, value in zip(trend.x, trend.measured, strict=True):
            text = f"{name}\n{result.x} = {number_text(x)}\nmeasured {number_text(value, 4)}"
            marks.append(Mark(axis.at(x), value, hover=text))
        layers.append(Series(tuple(marks), shade, name, symbol=symbol, line=Stroke()))
        members = [s for s in result.shapes if trend.series == s.series and s.x in trend.x]
        runs = [
            Mark(axis.at(shape.x or 0), value, hover=shape.label, size=5, opacity=0.4)
            for shape in members
            for value in shape.condition_values
        ]
        layers.append(Series(tuple(runs), shade, group=name, symbol=symbol))
        if trend.predicted:
            points = tuple(
                Mark(axis.at(x), value, hover=f"{name}\ntheory {number_text(value, 4)}")
                for x, value in zip(trend.x, trend.predicted, strict=True)
            )
            label = "" if theory else "theory"
            line = Stroke(1.6, is_dashed=True)
            theory.append(Series(points, shade, label, "theory", symbol=None, line=line))
    values = [value for trend in result.trends for value in (*trend.measured, *trend.predicted)]
    theory_text = "; dashed is what the theory says of Gaussian matrices of the same sizes"
    return Chart(
        "condition-heads",
        f"Conditioning against {result.x}",
        "Each small point is one run's condition number at its last report and each line joins "
        f"the geometric means over seeds and all else that varies{theory_text if theory else ''}.",
        axis.axis(result.x),
        value_axis("condition number", values, log=True),
        (*layers, *theory),
        is_wide=True,
    )


def _metric_chart(result: ConditioningResult) -> Chart:
    shades = _series_shades(result)
    has_names = len(result.shapes) <= MAX_LABELS
    configs = [shape.config for shape in result.shapes]
    axes = varying_axes(configs)
    # What the colours tell already is left out of the names.
    axes = tuple(name for name in axes if len(shades) < 2 or name != HEAD_DIM) or axes
    looks = {
        series: Series((), shades[series], series, symbol=symbol_of(at), is_thin=True)
        for at, series in enumerate(dict.fromkeys(shape.series for shape in result.shapes))
    }
    marks = [
        Mark(
            shape.condition,
            shape.metric,
            Interval(shape.metric, min(shape.metric_values), max(shape.metric_values)),
            hover=f"{shape.label}\n{result.metric} {number_text(shape.metric, 4)}\n"
            f"condition number {number_text(shape.condition)}",
            label=short_label(shape.config, axes) if has_names else "",
        )
        for shape in result.shapes
    ]
    points = zip((shape.series for shape in result.shapes), marks, strict=True)
    conditions = [shape.condition for shape in result.shapes]
    # Names stand to the right.
    low, high = min(conditions), max(conditions)
    room = (high / low if high > low else 10.0) ** 0.06
    x = value_axis("condition number (log scale)", conditions, log=True)
    is_min = result.goal == "min"
    metrics = [shape.metric for shape in result.shapes]
    return Chart(
        "condition-metric",
        f"{result.metric} against conditioning",
        f"Each point is one shape, its seeds averaged, with the range of its seeds; "
        f"{'lower' if is_min else 'higher'} is better, and left is better conditioned. By the "
        f"paper's account points should rise to the {'right' if is_min else 'left'}.",
        dataclasses.replace(x, range=(low / room, high * room**2)),
        value_axis(result.metric, metrics, log=result.scale == "error"),
        tuple(by_look(looks, points)),
        is_wide=True,
        legend="beside",
    )
