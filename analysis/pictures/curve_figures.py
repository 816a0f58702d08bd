"""The page's picture of learning curves, one trace a group so that many trials stay light."""

import math

import plotly.graph_objects as go

from analysis.pictures import palette
from analysis.pictures.curves import Curve, LearningCurves, group_name
from analysis.pictures.drawing import Pick, Picture, decade_ticks, safe, style
from analysis.text.numbers import number_text

_SYMBOLS = {"stopped early": "circle-open", "no number": "x-thin-open"}


def curve_picture(curves: LearningCurves, metric: str, unit: str) -> Picture | None:
    """Draw the learning curves, or nothing where no trial has reported."""
    if not curves.curves:
        return None
    figure = go.Figure()
    numbers = {id(curve): number for number, curve in enumerate(curves.curves)}
    shades = palette.shades_for(curves.groups)
    named = palette.named_groups(len(curves.groups))
    for index, (group, shade) in enumerate(zip(curves.groups, shades, strict=True)):
        members = [curve for curve in curves.curves if curve.group == group]
        x: list[float | None] = []
        y: list[float | None] = []
        which: list[int] = []
        for curve in members:
            x += [*curve.units, None]
            y += [_rounded(value) for value in curve.values] + [None]
            which += [numbers[id(curve)]] * (len(curve.units) + 1)
        figure.add_scatter(
            x=x,
            y=y,
            customdata=which,
            meta="picks",
            mode="lines" if any(len(curve.units) > 1 for curve in members) else "markers",
            name=safe(group_name(curves.grouped_by, group)),
            line={"color": shade.light, "width": 1.4},
            marker={"color": shade.light, "size": 6},
            opacity=0.75,
            connectgaps=False,
            showlegend=curves.grouped_by is not None and index in named,
            hovertemplate=f"%{{text}}<br>{safe(metric)} %{{y:.4g}} at {safe(unit)} %{{x}}"
            "<extra></extra>",
        )
    for name, ends in curves.endings().items():
        _add_endings(figure, name, ends, numbers)
    style(figure, x_title=safe(unit), y_title=safe(metric), log_y=curves.is_log)
    if curves.is_log:
        drawn = [v for curve in curves.curves for v in curve.values if math.isfinite(v)]
        figure.update_yaxes(**decade_ticks(drawn))
    figure.update_xaxes(rangemode="tozero")
    drawn_lines = len(curves.curves)
    some = (
        f" Shown are {drawn_lines} of {number_text(curves.total)} trials, spread evenly."
        if drawn_lines < curves.total
        else ""
    )
    coloured = f", coloured by {curves.grouped_by}" if curves.grouped_by else ""
    ended = (
        "; a ring marks a trial stopped early, a cross one that diverged, failed or was too large"
    )
    return Picture(
        "curves",
        "Learning curves",
        f"{metric} of every trial at each report{coloured}{ended if curves.endings() else ''}."
        f"{some}",
        figure,
        is_wide=True,
        picks=tuple(Pick(curve.label, curve.query, curve.links) for curve in curves.curves),
    )


def _rounded(value: float) -> float | None:
    """Return as many digits as a picture shows; None where there is no value."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _add_endings(figure: go.Figure, name: str, ends: list[Curve], numbers: dict[int, int]) -> None:
    last = [curve.last or (math.nan, math.nan) for curve in ends]
    figure.add_scatter(
        x=[unit for unit, _ in last],
        y=[_rounded(value) for _, value in last],
        customdata=[numbers[id(curve)] for curve in ends],
        meta="picks",
        mode="markers",
        name=name,
        marker={
            "symbol": _SYMBOLS[name],
            "size": 8,
            "color": palette.INK.light,
            "line": {"width": 1.6, "color": palette.INK.light},
        },
        hovertemplate=f"%{{text}}: {name}<extra></extra>",
    )
