"""Charts for pages, in plotly.

Every figure has a transparent background and the light colours of `palette`, which the page
exchanges for their dark partners. Texts of a chart go through `_safe`, because plotly reads a part
of HTML in every text it shows.
"""

import html
import json
import math
from collections.abc import Sequence
from typing import Any, Final, assert_never

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from analysis.charts import palette
from analysis.charts.axes import log_ticks, short_cost, tick_text
from analysis.charts.chart import (
    Axis,
    AxisName,
    Band,
    Bars,
    Chart,
    Dash,
    Heading,
    Layer,
    Reference,
    Ribbon,
    Series,
    shortened,
)

_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_DASHES: Final[dict[Dash, str]] = {
    "solid": "solid",
    "dash": "6px,4px",
    "long": "8px,3px",
    "dot": "3px,3px",
}
_MOST_TICKS: Final = 24
_FEW_UNITS: Final = 8
"""Up to which every whole number has a tick."""
_LONGEST_ROW: Final = 36
_LONGEST_HEADING: Final = 60
_CLEAR: Final = "rgba(0,0,0,0)"
_RIBBON: Final = 0.18
"""Opacity of what lies between two lines."""
_HEIGHT: Final = 360
_ROOM_ABOVE: Final = 100
"""Pixels of a figure that stands alone."""
_NO_EXTRA: Final = "<extra></extra>"


def plotly_script() -> str:
    # HTML parsers turn CR LF into LF before hashing; the library is written with LF alone.
    return str(get_plotlyjs()).replace("\r\n", "\n")


def figure_json(chart: Chart) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(plotly_figure(chart).to_json())
    return content


def plotly_figure(chart: Chart) -> go.Figure:
    """Return a chart as a plotly figure.

    A point's ``customdata`` is its number in `Chart.picks`; where a trace's ``meta`` is ``picks``,
    the page makes their titles the trace's texts.
    """
    figure = go.Figure()
    figure.update_layout(_layout(chart))
    figure.update_xaxes(_axis(chart, "x"))
    figure.update_yaxes(_axis(chart, "y"))
    for layer in chart.layers:
        _add(figure, layer)
    return figure


def standalone_figure(chart: Chart) -> go.Figure:
    """Return a chart as a figure that needs no page around it: with its title, its own background
    and the names of what its points stand for."""
    figure = plotly_figure(chart)
    figure.update_layout(
        title={
            **{"text": _safe(chart.title), "x": 0, "xref": "paper", "pad": {"t": 12}},
            **{"y": 1, "yref": "container", "yanchor": "top"},
        },
        # Room for the title, and below it a legend of several rows.
        margin={"t": _ROOM_ABOVE},
        height=(figure.layout.height or _HEIGHT) + _ROOM_ABOVE,
        paper_bgcolor=palette.PAGE.light,
        plot_bgcolor=palette.PAGE.light,
    )
    for trace in figure.data:
        if trace.meta == "picks":
            trace.text = [_safe(chart.picks[pick].title) for pick in trace.customdata]
    return figure


def _safe(text: str) -> str:
    """Return text so that plotly shows it as it is."""
    return html.escape(text, quote=False).replace("\n", "<br>")


def _layout(chart: Chart) -> dict[str, Any]:
    hover_font = {"color": palette.INK.light, "family": _FONT, "size": 13}
    labels = [each.label for each in chart.layers if isinstance(each, Reference) and each.label]
    layout = {
        "template": "none",
        "font": {"family": _FONT, "size": 13, "color": palette.INK.light},
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        # A label beside the chart covers no data.
        "margin": {"l": 8, "r": 66 if labels else 12, "t": 12, "b": 8},
        "hoverlabel": {
            "bgcolor": palette.PAGE.light,
            "bordercolor": palette.AXIS.light,
            "font": hover_font,
            "align": "left",
        },
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 12},
            "bgcolor": _CLEAR,
        },
        "dragmode": "zoom",
        "barmode": "overlay",
    }
    if chart.num_rows:
        layout["height"] = max(220, 130 + 26 * chart.num_rows)
    return layout


def _axis(chart: Chart, which: AxisName) -> dict[str, Any]:
    axis = chart.x if which == "x" else chart.y
    is_x = which == "x"
    found: dict[str, Any] = {
        "title": {"text": _safe(axis.title), "standoff": 10, "font": {"size": 14}},
        "gridcolor": palette.GRID.light,
        "linecolor": palette.AXIS.light,
        "tickcolor": palette.AXIS.light,
        "zeroline": False,
        "automargin": True,
        "showline": is_x,
        "ticks": "outside" if is_x else "",
        "showgrid": axis.kind == "log" or not is_x,
    }
    values = [getattr(point, which) for series in chart.series for point in series.points]
    if axis.kind == "log":
        found |= {"type": "log", **_log_ticks(axis, values)}
    elif axis.form == "percent":
        found["tickformat"] = ".0%"
    elif axis.form == "whole" and max(filter(math.isfinite, values), default=0) <= _FEW_UNITS:
        found["dtick"] = 1
    elif axis.form == "cost":
        found |= _cost_format(values)
    if axis.ticks:
        every = math.ceil(len(axis.ticks) / _MOST_TICKS) if axis.kind == "grid" else 1
        shown = axis.ticks[::every]
        found["tickvals"] = [at for at, _ in shown]
        found["ticktext"] = [_row_name(axis, at, name) for at, name in shown]
    if axis.range is not None:
        is_log = axis.kind == "log"
        found["range"] = [math.log10(end) if is_log else end for end in axis.range]
    elif axis.from_zero:
        found["rangemode"] = "tozero"
    return found


def _row_name(axis: Axis, at: float, name: str) -> str:
    shown = _safe(shortened(name, _LONGEST_ROW))
    return f"<b>{shown}</b>" if at in axis.bold else shown


def _log_ticks(axis: Axis, values: Sequence[float]) -> dict[str, Any]:
    """Return ticks at whole decades, and at as many values as have room where those are few."""
    positive = [value for value in values if 0 < value < math.inf]
    if not positive:
        return {}
    if axis.form != "cost" and max(positive) > 10**2.5 * min(positive):
        low, high = (math.floor(math.log10(end(positive))) for end in (min, max))
        ticks = [10.0**power for power in range(low, high + 2, math.ceil((high - low) / 9))]
    else:
        ticks = log_ticks(*(axis.range or (min(positive), max(positive))), 6)
    write = short_cost if axis.form == "cost" else tick_text
    zoomed = _cost_format(values) if axis.form == "cost" else {"exponentformat": "power"}
    return {"tickvals": ticks, "ticktext": [write(tick) for tick in ticks], "tickangle": 0} | zoomed


def _cost_format(values: Sequence[float]) -> dict[str, Any]:
    """Return how numbers of a cost are written that have no name of their own."""
    is_small = max(values, default=0.0) < 1
    return {"exponentformat": "power"} if is_small else {"tickformat": "~s"}


def _add(figure: go.Figure, layer: Layer) -> None:
    match layer:
        case Series():
            _add_series(figure, layer)
        case Bars():
            _add_bars(figure, layer)
        case Band():
            _add_band(figure, layer)
        case Ribbon():
            figure.add_scatter(
                x=[*layer.x, *reversed(layer.x)],
                y=[*layer.high, *reversed(layer.low)],
                mode="lines",
                line={"width": 0},
                fill="toself",
                fillcolor=layer.shade.light,
                opacity=_RIBBON,
                hoverinfo="skip",
                showlegend=False,
                legendgroup=_safe(layer.group),
            )
        case Reference():
            _add_reference(figure, layer)
        case Heading():
            figure.add_annotation(
                x=0,
                xref="paper",
                xanchor="left",
                y=layer.row,
                text=f"<b>{_safe(shortened(layer.text, _LONGEST_HEADING))}</b>",
                showarrow=False,
                bgcolor=palette.PAGE.light,
                borderpad=1,
                font={"size": 12, "color": palette.INK.light},
            )
        case _:
            assert_never(layer)


def _add_series(figure: go.Figure, series: Series) -> None:
    points, colour = series.points, series.shade.light
    has_labels = any(point.label for point in points)
    parts = ["lines"] * (series.line is not None) + ["markers"] * (series.symbol is not None)
    trace: dict[str, Any] = {
        "x": [point.x for point in points],
        "y": [point.y for point in points],
        "mode": "+".join([*parts, *["text"] * has_labels]),
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
        dash, shape = _DASHES[series.line.dash], "hv" if series.line.is_step else "linear"
        trace["line"] = {"color": colour, "width": series.line.width, "dash": dash, "shape": shape}
        trace["opacity"] = series.line.opacity
    if any(point.interval for point in points):
        trace[f"error_{series.interval}"] = {
            "type": "data",
            "symmetric": False,
            "arrayminus": [point.reach(series.interval)[0] for point in points],
            "array": [point.reach(series.interval)[1] for point in points],
            "color": colour,
            "thickness": 0.8 if series.is_thin else 1.8,
            "width": 0 if series.is_thin else 4,
        }
    if any(point.pick is not None for point in points):
        trace["customdata"] = [point.pick for point in points]
    if has_labels:
        no_break = "\N{NO-BREAK SPACE}"
        trace["text"] = [f"{no_break}{_safe(point.label)}{no_break}" for point in points]
        trace["textposition"] = [f"middle {point.label_side}" for point in points]
        trace["textfont"] = {"size": 11, "color": palette.MUTED.light}
        trace["cliponaxis"] = False
    figure.add_scatter(**trace, **_hover(series))


def _shared(values: list[float]) -> float | list[float]:
    return values[0] if len(set(values)) == 1 else values


def _hover(series: Series) -> dict[str, Any]:
    if series.hover:
        template = _safe(series.hover).replace("{pick}", "%{text}")
        template = template.replace("{x}", "%{x}").replace("{y}", "%{y:.4~g}")
        uses_picks = "{pick}" in series.hover
        return {"hovertemplate": template + _NO_EXTRA} | ({"meta": "picks"} if uses_picks else {})
    if not any(point.hover for point in series.points):
        return {"hoverinfo": "skip"}
    texts = [_hover_text(point.hover) for point in series.points]
    return {"hovertext": texts, "hovertemplate": "%{hovertext}" + _NO_EXTRA}


def _hover_text(text: str) -> str:
    """Return a hover text; of several lines the first is a heading."""
    first, *rest = text.split("\n")
    return "<br>".join([f"<b>{_safe(first)}</b>", *map(_safe, rest)]) if rest else _safe(first)


def _add_bars(figure: go.Figure, bars: Bars) -> None:
    figure.add_bar(
        x=bars.x,
        y=bars.heights,
        marker_color=[shade.light for shade in bars.shades],
        width=bars.width,
        name=_safe(bars.name),
        showlegend=bool(bars.name),
        text=[_safe(note) for note in bars.notes],
        textposition="outside",
        textangle=0,
        constraintext="none",
        textfont={"size": 12, "color": palette.INK.light},
        cliponaxis=False,
        hovertext=[_hover_text(text) for text in bars.hover],
        hovertemplate="%{hovertext}" + _NO_EXTRA,
    )


def _add_band(figure: go.Figure, band: Band) -> None:
    dashes = {"width": 1.2, "dash": "dash", "color": band.shade.light}
    figure.add_shape(
        type="rect",
        x0=band.low,
        x1=band.high,
        y0=0,
        y1=1,
        yref="paper",
        fillcolor=_CLEAR if band.is_framed else band.shade.light,
        opacity=0.7 if band.is_framed else 0.13,
        line=dashes if band.is_framed else {"width": 0},
        layer="below",
    )


def _add_reference(figure: go.Figure, reference: Reference) -> None:
    along, across = reference.axis, "y" if reference.axis == "x" else "x"
    dash = _DASHES["dash" if reference.is_dashed else "solid"]
    ends: dict[str, Any] = {f"{along}0": reference.value, f"{along}1": reference.value}
    ends |= {f"{across}0": 0, f"{across}1": 1, f"{across}ref": "paper"}
    line = {"color": reference.shade.light, "width": 1.4, "dash": dash}
    figure.add_shape(type="line", layer="below", line=line, **ends)
    if reference.label:
        figure.add_annotation(
            x=1,
            xref="paper",
            xanchor="left",
            xshift=4,
            y=reference.value,
            text=_safe(reference.label),
            align="left",
            showarrow=False,
            font={"size": 12, "color": palette.MUTED.light},
        )
