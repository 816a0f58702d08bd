"""What the pictures show, as rows: computed here once, drawn by the figures and plots."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pandas as pd

from analysis.jsonable import Number
from analysis.results import (
    AxisValue,
    Config,
    FrontClass,
    Interval,
    LeanResult,
    LeanRow,
    ParetoResult,
    TransitionResult,
)
from analysis.wording import NONE, cost_text, cost_title, number_text, percent_text
from hsweep.question import Goal, Scale

MAX_FOREST_ROWS: Final = 40
MAX_RUN_POINTS: Final = 1500


@dataclass(frozen=True, slots=True)
class GridAxis:
    """Where the values of an ordered axis stand in a picture.

    A grid whose steps grow (1, 2, 4, 8) is spaced by log2, any other as it is.
    """

    values: tuple[Number, ...]
    is_log: bool

    @classmethod
    def of(cls, values: Iterable[Number]) -> "GridAxis":
        """Choose the spacing for these values."""
        grid = tuple(sorted(set(values)))
        steps = [after - before for before, after in pairwise(grid)]
        grows = len(steps) >= 2 and max(steps) >= 3 * min(steps)
        return cls(grid, grows and grid[0] > 0 and grid[-1] >= 8 * grid[0])

    def at(self, value: Number) -> float:
        """Return the position of ``value``."""
        return math.log2(value) if self.is_log else float(value)

    @property
    def positions(self) -> list[float]:
        """Positions of the grid values."""
        return [self.at(value) for value in self.values]

    @property
    def labels(self) -> list[str]:
        """Names of the grid values."""
        return [number_text(value) for value in self.values]

    @property
    def step(self) -> float:
        """Smallest distance between two neighbours; 1 where there are none."""
        positions = self.positions
        gaps = [after - before for before, after in pairwise(positions)]
        return min(gaps, default=1.0)


@dataclass(frozen=True, slots=True)
class LengthSeries:
    """The error against the searched axis at one value of the modulating axis.

    Attributes:
        by: that value; None where nothing modulates.
        runs: (x, error, replicate) of every full-budget run.
        cells: (x, error) of every cell, under the leading reading.
    """

    by: Number | None
    runs: tuple[tuple[Number, float, str], ...]
    cells: tuple[tuple[Number, float], ...]


def error_of(y: float, scale: Scale) -> float:
    """Return the error that stands for ``y``: undoes the logarithm, leaves nats as they are."""
    return y if scale == "loss" else 10.0**y


def length_series(result: TransitionResult) -> list[LengthSeries]:
    """Return one series a length, ascending, with at most about `MAX_RUN_POINTS` runs in all."""
    every = math.ceil(len(result.runs) / MAX_RUN_POINTS) or 1
    keys = {run.by for run in result.runs} | {cell.by for cell in result.cells}
    return [
        LengthSeries(
            by=by,
            runs=tuple(
                (run.x, error_of(run.y, result.scale), run.replicate)
                for run in [run for run in result.runs if run.by == by][::every]
            ),
            cells=tuple(
                (cell.x, error_of(cell.z, result.scale))
                for cell in sorted(result.cells, key=lambda cell: cell.x)
                if cell.by == by and math.isfinite(cell.z)
            ),
        )
        for by in sorted(keys, key=lambda key: (key is not None, key or 0))
    ]


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """One shape in the picture of metric against cost.

    Attributes:
        label: the shape in words.
        cost: its cost; the picture's horizontal axis.
        ci: mean metric with its interval.
        p_front: probability of lying on the front.
        class_: on, off or undecided.
        role: whether it is the baseline or the chosen equivalent.
        details: further lines that describe it.
        query: text that finds its trials in the table of trials.
    """

    label: str
    cost: float
    ci: Interval
    p_front: float
    class_: FrontClass
    role: str
    details: tuple[str, ...]
    query: str

    @property
    def opacity(self) -> float:
        """How solid to draw it: fainter the less likely it is on the front; half if unknown."""
        return 0.5 if math.isnan(self.p_front) else 0.25 + 0.75 * self.p_front


def front_points(
    pareto: ParetoResult, cost: str, lean: LeanResult | None, trials: pd.DataFrame
) -> list[FrontPoint]:
    """Return every shape with a known ``cost``, cheapest first."""
    runs = _runs_by_config(trials, pareto)
    points = []
    for row in pareto.table:
        value = row.costs.get(cost, math.nan)
        if not math.isfinite(value):
            continue
        details = [f"{percent_text(row.crash_share)} of runs crashed"] if row.crash_share else []
        details += [f"{cost_title(name)}: {cost_text(name, row.costs[name])}" for name in row.costs]
        seeds = runs.get(config_key(row.config), [])
        details.append(f"{row.n} full-budget run{'' if row.n == 1 else 's'}")
        if listed := ", ".join(str(run["seed"]) for run in seeds if "seed" in run):
            details.append(f"seeds: {_shorten(listed)}")
        if links := [str(run["mlflow_url"]) for run in seeds if _is_text(run.get("mlflow_url"))]:
            names = ", ".join(link.rstrip("/").rsplit("/", 1)[-1][:8] for link in links)
            details.append(f"MLflow: {_shorten(names)}")
        points.append(
            FrontPoint(
                label=row.label,
                cost=value,
                ci=row.ci,
                p_front=row.p_front,
                class_=row.class_,
                role=_role(row.config, lean),
                details=tuple(details),
                query=" ".join(f"{name}={value}" for name, value in row.config.items()),
            )
        )
    return sorted(points, key=lambda point: point.cost)


def mean_front(points: Sequence[FrontPoint], goal: Goal) -> list[tuple[float, float]]:
    """Return the corners of the front of the means, as (cost, metric), cheapest first."""
    corners: list[tuple[float, float]] = []
    best = math.inf
    sign = 1.0 if goal == "min" else -1.0
    for point in sorted(points, key=lambda point: (point.cost, sign * point.ci.estimate)):
        if sign * point.ci.estimate < best:
            best = sign * point.ci.estimate
            corners.append((point.cost, point.ci.estimate))
    return corners


def config_key(config: Mapping[str, AxisValue]) -> tuple[tuple[str, str], ...]:
    """Return a shape as something that can be looked up; 4 and 4.0 are the same."""
    return tuple(sorted((name, _plain(value)) for name, value in config.items()))


def varying_axes(configs: Sequence[Config]) -> list[str]:
    """Return the axes on which these shapes differ, in their own order."""
    names = list(dict.fromkeys(name for config in configs for name in config))
    return [name for name in names if len({_plain(config.get(name, "")) for config in configs}) > 1]


def short_label(config: Config, axes: Sequence[str]) -> str:
    """Return a shape by the values of ``axes`` alone: ``8 · 4 · 64``."""
    return " · ".join(_plain(config[name]) if name in config else NONE for name in axes)


def forest_rows(lean: LeanResult) -> list[LeanRow]:
    """Return the candidates of the forest plot, cheapest first.

    Beyond `MAX_FOREST_ROWS` candidates the accepted ones and then those with the highest lower
    bound are kept.
    """
    cost = lean.costs[0]
    rows = [row for row in lean.table if math.isfinite(row.diff)]
    if len(rows) > MAX_FOREST_ROWS:
        rows = sorted(rows, key=lambda row: (not row.accepted, -_finite(row.ci.low)))
        rows = rows[:MAX_FOREST_ROWS]
    return sorted(rows, key=lambda row: (row.costs.get(cost, math.inf), row.label))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def _runs_by_config(
    trials: pd.DataFrame, pareto: ParetoResult
) -> dict[tuple[tuple[str, str], ...], list[dict[str, Any]]]:
    names = list(dict.fromkeys(name for row in pareto.table for name in row.config))
    if trials.empty or not names or not set(names) <= set(trials.columns):
        return {}
    finished = trials[trials["status"] == "finished"] if "status" in trials.columns else trials
    found: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}
    for record in finished.to_dict("records"):
        row = {str(name): value for name, value in record.items()}
        found.setdefault(config_key({name: row[name] for name in names}), []).append(row)
    return found


def _role(config: Config, lean: LeanResult | None) -> str:
    if lean is None:
        return ""
    if _matches(lean.baseline, config):
        return "baseline"
    if lean.choice_config is not None and _matches(lean.choice_config, config):
        return "chosen"
    return ""


def _matches(wanted: Config, config: Config) -> bool:
    return bool(wanted) and set(config_key(wanted)) <= set(config_key(config))


def _plain(value: object) -> str:
    if value is None or value != value:  # NaN: an axis without a value
        return "none"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}" if float(value) != int(value) else str(int(value))
    return str(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _shorten(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
