"""The page's pictures of a transition, in plotly: what `analysis.pictures.rows` computed, drawn."""

import math

import pandas as pd
import plotly.graph_objects as go

from analysis.pictures import palette
from analysis.pictures.drawing import (
    Pick,
    Picture,
    add_intervals,
    add_level,
    decade_ticks,
    safe,
    style,
)
from analysis.pictures.rows import (
    GridAxis,
    LengthSeries,
    bracket_span,
    config_key,
    drop_note,
    length_series,
    query_text,
    run_links,
    runs_by_values,
    slope_shades,
    value_text,
)
from analysis.questions.transition.result import CLAIMS, TransitionResult
from analysis.questions.transition.text import abruptness_text
from analysis.text.numbers import metric_title, number_text, percent_text, y_unit


def transition_pictures(result: TransitionResult, trials: pd.DataFrame) -> list[Picture]:
    """Return the transition's pictures, leaving out those without a number to show.

    Args:
        result: the transition.
        trials: one row a trial, where a run's page is looked up.
    """
    axis = GridAxis.of([run.x for run in result.runs] or list(result.level))
    if not axis.values:
        return []
    pictures = [error_picture(result, axis, trials)]
    if any(math.isfinite(slope.estimate) for slope in result.gamma.values()):
        pictures.append(slope_picture(result, axis))
    if result.drops:
        pictures.append(drop_picture(result))
    if result.p_h:
        pictures.append(location_picture(result, axis))
    if result.success:
        pictures.append(success_picture(result, axis))
    return pictures


def error_picture(result: TransitionResult, axis: GridAxis, trials: pd.DataFrame) -> Picture:
    """Draw the error against x, one colour a length, every run a point."""
    series = length_series(result)
    picks = _run_picks(result, series, trials)
    named = palette.named_groups(len(series))
    shades = palette.ordered_shades(len(series))
    figure = go.Figure()
    for index, (line, shade) in enumerate(zip(series, shades, strict=True)):
        offset = (index - (len(series) - 1) / 2) * min(0.1, 0.5 / len(series)) * axis.step
        symbol = palette.SYMBOLS[index % len(palette.SYMBOLS)]
        name = safe(f"{result.by} = {number_text(line.by)}") if line.by is not None else "runs"
        _add_series(figure, line, axis, offset, name, shade.light, symbol, result)
        if index not in named:
            figure.data[-1].showlegend = False
    for index, line in enumerate(series):
        offset = (index - (len(series) - 1) / 2) * min(0.1, 0.5 / len(series)) * axis.step
        _add_losses(figure, line, axis, offset, result)
    numbers = iter(range(len(picks)))
    for trace in figure.data:
        if trace.meta == "picks":
            trace.customdata = [next(numbers) for _ in trace.x]
    style(
        figure,
        x_title=safe(result.x),
        y_title=safe(metric_title(result.metric, result.scale)),
        grid=axis,
        log_y=result.scale != "loss",
    )
    shown = [value for line in series for _, value, _ in line.runs] + [
        value for line in series for _, value in line.cells
    ]
    if result.scale != "loss":
        figure.update_yaxes(**decade_ticks(shown))
    band = _add_bracket(figure, result, axis)
    crossed = (
        ""
        if not any(line.lossy for line in series)
        else ("; a cross marks a cell that lost runs and is read from those that are left")
    )
    drawn = sum(len(line.runs) for line in series)
    some = f" Shown are {drawn} of {len(result.runs)} runs." if drawn < len(result.runs) else ""
    cell = {"typical": "median", "attainable": "expected best"}[result.reading]
    lengths = f", one {result.by} a colour" if result.by is not None else ""
    return Picture(
        "error",
        f"{metric_title(result.metric, result.scale)} against {result.x}",
        f"Each point is one full-budget run and each line joins the {cell} seeds{lengths}; lower "
        f"is better{band}{crossed}.{some}",
        figure,
        is_wide=True,
        picks=tuple(picks),
    )


def _run_picks(
    result: TransitionResult, series: list[LengthSeries], trials: pd.DataFrame
) -> list[Pick]:
    """Return what each drawn run stands for, in the order in which they are drawn."""
    names = [result.x, *([result.by] if result.by is not None else [])]
    found = runs_by_values(trials, [*names, "seed"])
    picks = []
    for line in series:
        for x, _, replicate in line.runs:
            values = dict(zip(names, (x, line.by), strict=False)) | {"seed": replicate}
            runs = found.get(config_key(values), [])
            title = ", ".join(f"{name}={value_text(value)}" for name, value in values.items())
            picks.append(Pick(title, query_text(values), run_links(runs)))
    return picks


def _add_series(
    figure: go.Figure,
    line: LengthSeries,
    axis: GridAxis,
    offset: float,
    name: str,
    colour: str,
    symbol: str,
    result: TransitionResult,
) -> None:
    figure.add_scatter(
        x=[axis.at(x) + offset for x, _ in line.cells],
        y=[value for _, value in line.cells],
        mode="lines+markers",
        name=name,
        legendgroup=name,
        line={"color": colour, "width": 2},
        marker={"color": colour, "size": 3, "symbol": symbol},
        hoverinfo="skip",
        showlegend=not line.runs,
    )
    figure.add_scatter(
        x=[axis.at(x) + offset for x, _, _ in line.runs],
        y=[value for _, value, _ in line.runs],
        mode="markers",
        name=name,
        legendgroup=name,
        marker={"color": colour, "size": 7, "symbol": symbol, "opacity": 0.6},
        meta="picks",
        hovertemplate=f"%{{text}}<br>{safe(metric_title(result.metric, result.scale))} %{{y:.3g}}"
        "<extra></extra>",
    )


def _add_losses(
    figure: go.Figure, line: LengthSeries, axis: GridAxis, offset: float, result: TransitionResult
) -> None:
    """Cross the cells that are read from the runs left, and say on them what was lost."""
    if not line.lossy:
        return
    by = f", {result.by}={number_text(line.by)}" if line.by is not None else ""
    figure.add_scatter(
        x=[axis.at(x) + offset for x, _, _ in line.lossy],
        y=[value for _, value, _ in line.lossy],
        mode="markers",
        name="runs lost",
        legendgroup="runs lost",
        showlegend=not any(trace.name == "runs lost" for trace in figure.data),
        marker={
            "symbol": "x-thin-open",
            "size": 11,
            "color": palette.INK.light,
            "line": {"width": 1.6, "color": palette.INK.light},
        },
        text=[safe(f"{result.x}={number_text(x)}{by}: {lost}") for x, _, lost in line.lossy],
        hovertemplate="%{text}<extra></extra>",
    )


def _add_bracket(figure: go.Figure, result: TransitionResult, axis: GridAxis) -> str:
    """Shade the bracket where a verdict places a drop, frame it where it is only suggested; return
    the caption's part about it."""
    span = bracket_span(result, axis)
    if span is None:
        return ""
    is_tested = result.verdict != "suggested"
    figure.add_shape(
        type="rect",
        x0=span[0],
        x1=span[1],
        y0=0,
        y1=1,
        yref="paper",
        fillcolor=palette.BLUE.light if is_tested else "rgba(0,0,0,0)",
        opacity=0.13 if is_tested else 0.7,
        line={"width": 0}
        if is_tested
        else {"width": 1.2, "dash": "dash", "color": palette.BLUE.light},
        layer="below",
    )
    low, high = result.bracket or (math.nan, math.nan)
    bracket = f"({number_text(low)}, {number_text(high)}]"
    if is_tested:
        return f"; the shaded band is the bracket {bracket} of the drop"
    return f"; the dashed frame is the bracket {bracket} of a drop that is suggested, not tested"


def slope_picture(result: TransitionResult, axis: GridAxis) -> Picture:
    """Draw the growth with length at each x against the slope that still counts as none."""
    figure = go.Figure()
    slopes = {x: slope for x, slope in result.gamma.items() if math.isfinite(slope.estimate)}
    delta = result.settings.delta_T
    add_intervals(
        figure,
        axis,
        slopes,
        {x: shade.light for x, shade in slope_shades(result).items() if x in slopes},
        "slope",
        unit=f"{y_unit(result.scale)} per tenfold {result.by}",
        x_name=result.x,
    )
    style(
        figure,
        x_title=safe(result.x),
        y_title=f"{y_unit(result.scale)} per tenfold {safe(result.by)}",
        grid=axis,
    )
    add_level(figure, 0.0, palette.AXIS.light, "")
    limit = ""
    if delta is not None:
        add_level(figure, delta, palette.MUTED.light, f"tolerated<br>{number_text(delta)}")
        limit = (
            "; blue intervals stay below the dashed line (no growth that matters), orange-red "
            "ones lie above it, grey ones leave it open"
        )
    return Picture(
        "slopes",
        f"Growth with {result.by}",
        f"How fast the error grows with {result.by} at each value of {result.x}, with 95% intervals"
        f"{limit}.",
        figure,
    )


def drop_picture(result: TransitionResult) -> Picture:
    """Draw how far the error falls on each step of the grid."""
    figure = go.Figure()
    unit = y_unit(result.scale)
    names = [f"{number_text(step.x_from)} → {number_text(step.x_to)}" for step in result.drops]
    figure.add_bar(
        x=names,
        y=[step.drop for step in result.drops],
        marker_color=[
            palette.BLUE.light if step.x_to == result.h_peak else palette.GREY.light
            for step in result.drops
        ],
        width=0.6,
        text=[_drop_note(result) if step.x_to == result.h_peak else "" for step in result.drops],
        textposition="outside",
        textangle=0,
        constraintext="none",
        textfont={"size": 12, "color": palette.INK.light},
        cliponaxis=False,
        hovertemplate="%{x}: %{y:.3g} " + unit + "<extra></extra>",
    )
    style(figure, x_title=f"step in {safe(result.x)}", y_title=f"drop ({unit})")
    figure.update_xaxes(type="category", showgrid=False)
    heights = [step.drop for step in result.drops if math.isfinite(step.drop)]
    low, high = min([0.0, *heights]), max([0.0, *heights])
    figure.update_yaxes(range=[low - 0.04 * (high - low), high + 0.22 * (high - low)])
    add_level(figure, 0.0, palette.AXIS.light, "")
    if result.settings.min_drop is not None:
        add_level(
            figure,
            result.settings.min_drop,
            palette.MUTED.light,
            f"needed<br>{number_text(result.settings.min_drop)}",
        )
    tested = abruptness_text(result) if result.abrupt_testable else "not testable on this grid"
    excess = f"{number_text(result.excess)} {unit}" if result.excess is not None else "not known"
    return Picture(
        "drops",
        "Drop on each step",
        f"How far the error falls from one value of {result.x} to the next (the largest in blue); "
        f"abruptness against smooth diminishing returns: {tested}; excess over the decline before "
        f"it: {excess}.",
        figure,
    )


def _drop_note(result: TransitionResult) -> str:
    tested = drop_note(result)
    if result.excess is None:
        return tested
    return f"{tested}<br>excess {number_text(result.excess)}"


def location_picture(result: TransitionResult, axis: GridAxis) -> Picture:
    """Draw the probability that each x is where the collapse ends."""
    figure = go.Figure()
    shown = sorted(set(axis.values) | set(result.p_h))
    inside = set(result.h_set)
    figure.add_bar(
        x=[number_text(x) for x in shown],
        y=[result.p_h.get(x, 0.0) for x in shown],
        marker_color=[palette.BLUE.light if x in inside else palette.GREY.light for x in shown],
        width=0.6,
        hovertemplate=f"{safe(result.x)} = %{{x}}: %{{y:.1%}}<extra></extra>",
    )
    style(figure, x_title=safe(result.x), y_title="share of draws")
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.04])
    caution = (
        ""
        if result.verdict in CLAIMS
        else "; it says where a collapse would be, not that there is one"
    )
    return Picture(
        "location",
        "Location of the collapse",
        f"Share of {result.settings.B} redrawn sweeps that place it at each value of {result.x}; "
        f"blue bars form the {percent_text(result.settings.set_mass)} set{caution}.",
        figure,
    )


def success_picture(result: TransitionResult, axis: GridAxis) -> Picture:
    """Draw the share of runs below the middle of the collapse."""
    figure = go.Figure()
    shade = dict.fromkeys(result.success, palette.BLUE.light)
    add_intervals(
        figure,
        axis,
        result.success,
        shade,
        "success",
        unit="of runs succeed",
        x_name=result.x,
        joined=True,
        percent=True,
    )
    style(figure, x_title=safe(result.x), y_title="share of runs that succeed", grid=axis)
    figure.update_yaxes(tickformat=".0%", range=[-0.04, 1.04])
    add_level(figure, 0.5, palette.MUTED.light, "one half")
    reached = (
        f"; it reaches one half at {result.x} = {number_text(result.h_50)}"
        if result.h_50 is not None
        else "; it never reaches one half"
    )
    return Picture(
        "success",
        "Success rate",
        "Share of runs whose error lies below the middle of the largest drop, with Jeffreys "
        f"intervals{reached}.",
        figure,
    )
