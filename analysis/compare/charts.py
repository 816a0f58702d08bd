"""The charts of several studies: their curves and their fronts, one colour a study."""

import math

from analysis.charts import palette
from analysis.charts.axes import GridAxis, cost_axis, named_axis
from analysis.charts.chart import (
    Axis,
    Bars,
    Chart,
    Line,
    Point,
    Series,
    symbol_of,
)
from analysis.compare.result import Comparison, StudySide
from analysis.questions.pareto.charts import file_part, mean_front
from analysis.questions.transition.charts import error_of
from analysis.questions.transition.result import TransitionResult
from analysis.statistics.values import Interval
from analysis.text.numbers import cost_title, interval_text, metric_title, number_text, percent_text
from analysis.values import Number

_MANY = 60


def comparison_charts(comparison: Comparison) -> list[Chart]:
    charts: list[Chart] = []
    if comparison.apart:  # in one frame they would look as if they could be ranked
        return charts
    curves = [
        (at, side.label, side.transition)
        for at, side in enumerate(comparison.studies)
        if side.transition is not None and side.transition.level
    ]
    if len(curves) > 1 and len({(found.x, found.scale) for _, _, found in curves}) == 1:
        charts.append(_level_chart(curves))
        if all(found.p_h for _, _, found in curves):
            charts.append(_place_chart(curves))
    fronts = [(at, side) for at, side in enumerate(comparison.studies) if side.pareto is not None]
    if len(fronts) > 1:
        charts += [_front_chart(comparison, cost, fronts) for cost in comparison.costs]
    return charts


def _shade(at: int) -> palette.Shade:
    return palette.CATEGORIES[at % len(palette.CATEGORIES)]


def _level_chart(curves: list[tuple[int, str, TransitionResult]]) -> Chart:
    first = curves[0][2]
    axis = GridAxis.of([h for _, _, found in curves for h in found.level])
    layers = []
    for at, label, found in curves:
        points = []
        for h in sorted(found.level):
            level = _level(found, h)
            text = f"{label}\n{found.x} = {number_text(h)}: {number_text(level.estimate)}"
            place = axis.beside(h, at, len(curves), 0.08)
            points.append(Point(place, level.estimate, level, hover=text))
        layers.append(Series(tuple(points), _shade(at), label, symbol=symbol_of(at), line=Line()))
    title = metric_title(first.metric, first.scale)
    over = f", averaged over {first.by}" if first.by is not None else ""
    return Chart(
        "curves",
        f"{title} against {first.x}",
        f"The level of every study at each value of {first.x}{over}, with 95% intervals; lower is "
        "better.",
        axis.axis(first.x),
        Axis(title, "log" if first.scale != "loss" else "number"),
        tuple(layers),
        is_wide=True,
        legend="beside",
    )


def _level(found: TransitionResult, h: Number) -> Interval:
    """Return a level with its 95 % interval as errors; that of an accuracy is at most 1."""
    level, most = found.level[h], 1.0 if found.scale == "accuracy" else math.inf
    ends = (level.estimate + side * 1.96 * level.se for side in (-1, 1))
    low, high = (min(error_of(end, found.scale), most) for end in ends)
    return Interval(error_of(level.estimate, found.scale), low, high)


def _place_chart(curves: list[tuple[int, str, TransitionResult]]) -> Chart:
    heads = sorted({h for _, _, found in curves for h in found.p_h})
    width = 0.8 / len(curves)
    layers = []
    for rank, (at, label, found) in enumerate(curves):
        shift = (rank - (len(curves) - 1) / 2) * width
        chances = {h: found.p_h.get(h, 0.0) for h in heads}
        places = tuple(place + shift for place in range(len(heads)))
        texts = tuple(
            f"{label}\n{found.x} = {number_text(h)}: {percent_text(chance)}"
            for h, chance in chances.items()
        )
        shades = (_shade(at),) * len(heads)
        layers.append(Bars(places, tuple(chances.values()), shades, texts, name=label, width=width))
    return Chart(
        "places",
        "Place of the collapse",
        "Share of redrawn sweeps that place the collapse at each value, study by study; it says "
        "where a collapse would be, not that there is one.",
        named_axis(curves[0][2].x, [number_text(h) for h in heads]),
        Axis("share of draws", form="percent", range=(0, 1.04)),
        tuple(layers),
        is_wide=True,
        legend="beside",
    )


def _front_chart(comparison: Comparison, cost: str, fronts: list[tuple[int, StudySide]]) -> Chart:
    has_steps = len(comparison.costs) == 1
    layers = [
        layer for at, side in fronts for layer in _front_layers(side, cost, at, has_steps=has_steps)
    ]
    costs = [point.x for layer in layers for point in layer.points]
    better = "lower" if comparison.goal == "min" else "higher"
    confidence = percent_text(comparison.settings.confidence)
    steps = "; the steps join each study's front of means" if has_steps else ""
    return Chart(
        f"front-{file_part(cost)}",
        f"{comparison.metric} against {cost_title(cost)}",
        f"Each point is one shape with its {confidence} interval over seeds, one colour a study, "
        f"the fainter the less likely it lies on its own study's front; left and {better} is "
        f"better{steps}.",
        cost_axis(cost, costs),
        Axis(comparison.metric),
        tuple(layers),
        is_wide=True,
        legend="beside",
    )


def _front_layers(side: StudySide, cost: str, at: int, *, has_steps: bool) -> list[Series]:
    assert side.pareto is not None
    rows = [row for row in side.pareto.table if math.isfinite(row.costs.get(cost, math.nan))]
    points = tuple(
        Point(
            row.costs[cost],
            row.mean,
            row.ci,
            hover=f"{row.label}\n{side.label}: {interval_text(row.ci)}",
            size=10 if len(rows) <= _MANY else 7,
            opacity=0.5 if math.isnan(row.p_front) else 0.3 + 0.7 * row.p_front,
        )
        for row in rows
    )
    shapes = Series(points, _shade(at), side.label, symbol=symbol_of(at), is_thin=True)
    if not has_steps:
        return [shapes]
    corners = mean_front([(row.costs[cost], row.mean) for row in rows], side.pareto.goal)
    steps = tuple(Point(x, y) for x, y in corners)
    line = Line(1.6, is_step=True)
    return [Series(steps, _shade(at), group=side.label, symbol=None, line=line), shapes]
