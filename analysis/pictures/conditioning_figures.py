"""The page's pictures of conditioning: against heads with the theory, and the metric against it."""

import math

import plotly.graph_objects as go

from analysis.pictures import palette
from analysis.pictures.drawing import Picture, decade_ticks, safe, style
from analysis.pictures.rows import GridAxis, short_label, varying_axes
from analysis.questions.conditioning.result import HEAD_DIM, ConditionedShape, ConditioningResult
from analysis.text.numbers import number_text

MAX_LABELS = 24
"""Up to so many shapes bear their names in the picture."""


def conditioning_pictures(result: ConditioningResult) -> list[Picture]:
    """Return both pictures, leaving out what has nothing to show."""
    found = []
    if result.trends:
        found.append(heads_picture(result))
    if len(result.shapes) > 1:
        found.append(metric_picture(result))
    return found


def series_shades(result: ConditioningResult) -> dict[str, palette.Shade]:
    """Return the colour of each series, the same in all pictures."""
    names = [trend.series for trend in result.trends]
    names += [shape.series[0] for shape in result.shapes]
    listed = list(dict.fromkeys(names))
    return dict(zip(listed, palette.shades_for(listed), strict=True))


def shape_series(shape: ConditionedShape, result: ConditioningResult) -> str:
    """Return the series that a shape's point is coloured by: the first that is drawn as a curve."""
    drawn = {trend.series for trend in result.trends}
    return next((name for name in shape.series if name in drawn), shape.series[0])


def shape_names(result: ConditioningResult) -> tuple[list[str], list[str]]:
    """Return the axes that tell the shapes apart, and each shape by its values of them.

    What the colours tell already is left out.
    """
    configs = [shape.config for shape in result.shapes]
    axes = varying_axes(configs) or list(configs[0])
    coloured = len(series_shades(result)) > 1
    axes = [name for name in axes if not (coloured and name == HEAD_DIM)] or axes
    return axes, [short_label(config, axes) for config in configs]


def heads_picture(result: ConditioningResult) -> Picture:
    """Draw the condition number against heads, measured and predicted, one colour a series."""
    axis = GridAxis.of([x for trend in result.trends for x in trend.x])
    shades = series_shades(result)
    figure = go.Figure()
    for at, trend in enumerate(result.trends):
        colour, symbol = shades[trend.series].light, palette.SYMBOLS[at % len(palette.SYMBOLS)]
        name = safe(trend.series or "measured")
        figure.add_scatter(
            x=[axis.at(x) for x in trend.x],
            y=trend.measured,
            mode="lines+markers",
            name=name,
            legendgroup=name,
            line={"color": colour, "width": 2},
            marker={"color": colour, "size": 9, "symbol": symbol},
            customdata=[number_text(x) for x in trend.x],
            hovertemplate=f"{safe(result.x)} = %{{customdata}}<br>measured %{{y:.4g}}"
            "<extra>%{fullData.name}</extra>",
        )
        members = [
            shape for shape in result.shapes if trend.series in shape.series and shape.x in trend.x
        ]
        if len(members) > len(trend.x) or any(shape.n > 1 for shape in members):
            figure.add_scatter(
                x=[axis.at(shape.x or 0) for shape in members for _ in shape.condition_values],
                y=[value for shape in members for value in shape.condition_values],
                mode="markers",
                name=name,
                legendgroup=name,
                showlegend=False,
                marker={"color": colour, "size": 5, "symbol": symbol, "opacity": 0.4},
                text=[safe(shape.label) for shape in members for _ in shape.condition_values],
                hovertemplate="%{y:.4g}<br>%{text}<extra></extra>",
            )
        if trend.predicted:
            figure.add_scatter(
                x=[axis.at(x) for x in trend.x],
                y=trend.predicted,
                mode="lines",
                name="theory",
                legendgroup="theory",
                showlegend=at == 0,
                legendrank=2000,
                line={"color": colour, "width": 1.6, "dash": "6px,4px"},
                hovertemplate=f"theory %{{y:.4g}}<extra>{name}</extra>",
            )
    style(figure, x_title=safe(result.x), y_title=safe(title(result)), grid=axis, log_y=True)
    shown = [value for trend in result.trends for value in (*trend.measured, *trend.predicted)]
    figure.update_yaxes(**decade_ticks(shown))
    theory = "; dashed is what the theory says of Gaussian matrices of the same sizes"
    return Picture(
        "condition-heads",
        f"Conditioning against {result.x}",
        f"Each small point is one run's {title(result)} at its last report and each line joins "
        f"the geometric means over seeds and all else that varies"
        f"{theory if any(trend.predicted for trend in result.trends) else ''}.",
        figure,
        is_wide=True,
    )


def title(result: ConditioningResult) -> str:
    """Return what the condition number is called on an axis."""
    return "condition number" if result.condition == "condition_number" else result.condition


def metric_picture(result: ConditioningResult) -> Picture:
    """Draw the metric against the condition number, every shape a point with its name."""
    axes, names = shape_names(result)
    shades = series_shades(result)
    figure = go.Figure()
    named = len(result.shapes) <= MAX_LABELS
    places = label_places(result)
    coloured = [shape_series(shape, result) for shape in result.shapes]
    for at, series in enumerate(dict.fromkeys(coloured)):
        members = [index for index, name in enumerate(coloured) if name == series]
        shapes = [result.shapes[index] for index in members]
        figure.add_scatter(
            x=[shape.condition for shape in shapes],
            y=[shape.metric for shape in shapes],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [max(shape.metric_values) - shape.metric for shape in shapes],
                "arrayminus": [shape.metric - min(shape.metric_values) for shape in shapes],
                "color": shades[series].light,
                "thickness": 0.8,
                "width": 0,
            },
            mode="markers+text" if named else "markers",
            name=safe(series or "shapes"),
            showlegend=bool(series),
            text=[f"\N{NO-BREAK SPACE}{safe(names[index])}\N{NO-BREAK SPACE}" for index in members],
            textposition=[places[index] for index in members],
            textfont={"size": 11, "color": palette.MUTED.light},
            cliponaxis=False,
            marker={
                "color": shades[series].light,
                "size": 9,
                "symbol": palette.SYMBOLS[at % len(palette.SYMBOLS)],
            },
            customdata=[_hover(shape, result) for shape in shapes],
            hovertemplate="%{customdata}<extra></extra>",
        )
    style(figure, x_title=f"{safe(title(result))} (log scale)", y_title=safe(result.metric))
    known = [shape.condition for shape in result.shapes]
    low, high = math.log10(min(known)), math.log10(max(known))
    room = (high - low or 1.0) * 0.06
    # Names stand to the right.
    figure.update_xaxes(
        type="log", showgrid=True, range=[low - room, high + 2 * room], **decade_ticks(known)
    )
    if result.scale == "error":
        figure.update_yaxes(type="log", **decade_ticks([s.metric for s in result.shapes]))
    legend = f" ({' · '.join(axes)})" if named else ""
    better = "lower" if result.goal == "min" else "higher"
    return Picture(
        "condition-metric",
        f"{result.metric} against conditioning",
        f"Each point is one shape{legend}, its seeds averaged, with the range of its seeds; "
        f"{better} is better, and left is better conditioned. By the paper's account points "
        f"should rise to the {'right' if result.goal == 'min' else 'left'}.",
        figure,
        is_wide=True,
    )


def label_places(result: ConditioningResult) -> list[str]:
    """Return on which side each shape's name stands: to the right, unless a neighbour is there."""
    xs = [math.log(shape.condition) for shape in result.shapes]
    ys = [
        math.log(shape.metric) if result.scale == "error" else shape.metric
        for shape in result.shapes
    ]
    width, height = (max(each) - min(each) or 1.0 for each in (xs, ys))

    def has_neighbour(at: int) -> bool:
        return any(
            0 < (x - xs[at]) / width < 0.07 and abs(y - ys[at]) / height < 0.04
            for x, y in zip(xs, ys, strict=True)
        )

    return ["middle left" if has_neighbour(at) else "middle right" for at in range(len(xs))]


def _hover(shape: ConditionedShape, result: ConditioningResult) -> str:
    lines = [
        f"<b>{safe(shape.label)}</b>",
        f"{safe(result.metric)} {number_text(shape.metric, 4)} over {shape.n} "
        f"run{'' if shape.n == 1 else 's'}{shape.lost.behind}",
        f"{safe(title(result))} {number_text(shape.condition)}",
    ]
    if shape.prediction is not None:
        lines.append(f"theory {number_text(shape.prediction)}")
    return "<br>".join(lines)
