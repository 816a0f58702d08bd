"""The page's pictures of shapes: metric against cost with its front, and the candidates' forest."""

import math

import pandas as pd
import plotly.graph_objects as go

from analysis import palette
from analysis.drawing import Picture, safe, style
from analysis.pictures import (
    FrontPoint,
    forest_rows,
    front_points,
    mean_front,
    short_label,
    varying_axes,
)
from analysis.results import FrontClass, LeanResult, LeanRow, ParetoResult
from analysis.wording import (
    cost_title,
    cost_unit,
    interval_text,
    number_text,
    p_text,
    percent_text,
)

_CLASS_NAMES: dict[FrontClass, str] = {
    "on": "on the front",
    "undecided": "undecided",
    "off": "off the front",
}
_CLASS_SYMBOLS: dict[FrontClass, str] = {"on": "circle", "undecided": "diamond", "off": "square"}


def front_pictures(
    pareto: ParetoResult, lean: LeanResult | None, trials: pd.DataFrame
) -> list[Picture]:
    """Return one picture a cost, leaving out costs that no shape has."""
    pictures = []
    for cost in pareto.costs:
        points = front_points(pareto, cost, lean, trials)
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
    for class_, name in _CLASS_NAMES.items():
        members = [point for point in points if point.class_ == class_]
        if members:
            _add_class(figure, members, name, class_)
    _mark_roles(figure, points)
    style(figure, x_title=_cost_axis(cost), y_title=safe(pareto.metric))
    if min(point.cost for point in points) > 0:
        figure.update_xaxes(type="log", **_cost_ticks([point.cost for point in points]))
    figure.update_xaxes(showgrid=True)
    better = "lower" if pareto.goal == "min" else "higher"
    joint = ", all costs taken together" if len(pareto.costs) > 1 else ""
    return Picture(
        f"front-{pareto.costs.index(cost)}",
        f"{pareto.metric} against {cost_title(cost)}",
        f"Each point is one shape with its {percent_text(pareto.settings.confidence)} interval "
        f"over seeds; left and {better} is better, and the fainter a point the smaller P(front), "
        f"the chance that nothing beats it{joint}. Click a point to see its trials below.",
        figure,
        is_wide=True,
    )


def _cost_axis(cost: str) -> str:
    unit = cost_unit(cost)
    return safe(f"{cost_title(cost)} ({unit + ', ' if unit else ''}log scale)")


def _cost_ticks(costs: list[float]) -> dict[str, object]:
    decades = math.log10(max(costs) / min(costs))
    return {"dtick": 1 if decades > 2.5 else "D2" if decades > 0.7 else "D1", "tickformat": "~s"}


def _add_class(figure: go.Figure, points: list[FrontPoint], name: str, class_: FrontClass) -> None:
    colour = palette.CLASS_SHADES[class_].light
    # One trace a point would be the only way to fade each error bar with its point; they are
    # thin and share the trace's colour instead.
    figure.add_scatter(
        x=[point.cost for point in points],
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
            "size": 11,
            "symbol": _CLASS_SYMBOLS[class_],
            "opacity": [point.opacity for point in points],
            "line": {"width": 0},
        },
        text=[_hover(point) for point in points],
        customdata=[[point.query] for point in points],
        hovertemplate="%{text}<extra></extra>",
    )


def _hover(point: FrontPoint) -> str:
    role = f" ({point.role})" if point.role else ""
    lines = [
        f"<b>{safe(point.label)}</b>{role}",
        interval_text(point.ci),
        f"P(front) {number_text(point.p_front, 2)}, {point.class_}",
        *(safe(line) for line in point.details),
    ]
    return "<br>".join(lines)


def _mark_roles(figure: go.Figure, points: list[FrontPoint]) -> None:
    for role, symbol in (("baseline", "circle-open"), ("chosen", "star-open")):
        marked = [point for point in points if point.role == role]
        if marked:
            figure.add_scatter(
                x=[point.cost for point in marked],
                y=[point.ci.estimate for point in marked],
                mode="markers",
                name=role,
                marker={
                    "symbol": symbol,
                    "size": 20,
                    "color": palette.INK.light,
                    "line": {"width": 1.8, "color": palette.INK.light},
                },
                hoverinfo="skip",
            )


def forest_picture(lean: LeanResult) -> Picture | None:
    """Draw every candidate's difference to the baseline against the margin."""
    rows = forest_rows(lean)
    if not rows:
        return None
    axes = varying_axes([*(row.config for row in rows), lean.baseline]) or list(rows[0].config)
    names = _unique([short_label(row.config, axes) for row in rows])
    figure = go.Figure()
    groups = (
        ("established", [row.accepted for row in rows], palette.BLUE, "circle"),
        ("not established", [not row.accepted for row in rows], palette.GREY, "circle-open"),
    )
    for name, chosen, shade, symbol in groups:
        kept = [(row, at) for at, (row, keep) in enumerate(zip(rows, chosen, strict=True)) if keep]
        if kept:
            _add_candidates(figure, lean, kept, name, shade.light, symbol)
    style(
        figure,
        x_title=f"difference in {safe(lean.metric)} (right is better)",
        y_title="",
    )
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[safe(name) for name in names],
        range=[len(rows) - 0.4, -0.6],
        showgrid=True,
    )
    figure.update_xaxes(range=_forest_range(lean, rows))
    for x, dash in ((-lean.margin, "6px,4px"), (0.0, "solid")):
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
    figure.update_layout(height=max(220, 110 + 26 * len(rows)))
    left_out = len(lean.table) - len(rows)
    some = f" {left_out} further candidates are in the table only." if left_out else ""
    return Picture(
        "forest",
        "Candidates against the baseline",
        f"Difference of each cheaper shape ({' · '.join(axes)}) to the baseline with its "
        f"{percent_text(lean.settings.confidence)} interval, cheapest at the top; the dashed line "
        f"is the margin of {number_text(-lean.margin)}, and filled blue points are established "
        f"to lie right of it (Holm over {len(lean.table)} candidates).{some}",
        figure,
        is_wide=True,
    )


def _forest_range(lean: LeanResult, rows: list[LeanRow]) -> list[float]:
    ends = [-lean.margin, 0.0]
    for row in rows:
        ends += [end for end in (row.diff, row.ci.low, row.ci.high) if math.isfinite(end)]
    margin = 0.05 * (max(ends) - min(ends))
    return [min(ends) - margin, max(ends) + margin]


def _unique(names: list[str]) -> list[str]:
    return [
        name if names.count(name) == 1 else f"{name} ({names[: at + 1].count(name)})"
        for at, name in enumerate(names)
    ]


def _add_candidates(
    figure: go.Figure,
    lean: LeanResult,
    kept: list[tuple[LeanRow, int]],
    name: str,
    colour: str,
    symbol: str,
) -> None:
    saved = [
        ", ".join(
            f"{percent_text(round(share, 3))} of {cost_title(cost)}"
            for cost, share in row.saving.items()
            if math.isfinite(share)
        )
        for row, _ in kept
    ]
    figure.add_scatter(
        x=[row.diff for row, _ in kept],
        y=[at for _, at in kept],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [_or_zero(row.ci.high - row.diff) for row, _ in kept],
            "arrayminus": [_or_zero(row.diff - row.ci.low) for row, _ in kept],
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
        text=[
            "<br>".join(
                (
                    f"<b>{safe(row.label)}</b>" + (" (chosen)" if row.label == lean.choice else ""),
                    interval_text(row.ci, lean.settings.confidence),
                    f"Holm {p_text(row.p_holm)}, {row.n} run{'' if row.n == 1 else 's'}",
                    f"saves {safe(cost)}",
                )
            )
            for (row, _), cost in zip(kept, saved, strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
    )


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0
