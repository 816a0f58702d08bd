"""The pictures of several studies: their curves and their fronts, one colour a study."""

import math

import plotly.graph_objects as go

from analysis.compare.result import Comparison, StudySide
from analysis.pictures import palette
from analysis.pictures.drawing import Picture, decade_ticks, safe, style
from analysis.pictures.front_figures import cost_axis, logarithmic_costs
from analysis.pictures.rows import GridAxis, error_of
from analysis.questions.pareto.result import ParetoRow
from analysis.questions.transition.result import TransitionResult
from analysis.text.numbers import cost_title, interval_text, metric_title, number_text, percent_text


def comparison_pictures(comparison: Comparison) -> list[Picture]:
    """Return the curves, the places of the collapse and one picture of fronts a cost."""
    pictures: list[Picture] = []
    if comparison.apart:  # in one frame they would look as if they could be ranked
        return pictures
    curves = [
        (at, side.label, side.transition)
        for at, side in enumerate(comparison.studies)
        if side.transition is not None and side.transition.level
    ]
    if len(curves) > 1 and len({(found.x, found.scale) for _, _, found in curves}) == 1:
        pictures.append(_curves(curves))
        if all(found.p_h for _, _, found in curves):
            pictures.append(_places(curves))
    fronts = [(at, side) for at, side in enumerate(comparison.studies) if side.pareto is not None]
    if len(fronts) > 1:
        pictures += [_fronts(comparison, cost, fronts) for cost in comparison.costs]
    return pictures


def _look(at: int) -> tuple[str, str]:
    shade = palette.CATEGORIES[at % len(palette.CATEGORIES)]
    return shade.light, palette.SYMBOLS[at % len(palette.SYMBOLS)]


def _curves(curves: list[tuple[int, str, TransitionResult]]) -> Picture:
    figure = go.Figure()
    first = curves[0][2]
    axis = GridAxis.of([h for _, _, found in curves for h in found.level])
    shown: list[float] = []
    for at, label, found in curves:
        colour, symbol = _look(at)
        heads = sorted(found.level)
        offset = (at - (len(curves) - 1) / 2) * 0.08 * axis.step
        mid = [error_of(found.level[h].estimate, found.scale) for h in heads]
        ends = [
            [_level_end(found, h, side) for h in heads] for side in (-1, 1)
        ]  # fmt: skip
        shown += [value for value in (*mid, *ends[0], *ends[1]) if math.isfinite(value)]
        figure.add_scatter(
            x=[axis.at(h) + offset for h in heads],
            y=mid,
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [high - value for high, value in zip(ends[1], mid, strict=True)],
                "arrayminus": [value - low for low, value in zip(ends[0], mid, strict=True)],
                "color": colour,
                "thickness": 1.4,
                "width": 4,
            },
            mode="lines+markers",
            name=safe(label),
            line={"color": colour, "width": 2},
            marker={"color": colour, "size": 8, "symbol": symbol},
            text=[f"{safe(found.x)} = {number_text(h)}" for h in heads],
            hovertemplate="%{text}: %{y:.3g}<extra>%{fullData.name}</extra>",
        )
    title = metric_title(first.metric, first.scale)
    style(
        figure,
        x_title=safe(first.x),
        y_title=safe(title),
        grid=axis,
        log_y=first.scale != "loss",
    )
    if first.scale != "loss":
        figure.update_yaxes(**decade_ticks(shown))
    over = f", averaged over {first.by}" if first.by is not None else ""
    return Picture(
        "curves",
        f"{title} against {first.x}",
        f"The level of every study at each value of {first.x}{over}, with 95% intervals; lower is "
        "better.",
        figure,
        is_wide=True,
    )


def _level_end(found: TransitionResult, h: float, side: int) -> float:
    """Return an end of a level's 95 % interval as an error; that of an accuracy is at most 1."""
    level = found.level[h]
    error = error_of(level.estimate + side * 1.96 * level.se, found.scale)
    return min(error, 1.0) if found.scale == "accuracy" else error


def _places(curves: list[tuple[int, str, TransitionResult]]) -> Picture:
    figure = go.Figure()
    heads = sorted({h for _, _, found in curves for h in found.p_h})
    for at, label, found in curves:
        figure.add_bar(
            x=[number_text(h) for h in heads],
            y=[found.p_h.get(h, 0.0) for h in heads],
            name=safe(label),
            marker_color=_look(at)[0],
            hovertemplate="%{x}: %{y:.1%}<extra>%{fullData.name}</extra>",
        )
    style(figure, x_title=safe(curves[0][2].x), y_title="share of draws")
    figure.update_layout(barmode="group")
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.04])
    return Picture(
        "places",
        "Place of the collapse",
        "Share of redrawn sweeps that place the collapse at each value, study by study; it says "
        "where a collapse would be, not that there is one.",
        figure,
        is_wide=True,
    )


def _fronts(comparison: Comparison, cost: str, fronts: list[tuple[int, StudySide]]) -> Picture:
    figure = go.Figure()
    every: list[float] = []
    for at, side in fronts:
        assert side.pareto is not None
        rows = [row for row in side.pareto.table if math.isfinite(row.costs.get(cost, math.nan))]
        every += [row.costs[cost] for row in rows]
        _add_front(figure, rows, cost, at, side, len(comparison.costs) == 1)
    style(figure, x_title=cost_axis(cost), y_title=safe(comparison.metric))
    logarithmic_costs(figure, every)
    better = "lower" if comparison.goal == "min" else "higher"
    confidence = percent_text(comparison.settings.confidence)
    stairs = "; the steps join each study's front of means" if len(comparison.costs) == 1 else ""
    return Picture(
        f"front-{comparison.costs.index(cost)}",
        f"{comparison.metric} against {cost_title(cost)}",
        f"Each point is one shape with its {confidence} interval over seeds, one colour a study, "
        f"the fainter the less likely it lies on its own study's front; left and {better} is "
        f"better{stairs}.",
        figure,
        is_wide=True,
    )


def _add_front(
    figure: go.Figure,
    rows: list[ParetoRow],
    cost: str,
    at: int,
    side: StudySide,
    has_stairs: bool,
) -> None:
    assert side.pareto is not None
    colour, symbol = _look(at)
    if has_stairs:
        sign = 1.0 if side.pareto.goal == "min" else -1.0
        corners: list[tuple[float, float]] = []
        for row in sorted(rows, key=lambda row: (row.costs[cost], sign * row.mean)):
            if not corners or sign * row.mean < sign * corners[-1][1]:
                corners.append((row.costs[cost], row.mean))
        figure.add_scatter(
            x=[x for x, _ in corners],
            y=[y for _, y in corners],
            mode="lines",
            line={"color": colour, "width": 1.6, "shape": "hv"},
            legendgroup=side.label,
            showlegend=False,
            hoverinfo="skip",
        )
    figure.add_scatter(
        x=[row.costs[cost] for row in rows],
        y=[row.mean for row in rows],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [_finite(row.ci.high - row.mean) for row in rows],
            "arrayminus": [_finite(row.mean - row.ci.low) for row in rows],
            "color": colour,
            "thickness": 0.8,
            "width": 0,
        },
        mode="markers",
        name=safe(side.label),
        legendgroup=side.label,
        marker={
            "color": colour,
            "size": 10 if len(rows) <= 60 else 7,
            "symbol": symbol,
            "opacity": [
                0.5 if math.isnan(row.p_front) else 0.3 + 0.7 * row.p_front for row in rows
            ],
            "line": {"width": 0},
        },
        text=[f"<b>{safe(row.label)}</b><br>{interval_text(row.ci)}" for row in rows],
        hovertemplate="%{text}<extra>%{fullData.name}</extra>",
    )


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0
