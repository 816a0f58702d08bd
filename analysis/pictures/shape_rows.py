"""What the pictures of effects and of the surrogate show, as rows and cells."""

import math
from dataclasses import dataclass

from analysis.questions.effects.result import EffectsResult, EqualCostShape, Interaction
from analysis.questions.surrogate.result import SurfacePoint, SurrogateResult
from analysis.statistics.values import Interval
from analysis.text.numbers import MINUS, cost_text, number_text
from analysis.values import Number, number
from hsweep.design.question import Scale

MAX_ROWS = 40


@dataclass(frozen=True, slots=True)
class EffectRow:
    """One line of the picture of effects.

    Attributes:
        axis: the axis it belongs to.
        label: the step, or the axis itself.
        effect: its gain with the interval.
        p_holm: after Holm.
        gains: gain and held values of each pair.
        is_mean: whether it is the mean over the axis' steps.
        established: whether it is told from 0.
    """

    axis: str
    label: str
    effect: Interval
    p_holm: float | None
    gains: tuple[tuple[float, str], ...]
    is_mean: bool
    established: bool


def effect_rows(result: EffectsResult) -> list[EffectRow]:
    """Return the axes with their steps, the mean first; beyond `MAX_ROWS` the means alone."""
    alpha = result.settings.alpha
    rows = []
    for axis in result.axes:
        if not axis.pairs or axis.verdict == "answered":
            continue
        rows.append(
            EffectRow(
                axis.axis,
                f"{axis.axis}, mean",
                axis.effect,
                axis.p_holm,
                (),
                True,
                axis.verdict in ("helps", "hurts"),
            )
        )
        rows += [
            EffectRow(
                axis.axis,
                f"{number_text(step.low)} → {number_text(step.high)}",
                step.effect,
                step.p_holm,
                tuple((pair.gain, pair.held) for pair in step.pairs),
                False,
                step.p_holm is not None and step.p_holm <= alpha,
            )
            for step in axis.steps
        ]
    return rows if len(rows) <= MAX_ROWS else [row for row in rows if row.is_mean][:MAX_ROWS]


def drawn_interaction(result: EffectsResult) -> Interaction | None:
    """Return the first pair of axes whose combinations are all there."""
    return next((found for found in result.interactions if found.levels), None)


@dataclass(frozen=True, slots=True)
class EqualCostRow:
    """One shape of the picture of equal costs; ``group`` counts from 0."""

    group: int
    label: str
    cost: str
    shape: EqualCostShape


def equal_cost_rows(result: EffectsResult) -> list[EqualCostRow]:
    """Return the shapes, best first in each group, as many whole groups as have room."""
    rows: list[EqualCostRow] = []
    for at, group in enumerate(result.equal_cost):
        if len(rows) + len(group.shapes) > MAX_ROWS:
            break
        cost = cost_text(result.cost or "", group.shapes[0].cost)
        rows += [EqualCostRow(at, shape.label, cost, shape) for shape in group.shapes]
    return rows


@dataclass(frozen=True, slots=True)
class Surface:
    """The predicted metric over two axes, as a grid of cells.

    Attributes:
        first, second: values of the horizontal and the vertical axis.
        cells: by (first, second).
    """

    first: tuple[Number, ...]
    second: tuple[Number, ...]
    cells: dict[tuple[Number, Number], SurfacePoint]


def surface_of(result: SurrogateResult) -> Surface | None:
    """Return the surface of a result, None where fewer than two axes vary."""
    if not result.surface:
        return None
    cells = {(point.first, point.second): point for point in result.surface}
    return Surface(
        tuple(sorted({point.first for point in result.surface})),
        tuple(sorted({point.second for point in result.surface})),
        cells,
    )


def cell_text(value: float, surface: Surface, scale: Scale | None) -> str:
    """Return a cell's value with as many decimals as tell the surface's cells apart."""
    values = [cell.mean.estimate for cell in surface.cells.values()]
    span = max(values) - min(values)
    if scale == "error" or span <= 0:
        return number_text(value, 2)
    decimals = min(6, max(0, math.ceil(-math.log10(span / 30))))
    return f"{value:.{decimals}f}".replace("-", MINUS)


def held_text(result: SurrogateResult) -> str:
    """Return what the surface holds fixed, in words; empty where nothing else varies."""
    held = {*result.axes, *result.names} - set(result.surface_axes)
    config = next(shape.config for shape in result.shapes if shape.label == result.reference)
    shown = {
        name: number(value) if isinstance(value, float) else value for name, value in config.items()
    }
    return ", ".join(
        f"{name} = {shown[name]}" for name in (*result.axes, *result.names) if name in held
    )
