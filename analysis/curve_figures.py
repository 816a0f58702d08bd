"""The page's picture of learning curves, one trace a group so that many trials stay light."""

import math

import plotly.graph_objects as go

from analysis import palette
from analysis.curves import LearningCurves
from analysis.drawing import Picture, decade_ticks, safe, style
from analysis.wording import number_text


def curve_picture(curves: LearningCurves, metric: str, unit: str) -> Picture | None:
    """Draw the learning curves, or nothing where no trial has reported."""
    if not curves.curves:
        return None
    figure = go.Figure()
    shades = palette.shades_for([_plain_number(group) for group in curves.groups])
    named = _named_groups(len(curves.groups))
    for index, (group, shade) in enumerate(zip(curves.groups, shades, strict=True)):
        members = [curve for curve in curves.curves if curve.group == group]
        x: list[float | None] = []
        y: list[float | None] = []
        label: list[str] = []
        for curve in members:
            x += [*curve.units, None]
            y += [value if math.isfinite(value) else None for value in curve.values] + [None]
            label += [safe(curve.label)] * (len(curve.units) + 1)
        figure.add_scatter(
            x=x,
            y=y,
            text=label,
            mode="lines" if any(len(curve.units) > 1 for curve in members) else "markers",
            name=safe(_group_name(curves.grouped_by, group)),
            line={"color": shade.light, "width": 1.4},
            marker={"color": shade.light, "size": 6},
            opacity=0.75,
            connectgaps=False,
            showlegend=curves.grouped_by is not None and index in named,
            hovertemplate=f"%{{text}}<br>{safe(unit)} %{{x}}: %{{y:.4g}}<extra></extra>",
        )
    _add_endings(figure, curves)
    style(figure, x_title=safe(unit), y_title=safe(metric), log_y=curves.is_log)
    if curves.is_log:
        drawn = [v for curve in curves.curves for v in curve.values if math.isfinite(v)]
        figure.update_yaxes(**decade_ticks(drawn))
    figure.update_xaxes(rangemode="tozero")
    drawn_lines = len(curves.curves)
    some = (
        f" Shown are {drawn_lines} of {curves.total} trials, spread evenly."
        if drawn_lines < curves.total
        else ""
    )
    coloured = f", coloured by {curves.grouped_by}" if curves.grouped_by else ""
    return Picture(
        "curves",
        "Learning curves",
        f"{metric} of every trial at each report{coloured}; a ring marks a trial stopped early, a "
        f"cross one that diverged or failed.{some}",
        figure,
        is_wide=True,
    )


def _add_endings(figure: go.Figure, curves: LearningCurves) -> None:
    endings = (
        ("stopped early", ("stopped_early",), "circle-open"),
        ("diverged or failed", ("diverged", "failed"), "x-thin-open"),
    )
    for name, statuses, symbol in endings:
        ends = [
            (curve.last, curve.label)
            for curve in curves.curves
            if curve.status in statuses and curve.last is not None
        ]
        if ends:
            figure.add_scatter(
                x=[last[0] for last, _ in ends if last],
                y=[last[1] for last, _ in ends if last],
                text=[safe(label) for _, label in ends],
                mode="markers",
                name=name,
                marker={
                    "symbol": symbol,
                    "size": 8,
                    "color": palette.INK.light,
                    "line": {"width": 1.6, "color": palette.INK.light},
                },
                hovertemplate="%{text}: " + name + "<extra></extra>",
            )


def _named_groups(count: int) -> set[int]:
    """Return which of ``count`` groups the legend names: all up to 12, else every so many."""
    if count <= 12:
        return set(range(count))
    return {round(index * (count - 1) / 7) for index in range(8)}


def _group_name(column: str | None, group: object) -> str:
    if column in (None, "stratum"):
        return str(group)
    value = _plain_number(group)
    return f"{column} = {number_text(value) if isinstance(value, int | float) else value}"


def _plain_number(value: object) -> object:
    """Return numpy's numbers as Python's."""
    return value.item() if hasattr(value, "item") else value
