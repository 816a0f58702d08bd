"""The figure of learning curves for a paper."""

from typing import Final

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.pictures import palette
from analysis.pictures.curves import LearningCurves, group_name
from analysis.pictures.plotting import (
    PAGE_INCHES,
    legend_beside,
    log_axis,
    name_y,
    new_figure,
    short,
)

_HEIGHT: Final = 2.6


def curve_figure(curves: LearningCurves, metric: str, unit: str) -> Figure | None:
    """Return the learning curves, or None where no trial has reported."""
    if not curves.curves:
        return None
    figure = new_figure(PAGE_INCHES * 0.75, _HEIGHT)
    axes = figure.subplots()
    shades = dict(zip(curves.groups, palette.shades_for(curves.groups), strict=True))
    named = {list(curves.groups)[index] for index in palette.named_groups(len(curves.groups))}
    if curves.grouped_by is None:
        named = set()
    for curve in curves.curves:
        label = short(group_name(curves.grouped_by, curve.group)) if curve.group in named else None
        named.discard(curve.group)
        axes.plot(
            curve.units,
            curve.values,
            color=shades[curve.group].light,
            lw=0.7,
            alpha=0.7,
            marker="." if len(curve.units) == 1 else "",
            label=label,
        )
    for name, ends in curves.endings().items():
        axes.plot(
            [end.last[0] for end in ends if end.last],
            [end.last[1] for end in ends if end.last],
            ls="",
            marker="o" if name == "stopped early" else "x",
            ms=3.5,
            mfc="none",
            mec=palette.INK.light,
            mew=0.7,
            label=name,
        )
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if curves.is_log:
        log_axis(axes, "y", 7)
    axes.set_xlabel(short(unit))
    name_y(axes, metric, _HEIGHT)
    legend_beside(figure, axes)
    return figure
