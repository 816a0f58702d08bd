"""The main pictures for a paper, in matplotlib: the rows of `analysis.pictures`, drawn.

The only module that knows matplotlib, and it keeps none of its global state: figures are objects
with an Agg canvas, and the style is set on each of them.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter, PercentFormatter

from analysis import palette
from analysis.pictures import (
    GridAxis,
    forest_rows,
    front_points,
    length_series,
    mean_front,
    short_label,
    varying_axes,
)
from analysis.report import ReportInput
from analysis.results import Interval, LeanResult, ParetoResult, TransitionResult
from analysis.wording import cost_title, cost_unit, metric_title, number_text, p_text, y_unit

FORMATS: Final = ("png", "svg", "pdf")

_COLUMN_INCHES: Final = 3.4
_PAGE_INCHES: Final = 7.0
_MARKERS: Final = ("o", "s", "D", "^", "P", "v", "*")
_STYLE: Final[dict[Any, Any]] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": palette.MUTED.light,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": palette.GRID.light,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "savefig.dpi": 300,
    # Text stays text in SVG, and TrueType in PDF, as most journals demand.
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    # The same input gives the same file.
    "svg.hashsalt": "hsweep",
}


def save_figures(
    report_input: ReportInput, folder: Path, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draw the main pictures and write each in every format, as ``folder/NAME.FORMAT``.

    Args:
        report_input: the finished study.
        folder: made if it is not there.
        formats: any of png, svg and pdf.

    Returns:
        The files written, in order; empty where nothing can be drawn.

    Raises:
        ValueError: an unknown format.
    """
    for name in formats:
        if name not in FORMATS:
            raise ValueError(f"formats must be among {', '.join(FORMATS)}; got {name!r}")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with rc_context(_STYLE):
        for stem, figure in _figures(report_input):
            for suffix in formats:
                path = folder / f"{stem}.{suffix}"
                figure.savefig(path, format=suffix, bbox_inches="tight", metadata=_undated(suffix))
                written.append(path)
    return written


def _undated(suffix: str) -> dict[str, Any]:
    """Return metadata that keep the date out of the file."""
    return {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})


def _figures(report_input: ReportInput) -> list[tuple[str, Figure]]:
    found: list[tuple[str, Figure]] = []
    if report_input.transition is not None and report_input.transition.runs:
        found.append(("transition", _transition(report_input.transition)))
        if report_input.transition.success:
            found.append(("success", _success(report_input.transition)))
    if report_input.pareto is not None:
        found += _fronts(report_input, report_input.pareto)
    if report_input.lean is not None and forest_rows(report_input.lean):
        found.append(("candidates", _forest(report_input.lean)))
    if curves := _curves(report_input):
        found.append(("learning-curves", curves))
    return found


def _new(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(text: object) -> str:
    """Return text from data so that matplotlib does not read mathematics into it."""
    return str(text).replace("$", r"\$")


def _transition(result: TransitionResult) -> Figure:
    axis = GridAxis.of([run.x for run in result.runs])
    panels: list[tuple[str, Callable[[Axes], None]]] = [
        ("error", lambda axes: _error(axes, result, axis))
    ]
    if any(math.isfinite(slope.estimate) for slope in result.gamma.values()):
        panels.append((f"growth with {result.by}", lambda axes: _slopes(axes, result, axis)))
    if result.drops:
        panels.append(("drop on each step", lambda axes: _drops(axes, result)))
    if result.p_h:
        panels.append(("location of the collapse", lambda axes: _location(axes, result, axis)))
    rows = math.ceil(len(panels) / 2)
    figure = _new(_PAGE_INCHES if len(panels) > 1 else _COLUMN_INCHES, 2.5 * rows)
    grid = figure.subplots(rows, min(len(panels), 2), squeeze=False)
    for axes, letter, (title, draw) in zip(grid.flat, "abcd", panels, strict=False):
        draw(axes)
        axes.set_title(plain(f"({letter}) {title}"))
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    return figure


def _error(axes: Axes, result: TransitionResult, axis: GridAxis) -> None:
    series = length_series(result)
    shades = palette.ordered_shades(len(series))
    for index, (line, shade) in enumerate(zip(series, shades, strict=True)):
        offset = (index - (len(series) - 1) / 2) * min(0.1, 0.5 / len(series)) * axis.step
        label = plain(f"{result.by} = {number_text(line.by)}") if line.by is not None else None
        marker = _MARKERS[index % len(_MARKERS)]
        axes.plot(
            [axis.at(x) + offset for x, _ in line.cells],
            [value for _, value in line.cells],
            color=shade.light,
            label=label,
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
    if result.bracket is not None and result.verdict not in ("none", "inconclusive"):
        low, high = result.bracket
        left = axis.at(low) if low > 0 or not axis.is_log else axis.positions[0] - axis.step
        axes.axvspan(left, axis.at(high), color=palette.BLUE.light, alpha=0.13, lw=0, zorder=0)
    if result.scale != "loss":
        axes.set_yscale("log")
    _grid_ticks(axes, axis, result.x)
    axes.set_ylabel(plain(metric_title(result.metric, result.scale)))
    if result.by is not None:
        axes.legend(handlelength=1.4, borderaxespad=0.2)


def _slopes(axes: Axes, result: TransitionResult, axis: GridAxis) -> None:
    _intervals(axes, axis, result.gamma)
    axes.axhline(0, color=palette.AXIS.light, lw=0.8)
    if result.settings.delta_T is not None:
        axes.axhline(result.settings.delta_T, color=palette.MUTED.light, lw=0.8, ls="--")
    _grid_ticks(axes, axis, result.x)
    axes.set_ylabel(plain(f"{y_unit(result.scale)} per tenfold {result.by}"))


def _drops(axes: Axes, result: TransitionResult) -> None:
    names = [f"{number_text(step.x_from)}→{number_text(step.x_to)}" for step in result.drops]
    drops = [step.drop for step in result.drops]
    colours = [
        palette.BLUE.light if step.x_to == result.h_peak else palette.GREY.light
        for step in result.drops
    ]
    axes.bar(range(len(names)), drops, width=0.6, color=colours)
    axes.set_xticks(range(len(names)), names)
    axes.tick_params(axis="x", labelsize=7.5 if len(names) <= 8 else 5)
    axes.grid(visible=False, axis="x")
    axes.axhline(0, color=palette.AXIS.light, lw=0.8)
    if result.settings.min_drop is not None:
        axes.axhline(result.settings.min_drop, color=palette.MUTED.light, lw=0.8, ls="--")
    note = p_text(result.p_abrupt) if result.abrupt_testable else "abruptness not testable"
    if result.excess is not None:
        note += f"\nexcess {number_text(result.excess)}"
    axes.margins(y=0.25)
    axes.annotate(note, (0.99, 0.98), xycoords="axes fraction", ha="right", va="top", fontsize=7.5)
    axes.set_xlabel(plain(f"step in {result.x}"))
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
    axes.set_xticks(range(len(shown)), [number_text(x) for x in shown])
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(plain(result.x))
    axes.set_ylabel("share of draws")


def _success(result: TransitionResult) -> Figure:
    figure = _new(_COLUMN_INCHES, 2.4)
    axes = figure.subplots()
    axis = GridAxis.of([run.x for run in result.runs])
    axes.plot(
        [axis.at(x) for x in result.success],
        [rate.estimate for rate in result.success.values()],
        color=palette.GREY.light,
        lw=1,
    )
    _intervals(axes, axis, result.success)
    axes.axhline(0.5, color=palette.MUTED.light, lw=0.8, ls="--")
    axes.set_ylim(-0.04, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    _grid_ticks(axes, axis, result.x)
    axes.set_ylabel("share of runs that succeed")
    return figure


def _fronts(report_input: ReportInput, pareto: ParetoResult) -> list[tuple[str, Figure]]:
    found = []
    for cost in pareto.costs:
        points = front_points(pareto, cost, report_input.lean, report_input.trials)
        if not points:
            continue
        figure = _new(_PAGE_INCHES * 0.7, 3.0)
        axes = figure.subplots()
        if len(pareto.costs) == 1:
            corners = mean_front(points, pareto.goal)
            axes.step(
                [x for x, _ in corners],
                [y for _, y in corners],
                where="post",
                color=palette.BLUE.light,
                lw=0.8,
                alpha=0.6,
            )
        labelled: set[str] = set()
        for point in points:
            shade = palette.CLASS_SHADES[point.class_].light
            name = {"on": "on the front", "off": "off the front"}.get(point.class_, point.class_)
            axes.errorbar(
                [point.cost],
                [point.ci.estimate],
                yerr=_errors([point.ci]),
                fmt={"on": "o", "undecided": "D", "off": "s"}[point.class_],
                color=shade,
                alpha=point.opacity,
                ms=4,
                mew=0,
                elinewidth=0.7,
                label=name if name not in labelled else None,
            )
            labelled.add(name)
        for role, marker in (("baseline", "o"), ("chosen", "*")):
            marked = [point for point in points if point.role == role]
            if marked:
                axes.plot(
                    [point.cost for point in marked],
                    [point.ci.estimate for point in marked],
                    marker=marker,
                    ms=11,
                    mfc="none",
                    mec=palette.INK.light,
                    ls="",
                    label=role,
                )
        if points[0].cost > 0:
            axes.set_xscale("log")
        formatter = EngFormatter(sep="")
        axes.xaxis.set_major_formatter(formatter)
        few = points[-1].cost < 10 * points[0].cost
        axes.xaxis.set_minor_formatter(formatter if few else NullFormatter())
        unit = cost_unit(cost)
        axes.set_xlabel(plain(f"{cost_title(cost)}{f' ({unit})' if unit else ''}"))
        axes.set_ylabel(plain(pareto.metric))
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        found.append((f"front-{_file_part(cost)}", figure))
    return found


def _forest(lean: LeanResult) -> Figure:
    rows = forest_rows(lean)
    axes_names = varying_axes([*(row.config for row in rows), lean.baseline]) or list(lean.baseline)
    figure = _new(_PAGE_INCHES * 0.7, 0.8 + 0.17 * len(rows))
    axes = figure.subplots()
    for at, row in enumerate(rows):
        colour = palette.BLUE.light if row.accepted else palette.GREY.light
        axes.errorbar(
            [row.diff],
            [at],
            xerr=_errors([Interval(row.diff, row.ci.low, row.ci.high)]),
            fmt="o",
            color=colour,
            mfc=colour if row.accepted else palette.PAGE.light,
            ms=4,
            elinewidth=1,
            capsize=2,
        )
    axes.axvline(-lean.margin, color=palette.MUTED.light, lw=0.9, ls="--")
    axes.axvline(0, color=palette.MUTED.light, lw=0.9)
    axes.set_yticks(range(len(rows)), [plain(short_label(row.config, axes_names)) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(plain(" · ".join(axes_names)))
    axes.set_xlabel(plain(f"difference in {lean.metric} (right is better)"))
    return figure


def _curves(report_input: ReportInput) -> Figure | None:
    curves = report_input.learning_curves()
    if not curves.curves:
        return None
    figure = _new(_PAGE_INCHES * 0.7, 2.6)
    axes = figure.subplots()
    shades = dict(zip(curves.groups, palette.shades_for(curves.groups), strict=True))
    labelled: set[object] = set()
    for curve in curves.curves:
        first = curves.grouped_by is not None and curve.group not in labelled
        labelled.add(curve.group)
        axes.plot(
            curve.units,
            curve.values,
            color=shades[curve.group].light,
            lw=0.7,
            alpha=0.7,
            marker="." if len(curve.units) == 1 else "",
            label=plain(f"{curves.grouped_by} = {curve.group}")
            if first and len(curves.groups) <= 12
            else None,
        )
    if curves.is_log:
        axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel(plain(report_input.budget_unit))
    axes.set_ylabel(plain(report_input.metric))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.4)
    return figure


def _intervals(axes: Axes, axis: GridAxis, intervals: dict[Any, Interval]) -> None:
    known = {x: item for x, item in intervals.items() if math.isfinite(item.estimate)}
    axes.errorbar(
        [axis.at(x) for x in known],
        [item.estimate for item in known.values()],
        yerr=_errors(list(known.values())),
        fmt="o",
        color=palette.BLUE.light,
        ms=4,
        elinewidth=1,
        capsize=2.5,
    )


def _errors(intervals: Sequence[Interval]) -> list[list[float]]:
    """Return the distances down and up from each estimate; an unknown end has none."""
    return [
        [_distance(item.estimate, item.low) for item in intervals],
        [_distance(item.high, item.estimate) for item in intervals],
    ]


def _distance(upper: float, lower: float) -> float:
    return max(0.0, upper - lower) if math.isfinite(upper) and math.isfinite(lower) else 0.0


def _grid_ticks(axes: Axes, axis: GridAxis, name: str) -> None:
    axes.set_xticks(axis.positions, axis.labels)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(plain(name))


def _file_part(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)
