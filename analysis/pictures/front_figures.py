"""The page's pictures of shapes: metric against cost with its front, and the candidates' forest."""

import math
from collections.abc import Sequence
from typing import Final

import pandas as pd
import plotly.graph_objects as go

from analysis.pictures import palette
from analysis.pictures.drawing import Pick, Picture, safe, style
from analysis.pictures.rows import (
    Comparison,
    ForestBlock,
    FrontPoint,
    forest_blocks,
    front_points,
    mean_front,
    query_text,
    side_by_side,
)
from analysis.pictures.ticks import cost_text, log_ticks
from analysis.questions.lean.result import LeanRow
from analysis.questions.pareto.result import FrontClass, ParetoResult
from analysis.questions.pareto.text import CLASS_NAMES
from analysis.text.numbers import (
    cost_title,
    cost_unit,
    interval_text,
    number_text,
    p_text,
    percent_text,
    setting_text,
)

_MANY: Final = 60
_CLASS_SYMBOLS: dict[FrontClass, str] = {"on": "circle", "undecided": "diamond", "off": "square"}


def front_pictures(
    pareto: ParetoResult, comparisons: Sequence[Comparison], trials: pd.DataFrame
) -> list[Picture]:
    """Return one picture a cost, leaving out costs that no shape has."""
    pictures = []
    for cost in pareto.costs:
        points = front_points(pareto, cost, comparisons, trials)
        if points:
            pictures.append(_front_picture(pareto, cost, points))
    return pictures


def _front_picture(pareto: ParetoResult, cost: str, points: list[FrontPoint]) -> Picture:
    figure = go.Figure()
    if len(pareto.costs) == 1:
        corners = mean_front(points, pareto.goal)
        figure.add_scatter(
            x=[x for x, _ in corners],
            y=[y for _, y in corners],
            mode="lines",
            line={"color": palette.BLUE.light, "width": 1.4, "shape": "hv"},
            opacity=0.6,
            name="mean front",
            hoverinfo="skip",
        )
    places = side_by_side(points)
    for class_, name in CLASS_NAMES.items():
        members = [at for at, point in enumerate(points) if point.class_ == class_]
        if members:
            _add_class(figure, points, places, members, name, pareto.metric)
    _mark_roles(figure, points, places)
    style(figure, x_title=cost_axis(cost), y_title=safe(pareto.metric))
    logarithmic_costs(figure, places)
    better = "lower" if pareto.goal == "min" else "higher"
    joint = ", all costs taken together" if len(pareto.costs) > 1 else ""
    tied = "; shapes of equal cost stand side by side" if places != [p.cost for p in points] else ""
    crossed = (
        ""
        if not any(point.has_losses for point in points)
        else ("; a cross marks a shape whose mean is that of the runs left, as others were lost")
    )
    return Picture(
        f"front-{pareto.costs.index(cost)}",
        f"{pareto.metric} against {cost_title(cost)}",
        f"Each point is one shape with its {percent_text(pareto.settings.confidence)} interval "
        f"over seeds; left and {better} is better, and the fainter a point the smaller P(front), "
        f"the chance that nothing beats it{joint}{tied}{crossed}. Click a point for its runs.",
        figure,
        is_wide=True,
        picks=tuple(Pick(point.label, point.query, point.links) for point in points),
    )


def logarithmic_costs(figure: go.Figure, costs: Sequence[float]) -> None:
    """Make the axis of costs logarithmic, if they all are above 0, with room for its labels."""
    figure.update_xaxes(showgrid=True)
    if not costs or min(costs) <= 0:
        return
    low, high = math.log10(min(costs)), math.log10(max(costs))
    room = max(0.06 * (high - low), 0.02)
    ends = [low - room, high + room]
    ticks = log_ticks(10 ** ends[0], 10 ** ends[1], 6)
    figure.update_xaxes(
        type="log",
        range=ends,
        tickvals=ticks,
        ticktext=[cost_text(tick) for tick in ticks],
        tickformat="~s",
        tickangle=0,
    )


def cost_axis(cost: str) -> str:
    """Return the title of an axis of costs."""
    unit = cost_unit(cost)
    return safe(f"{cost_title(cost)} ({unit + ', ' if unit else ''}log scale)")


def _add_class(
    figure: go.Figure,
    every: list[FrontPoint],
    places: list[float],
    members: list[int],
    name: str,
    metric: str,
) -> None:
    points = [every[at] for at in members]
    class_ = points[0].class_
    colour = palette.CLASS_SHADES[class_].light
    size = 11 if len(every) <= _MANY else 7
    # One trace a point would be the only way to fade each error bar with its point; they are
    # thin and share the trace's colour instead.
    figure.add_scatter(
        x=[places[at] for at in members],
        y=[point.ci.estimate for point in points],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [point.ci.high - point.ci.estimate for point in points],
            "arrayminus": [point.ci.estimate - point.ci.low for point in points],
            "color": colour,
            "thickness": 0.8,
            "width": 0,
        },
        mode="markers",
        name=name,
        marker={
            "color": colour,
            "size": size,
            "symbol": _CLASS_SYMBOLS[class_],
            "opacity": [point.opacity for point in points],
            "line": {"width": 0},
        },
        text=[_hover(point, metric) for point in points],
        customdata=members,
        hovertemplate="%{text}<extra></extra>",
    )


def _hover(point: FrontPoint, metric: str) -> str:
    role = f" ({point.role})" if point.role else ""
    lines = [
        f"<b>{safe(point.label)}</b>{role}",
        f"{safe(metric)} {interval_text(point.ci)}",
        f"P(front) {number_text(point.p_front, 2)}, {CLASS_NAMES[point.class_]}",
        *(safe(line) for line in point.details),
    ]
    return "<br>".join(lines)


def _mark_roles(figure: go.Figure, points: list[FrontPoint], places: list[float]) -> None:
    pairs = list(zip(points, places, strict=True))
    for role, symbol, marked in (
        ("baseline", "circle-open", [pair for pair in pairs if pair[0].role == "baseline"]),
        ("chosen", "star-open", [pair for pair in pairs if pair[0].role == "chosen"]),
        ("runs lost", "x-thin-open", [pair for pair in pairs if pair[0].has_losses]),
    ):
        if marked:
            figure.add_scatter(
                x=[place for _, place in marked],
                y=[point.ci.estimate for point, _ in marked],
                mode="markers",
                name=role,
                marker={
                    "symbol": symbol,
                    "size": 11 if role == "runs lost" else 20,
                    "color": palette.INK.light,
                    "line": {"width": 1.8, "color": palette.INK.light},
                },
                hoverinfo="skip",
            )


def forest_picture(comparisons: Sequence[Comparison]) -> Picture | None:
    """Draw every candidate's difference to its baseline against the margin, a block a group."""
    blocks = forest_blocks(comparisons)
    if not blocks:
        return None
    figure = go.Figure()
    lines = [line for block in blocks for line in _lines(block)]
    candidates = [(at, *line) for at, line in enumerate(lines) if line is not None]
    groups = (
        ("established", palette.BLUE, "circle"),
        ("undecided", palette.GREY, "circle-open"),
        ("excluded", palette.GREY, "x-thin-open"),
    )
    for name, shade, symbol in groups:
        kept = [at for at, (_, _, row, _) in enumerate(candidates) if row.outcome == name]
        if kept:
            _add_candidates(figure, candidates, kept, name, shade.light, symbol)
    metric = blocks[0].result.metric
    style(figure, x_title=f"difference in {safe(metric)} (right is better)", y_title="")
    figure.update_yaxes(
        tickvals=[at for at, *_ in candidates],
        ticktext=[safe(_shortened(label)) for *_, label in candidates],
        range=[len(lines) - 0.4, -0.6],
        showgrid=True,
    )
    _add_headings(figure, blocks)
    margin = blocks[0].result.margin
    figure.update_xaxes(range=_forest_range(margin, [row for _, _, row, _ in candidates]))
    for x, dash in ((-margin, "6px,4px"), (0.0, "solid")):
        figure.add_shape(
            type="line",
            x0=x,
            x1=x,
            y0=0,
            y1=1,
            yref="paper",
            line={"color": palette.MUTED.light, "width": 1.4, "dash": dash},
            layer="below",
        )
    figure.update_layout(height=max(220, 110 + 26 * len(lines)))
    return Picture(
        "forest",
        "Candidates against the baseline",
        _forest_caption(blocks),
        figure,
        is_wide=True,
        picks=tuple(Pick(row.label, query_text(row.config)) for _, _, row, _ in candidates),
    )


def _lines(block: ForestBlock) -> list[tuple[ForestBlock, LeanRow, str] | None]:
    """Return the block's lines in the picture; None is its heading."""
    rows = [(block, row, label) for row, label in zip(block.rows, block.labels, strict=True)]
    return [*([None] if block.heading else []), *rows]


def _add_headings(figure: go.Figure, blocks: list[ForestBlock]) -> None:
    at = 0
    for block in blocks:
        if block.heading:
            figure.add_annotation(
                x=0,
                xref="paper",
                xanchor="left",
                y=at,
                text=f"<b>{safe(_shortened(block.heading, 60))}</b>",
                showarrow=False,
                bgcolor=palette.PAGE.light,
                borderpad=1,
                font={"size": 12, "color": palette.INK.light},
            )
        at += len(_lines(block))


def _forest_caption(blocks: list[ForestBlock]) -> str:
    lean = blocks[0].result
    shape = f" ({' · '.join(blocks[0].axes)})" if not blocks[0].heading else ""
    whom = "the baseline of its group" if blocks[0].heading else "the baseline"
    tried = sum(len(block.result.table) for block in blocks)
    left_out = tried - sum(len(block.rows) for block in blocks)
    over = f"over {tried} candidates" if not blocks[0].heading else "within each group"
    some = f" {left_out} further candidates are in the table only." if left_out else ""
    return (
        f"Difference of each cheaper shape{shape} to {whom} with its "
        f"{percent_text(lean.settings.confidence)} interval, cheapest at the top; the dashed line "
        f"is the margin of {number_text(-lean.margin)}; filled blue points are established to lie "
        f"right of it, crosses are excluded (shown to lie left of it), and open circles are "
        f"undecided (Holm {over}).{some}"
    )


def _forest_range(margin: float, rows: list[LeanRow]) -> list[float]:
    ends = [-margin, 0.0]
    for row in rows:
        ends += [end for end in (row.diff, row.ci.low, row.ci.high) if math.isfinite(end)]
    room = 0.05 * (max(ends) - min(ends))
    return [min(ends) - room, max(ends) + room]


def _shortened(text: str, longest: int = 36) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _add_candidates(
    figure: go.Figure,
    candidates: list[tuple[int, ForestBlock, LeanRow, str]],
    kept: list[int],
    name: str,
    colour: str,
    symbol: str,
) -> None:
    rows = [candidates[at][2] for at in kept]
    figure.add_scatter(
        x=[row.diff for row in rows],
        y=[candidates[at][0] for at in kept],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [_or_zero(row.ci.high - row.diff) for row in rows],
            "arrayminus": [_or_zero(row.diff - row.ci.low) for row in rows],
            "color": colour,
            "thickness": 1.8,
            "width": 4,
        },
        mode="markers",
        name=name,
        marker={
            "color": colour,
            "size": 9,
            "symbol": symbol,
            "line": {"width": 1.8, "color": colour},
        },
        customdata=kept,
        text=[_candidate_text(candidates[at][1], candidates[at][2]) for at in kept],
        hovertemplate="%{text}<extra></extra>",
    )


def _candidate_text(block: ForestBlock, row: LeanRow) -> str:
    lean = block.result
    saved = ", ".join(
        f"{percent_text(round(share, 3))} of {cost_title(cost)}"
        for cost, share in row.saving.items()
        if math.isfinite(share)
    )
    chosen = " (chosen)" if row.label == lean.choice else ""
    lines = [
        f"<b>{safe(row.label)}</b>{chosen}",
        f"difference in {safe(lean.metric)} {interval_text(row.ci, lean.settings.confidence)}",
        f"Holm {p_text(row.p_holm)}, {row.n} run{'' if row.n == 1 else 's'}{row.lost.behind}",
        *([f"saves {safe(saved)}"] if saved else []),
        row.outcome,
        *([f"best setting: {safe(setting_text(row.setting))}"] if row.setting else []),
    ]
    return "<br>".join(lines)


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0
