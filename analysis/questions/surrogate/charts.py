"""The charts of a surrogate: what it expects over two axes, and how well it predicts."""

import math
from typing import Final

from analysis.charts import palette
from analysis.charts.axes import named_axis, tick_text, value_axis
from analysis.charts.chart import Axis, Cell, Cells, Chart, Line, Point, Series, by_look
from analysis.questions.surrogate.result import SurfacePoint, SurrogateResult
from analysis.questions.surrogate.text import is_inside
from analysis.text.numbers import MINUS, interval_text, number_text, percent_text
from analysis.values import number

_LOOKS: Final = {
    True: Series((), palette.BLUE, "inside its interval", is_thin=True),
    False: Series((), palette.ORANGE, "outside", symbol="x", is_thin=True),
}


def surrogate_charts(result: SurrogateResult) -> list[Chart]:
    # There is no surface where fewer than two axes vary.
    return [*([_surface_chart(result)] if result.surface else []), _left_out_chart(result)]


def _surface_chart(result: SurrogateResult) -> Chart:
    first, second = result.surface_axes
    columns = sorted({point.first for point in result.surface})
    rows = sorted({point.second for point in result.surface})
    at = {(point.first, point.second): point for point in result.surface}
    decimals = _decimals(result)
    shades = palette.ordered_shades(9)
    # The best is bright in both themes.
    best_first = tuple(reversed(shades)) if result.goal == "min" else tuple(shades)
    cells = tuple(
        tuple(_cell(result, at[column, row], decimals) for column in columns) for row in rows
    )
    lowest = min(point.mean.estimate for point in result.surface)
    held = _held_text(result)
    better = "lower" if result.goal == "min" else "higher"
    return Chart(
        "surrogate",
        f"Expected {result.metric} over {first} and {second}",
        f"Each cell is what the surrogate expects of a shape ({better} is better); framed cells "
        "were tried; a number in brackets lies beyond the shapes tried and is extrapolated."
        + (f" Held: {held}." if held else "")
        + ("" if result.verdict == "predicts" else " No skill is shown, so read it as a guess."),
        named_axis(first, [number_text(value) for value in columns]),
        named_axis(second, [number_text(value) for value in rows]),
        (Cells(cells, best_first, result.scale == "error" and lowest > 0),),
        is_wide=True,
        key=f"expected {result.metric}; framed: tried, in brackets: extrapolated",
    )


def _cell(result: SurrogateResult, point: SurfacePoint, decimals: int | None) -> Cell:
    first, second = result.surface_axes
    kind = "tried" if point.tried else "extrapolates" if point.extrapolates else "untried"
    mean = point.mean.estimate
    text = tick_text(float(f"{mean:.1e}"))
    if decimals is not None:
        text = f"{mean:.{decimals}f}".replace("-", MINUS)
    return Cell(
        mean,
        f"({text})" if point.extrapolates else text,
        f"{first} = {number_text(point.first)}, {second} = {number_text(point.second)}\n"
        f"{interval_text(point.mean, result.settings.confidence)}\n{kind}",
        is_framed=point.tried,
    )


def _decimals(result: SurrogateResult) -> int | None:
    """Return as many decimals as tell the surface's cells apart; None for errors."""
    values = [point.mean.estimate for point in result.surface]
    span = max(values) - min(values)
    if result.scale == "error" or span <= 0:
        return None
    return min(6, max(0, math.ceil(-math.log10(span / 30))))


def _held_text(result: SurrogateResult) -> str:
    """Return what the surface holds fixed, in words; empty where nothing else varies."""
    held = {*result.axes, *result.names} - set(result.surface_axes)
    config = next(shape.config for shape in result.shapes if shape.label == result.reference)
    shown = {
        name: number(value) if isinstance(value, float) else value for name, value in config.items()
    }
    return ", ".join(
        f"{name} = {shown[name]}" for name in (*result.axes, *result.names) if name in held
    )


def _left_out_chart(result: SurrogateResult) -> Chart:
    metrics = [shape.metric for shape in result.shapes]
    ends = tuple(Point(end, end) for end in (min(metrics), max(metrics)))
    points = (
        (
            is_inside(shape.metric, shape.left_out),
            Point(
                shape.metric,
                shape.left_out.estimate,
                shape.left_out,
                hover=f"{shape.label}\nmeasured {number_text(shape.metric, 4)}\n"
                f"predicted {interval_text(shape.left_out, result.settings.confidence)}",
            ),
        )
        for shape in result.shapes
    )
    diagonal = Series(ends, palette.MUTED, symbol=None, line=Line(1.4, "dash"))
    is_log = result.scale == "error" and min(metrics) > 0
    return Chart(
        "left-out",
        "How well each shape is predicted from the others",
        f"Each point is one shape left out of the surrogate, with the "
        f"{percent_text(result.settings.confidence)} interval its measured mean should lie in; "
        f"dashed is a perfect prediction. {result.reason[:1].upper()}{result.reason[1:]}.",
        value_axis(f"measured {result.metric}", metrics, log=is_log),
        Axis("predicted from the others", "log" if is_log else "number"),
        (diagonal, *by_look(_LOOKS, points)),
        is_wide=True,
    )
