"""A chart as a value: what is drawn, in the data's own units; the back ends say how.

Every text is plain, back ends escape it. A line break in a text is one in the drawing. Sizes and
widths are pixels of the page; print scales them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from analysis.charts import palette
from analysis.charts.palette import Shade

AxisName = Literal["x", "y"]
Symbol = Literal[
    "circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "star", "x", "x-thin"
]
SYMBOLS: tuple[Symbol, ...] = (
    *("circle", "square", "diamond", "triangle-up"),
    *("cross", "triangle-down", "star"),
)
"""The symbols that tell groups apart, in the order in which they are used."""
Dash = Literal["solid", "dash", "long", "dot"]


def symbol_of(index: int) -> Symbol:
    """Return the symbol of a group by its number."""
    return SYMBOLS[index % len(SYMBOLS)]


@dataclass(frozen=True, slots=True)
class Pick:
    """What a point stands for, shown when it is clicked.

    Attributes:
        title: the shape or the trial.
        query: text that finds its trials in the table of trials.
        links: names and addresses of its runs' pages.
    """

    title: str
    query: str
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        title: what it shows.
        kind: ``grid`` has named positions and no lines at them; ``rows`` has one named row below
            the other and is vertical.
        form: how its numbers are written; ``cost`` with a unit prefix, ``whole`` without a part.
        ticks: positions with their names; a log or number axis without any chooses its own.
        bold: those of them that stand out.
        range: its ends; low and high are exchanged where it runs downwards. None fits the data.
        from_zero: whether a fitted axis begins at 0.
    """

    title: str
    kind: Literal["number", "log", "grid", "rows"] = "number"
    form: Literal["number", "cost", "percent", "whole"] = "number"
    ticks: tuple[tuple[float, str], ...] = ()
    bold: frozenset[float] = frozenset()
    range: tuple[float, float] | None = None
    from_zero: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a series.

    Attributes:
        x: where it stands; NaN breaks the line that joins the series.
        y: likewise.
        low: the lower end of its interval; NaN has none.
        high: the upper end.
        hover: what the page says of it; several lines begin with a heading.
        pick: what it stands for, a number in `Chart.picks`.
        size: the diameter of its symbol in pixels.
        opacity: from 0 to 1.
        label: its name beside it.
        label_side: on which side.
    """

    x: float
    y: float
    low: float = math.nan
    high: float = math.nan
    hover: str = ""
    pick: int | None = None
    size: float = 9.0
    opacity: float = 1.0
    label: str = ""
    label_side: Literal["left", "right"] = "right"

    def distances(self, along: AxisName) -> tuple[float, float]:
        """Return how far its interval reaches down and up from it; 0 for an unknown end."""
        value = self.x if along == "x" else self.y
        return _distance(value, self.low), _distance(self.high, value)


def _distance(upper: float, lower: float) -> float:
    return max(0.0, upper - lower) if math.isfinite(upper) and math.isfinite(lower) else 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """How a line joins the points of a series; ``is_step`` goes to the right, then up or down."""

    width: float = 2.0
    dash: Dash = "solid"
    is_step: bool = False
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one colour, with or without intervals, symbols and a line that joins them.

    Attributes:
        points: in the order of the line.
        shade: their colour.
        name: its name in the legend; empty for none.
        group: series of one group are shown and hidden together on the page; its name by default.
        symbol: None draws no symbols.
        is_open: whether symbols are outlines.
        line: None draws no line.
        interval: the axis along which intervals lie.
        is_thin: whether intervals are thin and have no caps, for many points.
        hover: what the page says of every point, where points do not say it: ``{pick}`` is the
            title of what it stands for, ``{x}`` and ``{y}`` are its values.
    """

    points: tuple[Point, ...]
    shade: Shade
    name: str = ""
    group: str = ""
    symbol: Symbol | None = "circle"
    is_open: bool = False
    line: Line | None = None
    interval: AxisName = "y"
    is_thin: bool = False
    hover: str = ""

    @property
    def has_intervals(self) -> bool:
        """Whether any point has an interval."""
        return any(math.isfinite(point.low) or math.isfinite(point.high) for point in self.points)


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars that stand at 0.

    Attributes:
        x: their middles.
        heights: their ends.
        shades: the colour of each.
        hover: what the page says of each.
        notes: what stands above each; empty for nothing anywhere.
        name: their name in the legend; empty for none.
        width: of one bar.
    """

    x: tuple[float, ...]
    heights: tuple[float, ...]
    shades: tuple[Shade, ...]
    hover: tuple[str, ...]
    notes: tuple[str, ...] = ()
    name: str = ""
    width: float = 0.6


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a heat map: framed ones were measured, hatched ones lie beyond those."""

    value: float
    text: str
    hover: str
    is_framed: bool = False
    is_hatched: bool = False


@dataclass(frozen=True, slots=True)
class Cells:
    """A heat map: rows from the bottom, at whole positions; colours from low to high values."""

    rows: tuple[tuple[Cell, ...], ...]
    shades: tuple[Shade, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """A part of the horizontal axis: shaded, or framed by dashes."""

    low: float
    high: float
    shade: Shade
    is_framed: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """A line through the whole chart at a value of an axis, named beside the page's chart."""

    axis: AxisName
    value: float
    shade: Shade = palette.MUTED
    is_dashed: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class Heading:
    """A bold line of text in a chart of rows, above the rows that it is about."""

    row: float
    text: str


Layer = Series | Bars | Cells | Band | Reference | Heading


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with what stands around it.

    Attributes:
        name: identifier on the page and name of its files.
        title: heading.
        caption: plain sentences that say how to read it.
        x: the horizontal axis.
        y: the vertical axis.
        layers: what is drawn, the lowest first.
        is_wide: whether it takes the page's full width.
        picks: what its points stand for.
        key: how its labels read, in few words; stands above the chart in print, which has no
            caption.
        legend: where print puts the legend; ``page`` leaves it to the page.
        panel_of: the print figure of several panels that it is also a panel of; empty for none.
    """

    name: str
    title: str
    caption: str
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    is_wide: bool = False
    picks: tuple[Pick, ...] = ()
    key: str = ""
    legend: Literal["inside", "beside", "page"] = "inside"
    panel_of: str = ""

    @property
    def named(self) -> tuple[Series | Bars, ...]:
        """What the legend names."""
        return tuple(each for each in self.layers if isinstance(each, Series | Bars) and each.name)

    @property
    def cells(self) -> Cells | None:
        """Its heat map."""
        return next((each for each in self.layers if isinstance(each, Cells)), None)

    @property
    def num_rows(self) -> int:
        """Rows of a chart of rows or of a heat map; 0 for any other."""
        if self.y.kind == "rows" and self.y.range is not None:
            return round(self.y.range[0] + 0.4)
        return len(self.cells.rows) if self.cells is not None else 0

    def values(self, axis: AxisName) -> list[float]:
        """Return every finite value that is drawn along an axis, the ends of intervals too."""
        found: list[float] = []
        for each in self.layers:
            if isinstance(each, Series):
                found += [point.x if axis == "x" else point.y for point in each.points]
                if each.interval == axis:
                    found += [end for point in each.points for end in (point.low, point.high)]
        return [value for value in found if math.isfinite(value)]


def finite(values: Iterable[float]) -> list[float]:
    """Return the values that are numbers."""
    return [value for value in values if math.isfinite(value)]


def uniquely_named(charts: Sequence[Chart]) -> list[Chart]:
    """Return the charts, a number behind every name that an earlier one bears."""
    found: list[Chart] = []
    for chart in charts:
        before = sum(chart.name == other.name for other in charts[: len(found)])
        found.append(replace(chart, name=f"{chart.name}-{before + 1}") if before else chart)
    return found
