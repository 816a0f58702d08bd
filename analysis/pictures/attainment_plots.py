"""The figure for a paper of how far single runs scatter about the front of the means."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.pictures import palette
from analysis.pictures.attainment_figures import has_band, staircase, surface_name
from analysis.pictures.plotting import (
    PAGE_INCHES,
    legend_beside,
    log_axis,
    name_y,
    new_figure,
    short,
)
from analysis.pictures.ticks import cost_text
from analysis.questions.pareto.result import ParetoResult
from analysis.text.numbers import cost_title, cost_unit

_HEIGHT = 2.6
_SHADES = (palette.BLUE, palette.PURPLE, palette.GREY)


def attainment_figure(pareto: ParetoResult) -> Figure | None:
    """Return the surfaces that the seeds' fronts attain, or None where there is nothing to draw."""
    if not has_band(pareto):
        return None
    figure = new_figure(PAGE_INCHES * 0.75, _HEIGHT)
    axes = figure.subplots()
    if len(pareto.costs) == 1:
        _add_lines(axes, pareto)
    else:
        _add_points(axes, pareto)
    if all(point[1] > 0 for surface in pareto.attainment for point in surface.points):
        log_axis(axes, "x", 7, cost_text)
    unit = cost_unit(pareto.costs[0])
    axes.set_xlabel(short(f"{cost_title(pareto.costs[0])}{f' ({unit})' if unit else ''}", 60))
    name_y(axes, pareto.metric, _HEIGHT)
    legend_beside(figure, axes)
    return figure


def _add_lines(axes: Axes, pareto: ParetoResult) -> None:
    end = max(point[1] for surface in pareto.attainment for point in surface.points)
    smallest = pareto.attainment[0].share
    for at, surface in enumerate(pareto.attainment):
        corners = staircase(surface, end)
        is_middle = surface.share not in (smallest, 1.0) or len(pareto.attainment) == 1
        axes.step(
            [x for x, _ in corners],
            [y for _, y in corners],
            where="post",
            color=palette.PURPLE.light,
            lw=1.4 if is_middle else 0.8,
            ls="-" if is_middle else ":" if at == 0 else "--",
            label=surface_name(surface.share, smallest),
        )


def _add_points(axes: Axes, pareto: ParetoResult) -> None:
    smallest = pareto.attainment[0].share
    every = [point[2] for surface in pareto.attainment for point in surface.points]
    low, high = min(every), max(every)
    for surface, shade in zip(pareto.attainment, _SHADES, strict=False):
        axes.scatter(
            [point[1] for point in surface.points],
            [point[0] for point in surface.points],
            s=[6 + 30 * (point[2] - low) / (high - low or 1.0) for point in surface.points],
            color=shade.light,
            alpha=0.6,
            linewidths=0,
            label=surface_name(surface.share, smallest),
        )
