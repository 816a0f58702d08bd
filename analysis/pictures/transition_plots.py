"""The figures of a transition for a paper: one of four panels, and each panel alone."""

import math
from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from analysis.pictures import palette
from analysis.pictures.plotting import (
    COLUMN_INCHES,
    MARKERS,
    PAGE_INCHES,
    add_intervals,
    category_ticks,
    grid_ticks,
    log_axis,
    name_y,
    new_figure,
    short,
)
from analysis.pictures.rows import GridAxis, bracket_span, drop_note, length_series, slope_shades
from analysis.questions.transition.result import TransitionResult
from analysis.text.numbers import metric_title, number_text, y_unit

_PANEL_HEIGHT = 2.35
Panel = tuple[str, str, Callable[[Axes], None]]
"""A panel's file name, its title and what draws it."""


def transition_figures(result: TransitionResult) -> list[tuple[str, Figure]]:
    """Return the transition's figures by name, leaving out those without a number to show."""
    if not result.runs:
        return []
    axis = GridAxis.of([run.x for run in result.runs])
    panels = _panels(result, axis)
    found = []
    if len(panels) > 1:
        found.append(("transition", _together(panels)))
    if result.success:
        panels.append(("success", "", lambda axes: _success(axes, result, axis)))
    for name, _, draw in panels:
        figure = new_figure(COLUMN_INCHES, _PANEL_HEIGHT)
        draw(figure.subplots())
        found.append((name, figure))
    return found


def _panels(result: TransitionResult, axis: GridAxis) -> list[Panel]:
    panels: list[Panel] = [("error", "error", lambda axes: _error(axes, result, axis))]
    if any(math.isfinite(slope.estimate) for slope in result.gamma.values()):
        title = short(f"growth with {result.by}")
        panels.append(("slopes", title, lambda axes: _slopes(axes, result, axis)))
    if result.drops:
        panels.append(("drops", "drop on each step", lambda axes: _drops(axes, result)))
    if result.p_h:
        title = "location of the collapse"
        panels.append(("location", title, lambda axes: _location(axes, result, axis)))
    return panels


def _together(panels: list[Panel]) -> Figure:
    rows = math.ceil(len(panels) / 2)
    figure = new_figure(PAGE_INCHES, _PANEL_HEIGHT * rows)
    grid = figure.subplots(rows, 2, squeeze=False)
    for axes, letter, (_, title, draw) in zip(grid.flat, "abcd", panels, strict=False):
        draw(axes)
        axes.set_title(f"({letter}) {title}")
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    return figure


def _error(axes: Axes, result: TransitionResult, axis: GridAxis) -> None:
    series = length_series(result)
    shades = palette.ordered_shades(len(series))
    named = palette.named_groups(len(series))
    for index, (line, shade) in enumerate(zip(series, shades, strict=True)):
        offset = (index - (len(series) - 1) / 2) * min(0.1, 0.5 / len(series)) * axis.step
        named_here = line.by is not None and index in named
        marker = MARKERS[index % len(MARKERS)]
        axes.plot(
            [axis.at(x) + offset for x, _ in line.cells],
            [value for _, value in line.cells],
            color=shade.light,
            label=short(f"{result.by} = {number_text(line.by)}") if named_here else None,
            marker=marker,
            markersize=2,
        )
        axes.scatter(
            [axis.at(x) + offset for x, _, _ in line.runs],
            [value for _, value, _ in line.runs],
            color=shade.light,
            marker=marker,
            s=9,
            alpha=0.5,
            linewidths=0,
        )
        if line.lossy:
            is_first = not any(each.lossy for each in series[:index])
            axes.plot(
                [axis.at(x) + offset for x, _, _ in line.lossy],
                [value for _, value, _ in line.lossy],
                "x",
                color=palette.INK.light,
                markersize=5,
                label="runs lost" if is_first else None,
            )
    if span := bracket_span(result, axis):
        if result.verdict == "suggested":
            for end in span:
                axes.axvline(end, color=palette.BLUE.light, alpha=0.7, lw=0.8, ls="--", zorder=0)
        else:
            axes.axvspan(*span, color=palette.BLUE.light, alpha=0.13, lw=0, zorder=0)
    if result.scale != "loss":
        log_axis(axes, "y", 7)
    grid_ticks(axes, axis, result.x)
    name_y(axes, metric_title(result.metric, result.scale), _PANEL_HEIGHT)
    if result.by is not None or any(line.lossy for line in series):
        axes.legend(borderaxespad=0.2)


def _slopes(axes: Axes, result: TransitionResult, axis: GridAxis) -> None:
    tolerated = result.settings.delta_T
    shades = {x: shade.light for x, shade in slope_shades(result).items()}
    add_intervals(axes, axis, result.gamma, shades)
    axes.axhline(0, color=palette.AXIS.light, lw=0.8)
    if tolerated is not None:
        axes.axhline(tolerated, color=palette.MUTED.light, lw=0.8, ls="--")
    grid_ticks(axes, axis, result.x)
    name_y(axes, f"{y_unit(result.scale)} per tenfold {result.by}", _PANEL_HEIGHT)


def _drops(axes: Axes, result: TransitionResult) -> None:
    drops = [step.drop if math.isfinite(step.drop) else 0.0 for step in result.drops]
    peak = [step.x_to == result.h_peak for step in result.drops]
    colours = [palette.BLUE.light if here else palette.GREY.light for here in peak]
    axes.bar(range(len(drops)), drops, width=0.6, color=colours)
    category_ticks(
        axes, [f"{number_text(step.x_from)}→{number_text(step.x_to)}" for step in result.drops]
    )
    axes.axhline(0, color=palette.AXIS.light, lw=0.8)
    if result.settings.min_drop is not None:
        axes.axhline(result.settings.min_drop, color=palette.MUTED.light, lw=0.8, ls="--")
    note = drop_note(result)
    if result.excess is not None:
        note += f"\nexcess {number_text(result.excess)}"
    # Room above the tallest bar for two lines.
    low, high = min(0.0, *drops), max(0.0, *drops)
    axes.set_ylim(low - 0.04 * (high - low), high + 0.3 * (high - low or 1.0))
    if True in peak:
        at = peak.index(True)
        # Beside an edge the note would run out of the picture.
        side = "left" if at == 0 else "right" if at == len(drops) - 1 else "center"
        x = at + {"left": -0.3, "center": 0.0, "right": 0.3}[side]
        axes.annotate(
            note,
            (x, max(0.0, drops[at])),
            xytext=(0, 2),
            textcoords="offset points",
            ha=side,
            va="bottom",
            fontsize=7.5,
        )
    axes.set_xlabel(short(f"step in {result.x}", 40))
    axes.set_ylabel(f"drop ({y_unit(result.scale)})")


def _location(axes: Axes, result: TransitionResult, axis: GridAxis) -> None:
    shown = sorted(set(axis.values) | set(result.p_h))
    inside = set(result.h_set)
    axes.bar(
        range(len(shown)),
        [result.p_h.get(x, 0.0) for x in shown],
        width=0.6,
        color=[palette.BLUE.light if x in inside else palette.GREY.light for x in shown],
    )
    category_ticks(axes, [number_text(x) for x in shown])
    axes.set_ylim(0, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(short(result.x, 40))
    axes.set_ylabel("share of draws")


def _success(axes: Axes, result: TransitionResult, axis: GridAxis) -> None:
    axes.plot(
        [axis.at(x) for x in result.success],
        [rate.estimate for rate in result.success.values()],
        color=palette.GREY.light,
        lw=1,
    )
    colours = dict.fromkeys(result.success, palette.BLUE.light)
    add_intervals(axes, axis, result.success, colours)
    axes.axhline(0.5, color=palette.MUTED.light, lw=0.8, ls="--")
    axes.set_ylim(-0.04, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    grid_ticks(axes, axis, result.x)
    axes.set_ylabel("share of runs that succeed")
