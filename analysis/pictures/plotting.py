"""What the figures for a paper share: their style and sizes, ticks, legends, intervals.

Figures are objects with an Agg canvas and `STYLE` is set around their making, so that none of
matplotlib's global state changes. Widths are exact: what is 3.25 inches here is 3.25 inches in the
paper, and a font of 8 points has 8 points there.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from analysis.pictures import palette
from analysis.pictures.rows import GridAxis
from analysis.pictures.ticks import log_ticks
from analysis.statistics.values import Interval
from analysis.text.numbers import number_text

COLUMN_INCHES: Final = 3.25
"""Width of one column of a paper in two columns."""
PAGE_INCHES: Final = 6.75
"""Width of both."""
MARKERS: Final = ("o", "s", "D", "^", "P", "v", "*")
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
    "lines.linewidth": 1.2,
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

_LONGEST_LABEL: Final = 34


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches that makes room for its own labels."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(text: object) -> str:
    """Return text from data so that matplotlib does not read mathematics into it."""
    return str(text).replace("$", r"\$")


def short(text: object, longest: int = _LONGEST_LABEL) -> str:
    """Return text that leaves room for the picture: its middle gives way where it is long."""
    whole = str(text)
    if len(whole) <= longest:
        return plain(whole)
    half = (longest - 1) // 2
    return plain(f"{whole[: longest - 1 - half]}…{whole[-half:]}")


def name_y(axes: Axes, text: str, inches: float) -> None:
    """Name the vertical axis of a panel of this height, its middle left out where it is long."""
    axes.set_ylabel(short(text, int((inches * 72 - 30) / 4.9)))


def log_axis(axes: Axes, which: str, most: int, text: Any = None) -> None:
    """Make an axis logarithmic, with labels that do not overlap.

    Args:
        axes: already holds its data.
        which: x or y.
        most: as many labels have room.
        text: how a value is written; decades as powers of ten, others in full, where left out.
    """
    getattr(axes, f"set_{which}scale")("log")
    low, high = getattr(axes, f"get_{which}lim")()
    ticks = log_ticks(low, high, most)
    write = text or _power_text(ticks)
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    getattr(axes, f"set_{which}lim")(low, high)


def _power_text(ticks: Sequence[float]) -> Any:
    powers = all(abs(math.log10(tick) % 1) < 1e-9 for tick in ticks)
    if powers and len(ticks) > 1 and (min(ticks) < 1e-3 or max(ticks) > 1e3):
        return lambda value: f"$10^{{{round(math.log10(value))}}}$"
    return number_text


def grid_ticks(axes: Axes, axis: GridAxis, name: str) -> None:
    """Name every value of a swept axis, or some of them where they are many."""
    every = max(1, math.ceil(len(axis.values) / 12))
    axes.set_xticks(axis.positions[::every], axis.labels[::every])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(short(name, 40))


def category_ticks(axes: Axes, labels: Sequence[str]) -> None:
    """Name the bars of a bar chart, or some of them where they are many."""
    longest = max(map(len, labels), default=1)
    every = max(1, math.ceil(len(labels) * (longest + 1) / 34))
    axes.set_xticks(range(0, len(labels), every), list(labels)[::every])
    axes.grid(visible=False, axis="x")


def add_intervals(
    axes: Axes, axis: GridAxis, intervals: Mapping[Any, Interval], colours: Mapping[Any, str]
) -> None:
    """Draw estimates with their intervals at the values of ``axis``."""
    known = {x: item for x, item in intervals.items() if math.isfinite(item.estimate)}
    for x, item in known.items():
        axes.errorbar(
            [axis.at(x)],
            [item.estimate],
            yerr=lengths([item]),
            fmt="o",
            color=colours[x],
            ms=4,
            elinewidth=1,
            capsize=2.5,
        )


def lengths(intervals: Sequence[Interval]) -> list[list[float]]:
    """Return the distances down and up from each estimate; an unknown end has none."""
    return [
        [_distance(item.estimate, item.low) for item in intervals],
        [_distance(item.high, item.estimate) for item in intervals],
    ]


def _distance(upper: float, lower: float) -> float:
    return max(0.0, upper - lower) if math.isfinite(upper) and math.isfinite(lower) else 0.0


def legend_beside(figure: Figure, axes: Axes) -> None:
    """Put the legend to the right of the axes, where it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside right upper", borderaxespad=0.4)


def file_part(name: str) -> str:
    """Return a name that is safe in a file's name."""
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)
