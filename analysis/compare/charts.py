"""The charts of several studies: their curves and their fronts, one colour a study."""

import math

from analysis.charts import palette
from analysis.charts.axes import GridAxis, cost_axis
from analysis.charts.chart import Axis, Chart, Mark, Series, Stroke, symbol_of
from analysis.compare.result import STUDY, Comparison
from analysis.questions.pareto.charts import file_part, mean_front
from analysis.questions.pareto.result import ParetoResult
from analysis.questions.transition.charts import error_of
from analysis.questions.transition.result import TransitionResult
from analysis.statistics.values import Interval
from analysis.text.numbers import cost_title, interval_text, metric_title, number_text, percent_text
from analysis.values import Number


def comparison_charts(comparison: Comparison) -> list[Chart]:
    if comparison.apart:  # in one frame they would look as if they could be ranked
        return []
    charts: list[Chart] = []
    curves = [
        (at, side.label, side.transition)
        for at, side in enumerate(comparison.studies)
        if side.transition is not None and side.transition.level
    ]
    if len(curves) > 1 and len({(found.x, found.scale) for _, _, found in curves}) == 1:
        charts.append(_level_chart(curves))
    if comparison.front is not None:
        labels = [side.label for side in comparison.studies]
        charts += [_front_chart(comparison.front, cost, labels) for cost in comparison.front.costs]
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
            points.append(Mark(place, level.estimate, level, hover=text))
        layers.append(Series(tuple(points), _shade(at), label, symbol=symbol_of(at), line=Stroke()))
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


def _front_chart(front: ParetoResult, cost: str, labels: list[str]) -> Chart:
    has_steps = len(front.costs) == 1
    layers: list[Series] = []
    for at, label in enumerate(labels):
        rows = [row for row in front.table if row.config[STUDY] == label]
        points = tuple(
            Mark(
                row.costs[cost],
                row.mean,
                row.ci,
                hover=f"{row.label}\n{interval_text(row.ci, front.settings.confidence)}",
                opacity=0.5 if math.isnan(row.p_front) else 0.3 + 0.7 * row.p_front,
            )
            for row in rows
        )
        if has_steps and rows:
            corners = mean_front([(row.costs[cost], row.mean) for row in rows], front.goal)
            steps = tuple(Mark(x, y) for x, y in corners)
            line = Stroke(1.6, is_step=True)
            layers.append(Series(steps, _shade(at), group=label, symbol=None, line=line))
        if points:
            layers.append(Series(points, _shade(at), label, symbol=symbol_of(at), is_thin=True))
    better = "lower" if front.goal == "min" else "higher"
    steps_text = "; the steps join each study's front of means" if has_steps else ""
    return Chart(
        f"front-{file_part(cost)}",
        f"{front.metric} against {cost_title(cost)}",
        f"Each point is one shape with its {percent_text(front.settings.confidence)} interval over "
        "seeds, one colour a study, the fainter the less likely no shape of any study beats it; "
        f"left and {better} is better{steps_text}.",
        cost_axis(cost, [row.costs[cost] for row in front.table]),
        Axis(front.metric),
        tuple(layers),
        is_wide=True,
        legend="beside",
    )
