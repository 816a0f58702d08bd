"""The figures of shapes for a paper: the front of each cost and the candidates' forest."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from analysis.pictures import palette
from analysis.pictures.plotting import (
    COLUMN_INCHES,
    PAGE_INCHES,
    file_part,
    legend_beside,
    lengths,
    log_axis,
    name_y,
    new_figure,
    short,
)
from analysis.pictures.rows import (
    ForestBlock,
    FrontPoint,
    front_points,
    mean_front,
    side_by_side,
)
from analysis.pictures.ticks import cost_text
from analysis.questions.pareto.result import ParetoResult
from analysis.questions.pareto.text import CLASS_NAMES
from analysis.statistics.values import Interval
from analysis.text.numbers import cost_title, cost_unit, number_text

if TYPE_CHECKING:
    from analysis.questions.pareto.fronts import Front

_CLASS_MARKERS = {"on": "o", "undecided": "D", "off": "s"}
_MANY = 60
_HEIGHT = 2.9


def front_figures(front: "Front") -> list[tuple[str, Figure]]:
    """Return one figure a cost by name, leaving out costs that no shape has."""
    found = []
    for cost in front.result.costs:
        points = front_points(front.result, cost, front.comparisons, front.trials)
        if points:
            name = front.named(f"front-{file_part(cost)}")
            found.append((name, _front(front.result, cost, points)))
    return found


def _front(pareto: ParetoResult, cost: str, points: list[FrontPoint]) -> Figure:
    figure = new_figure(PAGE_INCHES * 0.75, _HEIGHT)
    axes = figure.subplots()
    if len(pareto.costs) == 1:
        corners = mean_front(points, pareto.goal)
        axes.step(
            [x for x, _ in corners],
            [y for _, y in corners],
            where="post",
            color=palette.BLUE.light,
            lw=0.8,
            alpha=0.6,
            label="mean front",
        )
    places = side_by_side(points)
    size = 4.0 if len(points) <= _MANY else 2.6
    for class_, name in CLASS_NAMES.items():
        members = [
            (point, x) for point, x in zip(points, places, strict=True) if point.class_ == class_
        ]
        for point, x in members:
            axes.errorbar(
                [x],
                [point.ci.estimate],
                yerr=lengths([point.ci]),
                fmt=_CLASS_MARKERS[class_],
                color=palette.CLASS_SHADES[class_].light,
                alpha=point.opacity,
                ms=size,
                mew=0,
                elinewidth=0.7 if len(points) <= _MANY else 0.4,
            )
        if members:
            # The legend shows the class at full strength, whatever its points' chances.
            shade = palette.CLASS_SHADES[class_].light
            axes.plot([], [], _CLASS_MARKERS[class_], color=shade, ms=size, mew=0, label=name)
    pairs = list(zip(points, places, strict=True))
    for role, marker, marked in (
        ("baseline", "o", [pair for pair in pairs if pair[0].role == "baseline"]),
        ("chosen", "*", [pair for pair in pairs if pair[0].role == "chosen"]),
        ("runs lost", "x", [pair for pair in pairs if pair[0].has_losses]),
    ):
        if marked:
            axes.plot(
                [x for _, x in marked],
                [point.ci.estimate for point, _ in marked],
                marker=marker,
                ms={"baseline": 9, "chosen": 11}.get(role, 4.5),
                zorder=4,
                mfc="none",
                mec=palette.INK.light,
                mew=0.8,
                ls="",
                label=role,
            )
    if min(places) > 0:
        log_axis(axes, "x", 8, cost_text)
    unit = cost_unit(cost)
    axes.set_xlabel(short(f"{cost_title(cost)}{f' ({unit})' if unit else ''}", 60))
    name_y(axes, pareto.metric, _HEIGHT)
    legend_beside(figure, axes)
    return figure


def forest_figure(blocks: Sequence[ForestBlock]) -> Figure | None:
    """Return every candidate's difference to its baseline, or None where there is none."""
    if not blocks:
        return None
    lines = sum(len(block.rows) + bool(block.heading) for block in blocks)
    longest = max(len(label) for block in blocks for label in block.labels)
    wide = longest > 16 or any(block.heading for block in blocks)
    figure = new_figure(PAGE_INCHES * 0.75 if wide else COLUMN_INCHES, 0.75 + 0.16 * lines)
    axes = figure.subplots()
    ticks: list[tuple[int, str]] = []
    at = 0
    for block in blocks:
        if block.heading:
            axes.annotate(
                short(block.heading, 70),
                (0.0, at),
                xycoords=("axes fraction", "data"),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
                fontweight="bold",
                bbox={"facecolor": palette.PAGE.light, "edgecolor": "none", "pad": 0.6},
            )
            at += 1
        for row, label in zip(block.rows, block.labels, strict=True):
            colour = palette.BLUE.light if row.accepted else palette.GREY.light
            axes.errorbar(
                [row.diff],
                [at],
                xerr=lengths([Interval(row.diff, row.ci.low, row.ci.high)]),
                fmt="x" if row.outcome == "excluded" else "o",
                color=colour,
                mfc=colour if row.accepted else palette.PAGE.light,
                ms=4,
                elinewidth=1,
                capsize=2,
            )
            ticks.append((at, short(label, 30)))
            at += 1
    lean = blocks[0].result
    for x, style in ((-lean.margin, "--"), (0.0, "-")):
        axes.axvline(x, color=palette.MUTED.light, lw=0.9, ls=style, zorder=0)
    axes.set_yticks([place for place, _ in ticks], [label for _, label in ticks])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(at - 0.4, -0.6)
    if not blocks[0].heading:
        axes.set_title(short(" · ".join(blocks[0].axes), 60))
    side = f"right is better; dashed: margin {number_text(-lean.margin)}"
    joint = "\n" if figure.get_figwidth() < PAGE_INCHES / 2 else " "
    axes.set_xlabel(f"difference in {short(lean.metric)}{joint}({side})")
    return figure
