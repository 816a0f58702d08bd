"""What the page's figures share: their look, escaping, reference lines and intervals.

Every figure has a transparent background and light colours of `palette`, which the page exchanges
for their dark partners. Text that came from data goes through `safe`, because plotly reads a part
of HTML in labels.
"""

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import plotly.graph_objects as go

from analysis.pictures import palette
from analysis.pictures.rows import GridAxis
from analysis.statistics.values import Interval
from analysis.text.numbers import interval_text, number_text, percent_text

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Pick:
    """What a point of a picture stands for, shown when it is clicked.

    Attributes:
        title: the shape or the trial.
        query: text that finds its trials in the table of trials.
        links: names and addresses of its runs' pages.
    """

    title: str
    query: str
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure with what stands around it.

    Attributes:
        name: identifier on the page.
        title: heading.
        caption: one plain sentence that says how to read it.
        figure: the plotly figure.
        is_wide: whether it takes the page's full width.
        picks: what its points stand for. A point's ``customdata`` is a number in this list; where a
            trace's ``meta`` is ``picks``, the page also makes their titles its hover texts.
    """

    name: str
    title: str
    caption: str
    figure: go.Figure
    is_wide: bool = False
    picks: tuple[Pick, ...] = ()


def safe(text: object) -> str:
    """Return text from data so that plotly shows it as it is."""
    return html.escape(str(text), quote=False)


def style(
    figure: go.Figure,
    *,
    x_title: str,
    y_title: str,
    grid: GridAxis | None = None,
    log_y: bool = False,
) -> None:
    """Give a figure the look all of them share."""
    shared = {
        "gridcolor": palette.GRID.light,
        "linecolor": palette.AXIS.light,
        "tickcolor": palette.AXIS.light,
        "zeroline": False,
        "automargin": True,
        "title": {"standoff": 10, "font": {"size": 14}},
    }
    figure.update_layout(
        template="none",
        font={"family": FONT, "size": 13, "color": palette.INK.light},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 8, "r": 12, "t": 12, "b": 8},
        hoverlabel={
            "bgcolor": palette.PAGE.light,
            "bordercolor": palette.AXIS.light,
            "font": {"color": palette.INK.light, "family": FONT, "size": 13},
            "align": "left",
        },
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 12},
            "bgcolor": "rgba(0,0,0,0)",
        },
        dragmode="zoom",
    )
    figure.update_xaxes(
        **shared, showline=True, ticks="outside", showgrid=False, title_text=x_title
    )
    figure.update_yaxes(**shared, showline=False, ticks="", title_text=y_title)
    if log_y:
        figure.update_yaxes(type="log")
    if grid is not None and len(grid.values) <= 24:
        figure.update_xaxes(
            tickvals=grid.positions,
            ticktext=grid.labels,
            range=[grid.positions[0] - 0.45 * grid.step, grid.positions[-1] + 0.45 * grid.step],
        )


def add_level(figure: go.Figure, y: float, colour: str, label: str) -> None:
    """Draw a level across the picture: dashed with its label beside it, or solid without one."""
    figure.add_shape(
        type="line",
        x0=0,
        x1=1,
        xref="paper",
        y0=y,
        y1=y,
        line={"color": colour, "width": 1.4, "dash": "6px,4px" if label else "solid"},
        layer="below",
    )
    if label:
        figure.add_annotation(
            x=1,
            xref="paper",
            xanchor="left",
            xshift=4,
            y=y,
            text=label,
            align="left",
            showarrow=False,
            font={"size": 12, "color": palette.MUTED.light},
        )
        # Beside the picture it covers no data.
        figure.update_layout(margin_r=66)


def add_intervals(
    figure: go.Figure,
    axis: GridAxis,
    intervals: Mapping[Any, Interval],
    colours: Mapping[Any, str],
    name: str,
    *,
    unit: str,
    x_name: str,
    joined: bool = False,
    percent: bool = False,
) -> None:
    """Draw estimates with their intervals at the values of ``axis``, one trace a colour.

    Args:
        figure: where to draw.
        axis: the swept axis.
        intervals: estimate and interval at each of its values.
        colours: the colour at each of them.
        name: name of the traces.
        unit: what the estimates are, in hover texts.
        x_name: what the values are, there.
        joined: whether a line joins the estimates.
        percent: whether they are written as percentages.
    """
    if joined:
        figure.add_scatter(
            x=[axis.at(x) for x in intervals],
            y=[interval.estimate for interval in intervals.values()],
            mode="lines",
            line={"color": palette.GREY.light, "width": 1.5},
            hoverinfo="skip",
            showlegend=False,
        )
    for colour in dict.fromkeys(colours.values()):
        chosen = {x: interval for x, interval in intervals.items() if colours[x] == colour}
        figure.add_scatter(
            x=[axis.at(x) for x in chosen],
            y=[interval.estimate for interval in chosen.values()],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [interval.high - interval.estimate for interval in chosen.values()],
                "arrayminus": [interval.estimate - interval.low for interval in chosen.values()],
                "color": colour,
                "thickness": 1.8,
                "width": 5,
            },
            mode="markers",
            marker={"color": colour, "size": 9},
            name=name,
            showlegend=False,
            text=[
                f"{safe(x_name)} = {number_text(x)}<br>{_said(value, percent)} {safe(unit)}"
                for x, value in chosen.items()
            ],
            hovertemplate="%{text}<extra></extra>",
        )


def _said(interval: Interval, percent: bool) -> str:
    if not percent:
        return interval_text(interval)
    low, high = percent_text(interval.low), percent_text(interval.high)
    return f"{percent_text(interval.estimate)} (95% interval {low} to {high})"


def decade_ticks(values: list[float]) -> dict[str, Any]:
    """Return ticks at whole decades, and at as many values as have room where those are few."""
    positive = [value for value in values if value > 0 and math.isfinite(value)]
    if not positive:
        return {}
    if math.log10(max(positive) / min(positive)) > 2.5:
        return {"dtick": 1, "exponentformat": "power"}
    return {"tickformat": "~g", "nticks": 8}
