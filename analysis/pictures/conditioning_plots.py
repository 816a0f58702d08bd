"""The figures of conditioning for a paper: against heads with the theory, the metric against it."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.pictures import palette
from analysis.pictures.conditioning_figures import (
    MAX_LABELS,
    label_places,
    series_shades,
    shape_names,
    shape_series,
    title,
)
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
from analysis.questions.conditioning.result import ConditioningResult
from analysis.statistics.values import Interval


def conditioning_figures(result: ConditioningResult) -> list[tuple[str, Figure]]:
    """Return the figures by name, leaving out what has nothing to show."""
    found = []
    if result.trends:
        figure = new_figure(COLUMN_INCHES, 2.6)
        _heads(figure.subplots(), result)
        found.append(("condition-heads", figure))
    if len(result.shapes) > 1:
        figure = new_figure(PAGE_INCHES * 0.8, 3.4)
        axes = figure.subplots()
        _metric(axes, result)
        legend_beside(figure, axes)
        found.append(("condition-metric", figure))
    return found


def _heads(axes: Axes, result: ConditioningResult) -> None:
    axis = GridAxis.of([x for trend in result.trends for x in trend.x])
    shades = series_shades(result)
    for at, trend in enumerate(result.trends):
        places = [axis.at(x) for x in trend.x]
        colour, marker = shades[trend.series].light, MARKERS[at % len(MARKERS)]
        axes.plot(
            places,
            trend.measured,
            color=colour,
            marker=marker,
            ms=4,
            label=short(trend.series or "measured"),
        )
        runs = [
            (axis.at(shape.x), value)
            for shape in result.shapes
            if trend.series in shape.series and shape.x is not None and shape.x in trend.x
            for value in shape.condition_values
        ]
        axes.scatter(
            [x for x, _ in runs],
            [y for _, y in runs],
            color=colour,
            marker=marker,
            s=6,
            alpha=0.4,
            linewidths=0,
        )
        if trend.predicted:
            theory = "theory" if at == 0 else None
            axes.plot(places, trend.predicted, color=colour, ls="--", lw=1, label=theory)
    log_axis(axes, "y", 7)
    grid_ticks(axes, axis, result.x)
    axes.set_ylabel(short(title(result)))
    axes.legend(borderaxespad=0.2)


def _metric(axes: Axes, result: ConditioningResult) -> None:
    shades = series_shades(result)
    names, labels = shape_names(result)
    coloured = [shape_series(shape, result) for shape in result.shapes]
    for at, series in enumerate(dict.fromkeys(coloured)):
        shapes = [
            shape for shape, name in zip(result.shapes, coloured, strict=True) if name == series
        ]
        axes.errorbar(
            [shape.condition for shape in shapes],
            [shape.metric for shape in shapes],
            yerr=lengths(
                [
                    Interval(shape.metric, min(shape.metric_values), max(shape.metric_values))
                    for shape in shapes
                ]
            ),
            fmt=MARKERS[at % len(MARKERS)],
            color=shades[series].light,
            ms=4,
            elinewidth=0.6,
            label=short(series) if series else None,
        )
    if len(result.shapes) <= MAX_LABELS:
        for shape, label, place in zip(result.shapes, labels, label_places(result), strict=True):
            right = place.endswith("right")
            axes.annotate(
                plain(label),
                (shape.condition, shape.metric),
                xytext=(4 if right else -4, 0),
                textcoords="offset points",
                ha="left" if right else "right",
                va="center",
                fontsize=6,
                color=palette.MUTED.light,
            )
        axes.set_title(short(" · ".join(names), 60))
    log_axis(axes, "x", 7)
    if result.scale == "error":
        log_axis(axes, "y", 7)
    axes.set_xlabel(short(title(result)))
    axes.set_ylabel(short(result.metric))
