"""The page that shows studies side by side: one HTML file, offline, on a phone and in print."""

import itertools
import math
from dataclasses import replace

from analysis.charts import palette
from analysis.charts.axes import GridAxis
from analysis.charts.chart import Axis, Chart, Mark, Series, Stroke, symbol_of
from analysis.compare.result import STUDY, Comparison
from analysis.compare.text import comparison_sentences, comparison_tables
from analysis.questions.pareto.charts import front_charts
from analysis.questions.transition.charts import error_of
from analysis.questions.transition.result import TransitionResult
from analysis.report.page import render
from analysis.statistics.values import Interval
from analysis.text.numbers import metric_title, number_text, sentence
from analysis.values import Number


def build_comparison_page(comparison: Comparison) -> str:
    labels = ", ".join(side.label for side in comparison.studies)
    return render(
        "compare.html.j2",
        comparison_charts(comparison),
        ("page", "figures"),
        title=f"{labels} · hsweep comparison",
        labels=labels,
        answers=[(side.label, side.answer) for side in comparison.studies],
        sentences=comparison_sentences(comparison),
        tables=comparison_tables(comparison),
        hv_note=sentence(comparison.front_note),
        warnings=comparison.warnings,
    )


def comparison_charts(comparison: Comparison) -> list[Chart]:
    if comparison.apart:  # in one frame they would look as if they could be ranked
        return []
    charts: list[Chart] = []
    looks = {
        side.label: Series((), shade, side.label, symbol=symbol_of(at), is_thin=True)
        for at, (side, shade) in enumerate(
            zip(comparison.studies, itertools.cycle(palette.CATEGORIES), strict=False)
        )
    }
    curves = {
        side.label: side.transition
        for side in comparison.studies
        if side.transition is not None and side.transition.level
    }
    if len(curves) > 1 and len({(result.x, result.scale) for result in curves.values()}) == 1:
        charts.append(_level_chart(curves, looks))
    if comparison.front is not None:
        charts += front_charts(comparison.front, by=STUDY, looks=looks)
    return charts


def _level_chart(curves: dict[str, TransitionResult], looks: dict[str, Series]) -> Chart:
    first = next(iter(curves.values()))
    axis = GridAxis.of([h for result in curves.values() for h in result.level])
    layers = []
    for at, (label, result) in enumerate(curves.items()):
        points = []
        for h in sorted(result.level):
            level = _level(result, h)
            text = f"{label}\n{result.x} = {number_text(h)}: {number_text(level.estimate)}"
            place = axis.beside(h, at, len(curves), 0.08)
            points.append(Mark(place, level.estimate, level, hover=text))
        layers.append(replace(looks[label], points=tuple(points), line=Stroke(), is_thin=False))
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


def _level(result: TransitionResult, h: Number) -> Interval:
    """Return a level with its 95 % interval as errors; that of an accuracy is at most 1."""
    level, highest = result.level[h], 1.0 if result.scale == "accuracy" else math.inf
    ends = (level.estimate + side * 1.96 * level.se for side in (-1, 1))
    low, high = (min(error_of(end, result.scale), highest) for end in ends)
    return Interval(error_of(level.estimate, result.scale), low, high)
