"""Charts for pages, drawn by plotly.

Every figure has a transparent background and the light colours of `palette`, which the page
exchanges for their dark partners. Texts of a chart go through `_safe`, because plotly reads a part
of HTML in every text it shows.
"""

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, assert_never

from analysis.charts import palette
from analysis.charts.axes import axis_number, log_ticks
from analysis.charts.chart import (
    Axis,
    AxisName,
    Band,
    Chart,
    Layer,
    Reference,
    Ribbon,
    Series,
    row_labels,
)
from analysis.values import encode

if TYPE_CHECKING:
    import plotly.graph_objects as go

_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_DASHES: Final = {True: "6px,4px", False: "solid"}
_MOST_TICKS: Final = 24
_FEW_UNITS: Final = 8
"""Axes of whole numbers up to this one have a tick at each."""
_LONGEST_ROW: Final = 36
_LONGEST_NARROW_ROW: Final = 26
_CLEAR: Final = "rgba(0,0,0,0)"
_HEIGHT: Final = 360
_ROOM_ABOVE: Final = 100
"""Pixels of a figure that stands alone."""
_NO_EXTRA: Final = "<extra></extra>"
_LAYOUT: Final[dict[str, Any]] = {
    "font": {"family": _FONT, "size": 13, "color": palette.INK.light},
    "paper_bgcolor": _CLEAR,
    "plot_bgcolor": _CLEAR,
    "hoverlabel": {
        "bgcolor": palette.PAGE.light,
        "bordercolor": palette.AXIS.light,
        "font": {"color": palette.INK.light, "family": _FONT, "size": 13},
        "align": "left",
    },
    "showlegend": True,
    "legend": {
        **{"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        **{"font": {"size": 12}, "bgcolor": _CLEAR},
    },
    "dragmode": "zoom",
    "barmode": "overlay",
}
_AXIS: Final[dict[str, Any]] = {
    "gridcolor": palette.GRID.light,
    "linecolor": palette.AXIS.light,
    "tickcolor": palette.AXIS.light,
    "zeroline": False,
    "automargin": True,
}


def plotly_script() -> str:
    from plotly.offline import get_plotlyjs

    # HTML parsers turn CR LF into LF before hashing; the library is written with LF alone.
    return str(get_plotlyjs()).replace("\r\n", "\n")


def figure_json(chart: Chart) -> dict[str, Any]:
    """Return a chart as the JSON of a plotly figure.

    A point's ``customdata`` is its number in `Chart.picks`; where a trace's ``meta`` is ``picks``,
    the page makes their titles the trace's texts.
    """
    labels = [layer for layer in chart.layers if isinstance(layer, Reference) and layer.label]
    layout = {
        **_LAYOUT,
        # A label beside the chart covers no data.
        "margin": {"l": 8, "r": 66 if labels else 12, "t": 12, "b": 8},
        "xaxis": _axis(chart, "x"),
        "yaxis": _axis(chart, "y"),
        "shapes": [],
        "annotations": [],
    }
    if chart.num_rows:
        layout["height"] = max(220, 120 + 21 * chart.num_rows)
        # A long label would leave a phone no room for the figure.
        layout["meta"] = {"narrow_rows": _tick_texts(chart.y, 1, _LONGEST_NARROW_ROW)}
    figure: dict[str, Any] = {"data": [], "layout": layout}
    for layer in chart.layers:
        _add(figure, layer)
    content: dict[str, Any] = encode(figure)
    return content


def standalone_figure(chart: Chart) -> "go.Figure":
    """Return a chart as a figure for notebooks, with a title and a background of its own."""
    import plotly.graph_objects as go

    content = figure_json(chart)
    content["layout"] |= {
        "template": "none",
        "title": {
            **{"text": _safe(chart.title), "x": 0, "xref": "paper", "pad": {"t": 12}},
            **{"y": 1, "yref": "container", "yanchor": "top"},
        },
        # Room for the title, and below it a legend of several rows.
        "margin": content["layout"]["margin"] | {"t": _ROOM_ABOVE},
        "height": content["layout"].get("height", _HEIGHT) + _ROOM_ABOVE,
        "paper_bgcolor": palette.PAGE.light,
        "plot_bgcolor": palette.PAGE.light,
    }
    for trace in content["data"]:
        if trace.get("meta") == "picks":
            trace["text"] = [_safe(chart.picks[pick].title) for pick in trace["customdata"]]
    return go.Figure(content)


def _safe(text: str) -> str:
    """Return text so that plotly shows it as it is."""
    return html.escape(text, quote=False).replace("\n", "<br>")


def _axis(chart: Chart, which: AxisName) -> dict[str, Any]:
    axis, is_x = (chart.x, True) if which == "x" else (chart.y, False)
    content: dict[str, Any] = {
        **_AXIS,
        "title": {"text": _safe(axis.title), "standoff": 10, "font": {"size": 14}},
        "showline": is_x,
        "ticks": "outside" if is_x else "",
        "showgrid": axis.kind == "log" or not is_x,
    }
    values = [getattr(point, which) for series in chart.series for point in series.points]
    if axis.kind == "log":
        content |= {"type": "log", **_log_ticks(axis, values)}
    elif axis.form == "whole" and max(filter(math.isfinite, values), default=0) <= _FEW_UNITS:
        content["dtick"] = 1
    elif axis.form == "cost":
        content |= _cost_format(values)
    if axis.ticks:
        step = math.ceil(len(axis.ticks) / _MOST_TICKS) if axis.kind == "grid" else 1
        content["tickvals"] = [at for at, _ in axis.ticks[::step]]
        content["ticktext"] = _tick_texts(axis, step, _LONGEST_ROW)
    if axis.range is not None:
        content["range"] = [math.log10(end) if axis.kind == "log" else end for end in axis.range]
    elif axis.from_zero:
        content["rangemode"] = "tozero"
    return content


def _tick_texts(axis: Axis, step: int, longest: int) -> list[str]:
    ticks = axis.ticks[::step]
    names = map(_safe, row_labels([name for _, name in ticks], longest))
    return [
        f"<b>{name}</b>" if at in axis.bold else name
        for (at, _), name in zip(ticks, names, strict=True)
    ]


def _log_ticks(axis: Axis, values: Sequence[float]) -> dict[str, Any]:
    """Return ticks at whole decades; on an axis of few decades, at as many values as have room."""
    positive = [value for value in values if 0 < value < math.inf]
    if not positive:
        return {}
    is_cost = axis.form == "cost"
    if not is_cost and max(positive) > 10**2.5 * min(positive):
        low, high = (math.floor(math.log10(end(positive))) for end in (min, max))
        ticks = [10.0**power for power in range(low, high + 2, math.ceil((high - low) / 9))]
    else:
        ticks = log_ticks(*(axis.range or (min(positive), max(positive))), 6)
    zoomed = _cost_format(values) if is_cost else {"exponentformat": "power"}
    texts = [axis_number(axis, tick) for tick in ticks]
    return {"tickvals": ticks, "ticktext": texts, "tickangle": 0, **zoomed}


def _cost_format(values: Sequence[float]) -> dict[str, Any]:
    """Return the number format of a cost's axis without named ticks."""
    is_small = max(values, default=0.0) < 1
    return {"exponentformat": "power"} if is_small else {"tickformat": "~s"}


def _add(figure: dict[str, Any], layer: Layer) -> None:
    traces, shapes = figure["data"], figure["layout"]["shapes"]
    notes = figure["layout"]["annotations"]
    match layer:
        case Series():
            traces.append(_series(layer))
        case Ribbon():
            traces.append(
                {
                    "type": "scatter",
                    "x": [*layer.x, *reversed(layer.x)],
                    "y": [*layer.high, *reversed(layer.low)],
                    "mode": "lines",
                    "line": {"width": 0},
                    "fill": "toself",
                    "fillcolor": layer.shade.light,
                    "opacity": 0.18,
                    "hoverinfo": "skip",
                    "showlegend": False,
                    "legendgroup": _safe(layer.group),
                }
            )
        case Band():
            dashes = {"width": 1.2, "dash": "dash", "color": layer.shade.light}
            shapes.append(
                {
                    **{"type": "rect", "x0": layer.low, "x1": layer.high, "y0": 0, "y1": 1},
                    "yref": "paper",
                    "fillcolor": _CLEAR if layer.is_framed else layer.shade.light,
                    "opacity": 0.7 if layer.is_framed else 0.13,
                    "line": dashes if layer.is_framed else {"width": 0},
                    "layer": "below",
                }
            )
        case Reference():
            along, across = layer.axis, "y" if layer.axis == "x" else "x"
            dash = _DASHES[layer.is_dashed]
            shapes.append(
                {
                    **{"type": "line", f"{along}0": layer.value, f"{along}1": layer.value},
                    **{f"{across}0": 0, f"{across}1": 1, f"{across}ref": "paper"},
                    "line": {"color": layer.shade.light, "width": 1.4, "dash": dash},
                    "layer": "below",
                }
            )
            if layer.label:
                note = _note(_safe(layer.label), 1, layer.value, palette.MUTED)
                notes.append({**note, "xshift": 4, "align": "left"})
        case _:
            assert_never(layer)


def _note(text: str, x: float, y: float, shade: palette.Shade) -> dict[str, Any]:
    """Return a text that begins at a share of the chart's width, at a value of its y axis."""
    place = {"x": x, "xref": "paper", "xanchor": "left", "y": y}
    font = {"size": 12, "color": shade.light}
    return {**place, "text": text, "showarrow": False, "font": font}


def _series(series: Series) -> dict[str, Any]:
    points, colour = series.points, series.shade.light
    has_labels = any(point.label for point in points)
    parts = {"lines": series.line, "markers": series.symbol, "text": has_labels or None}
    trace: dict[str, Any] = {
        "type": "scatter",
        "x": [point.x for point in points],
        "y": [point.y for point in points],
        "mode": "+".join(part for part, look in parts.items() if look is not None),
        "name": _safe(series.name),
        "showlegend": bool(series.name),
        "legendgroup": _safe(series.group or series.name),
    }
    if series.symbol is not None:
        trace["marker"] = {
            "color": colour,
            "size": _shared([point.size for point in points]),
            "opacity": _shared([point.opacity for point in points]),
            "symbol": f"{series.symbol}-open" if series.is_outlined else series.symbol,
            "line": {"width": 1.8 if series.is_outlined else 0, "color": colour},
        }
    if series.line is not None:
        dash, shape = _DASHES[series.line.is_dashed], "hv" if series.line.is_step else "linear"
        trace["line"] = {"color": colour, "width": series.line.width, "dash": dash, "shape": shape}
        trace["opacity"] = series.line.opacity
    if any(point.interval for point in points):
        down, up = zip(*(point.reach(series.interval) for point in points), strict=True)
        ends = {"type": "data", "symmetric": False, "arrayminus": down, "array": up}
        look = {"thickness": 0.8, "width": 0} if series.is_thin else {"thickness": 1.8, "width": 4}
        trace[f"error_{series.interval}"] = {**ends, "color": colour, **look}
    if any(point.pick is not None for point in points):
        trace["customdata"] = [point.pick for point in points]
    if has_labels:
        no_break = "\N{NO-BREAK SPACE}"
        trace["text"] = [f"{no_break}{_safe(point.label)}{no_break}" for point in points]
        trace["textposition"] = [f"middle {point.label_side}" for point in points]
        trace["textfont"] = {"size": 11, "color": palette.MUTED.light}
        trace["cliponaxis"] = False
    if series.hover:
        template = _safe(series.hover).replace("{pick}", "%{text}")
        template = template.replace("{x}", "%{x}").replace("{y}", "%{y:.4~g}")
        uses_picks = "{pick}" in series.hover
        hover = {"hovertemplate": template + _NO_EXTRA} | ({"meta": "picks"} if uses_picks else {})
    elif any(point.hover for point in points):
        hover = _hover([point.hover for point in points])
    else:
        hover = {"hoverinfo": "skip"}
    return trace | hover


def _shared(values: list[float]) -> float | list[float]:
    return values[0] if len(set(values)) == 1 else values


def _hover(texts: Sequence[str]) -> dict[str, Any]:
    """Return the hover texts of points; of several lines the first is a heading."""
    lines = []
    for text in texts:
        first, *rest = map(_safe, text.split("\n"))
        lines.append("<br>".join([f"<b>{first}</b>", *rest]) if rest else first)
    return {"hovertext": lines, "hovertemplate": "%{hovertext}" + _NO_EXTRA}
