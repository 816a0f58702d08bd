"""What is drawn of all trials at once: the columns that axes and metrics stand in, as scales."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from analysis.charts import palette
from analysis.charts.axes import log_ticks, short_cost
from analysis.text.trials import Columns, column_kind, column_label
from hsweep.design.question import Goal

MOST_DIMENSIONS: Final = 8
MOST_IN_MATRIX: Final = 5
_MOST_VALUES: Final = 12
"""Distinct values that a scale names one by one."""
_SHADES: Final = 7
_NOT_SHOWN: Final = (
    *("seed", "reached", "budget", "ordinal", "attempt", "failures", "micro_batch"),
    *("key", "stratum", "reason", "mlflow_url", "role", "status", "reused_from"),
)


class Scale(NamedTuple):
    """How the values of a column are placed.

    Attributes:
        at: the column's number in the table.
        kind: numbers stand where they are, or where their logarithm to base 10 is; names in order.
        low, high: the ends, as places.
        values: what it names one by one; empty for a continuous scale.
        ticks: places with their names.
    """

    at: int
    label: str
    kind: str
    low: float
    high: float
    values: tuple[str | float, ...]
    ticks: tuple[tuple[float, str], ...]


def explored(
    columns: Columns, swept: Sequence[str], metric: str, goal: Goal
) -> Mapping[str, Any] | None:
    """Return what the page needs to draw the trials with a metric over all axes and metrics.

    None where fewer than two columns of theirs vary, or no trial has the metric.
    """
    if metric not in columns:
        return None
    at = {name: number for number, name in enumerate(columns)}
    rows = [row for row, value in enumerate(columns[metric]) if value is not None]
    others = [
        name
        for name, values in columns.items()
        if name not in (*swept, metric, *_NOT_SHOWN) and column_kind(name, values) == "number"
    ]
    found: dict[str, Scale] = {}
    for name in filter(columns.__contains__, (*swept, metric, *others)):
        values = {columns[name][row] for row in rows} - {None}
        if len(values) > 1:
            found[name] = _scale(at[name], column_label(name), values)
    if metric not in found or len(found) < 2:
        return None
    # The metric stands last, its axes before it in their order, and what costs come to behind them.
    own = found.pop(metric)
    axes = [scale for name, scale in found.items() if name in swept][: MOST_DIMENSIONS - 1]
    rest = [scale for name, scale in found.items() if name not in swept]
    chosen = [*axes, *rest[: MOST_DIMENSIONS - 1 - len(axes)], own]
    first = [*range(min(len(axes), MOST_IN_MATRIX - 2))]
    costs = [*range(len(axes), len(chosen) - 1)]
    shades = [shade.light for shade in palette.ordered_shades(_SHADES)]
    return {
        "scales": [scale._asdict() for scale in chosen],
        "matrix": sorted({*first, *costs[: MOST_IN_MATRIX - 1 - len(first)], len(chosen) - 1}),
        "shades": shades if goal == "min" else shades[::-1],
        "rest": palette.GRID.light,
        "point": palette.BLUE.light,
        "line": palette.AXIS.light,
        "page": palette.PAGE.light,
        "font": {"color": palette.INK.light, "size": 12},
    }


def growing_style() -> Mapping[str, Any]:
    """Return how the page draws the curves of trials that train now."""
    axis = {
        "gridcolor": palette.GRID.light,
        "linecolor": palette.AXIS.light,
        "zeroline": False,
        "automargin": True,
    }
    return {
        "shades": [shade.light for shade in palette.CATEGORIES],
        "layout": {
            "height": 340,
            "margin": {"l": 60, "r": 16, "t": 24, "b": 48},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": palette.INK.light, "size": 12},
            "showlegend": True,
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
            "xaxis": axis,
            "yaxis": {**axis, "tickformat": "~g"},
        },
    }


def _scale(at: int, label: str, values: set[Any]) -> Scale:
    if not all(isinstance(value, int | float) for value in values):
        names = tuple(sorted(map(str, values)))
        ticks = tuple((float(place), name) for place, name in enumerate(names))
        return Scale(at, label, "names", 0, len(names) - 1, names, ticks[:: -(-len(names) // 24)])
    low, high = min(values), max(values)
    is_log = low > 0 and high >= 10 * low
    few = tuple(sorted(values)) if len(values) <= _MOST_VALUES else ()
    named = few or (log_ticks(low, high, 6) if is_log else _even(low, high))
    place = math.log10 if is_log else float
    ticks = tuple((place(value), short_cost(value)) for value in _apart(named, place))
    return Scale(at, label, "log" if is_log else "number", place(low), place(high), few, ticks)


def _apart(values: Sequence[float], place: Callable[[float], float]) -> list[float]:
    """Return those of the values, ascending, whose names do not run into one another."""
    room = (place(values[-1]) - place(values[0])) / 24
    found: list[float] = []
    for value in values:
        if not found or place(value) - place(found[-1]) >= room:
            found.append(value)
    return found


def _even(low: float, high: float) -> list[float]:
    """Return up to six even values from low to high."""
    step = 10 ** math.floor(math.log10(high - low))
    step = next(each for each in (step / 5, step / 2, step, 2 * step) if (high - low) / each < 6)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.6g}") for number in range(first, last + 1)]
