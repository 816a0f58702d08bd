"""The page's pictures of effects: gains by axis, two axes together, shapes of equal cost."""

import math

import plotly.graph_objects as go

from analysis.pictures import palette
from analysis.pictures.drawing import Picture, safe, style
from analysis.pictures.rows import GridAxis
from analysis.pictures.shape_rows import (
    EffectRow,
    drawn_interaction,
    effect_rows,
    equal_cost_rows,
)
from analysis.questions.effects.result import EffectsResult, Interaction
from analysis.questions.effects.text import gain_unit, interaction_sentence
from analysis.statistics.values import Interval
from analysis.text.numbers import cost_title, interval_text, number_text, p_text, percent_text


def effect_pictures(result: EffectsResult) -> list[Picture]:
    """Return the pictures, leaving out what has nothing to show."""
    found = []
    if rows := effect_rows(result):
        found.append(gains_picture(result, rows))
    if interaction := drawn_interaction(result):
        found.append(interaction_picture(result, interaction))
    if equal_cost_rows(result):
        found.append(equal_cost_picture(result))
    return found


def gains_picture(result: EffectsResult, rows: list[EffectRow]) -> Picture:
    """Draw each axis' gain and that of its steps, every matched pair a point."""
    figure = go.Figure()
    pairs = [(gain, at, held) for at, row in enumerate(rows) for gain, held in row.gains]
    if pairs:
        figure.add_scatter(
            x=[gain for gain, _, _ in pairs],
            y=[at for _, at, _ in pairs],
            mode="markers",
            name="a matched pair",
            marker={"color": palette.ORANGE.light, "size": 6, "opacity": 0.7, "symbol": "diamond"},
            text=[safe(f"{number_text(gain)} at {held}") for gain, _, held in pairs],
            hovertemplate="%{text}<extra></extra>",
        )
    for established, shade, symbol in (
        (True, palette.BLUE, "circle"),
        (False, palette.GREY, "circle-open"),
    ):
        chosen = [(at, row) for at, row in enumerate(rows) if row.established == established]
        if not chosen:
            continue
        figure.add_scatter(
            x=[row.effect.estimate for _, row in chosen],
            y=[at for at, _ in chosen],
            error_x=_bars([row.effect for _, row in chosen], shade.light),
            mode="markers",
            name="established" if established else "not established",
            marker={
                "color": shade.light,
                "size": [11 if row.is_mean else 8 for _, row in chosen],
                "symbol": symbol,
                "line": {"width": 1.8, "color": shade.light},
            },
            text=[
                f"<b>{safe(row.axis)}</b> {safe(row.label)}<br>"
                f"{interval_text(row.effect, result.settings.confidence)}<br>"
                f"Holm {p_text(row.p_holm)}"
                for _, row in chosen
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    style(figure, x_title="gain (right is better)", y_title="")
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[safe(row.label) for row in rows],
        range=[len(rows) - 0.4, -0.6],
        showgrid=True,
    )
    _zero(figure)
    figure.update_layout(height=max(220, 130 + 26 * len(rows)))
    return Picture(
        "effects",
        f"What each axis does to {result.metric}",
        f"The gain of one step, in {gain_unit(result.metric, result.scale)}, with every other axis "
        "held: each diamond is a pair of shapes that "
        "differ in that step alone, the circle their mean with its "
        f"{percent_text(result.settings.confidence)} interval over seeds; filled blue is told "
        "from 0 (Holm), and the large circles average an axis' steps.",
        figure,
        is_wide=True,
    )


def _bars(intervals: list[Interval], colour: str) -> dict[str, object]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [_or_zero(item.high - item.estimate) for item in intervals],
        "arrayminus": [_or_zero(item.estimate - item.low) for item in intervals],
        "color": colour,
        "thickness": 1.8,
        "width": 4,
    }


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _zero(figure: go.Figure) -> None:
    figure.add_shape(
        type="line",
        x0=0,
        x1=0,
        y0=0,
        y1=1,
        yref="paper",
        line={"color": palette.MUTED.light, "width": 1.4},
        layer="below",
    )


def interaction_picture(result: EffectsResult, found: Interaction) -> Picture:
    """Draw the mean metric along one axis, a line for each value of the other."""
    axis = GridAxis.of([level.first for level in found.levels])
    others = sorted({level.second for level in found.levels})
    shades = palette.ordered_shades(len(others))
    figure = go.Figure()
    for at, (value, shade) in enumerate(zip(others, shades, strict=True)):
        levels = [level for level in found.levels if level.second == value]
        offset = (at - (len(others) - 1) / 2) * min(0.06, 0.3 / len(others)) * axis.step
        figure.add_scatter(
            x=[axis.at(level.first) + offset for level in levels],
            y=[level.metric.estimate for level in levels],
            error_y=_vertical([level.metric for level in levels], shade.light),
            mode="lines+markers",
            name=safe(f"{found.second} = {number_text(value)}"),
            line={"color": shade.light, "width": 2},
            marker={
                "color": shade.light,
                "size": 8,
                "symbol": palette.SYMBOLS[at % len(palette.SYMBOLS)],
            },
            text=[
                f"{safe(found.first)} = {number_text(level.first)}<br>"
                f"{interval_text(level.metric, result.settings.confidence)}"
                for level in levels
            ],
            hovertemplate="%{text}<extra>%{fullData.name}</extra>",
        )
    style(figure, x_title=safe(found.first), y_title=safe(result.metric), grid=axis)
    if result.scale == "error":
        figure.update_yaxes(type="log")
    return Picture(
        "interaction",
        f"{found.first} and {found.second} together",
        f"Mean {result.metric} with its {percent_text(result.settings.confidence)} interval over "
        f"seeds; parallel lines are axes whose gains add up. "
        f"{interaction_sentence(found, result)}",
        figure,
        is_wide=True,
    )


def _vertical(intervals: list[Interval], colour: str) -> dict[str, object]:
    return {**_bars(intervals, colour), "thickness": 1.2, "width": 3}


def equal_cost_picture(result: EffectsResult) -> Picture:
    """Draw how far each shape is behind the best of equal cost."""
    rows = equal_cost_rows(result)
    figure = go.Figure()
    kinds = (
        ("best of its group", palette.BLUE, "star", [row.shape.behind is None for row in rows]),
        ("established as worse", palette.VERMILLION, "circle", [r.shape.established for r in rows]),
        (
            "not told apart",
            palette.GREY,
            "circle-open",
            [r.shape.behind is not None and not r.shape.established for r in rows],
        ),
    )
    for name, shade, symbol, chosen in kinds:
        kept = [(at, row) for at, (row, keep) in enumerate(zip(rows, chosen, strict=True)) if keep]
        if not kept:
            continue
        spans = [row.shape.behind or Interval(0.0, 0.0, 0.0) for _, row in kept]
        figure.add_scatter(
            x=[-span.estimate for span in spans],
            y=[at for at, _ in kept],
            error_x=_bars([Interval(-s.estimate, -s.high, -s.low) for s in spans], shade.light),
            mode="markers",
            name=name,
            marker={
                "color": shade.light,
                "size": 9,
                "symbol": symbol,
                "line": {"width": 1.6, "color": shade.light},
            },
            text=[
                f"<b>{safe(row.label)}</b><br>"
                f"{safe(cost_title(result.cost or ''))}: {row.cost}<br>"
                f"{safe(result.metric)} {number_text(row.shape.metric, 4)}, {row.shape.n} runs"
                + (f"<br>Holm {p_text(row.shape.p_holm)}" if row.shape.behind else "")
                for _, row in kept
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    style(figure, x_title="behind the best (left is worse)", y_title="")
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[safe(row.label) for row in rows],
        range=[len(rows) - 0.4, -0.6],
        showgrid=True,
    )
    for at in range(1, len(rows)):
        if rows[at].group != rows[at - 1].group:
            figure.add_hline(y=at - 0.5, line={"color": palette.AXIS.light, "width": 1})
    _zero(figure)
    figure.update_layout(height=max(220, 130 + 26 * len(rows)))
    left_out = sum(len(group.shapes) for group in result.equal_cost) - len(rows)
    some = f" {left_out} further shapes are in the table only." if left_out else ""
    return Picture(
        "equal-cost",
        f"Shapes of equal {cost_title(result.cost or 'cost')}",
        f"Each block holds shapes within {percent_text(result.settings.tolerance)} of one cost, "
        "cheapest block at the top, and how far they are behind its best in "
        f"{gain_unit(result.metric, result.scale)}; intervals hold for all "
        f"{result.equal_cost_pairs} pairs together.{some}",
        figure,
        is_wide=True,
    )
