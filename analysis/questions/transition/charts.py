"""The charts of a transition."""

import math
from dataclasses import dataclass
from typing import Final

import pandas as pd

from analysis.charts import palette
from analysis.charts.axes import GridAxis, named_axis, value_axis
from analysis.charts.chart import (
    Axis,
    Band,
    Bars,
    Chart,
    Layer,
    Line,
    Pick,
    Point,
    Reference,
    Series,
    symbol_of,
)
from analysis.charts.picks import config_key, query_text, run_links, runs_by_values, value_text
from analysis.findings.jsonable import Number
from analysis.findings.results import CLAIMS, Interval, TransitionResult
from analysis.words.wording import (
    abruptness_text,
    interval_text,
    metric_title,
    number_text,
    p_text,
    percent_text,
    y_unit,
)
from hsweep.design.question import Scale

MAX_RUN_POINTS: Final = 1500
_PANEL: Final = "transition"
_PLACED: Final = (*CLAIMS, "plateau", "suggested")
"""Verdicts that place a drop."""


def transition_charts(result: TransitionResult, trials: pd.DataFrame) -> list[Chart]:
    """Return the transition's charts, leaving out those without a number to show.

    Args:
        result: the transition.
        trials: one row a trial, where a run's page is looked up.
    """
    axis = GridAxis.of([run.x for run in result.runs] or list(result.level))
    if not axis.values:
        return []
    charts = [_error_chart(result, axis, trials)]
    if any(math.isfinite(slope.estimate) for slope in result.gamma.values()):
        charts.append(_slope_chart(result, axis))
    if result.drops:
        charts.append(_drop_chart(result))
    if result.p_h:
        charts.append(_location_chart(result, axis))
    if result.success:
        charts.append(_success_chart(result, axis))
    return charts


@dataclass(frozen=True, slots=True)
class LengthSeries:
    """The error against the searched axis at one value of the modulating axis.

    Attributes:
        by: that value; None where nothing modulates.
        runs: (x, error, replicate) of every full-budget run.
        cells: (x, error) of every cell, under the leading reading.
        lossy: (x, error, losses in words) of those cells that are read from the runs left.
    """

    by: Number | None
    runs: tuple[tuple[Number, float, str], ...]
    cells: tuple[tuple[Number, float], ...]
    lossy: tuple[tuple[Number, float, str], ...] = ()


def error_of(y: float, scale: Scale) -> float:
    """Return the error that stands for ``y``: undoes the logarithm, leaves nats as they are."""
    return y if scale == "loss" else 10.0**y


def length_series(result: TransitionResult) -> list[LengthSeries]:
    """Return one series a length, ascending, with at most about `MAX_RUN_POINTS` runs in all."""
    every = math.ceil(len(result.runs) / MAX_RUN_POINTS) or 1
    keys = {run.by for run in result.runs} | {cell.by for cell in result.cells}
    lost = {(cell.x, cell.by): cell.losses for cell in result.counts if cell.losses.total}
    found = []
    for by in sorted(keys, key=lambda key: (key is not None, key or 0)):
        runs = [run for run in result.runs if run.by == by][::every]
        cells = [cell for cell in result.cells if cell.by == by and math.isfinite(cell.z)]
        errors = {cell.x: error_of(cell.z, result.scale) for cell in cells}
        known = sorted(errors.items())
        found.append(
            LengthSeries(
                by=by,
                runs=tuple((run.x, error_of(run.y, result.scale), run.replicate) for run in runs),
                cells=tuple(known),
                lossy=tuple((x, y, lost[x, by].text) for x, y in known if (x, by) in lost),
            )
        )
    return found


def _error_chart(result: TransitionResult, axis: GridAxis, trials: pd.DataFrame) -> Chart:
    """Draw the error against x, one colour a length, every run a point."""
    series = length_series(result)
    title = metric_title(result.metric, result.scale)
    band, band_caption = _bracket(result, axis)
    layers: list[Layer] = [*band]
    picks = _run_picks(result, series, trials)
    has_losses = any(line.lossy for line in series)
    shown_names = palette.named_groups(len(series))
    if series[0].by is None and len(series) == 1 and not has_losses:
        shown_names = set()  # there is nothing to tell apart
    first_pick = 0
    for index, (line, shade) in enumerate(
        zip(series, palette.ordered_shades(len(series)), strict=True)
    ):
        group = f"{result.by} = {number_text(line.by)}" if line.by is not None else "runs"
        name = group if index in shown_names else ""
        symbol = symbol_of(index)
        places = {x: axis.beside(x, index, len(series)) for x, _ in line.cells}
        cells = tuple(Point(places[x], y, size=4) for x, y in line.cells)
        layers.append(
            Series(cells, shade, "" if line.runs else name, group, symbol=symbol, line=Line())
        )
        runs = tuple(
            Point(axis.beside(x, index, len(series)), y, pick=at, size=7, opacity=0.6)
            for at, (x, y, _) in enumerate(line.runs, first_pick)
        )
        first_pick += len(runs)
        hover = f"{{pick}}\n{title} {{y}}"
        layers.append(Series(runs, shade, name, group, symbol=symbol, hover=hover))
    losses = tuple(
        Point(
            axis.beside(x, index, len(series)),
            y,
            size=11,
            hover=f"{result.x}={number_text(x)}"
            f"{'' if line.by is None else f', {result.by}={number_text(line.by)}'}: {lost}",
        )
        for index, line in enumerate(series)
        for x, y, lost in line.lossy
    )
    crossed = ""
    if losses:
        layers.append(Series(losses, palette.INK, "runs lost", symbol="x-thin"))
        crossed = "; a cross marks a cell that lost runs and is read from those that are left"
    drawn = sum(len(line.runs) for line in series)
    some = f" Shown are {drawn} of {len(result.runs)} runs." if drawn < len(result.runs) else ""
    cell = {"typical": "median", "attainable": "expected best"}[result.reading]
    lengths = f", one {result.by} a colour" if result.by is not None else ""
    values = [y for line in series for _, y, _ in line.runs]
    values += [y for line in series for _, y in line.cells]
    return Chart(
        "error",
        f"{title} against {result.x}",
        f"Each point is one full-budget run and each line joins the {cell} seeds{lengths}; lower "
        f"is better{band_caption}{crossed}.{some}",
        axis.axis(result.x),
        value_axis(title, values, log=result.scale != "loss"),
        tuple(layers),
        is_wide=True,
        picks=picks,
        panel_of=_PANEL,
    )


def _run_picks(
    result: TransitionResult, series: list[LengthSeries], trials: pd.DataFrame
) -> tuple[Pick, ...]:
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
    return tuple(picks)


def _bracket(result: TransitionResult, axis: GridAxis) -> tuple[list[Band], str]:
    """Return the drop's bracket and the caption's part about it.

    It is shaded where a verdict places a drop, framed where a drop is only suggested.
    """
    if result.bracket is None or result.verdict not in _PLACED:
        return [], ""
    low, high = result.bracket
    left = axis.at(low) if low > 0 or not axis.is_log else axis.positions[0] - axis.step
    is_tested = result.verdict != "suggested"
    band = Band(left, axis.at(high), palette.BLUE, is_framed=not is_tested)
    bracket = f"({number_text(low)}, {number_text(high)}]"
    if is_tested:
        return [band], f"; the shaded band is the bracket {bracket} of the drop"
    return [band], (
        f"; the dashed frame is the bracket {bracket} of a drop that is suggested, not tested"
    )


def _slope_chart(result: TransitionResult, axis: GridAxis) -> Chart:
    """Draw the growth with length at each x against the slope that still counts as none."""
    unit = f"{y_unit(result.scale)} per tenfold {result.by}"
    tolerated = result.settings.delta_T
    slopes = {x: slope for x, slope in result.gamma.items() if math.isfinite(slope.estimate)}
    layers: list[Layer] = [Reference("y", 0.0, palette.AXIS)]
    limit = ""
    if tolerated is not None:
        label = f"tolerated\n{number_text(tolerated)}"
        layers.append(Reference("y", tolerated, is_dashed=True, label=label))
        limit = (
            "; blue intervals stay below the dashed line (no growth that matters), orange-red "
            "ones lie above it, grey ones leave it open"
        )
    for shade in (palette.BLUE, palette.VERMILLION, palette.GREY):
        points = tuple(
            _at_value(result, axis, x, slope, f"{interval_text(slope)} {unit}")
            for x, slope in slopes.items()
            if _slope_shade(result, slope) == shade
        )
        if points:
            layers.append(Series(points, shade))
    return Chart(
        "slopes",
        f"Growth with {result.by}",
        f"How fast the error grows with {result.by} at each value of {result.x}, with 95% intervals"
        f"{limit}.",
        axis.axis(result.x),
        Axis(unit),
        tuple(layers),
        panel_of=_PANEL,
    )


def _slope_shade(result: TransitionResult, slope: Interval) -> palette.Shade:
    """Return blue for growth that does not matter, vermillion for growth, grey if it is open."""
    if result.noise_gap:
        return palette.GREY
    limit = math.inf if result.settings.delta_T is None else result.settings.delta_T
    if slope.high <= limit:
        return palette.BLUE
    return palette.VERMILLION if slope.low > limit else palette.GREY


def _at_value(
    result: TransitionResult, axis: GridAxis, x: Number, interval: Interval, text: str
) -> Point:
    """Return an interval at a value of x, which ``text`` describes."""
    hover = f"{result.x} = {number_text(x)}\n{text}"
    return Point(axis.at(x), interval.estimate, interval.low, interval.high, hover=hover)


def _drop_chart(result: TransitionResult) -> Chart:
    """Draw how far the error falls on each step of the grid."""
    unit = y_unit(result.scale)
    names = [f"{number_text(step.x_from)} → {number_text(step.x_to)}" for step in result.drops]
    is_peak = [step.x_to == result.h_peak for step in result.drops]
    heights = [step.drop for step in result.drops]
    note = "not testable"
    if result.abrupt_testable:
        note = f"{p_text(result.p_abrupt)}{' (no test)' if result.noise_gap else ''}"
    if result.excess is not None:
        note += f"\nexcess {number_text(result.excess)}"
    bars = Bars(
        tuple(range(len(names))),
        tuple(heights),
        tuple(palette.BLUE if here else palette.GREY for here in is_peak),
        tuple(f"{name}: {number_text(y)} {unit}" for name, y in zip(names, heights, strict=True)),
        notes=tuple(note if here else "" for here in is_peak),
    )
    layers: list[Layer] = [bars, Reference("y", 0.0, palette.AXIS)]
    needed = result.settings.min_drop
    if needed is not None:
        label = f"needed\n{number_text(needed)}"
        layers.append(Reference("y", needed, is_dashed=True, label=label))
    known = [height for height in heights if math.isfinite(height)]
    low, high = min([0.0, *known]), max([0.0, *known])
    tested = abruptness_text(result) if result.abrupt_testable else "not testable on this grid"
    excess = f"{number_text(result.excess)} {unit}" if result.excess is not None else "not known"
    # Room above the highest bar for two lines.
    ends = (low - 0.04 * (high - low), high + 0.3 * (high - low or 1.0))
    return Chart(
        "drops",
        "Drop on each step",
        f"How far the error falls from one value of {result.x} to the next (the largest in blue); "
        f"abruptness against smooth diminishing returns: {tested}; excess over the decline before "
        f"it: {excess}.",
        named_axis(f"step in {result.x}", names),
        Axis(f"drop ({unit})", range=ends),
        tuple(layers),
        panel_of=_PANEL,
    )


def _location_chart(result: TransitionResult, axis: GridAxis) -> Chart:
    """Draw the probability that each x is where the collapse ends."""
    shown = sorted(set(axis.values) | set(result.p_h))
    chances = [result.p_h.get(x, 0.0) for x in shown]
    bars = Bars(
        tuple(range(len(shown))),
        tuple(chances),
        tuple(palette.BLUE if x in result.h_set else palette.GREY for x in shown),
        tuple(
            f"{result.x} = {number_text(x)}: {percent_text(chance)}"
            for x, chance in zip(shown, chances, strict=True)
        ),
    )
    caution = (
        ""
        if result.verdict in CLAIMS
        else "; it says where a collapse would be, not that there is one"
    )
    return Chart(
        "location",
        "Location of the collapse",
        f"Share of {result.settings.B} redrawn sweeps that place it at each value of {result.x}; "
        f"blue bars form the {percent_text(result.settings.set_mass)} set{caution}.",
        named_axis(result.x, [number_text(x) for x in shown]),
        Axis("share of draws", form="percent", range=(0, 1.04)),
        (bars,),
        panel_of=_PANEL,
    )


def _success_chart(result: TransitionResult, axis: GridAxis) -> Chart:
    """Draw the share of runs below the middle of the collapse."""
    rates = tuple(
        _at_value(result, axis, x, rate, f"{_percent_interval(rate)} of runs succeed")
        for x, rate in result.success.items()
    )
    joined = tuple(Point(rate.x, rate.y) for rate in rates)
    reached = (
        f"; it reaches one half at {result.x} = {number_text(result.h_50)}"
        if result.h_50 is not None
        else "; it never reaches one half"
    )
    return Chart(
        "success",
        "Success rate",
        "Share of runs whose error lies below the middle of the largest drop, with Jeffreys "
        f"intervals{reached}.",
        axis.axis(result.x),
        Axis("share of runs that succeed", form="percent", range=(-0.04, 1.04)),
        (
            Reference("y", 0.5, is_dashed=True, label="one half"),
            Series(joined, palette.GREY, symbol=None, line=Line(width=1.5)),
            Series(rates, palette.BLUE),
        ),
    )


def _percent_interval(interval: Interval) -> str:
    low, high = percent_text(interval.low), percent_text(interval.high)
    return f"{percent_text(interval.estimate)} (95% interval {low} to {high})"
