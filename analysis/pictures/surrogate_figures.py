"""The page's pictures of a surrogate: what it expects over two axes, and how well it predicts."""

import plotly.graph_objects as go

from analysis.pictures import palette
from analysis.pictures.drawing import Picture, decade_ticks, safe, style
from analysis.pictures.shape_rows import Surface, cell_text, held_text, surface_of
from analysis.questions.surrogate.result import SurrogateResult
from analysis.questions.surrogate.text import is_inside
from analysis.text.numbers import interval_text, number_text, percent_text

_HATCHES = 4


def surrogate_pictures(result: SurrogateResult) -> list[Picture]:
    """Return the pictures, leaving out what has nothing to show."""
    surface = surface_of(result)
    found = [] if surface is None else [surface_picture(result, surface)]
    return [*found, left_out_picture(result)]


def surface_picture(result: SurrogateResult, surface: Surface) -> Picture:
    """Draw the expected metric as a grid of cells, hatched where it extrapolates."""
    first, second = result.surface_axes
    cells = [[surface.cells[a, b] for a in surface.first] for b in surface.second]
    shades = palette.ordered_shades(9)
    # The best is bright in both themes.
    colours = [shade.light for shade in (reversed(shades) if result.goal == "min" else shades)]
    figure = go.Figure()
    figure.add_heatmap(
        z=[[cell.mean.estimate for cell in row] for row in cells],
        x=list(range(len(surface.first))),
        y=list(range(len(surface.second))),
        colorscale=[[at / 8, colour] for at, colour in enumerate(colours)],
        xgap=2,
        ygap=2,
        text=[
            [cell_text(cell.mean.estimate, surface, result.scale) for cell in row] for row in cells
        ],
        texttemplate="%{text}",
        customdata=[
            [
                f"{safe(first)} = {number_text(cell.first)}, {safe(second)} = "
                f"{number_text(cell.second)}<br>"
                f"{interval_text(cell.mean, result.settings.confidence)}<br>"
                + ("tried" if cell.tried else "extrapolates" if cell.extrapolates else "untried")
                for cell in row
            ]
            for row in cells
        ],
        hovertemplate="%{customdata}<extra></extra>",
        colorbar={"thickness": 12, "outlinewidth": 0, "title": {"text": ""}},
    )
    tried = [(x, y) for y, row in enumerate(cells) for x, cell in enumerate(row) if cell.tried]
    for x, y in tried:
        figure.add_shape(
            type="rect",
            x0=x - 0.47,
            x1=x + 0.47,
            y0=y - 0.46,
            y1=y + 0.46,
            line={"color": palette.INK.light, "width": 2},
        )
    for y, row in enumerate(cells):
        for x, cell in enumerate(row):
            if cell.extrapolates:
                figure.add_shape(
                    type="path",
                    path=_hatching(x, y),
                    line={"color": palette.PAGE.light, "width": 1.2},
                    opacity=0.75,
                )
    style(figure, x_title=safe(first), y_title=safe(second))
    figure.update_xaxes(
        tickvals=list(range(len(surface.first))),
        ticktext=[number_text(value) for value in surface.first],
        showline=False,
        ticks="",
    )
    figure.update_yaxes(
        tickvals=list(range(len(surface.second))),
        ticktext=[number_text(value) for value in surface.second],
        showgrid=False,
    )
    figure.update_layout(height=max(260, 110 + 40 * len(surface.second)))
    held = held_text(result)
    better = "lower" if result.goal == "min" else "higher"
    return Picture(
        "surrogate",
        f"Expected {result.metric} over {first} and {second}",
        f"Each cell is what the surrogate expects of a shape ({better} is better); framed cells "
        "were tried, hatched ones lie beyond the shapes tried and are extrapolated."
        + (f" Held: {held}." if held else "")
        + ("" if result.verdict == "predicts" else " No skill is shown, so read it as a guess."),
        figure,
        is_wide=True,
    )


def _hatching(x: int, y: int) -> str:
    """Return diagonal lines over the cell around (x, y), as an SVG path."""
    lines = []
    for step in range(1, 2 * _HATCHES):
        offset = step / _HATCHES
        start = (max(0.0, offset - 1), min(1.0, offset))
        end = (min(1.0, offset), max(0.0, offset - 1))
        ends = [(x - 0.48 + 0.96 * a, y - 0.48 + 0.96 * b) for a, b in (start, end)]
        lines.append("M " + " L ".join(f"{a:.3f},{b:.3f}" for a, b in ends))
    return " ".join(lines)


def left_out_picture(result: SurrogateResult) -> Picture:
    """Draw every shape's metric against what the other shapes say of it."""
    figure = go.Figure()
    for inside, shade, symbol in ((True, palette.BLUE, "circle"), (False, palette.ORANGE, "x")):
        shapes = [s for s in result.shapes if is_inside(s.metric, s.left_out) == inside]
        if not shapes:
            continue
        figure.add_scatter(
            x=[shape.metric for shape in shapes],
            y=[shape.left_out.estimate for shape in shapes],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [shape.left_out.high - shape.left_out.estimate for shape in shapes],
                "arrayminus": [shape.left_out.estimate - shape.left_out.low for shape in shapes],
                "color": shade.light,
                "thickness": 1,
                "width": 0,
            },
            mode="markers",
            name="inside its interval" if inside else "outside",
            marker={"color": shade.light, "size": 9, "symbol": symbol},
            text=[
                f"<b>{safe(shape.label)}</b><br>measured {number_text(shape.metric, 4)}<br>"
                f"predicted {interval_text(shape.left_out, result.settings.confidence)}"
                for shape in shapes
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    metrics = [shape.metric for shape in result.shapes]
    ends = [min(metrics), max(metrics)]
    figure.add_scatter(
        x=ends,
        y=ends,
        mode="lines",
        line={"color": palette.MUTED.light, "width": 1.2, "dash": "6px,4px"},
        hoverinfo="skip",
        showlegend=False,
    )
    style(
        figure,
        x_title=f"measured {safe(result.metric)}",
        y_title="predicted from the other shapes",
    )
    if result.scale == "error":
        figure.update_xaxes(type="log", **decade_ticks(metrics))
        figure.update_yaxes(type="log", **decade_ticks(metrics))
    return Picture(
        "left-out",
        "How well each shape is predicted from the others",
        f"Each point is one shape left out of the surrogate, with the "
        f"{percent_text(result.settings.confidence)} interval its measured mean should lie in; "
        f"dashed is a perfect prediction. {result.reason[:1].upper()}{result.reason[1:]}.",
        figure,
        is_wide=True,
    )
