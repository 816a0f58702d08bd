"""The figures of effects and of the surrogate for a paper."""

import math

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.pictures import palette
from analysis.pictures.plotting import (
    COLUMN_INCHES,
    MARKERS,
    PAGE_INCHES,
    grid_ticks,
    legend_beside,
    lengths,
    log_axis,
    new_figure,
    plain,
    short,
)
from analysis.pictures.rows import GridAxis
from analysis.pictures.shape_rows import (
    EffectRow,
    EqualCostRow,
    Surface,
    cell_text,
    drawn_interaction,
    effect_rows,
    equal_cost_rows,
    surface_of,
)
from analysis.questions.effects.result import EffectsResult, Interaction
from analysis.questions.effects.text import gain_unit
from analysis.questions.surrogate.result import SurrogateResult
from analysis.questions.surrogate.text import is_inside
from analysis.statistics.values import Interval
from analysis.text.numbers import number_text

_DARK = 0.45


def effect_plots(result: EffectsResult) -> list[tuple[str, Figure]]:
    """Return the figures of effects by name, leaving out what has nothing to show."""
    found = []
    if rows := effect_rows(result):
        figure = new_figure(COLUMN_INCHES, 0.75 + 0.17 * len(rows))
        _gains(figure.subplots(), result, rows)
        found.append(("effects", figure))
    if interaction := drawn_interaction(result):
        figure = new_figure(COLUMN_INCHES * 1.3, 2.5)
        axes = figure.subplots()
        _interaction(axes, result, interaction)
        legend_beside(figure, axes)
        found.append(("interaction", figure))
    if alike := equal_cost_rows(result):
        figure = new_figure(PAGE_INCHES * 0.7, 0.75 + 0.17 * len(alike))
        _equal_cost(figure.subplots(), result, alike)
        found.append(("equal-cost", figure))
    return found


def surrogate_plots(result: SurrogateResult) -> list[tuple[str, Figure]]:
    """Return the figures of the surrogate by name."""
    found = []
    if surface := surface_of(result):
        width = min(PAGE_INCHES, max(COLUMN_INCHES, 1.0 + 0.45 * len(surface.first)))
        figure = new_figure(width, 0.9 + 0.3 * len(surface.second))
        _surface(figure.subplots(), result, surface)
        found.append(("surrogate", figure))
    figure = new_figure(COLUMN_INCHES, 2.8)
    axes = figure.subplots()
    _left_out(axes, result)
    found.append(("left-out", figure))
    return found


def _gains(axes: Axes, result: EffectsResult, rows: list[EffectRow]) -> None:
    for at, row in enumerate(rows):
        axes.scatter(
            [gain for gain, _ in row.gains],
            [at] * len(row.gains),
            marker="D",
            s=8,
            color=palette.ORANGE.light,
            alpha=0.7,
            linewidths=0,
            zorder=3,
        )
        colour = palette.BLUE.light if row.established else palette.GREY.light
        axes.errorbar(
            [row.effect.estimate],
            [at],
            xerr=lengths([row.effect]),
            fmt="o",
            color=colour,
            mfc=colour if row.established else palette.PAGE.light,
            ms=5 if row.is_mean else 3.5,
            elinewidth=1,
            capsize=2,
        )
    axes.axvline(0, color=palette.MUTED.light, lw=0.9)
    axes.set_yticks(range(len(rows)), [short(row.label) for row in rows])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row.is_mean else "normal")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(short(f"gain in {gain_unit(result.metric, result.scale)}", 44))


def _interaction(axes: Axes, result: EffectsResult, found: Interaction) -> None:
    axis = GridAxis.of([level.first for level in found.levels])
    others = sorted({level.second for level in found.levels})
    for at, (value, shade) in enumerate(
        zip(others, palette.ordered_shades(len(others)), strict=True)
    ):
        levels = [level for level in found.levels if level.second == value]
        offset = (at - (len(others) - 1) / 2) * min(0.06, 0.3 / len(others)) * axis.step
        axes.errorbar(
            [axis.at(level.first) + offset for level in levels],
            [level.metric.estimate for level in levels],
            yerr=lengths([level.metric for level in levels]),
            color=shade.light,
            marker=MARKERS[at % len(MARKERS)],
            ms=4,
            elinewidth=0.8,
            capsize=1.5,
            label=short(f"{found.second} = {number_text(value)}"),
        )
    if result.scale == "error":
        log_axis(axes, "y", 7)
    grid_ticks(axes, axis, found.first)
    axes.set_ylabel(short(result.metric))


def _equal_cost(axes: Axes, result: EffectsResult, rows: list[EqualCostRow]) -> None:
    for at, row in enumerate(rows):
        span = row.shape.behind
        if span is None:
            axes.plot([0], [at], marker="*", ms=7, color=palette.BLUE.light, ls="")
            continue
        colour = palette.VERMILLION.light if row.shape.established else palette.GREY.light
        axes.errorbar(
            [-span.estimate],
            [at],
            xerr=lengths([Interval(-span.estimate, -span.high, -span.low)]),
            fmt="o",
            color=colour,
            mfc=colour if row.shape.established else palette.PAGE.light,
            ms=4,
            elinewidth=1,
            capsize=2,
        )
    for at in range(1, len(rows)):
        if rows[at].group != rows[at - 1].group:
            axes.axhline(at - 0.5, color=palette.AXIS.light, lw=0.6)
    axes.axvline(0, color=palette.MUTED.light, lw=0.9)
    names = [
        short(row.label) + (f"  {row.cost}" if row.shape.behind is None else "") for row in rows
    ]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(
        short(f"behind the best of equal cost, {gain_unit(result.metric, result.scale)}", 60)
    )


def _surface(axes: Axes, result: SurrogateResult, surface: Surface) -> None:
    shades = [shade.light for shade in palette.ordered_shades(9)]
    colours = LinearSegmentedColormap.from_list(
        "ordered", shades[::-1] if result.goal == "min" else shades
    )
    values = [[surface.cells[a, b].mean.estimate for a in surface.first] for b in surface.second]
    flat = [value for row in values for value in row]
    scale = Normalize(min(flat), max(flat) if max(flat) > min(flat) else min(flat) + 1)
    axes.imshow(values, cmap=colours, norm=scale, origin="lower", aspect="auto")
    for y, b in enumerate(surface.second):
        for x, a in enumerate(surface.first):
            cell = surface.cells[a, b]
            colour = colours(scale(cell.mean.estimate))
            light = 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2]
            ink = palette.INK.light if light > _DARK else palette.PAGE.light
            corner = (x - 0.47, y - 0.47)
            if cell.extrapolates:
                axes.add_patch(
                    Rectangle(
                        corner, 0.94, 0.94, fill=False, hatch="////", ec=ink, lw=0, alpha=0.35
                    )
                )
            if cell.tried:
                axes.add_patch(Rectangle(corner, 0.94, 0.94, fill=False, ec=ink, lw=1.2))
            text = cell_text(cell.mean.estimate, surface, result.scale)
            axes.text(x, y, plain(text), ha="center", va="center", fontsize=6, color=ink)
    axes.set_xticks(range(len(surface.first)), [number_text(value) for value in surface.first])
    axes.set_yticks(range(len(surface.second)), [number_text(value) for value in surface.second])
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(short(result.surface_axes[0]))
    axes.set_ylabel(short(result.surface_axes[1]))
    axes.set_title(short(f"expected {result.metric}; framed: tried, hatched: extrapolated", 62))


def _left_out(axes: Axes, result: SurrogateResult) -> None:
    for inside, shade, marker in ((True, palette.BLUE, "o"), (False, palette.ORANGE, "X")):
        shapes = [s for s in result.shapes if is_inside(s.metric, s.left_out) == inside]
        if shapes:
            axes.errorbar(
                [shape.metric for shape in shapes],
                [shape.left_out.estimate for shape in shapes],
                yerr=lengths([shape.left_out for shape in shapes]),
                fmt=marker,
                color=shade.light,
                ms=4,
                elinewidth=0.7,
                label="inside its interval" if inside else "outside",
            )
    metrics = [shape.metric for shape in result.shapes]
    axes.plot(
        [min(metrics), max(metrics)],
        [min(metrics), max(metrics)],
        color=palette.MUTED.light,
        ls="--",
        lw=0.9,
    )
    if result.scale == "error" and all(math.isfinite(m) and m > 0 for m in metrics):
        log_axis(axes, "x", 5)
        log_axis(axes, "y", 6)
    axes.set_xlabel(short(f"measured {result.metric}"))
    axes.set_ylabel("predicted from the others")
