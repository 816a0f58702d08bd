"""The charts of a transition."""

import math
from typing import Final

from analysis.charts import palette
from analysis.charts.axes import GridAxis
from analysis.charts.chart import (
    Axis,
    Band,
    Chart,
    Layer,
    Mark,
    Pick,
    Reference,
    Series,
    Stroke,
    by_look,
    symbol_of,
)
from analysis.questions.transition.result import RunValue, TransitionResult, axis_values
from analysis.statistics.values import Interval
from analysis.text.numbers import (
    at_best,
    interval_text,
    metric_title,
    number_text,
    percent_text,
    y_unit,
)
from analysis.values import Number, describe
from hsweep.design.scales import Scale

MAX_RUN_POINTS: Final = 1500
_SLOPE_SHADES: Final = (palette.BLUE, palette.VERMILLION, palette.GREY)


def transition_charts(result: TransitionResult) -> list[Chart]:
    """Return the transition's charts, leaving out those without a number to show."""
    axis = GridAxis.of([run.x for run in result.runs] or list(result.level))
    if not axis.values:
        return []
    charts = [_error_chart(result, axis)]
    if any(math.isfinite(slope.estimate) for slope in result.gamma.values()):
        charts.append(_slope_chart(result, axis))
    return charts


def error_of(y: float, scale: Scale) -> float:
    return y if scale == "loss" else 10.0**y


def _error_chart(result: TransitionResult, axis: GridAxis) -> Chart:
    title = metric_title(result.metric, result.scale)
    bracket, bracket_caption = _bracket(result, axis)
    step = math.ceil(len(result.runs) / MAX_RUN_POINTS) or 1
    lost = {(cell.x, cell.by): cell.losses for cell in result.counts if cell.losses.total}
    values = {run.by for run in result.runs} | {cell.by for cell in result.cells}
    lengths = sorted(values, key=lambda by: (by is not None, by or 0))
    shown_names = palette.named_groups(len(lengths))
    layers: list[Layer] = [*bracket]
    drawn: list[RunValue] = []
    losses: list[Mark] = []
    for index, (by, shade) in enumerate(
        zip(lengths, palette.ordered_shades(len(lengths)), strict=True)
    ):
        group = f"{result.by} = {number_text(by)}" if by is not None else "runs"
        # One series without a name of its own needs none.
        name = group if index in shown_names and (by is not None or lost) else ""
        symbol = symbol_of(index)
        cells = {c.x: c.z for c in result.cells if c.by == by and math.isfinite(c.z)}
        means = tuple(
            Mark(axis.beside(x, index, len(lengths)), error_of(cells[x], result.scale), size=4)
            for x in sorted(cells)
        )
        runs = [run for run in result.runs if run.by == by][::step]
        points = tuple(
            Mark(
                axis.beside(run.x, index, len(lengths)),
                error_of(run.y, result.scale),
                pick=pick,
                size=7,
                opacity=0.6,
            )
            for pick, run in enumerate(runs, len(drawn))
        )
        drawn += runs
        hover = f"{{pick}}\n{title} {{y}}"
        layers.append(
            Series(means, shade, "" if runs else name, group, symbol=symbol, line=Stroke())
        )
        if runs:
            layers.append(Series(points, shade, name, group, symbol=symbol, hover=hover))
        at_length = f", {result.by}={number_text(by)}" if by is not None else ""
        for x, point in zip(sorted(cells), means, strict=True):
            if (x, by) in lost:
                text = f"{result.x}={number_text(x)}{at_length}: {lost[x, by].text}"
                losses.append(Mark(point.x, point.y, hover=text, size=11))
    crossed = ""
    if losses:
        layers.append(Series(tuple(losses), palette.INK, "runs lost", symbol="x-thin"))
        crossed = "; a cross marks a cell that lost runs and is read from those that are left"
    some = (
        f" Shown are {len(drawn)} of {len(result.runs)} runs."
        if len(drawn) < len(result.runs)
        else ""
    )
    cell = {"typical": "median", "attainable": "expected best"}[result.reading]
    one_each = f", one {result.by} a colour" if result.by is not None else ""
    picks = []
    for run in drawn:
        at = {**axis_values(result.x, result.by, (run.x, run.by)), "seed": run.replicate}
        picks.append(Pick(describe(at), tuple(at.items())))
    return Chart(
        "error",
        f"{title} against {result.x}",
        f"Each point is one full-budget run and each line joins the {cell} seeds{one_each}"
        f"{at_best(result.nuisance, 'cell')}; lower is better{bracket_caption}{crossed}.{some}",
        axis.axis(result.x),
        Axis(title, "log" if result.scale != "loss" else "number"),
        tuple(layers),
        is_wide=True,
        picks=tuple(picks),
    )


def bracket_text(bracket: tuple[Number, Number]) -> str:
    low, high = bracket
    return f"({number_text(low)}, {number_text(high)}]"


def _bracket(result: TransitionResult, axis: GridAxis) -> tuple[list[Band], str]:
    """Return the drop's bracket and the caption's part about it.

    It is shaded where a collapse is claimed, framed where one is only suggested.
    """
    if result.bracket is None or not (result.is_claimed or result.suggested):
        return [], ""
    low, high = result.bracket
    left = axis.at(low) if low > 0 or not axis.is_log else axis.positions[0] - axis.step
    band = Band(left, axis.at(high), palette.BLUE, is_framed=result.suggested)
    bracket = bracket_text(result.bracket)
    if result.is_claimed:
        return [band], f"; the shaded band is the bracket {bracket} of the drop"
    return [band], (
        f"; the dashed frame is the bracket {bracket} of a drop that is suggested, not tested"
    )


def _slope_chart(result: TransitionResult, axis: GridAxis) -> Chart:
    unit, confidence = f"{y_unit(result.scale)} per tenfold {result.by}", result.settings.confidence
    tolerated = result.limits.max_growth
    label = f"tolerated\n{number_text(tolerated)}"
    looks = {shade: Series((), shade) for shade in _SLOPE_SHADES}
    points = []
    for x, slope in result.gamma.items():
        if math.isfinite(slope.estimate):
            hover = f"{result.x} = {number_text(x)}\n{interval_text(slope, confidence)} {unit}"
            mark = Mark(axis.at(x), slope.estimate, slope, hover=hover)
            points.append((_slope_shade(result, slope), mark))
    return Chart(
        "slopes",
        f"Growth with {result.by}",
        f"How fast the error grows with {result.by} at each value of {result.x}, with "
        f"{percent_text(confidence)} intervals; blue intervals stay below the dashed line (no "
        "growth that matters), orange-red ones lie above it, grey ones leave it open.",
        axis.axis(result.x),
        Axis(unit),
        (
            Reference("y", 0.0, palette.AXIS),
            Reference("y", tolerated, is_dashed=True, label=label),
            *by_look(looks, points),
        ),
    )


def _slope_shade(result: TransitionResult, slope: Interval) -> palette.Shade:
    """Return blue for growth that does not matter, vermillion for growth, grey if it is open."""
    if result.noise_gap:
        return palette.GREY
    limit = result.limits.max_growth
    if slope.high <= limit:
        return palette.BLUE
    return palette.VERMILLION if slope.low > limit else palette.GREY
