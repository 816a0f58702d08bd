"""Charts for print, in matplotlib: PNG, SVG and PDF.

Figures are objects with an Agg canvas and `STYLE` is set around their making, so that none of
matplotlib's global state changes. Widths are exact: what is 3.25 inches here is 3.25 inches in the
paper, and a font of 8 points has 8 points there.
"""

import io
import math
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, assert_never

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.charts import palette
from analysis.charts.axes import axis_number, log_ticks
from analysis.charts.chart import (
    AxisName,
    Band,
    Chart,
    Layer,
    Mark,
    Reference,
    Ribbon,
    Series,
    Stroke,
    Symbol,
    row_labels,
    shortened,
)

FORMATS: Final = ("png", "svg", "pdf")
COLUMN_INCHES: Final = 3.25
"""Width of one column of a paper in two columns."""
PAGE_INCHES: Final = 6.75
"""Width of a page of two columns."""
STYLE: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",
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
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "savefig.dpi": 300,
    # Shapes of letters in SVG, TrueType in PDF: both look the same where the font is missing.
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    # The same input gives the same file.
    "svg.hashsalt": "hsweep",
}

_MARKERS: Final[dict[Symbol, str]] = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "cross": "P",
    "triangle-down": "v",
    "star": "*",
    "x-thin": "x",
}
_DASHES: Final = {True: "--", False: "-"}
_WIDE_INCHES: Final = 0.75 * PAGE_INCHES
_POINTS_A_PIXEL: Final = 0.46
"""Points in print for a diameter of one pixel on the page."""
_LINE_POINTS_A_PIXEL: Final = 0.55
_STAR_SCALE: Final = 1.5
"""Stars look smaller in print than symbols of their size."""
_LONGEST_LABEL: Final = 34
_NOTEBOOK_DPI: Final = 160
_LONG_ROW: Final = 16
"""Characters; a longer name of a row makes the figure wide."""


def save_figures(
    charts: Sequence[Chart], folder: Path, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write every chart in every format, as ``folder/NAME.FORMAT``, and return the files in order.

    Raises:
        ValueError: a format other than png, svg and pdf.
    """
    for name in formats:
        if name not in FORMATS:
            raise ValueError(f"formats must be among {', '.join(FORMATS)}; got {name!r}")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    undated: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with rc_context(STYLE), warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box; the other figures are whole.
        warnings.filterwarnings("ignore", message=".*missing from font", category=UserWarning)
        for chart in charts:
            figure = print_figure(chart)
            for suffix in formats:
                path = folder / f"{chart.name}.{suffix}"
                figure.savefig(path, format=suffix, metadata=undated.get(suffix, {}))
                written.append(path)
    return written


def png_of(chart: Chart) -> bytes:
    """Return a chart as PNG, as large as a notebook shows it."""
    content = io.BytesIO()
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*missing from font", category=UserWarning)
        print_figure(chart).savefig(content, format="png", dpi=_NOTEBOOK_DPI)
    return content.getvalue()


def print_figure(chart: Chart) -> Figure:
    """Return a chart's figure; call this, and draw the figure, while `STYLE` is set."""
    width, height = _inches(chart)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for at, layer in enumerate(chart.layers):
        _add(axes, layer, 2 + 0.01 * at)
    _set_axis(axes, chart, "x", width, height)
    _set_axis(axes, chart, "y", width, height)
    if not chart.num_rows:
        _add_legend(axes, chart)
    if chart.key:
        axes.set_title(_wrapped(chart.key, int(12.3 * width)))
    return figure


def _inches(chart: Chart) -> tuple[float, float]:
    """Return width and height of a chart's own figure."""
    if chart.num_rows:
        has_long = any(len(name) > _LONG_ROW for _, name in chart.y.ticks)
        width = _WIDE_INCHES if has_long else COLUMN_INCHES
        return width, (0.9 if chart.key else 0.75) + 0.17 * chart.num_rows
    if chart.legend == "beside":
        has_labels = any(point.label for series in chart.series for point in series.points)
        return _WIDE_INCHES, 3.4 if has_labels else 2.8
    return COLUMN_INCHES, 2.35


def _plain(text: str) -> str:
    """Return text in which matplotlib takes no dollar sign for mathematics."""
    return text.replace("$", r"\$")


def _short(text: str, longest: int = _LONGEST_LABEL) -> str:
    return _plain(shortened(text, longest))


def _add(axes: Axes, layer: Layer, order: float) -> None:
    look: dict[str, Any]
    match layer:
        case Series():
            _add_series(axes, layer, order)
        case Band():
            colour = layer.shade.light
            if layer.is_framed:
                for end in (layer.low, layer.high):
                    axes.axvline(end, color=colour, alpha=0.7, lw=0.8, ls="--", zorder=0)
            else:
                axes.axvspan(layer.low, layer.high, color=colour, alpha=0.13, lw=0, zorder=0)
        case Ribbon():
            look = {"color": layer.shade.light, "alpha": 0.18, "lw": 0, "zorder": order}
            axes.fill_between(layer.x, layer.low, layer.high, **look)
        case Reference():
            through = axes.axvline if layer.axis == "x" else axes.axhline
            dash = _DASHES[layer.is_dashed]
            through(layer.value, color=layer.shade.light, lw=0.8, ls=dash, zorder=1)
        case _:
            assert_never(layer)


def _add_series(axes: Axes, series: Series, order: float) -> None:
    colour = series.shade.light
    if series.line is not None:
        axes.plot(
            [point.x for point in series.points],
            [point.y for point in series.points],
            color=colour,
            drawstyle="steps-post" if series.line.is_step else "default",
            zorder=order,
            **_line_look(series.line),
        )
    # Nothing is drawn at an unknown value, and matplotlib warns of its interval.
    points = [p for p in series.points if math.isfinite(p.x) and math.isfinite(p.y)]
    if series.symbol is None or not points:
        return
    x, y = [point.x for point in points], [point.y for point in points]
    colours = [to_rgba(colour, point.opacity) for point in points]
    has_intervals = any(point.interval for point in points)
    if has_intervals:
        ends = zip(*(point.reach(series.interval) for point in points), strict=True)
        thin: dict[str, Any] = {"ecolor": colours, "elinewidth": 0.6, "capsize": 0}
        look = thin if series.is_thin else {"ecolor": colour, "elinewidth": 1.0, "capsize": 2}
        look |= {f"{series.interval}err": list(ends)}
        axes.errorbar(x, y, fmt="none", zorder=order, **look)
    # A hollow symbol with an interval hides the part of it that lies behind the symbol.
    behind = palette.PAGE.light if has_intervals else "none"
    axes.scatter(
        x,
        y,
        s=[_diameter(series, point) ** 2 for point in points],
        marker=_MARKERS[series.symbol],
        c=behind if series.is_open else colours,
        edgecolors=colour if series.is_open else None,
        linewidths=0.8 if series.is_outlined else 0.0,
        zorder=order,
    )
    for point in points:
        if point.label:
            side, shift = ("left", 4) if point.label_side == "right" else ("right", -4)
            look = {"ha": side, "va": "center", "fontsize": 6, "color": palette.MUTED.light}
            _annotate(axes, point.label, (point.x, point.y), (shift, 0), **look)


def _diameter(series: Series, mark: Mark) -> float:
    return _POINTS_A_PIXEL * mark.size * (_STAR_SCALE if series.symbol == "star" else 1.0)


def _line_look(line: Stroke) -> dict[str, Any]:
    width = _LINE_POINTS_A_PIXEL * line.width
    return {"lw": width, "ls": _DASHES[line.is_dashed], "alpha": line.opacity}


def _annotate(
    axes: Axes, text: str, at: tuple[float, float], shift: tuple[float, float], **look: Any
) -> None:
    """Write a text some points beside a place."""
    axes.annotate(_plain(text), at, xytext=shift, textcoords="offset points", **look)


def _add_legend(axes: Axes, chart: Chart) -> None:
    handles: list[Line2D | Patch] = []
    lines = {series.group or series.name: series.line for series in chart.series if series.line}
    for layer in chart.layers:
        if not isinstance(layer, Series) or not layer.name:
            continue
        # At full strength, whatever the opacity of its points.
        line = layer.line or lines.get(layer.group or layer.name)
        look: dict[str, Any] = _line_look(line) if line else {"ls": ""}
        if layer.symbol is not None:
            look["marker"] = _MARKERS[layer.symbol]
            look["ms"] = max(_diameter(layer, point) for point in layer.points)
            look |= {"mfc": "none", "mew": 0.8} if layer.is_outlined else {"mew": 0.0}
        handles.append(Line2D([], [], color=layer.shade.light, label=_short(layer.name), **look))
    if handles and chart.legend == "beside":
        # To the right of the axes, where it covers nothing.
        axes.figure.legend(handles=handles, loc="outside right upper", borderaxespad=0.4)
    elif handles:
        axes.legend(handles=handles, borderaxespad=0.2)


def _set_axis(axes: Axes, chart: Chart, which: AxisName, width: float, height: float) -> None:
    axis, drawn_axis = (chart.x, axes.xaxis) if which == "x" else (chart.y, axes.yaxis)
    if axis.range is not None:
        axes.set(**{f"{which}lim": axis.range})
    elif axis.from_zero:
        axes.set(**{f"{which}lim": (0, None)})
    if axis.kind == "log":
        axes.set(**{f"{which}scale": "log"})
        low, high = drawn_axis.get_view_interval()
        most = int(1.5 * width) if which == "x" else min(7, int(3 * height))
        places = log_ticks(low, high, most)
        drawn_axis.set_ticks(places, labels=[axis_number(axis, place) for place in places])
        drawn_axis.set_ticks([], minor=True)
        axes.set(**{f"{which}lim": (low, high)})
    elif axis.ticks:
        # As many names as have room.
        room = (
            len(axis.ticks)
            if which == "y"
            else 10.5 * width / (1 + max(len(name) for _, name in axis.ticks))
        )
        ticks = axis.ticks[:: math.ceil(len(axis.ticks) / max(1.0, room))]
        names = row_labels([name for _, name in ticks], _LONGEST_LABEL)
        drawn_axis.set_ticks([at for at, _ in ticks], labels=list(map(_plain, names)))
        for label, (at, _) in zip(drawn_axis.get_ticklabels(), ticks, strict=True):
            label.set_fontweight("bold" if at in axis.bold else "normal")
    elif axis.form == "cost":
        drawn_axis.set_major_formatter(FuncFormatter(lambda value, _: axis_number(axis, value)))
    elif axis.form == "whole":
        drawn_axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if axis.kind == "grid":
        axes.grid(visible=False, axis=which)
    if axis.kind == "rows":
        axes.tick_params(axis=which, length=0)
    if which == "x":
        axes.set_xlabel(_wrapped(axis.title, int(12.3 * width)))
    else:
        axes.set_ylabel(_short(axis.title, int((72 * height - 30) / 4.9)))


def _wrapped(text: str, longest: int) -> str:
    """Return a title in at most two lines."""
    lines = textwrap.wrap(text, longest, break_long_words=False, break_on_hyphens=False)
    if len(lines) != 2:
        return _short(text, longest)
    return "\n".join(_short(line, longest) for line in lines)
