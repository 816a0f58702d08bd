"""The picture of how far single runs scatter about the front of the means."""

from collections.abc import Sequence

import plotly.graph_objects as go

from analysis.pictures import palette
from analysis.pictures.drawing import Picture, safe, style
from analysis.pictures.front_figures import cost_axis, logarithmic_costs
from analysis.questions.pareto.result import AttainmentSurface, ParetoResult
from analysis.text.numbers import cost_title, cost_unit, number_text, percent_text


def attainment_picture(pareto: ParetoResult) -> Picture | None:
    """Draw the surfaces that the seeds' fronts attain, None where there are none."""
    if not has_band(pareto):
        return None
    figure = go.Figure()
    if len(pareto.costs) == 1:
        _add_band(figure, pareto)
    else:
        _add_points(figure, pareto)
    style(figure, x_title=cost_axis(pareto.costs[0]), y_title=safe(pareto.metric))
    shown = [point[1] for surface in pareto.attainment for point in surface.points]
    logarithmic_costs(figure, shown)
    seeds = round(1 / pareto.attainment[0].share)
    third = (
        f" The size of a point stands for {cost_title(pareto.costs[1])}."
        if len(pareto.costs) > 1
        else ""
    )
    return Picture(
        "attainment",
        "Spread of single runs",
        f"Every one of {seeds} seeds has a front of its own; between the faint lines lie those "
        f"that some but not all attain (empirical attainment function).{third} This shows what one "
        "run of every shape may give, not where the front is: fronts of single runs are too good "
        "on average.",
        figure,
        is_wide=True,
    )


def has_band(pareto: ParetoResult) -> bool:
    """Whether there is something to draw; with one shape on every seed's front there is no line."""
    costs = {point[1] for surface in pareto.attainment for point in surface.points}
    return bool(costs) and (len(costs) > 1 or len(pareto.costs) > 1)


def surface_name(share: float, smallest: float) -> str:
    """Return a surface as the legend names it."""
    if share == smallest:
        return "by one seed"
    return "by every seed" if share == 1 else f"by {percent_text(share)}"


def _hover(pareto: ParetoResult) -> str:
    cost = safe(cost_title(pareto.costs[0]))
    unit = cost_unit(pareto.costs[0])
    return f"{safe(pareto.metric)} %{{y:.4g}}<br>{cost} %{{x:.3s}}{unit}"


def _add_band(figure: go.Figure, pareto: ParetoResult) -> None:
    end = max(point[1] for surface in pareto.attainment for point in surface.points)
    smallest = pareto.attainment[0].share
    for at, surface in enumerate(pareto.attainment):
        corners = staircase(surface, end)
        name = surface_name(surface.share, smallest)
        is_middle = surface.share not in (smallest, 1.0) or len(pareto.attainment) == 1
        figure.add_scatter(
            x=[x for x, _ in corners],
            y=[y for _, y in corners],
            mode="lines",
            name=name,
            line={
                "color": palette.PURPLE.light,
                "width": 2.0 if is_middle else 1.0,
                "shape": "hv",
                "dash": "solid" if is_middle else "3px,3px" if at == 0 else "8px,3px",
            },
            hovertemplate=f"{_hover(pareto)}<extra>{name}</extra>",
        )


def staircase(surface: AttainmentSurface, end: float) -> list[tuple[float, float]]:
    """Return the corners of a surface over one cost, carried on to ``end``."""
    corners = [(point[1], point[0]) for point in sorted(surface.points, key=lambda p: p[1])]
    return [*corners, (end, corners[-1][1])] if corners else []


def _add_points(figure: go.Figure, pareto: ParetoResult) -> None:
    smallest = pareto.attainment[0].share
    every = [point[2] for surface in pareto.attainment for point in surface.points]
    low, high = min(every), max(every)
    shades: Sequence[palette.Shade] = (palette.BLUE, palette.PURPLE, palette.GREY)
    for surface, shade in zip(pareto.attainment, shades, strict=False):
        name = surface_name(surface.share, smallest)
        figure.add_scatter(
            x=[point[1] for point in surface.points],
            y=[point[0] for point in surface.points],
            mode="markers",
            name=name,
            marker={
                "color": shade.light,
                "opacity": 0.6,
                "size": [
                    6 + 12 * (point[2] - low) / (high - low or 1.0) for point in surface.points
                ],
                "line": {"width": 0},
            },
            text=[
                f"{safe(cost_title(pareto.costs[1]))} {number_text(point[2])}"
                for point in surface.points
            ],
            hovertemplate=f"{_hover(pareto)}<br>%{{text}}<extra>{name}</extra>",
        )
