"""A chart as a value: marks and lines in the data's units, which back ends draw.

Every text is plain, back ends escape it. A line break in a text is one in the drawing. Sizes and
widths are pixels of the page; print scales them.
"""

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from analysis.charts import palette
from analysis.charts.palette import Shade
from analysis.statistics.values import Interval

AxisName = Literal["x", "y"]
Symbol = Literal[
    "circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "star", "x-thin"
]
SYMBOLS: tuple[Symbol, ...] = (
    *("circle", "square", "diamond", "triangle-up"),
    *("cross", "triangle-down", "star"),
)
"""The symbols that tell groups apart, in the order in which they are used."""
Look = TypeVar("Look", bound=Hashable)


def symbol_of(index: int) -> Symbol:
    return SYMBOLS[index % len(SYMBOLS)]


@dataclass(frozen=True, slots=True)
class Pick:
    """The trials behind a point, shown when the point is clicked.

    Attributes:
        at: names and values that all of these trials share.
        links: names and addresses of its runs' pages (`analysis.charts.picks.link_runs`).
    """

    title: str
    at: tuple[tuple[str, object], ...]
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        kind: ``grid`` has named positions and no lines at them; ``rows`` has one named row below
            the other and is vertical.
        form: how its numbers are written; ``cost`` with a unit prefix, ``whole`` without decimals.
        ticks: positions with their names; a log or number axis without any chooses its own.
        bold: positions whose names are in bold.
        range: its ends, exchanged where it runs downwards; None fits the data.
        from_zero: whether a fitted axis begins at 0.
    """

    title: str
    kind: Literal["number", "log", "grid", "rows"] = "number"
    form: Literal["number", "cost", "whole"] = "number"
    ticks: tuple[tuple[float, str], ...] = ()
    bold: frozenset[float] = frozenset()
    range: tuple[float, float] | None = None
    from_zero: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """One point of a series; where x or y is NaN, the line that joins the series breaks.

    Attributes:
        interval: drawn from the point to both ends; an unknown end is not drawn.
        hover: text that the page shows beside the point; the first of several lines is a heading.
        pick: number of the trials behind the point in `Chart.picks`.
        size: the diameter of its symbol.
        label: its name beside it.
    """

    x: float
    y: float
    interval: Interval | None = None
    hover: str = ""
    pick: int | None = None
    size: float = 9.0
    opacity: float = 1.0
    label: str = ""
    label_side: Literal["left", "right"] = "right"

    def reach(self, along: AxisName) -> tuple[float, float]:
        """Return the distances from the point to its interval's ends; 0 for an unknown end."""
        if self.interval is None:
            return 0.0, 0.0
        value = self.x if along == "x" else self.y
        ends = value - self.interval.low, self.interval.high - value
        down, up = (max(0.0, end) if math.isfinite(end) else 0.0 for end in ends)
        return down, up


@dataclass(frozen=True, slots=True)
class Stroke:
    """The line that joins the points of a series; ``is_step``: it goes right, then up or down."""

    width: float = 2.0
    is_dashed: bool = False
    is_step: bool = False
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one colour, with or without intervals, symbols and a line that joins them.

    Attributes:
        name: its name in the legend; empty for none.
        group: series of one group are shown and hidden together on the page; its name by default.
        symbol: None draws no symbols.
        line: None draws no line.
        interval: the axis along which intervals lie.
        is_thin: whether intervals are thin and have no caps, for many points.
        hover: text that the page shows beside points without one of their own: ``{pick}`` is the
            title of the trials behind a point, ``{x}`` and ``{y}`` are its values.
    """

    points: tuple[Mark, ...]
    shade: Shade
    name: str = ""
    group: str = ""
    symbol: Symbol | None = "circle"
    is_open: bool = False
    line: Stroke | None = None
    interval: AxisName = "y"
    is_thin: bool = False
    hover: str = ""

    @property
    def is_outlined(self) -> bool:
        return self.is_open or self.symbol == "x-thin"


@dataclass(frozen=True, slots=True)
class Band:
    """A part of the horizontal axis: shaded, or framed by dashes."""

    low: float
    high: float
    shade: Shade
    is_framed: bool = False


@dataclass(frozen=True, slots=True)
class Ribbon:
    """The area between two lines over x, shown and hidden with the series of its group."""

    x: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    shade: Shade
    group: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A line through the whole chart at a value of an axis; its name stands beside the chart."""

    axis: AxisName
    value: float
    shade: Shade = palette.MUTED
    is_dashed: bool = False
    label: str = ""


Layer = Series | Band | Ribbon | Reference


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its axes, title, caption and legend.

    Attributes:
        name: identifier on the page and name of its files.
        layers: series, bands, lines and headings; later ones are drawn on top.
        is_wide: whether it takes the page's full width.
        key: how its labels read, in few words; stands above the chart in print, which has no
            caption.
        legend: where print puts the legend; a chart of rows has none there.
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
    legend: Literal["inside", "beside"] = "inside"

    @property
    def series(self) -> tuple[Series, ...]:
        return tuple(layer for layer in self.layers if isinstance(layer, Series))

    def at(self, axis: str, value: object) -> "Chart":
        """Return the chart under the name and title of one value of an axis, which the trials
        behind its points share."""
        name, at = f"{axis} = {value}", ((axis, value),)
        file_name = re.sub(r"\W+", "-", name).strip("-")
        return replace(
            self,
            name=f"{self.name}-{file_name}",
            title=f"{self.title}, {name}",
            picks=tuple(replace(pick, at=(*pick.at, *at)) for pick in self.picks),
        )

    @property
    def num_rows(self) -> int:
        """Rows of a chart of rows; 0 for any other."""
        if self.y.kind == "rows" and self.y.range is not None:
            return round(self.y.range[0] + 0.4)
        return 0


def by_look(looks: Mapping[Look, Series], points: Iterable[tuple[Look, Mark]]) -> list[Series]:
    """Return one series for each look that any point has, in the order of the looks, which are
    series without points."""
    members: dict[Look, list[Mark]] = {}
    for look, point in points:
        members.setdefault(look, []).append(point)
    return [
        replace(series, points=tuple(members[look]))
        for look, series in looks.items()
        if look in members
    ]


def uniquely_named(charts: Sequence[Chart]) -> list[Chart]:
    """Return the charts, with a number added to a name that an earlier chart has."""
    named: list[Chart] = []
    for chart in charts:
        before = sum(chart.name == other.name for other in charts[: len(named)])
        named.append(replace(chart, name=f"{chart.name}-{before + 1}") if before else chart)
    return named


def shortened(text: str, longest: int) -> str:
    """Return the text, with its middle left out where it is too long for the chart."""
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail]}…{text[-tail:]}"


_AXIS_NAME: Final = re.compile(r"([^\s=,]+)=")


def row_labels(names: Sequence[str], longest: int) -> list[str]:
    """Return labels of rows, all in full or none: where one is too long, axes keep as many letters
    of their names as tell them apart (``h=8 k=1`` for ``heads=8 kv_heads=1``), so that values
    stay."""
    if all(len(name) <= longest for name in names):
        return list(names)
    axes = set(_AXIS_NAME.findall(" ".join(names)))

    def letters(match: re.Match[str]) -> str:
        others = axes - {match[1]}
        starts = (match[1][:end] for end in range(1, len(match[1])))
        free = (start for start in starts if not any(name.startswith(start) for name in others))
        return f"{next(free, match[1])}="

    return [shortened(_AXIS_NAME.sub(letters, name), longest) for name in names]
