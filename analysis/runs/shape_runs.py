"""A table of runs as shapes with their replicates: what effects start from.

Quality is the metric put on its scale and turned so that higher is better: decades of error taken
away, points of an accuracy, or the metric's own unit. A shape that lost a run to early stopping
keeps only the runs that did well, so it is set aside, and its absence is counted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Unpack

import numpy as np
import pandas as pd

from analysis.runs.columns import RunColumns, in_order, plain
from analysis.runs.configurations import describe
from analysis.runs.losses import Losses, losses_named
from analysis.runs.scale import check_goal, metric_span, transform
from analysis.runs.statuses import DROPPED
from analysis.runs.table import Runs
from analysis.runs.tuned import tuned_runs
from analysis.statistics.bounds import ANYWHERE, Span, difference_span
from analysis.statistics.moderated import screen_crashes
from analysis.values import AxisValue, Config
from hsweep.design.question import Goal, Scale
from hsweep.errors import UserError, unknown_name


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape that was tried.

    Attributes:
        config: axis values, also of the axes that follow others.
        label: the values of the axes that vary by themselves, in words.
        quality: replicate name to quality, of every full-budget run that did not crash.
        cost: mean cost over its runs; None where the table has none.
        lost: why it cannot be compared, empty if it can.
    """

    config: Config
    label: str
    quality: dict[str, float]
    cost: float | None
    lost: str

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.quality.values())))


@dataclass(frozen=True, slots=True)
class ShapeRuns:
    """The shapes of a table.

    Attributes:
        shapes: sorted by their axis values.
        axes: axes that vary by themselves and hold numbers.
        names: axes that vary and hold names; shapes are compared within one value of each.
        follows: axis to the axes that determine it; it is no axis of its own.
        scale: how the metric became quality; None is the metric's own unit.
        cost: name of the cost column, or None.
        are_replicates_named: whether runs of the same name in two shapes share their seed.
        nuisance: axes of whose settings every shape stands at its best.
    """

    shapes: tuple[Shape, ...]
    axes: tuple[str, ...]
    names: tuple[str, ...]
    follows: dict[str, str]
    metric: str
    goal: Goal
    scale: Scale | None
    cost: str | None
    warnings: tuple[str, ...]
    are_replicates_named: bool
    nuisance: tuple[str, ...] = ()

    @property
    def usable(self) -> tuple[Shape, ...]:
        return tuple(shape for shape in self.shapes if not shape.lost)

    @property
    def span(self) -> Span:
        seen = [q for shape in self.shapes for q in shape.quality.values()]
        return metric_span(
            [to_metric(q, self.goal, self.scale) for q in seen], self.goal, self.scale
        )

    @property
    def gain_span(self) -> Span:
        """The range of a gain: unbounded in decades, that of a difference in the metric's unit."""
        if self.scale == "accuracy":
            return (-100.0, 100.0)
        return difference_span(self.span) if self.scale in (None, "loss") else ANYWHERE

    def values(self, axis: str) -> list[float]:
        return sorted({float(shape.config[axis]) for shape in self.shapes})


TASK_AXES = ("seq_len",)
"""Axes of the task rather than of the model."""
STOPPED = "stopped early"
NOT_FULL = "no full-budget run"


def read_shapes(
    frame: pd.DataFrame | Runs,
    *,
    config: Sequence[str],
    metric: str,
    goal: Goal = "max",
    scale: Scale | None = None,
    eval_size: int | None = None,
    costs: Sequence[str] = ("num_params",),
    crash_sd: float = 6.0,
    nuisance: Sequence[str] = (),
    what: str = "shape",
    **run_columns: Unpack[RunColumns],
) -> ShapeRuns:
    """Return the shapes of a table.

    Args:
        config: columns that name a shape. Numbers are axes, names are held; a column that follows
            others (a head width that is embed_dim / heads) is found and not held.
        metric, goal: column of the result, and whether it is minimised or maximised.
        scale: how it is put on an axis; None leaves it in its own unit.
        eval_size: evaluation examples behind an error, which floor one of 0.
        costs: the first decides which shapes cost the same, and which are smaller.
        crash_sd: runs this many pooled robust sd below their shape's median are left out.
        nuisance: axes whose settings compete within a shape: one run a seed is kept, of the setting
            that the other seeds choose (`analysis.runs.tuned`).
        what: what a shape is called in warnings about its settings.
        run_columns: which columns tell runs apart and say how each ended (`RunColumns`).

    Raises:
        UserError: no axis named, a goal that contradicts the scale, a bad table (see
            `analysis.runs.table.Runs.rows`), no full-budget run, an axis that is not finite, or a
            cost that a shape lacks.
    """
    if goal not in ("min", "max"):
        raise unknown_name("goal", goal, ("min", "max"))
    if scale is not None:
        check_goal(goal, scale)
    if not config:
        raise UserError("name at least one configuration column (heads, depth, ...)")
    if both := sorted(set(config) & set(nuisance)):
        raise UserError(
            f"{both[0]!r} cannot both be an axis of the shape and a nuisance axis, of which every"
            " shape stands at its best value"
        )
    warnings: list[str] = []
    cost = costs[0] if costs else None
    table = Runs.of(frame, metric, run_columns)
    if cost is not None and cost not in table.frame.columns:
        warnings.append(f"the table has no column {cost!r}, so nothing is said about cost")
        cost = None
    runs, notes = table.rows([*config, *nuisance], [] if cost is None else [cost])
    warnings += notes
    if nuisance:
        runs, _, notes = tuned_runs(runs, config=config, nuisance=nuisance, goal=goal, what=what)
        runs = runs.reset_index(drop=True)
        warnings += notes
    done = runs["complete"].to_numpy(bool)
    if not done.any():
        raise UserError(f"no run of the table reached its full budget with a {metric}")
    runs["quality"] = np.nan
    values = runs.loc[done, "value"].to_numpy(np.float64)
    if scale is None:
        runs.loc[done, "quality"] = values if goal == "max" else -values
    elif scale == "accuracy":
        transform(values, scale, eval_size, metric)  # which refuses what is no accuracy
        runs.loc[done, "quality"] = 100 * values
    else:
        y, notes = transform(values, scale, eval_size, metric)
        runs.loc[done, "quality"] = -y
        warnings += notes
    columns = [name for name in config if runs[name].nunique() > 1]
    axes, names, follows = _roles(runs, columns)
    for axis in axes:
        if np.isinf(runs[axis].to_numpy(np.float64)).any():
            raise UserError(
                f"axis {axis!r} holds an infinite value; distances between shapes need finite "
                "numbers: correct or remove these rows"
            )
    warnings += [
        f"{name} moves with {by}; what {by} does includes it" for name, by in follows.items()
    ]
    shapes = _shapes(runs, config, [*axes, *names], cost, crash_sd, warnings)
    return ShapeRuns(
        tuple(shapes),
        axes,
        names,
        follows,
        metric,
        goal,
        scale,
        cost,
        tuple(dict.fromkeys(warnings)),
        table.replicate is not None,
        tuple(nuisance),
    )


def to_metric(quality: float, goal: Goal, scale: Scale | None) -> float:
    if scale == "error":
        return float(10.0**-quality)
    if scale == "accuracy":
        return quality / 100
    return quality if scale is None and goal == "max" else -quality


def _roles(
    runs: pd.DataFrame, columns: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]:
    """Return the ordered axes, the named ones, and which follow others."""
    shapes = runs[columns].drop_duplicates()
    ordered = [name for name in columns if _is_ordered(shapes[name])]
    follows: dict[str, str] = {}
    if {"heads", "head_dim", "embed_dim"} <= set(ordered) and bool(
        (shapes["heads"] * shapes["head_dim"] == shapes["embed_dim"]).all()
    ):
        follows["embed_dim"] = "heads and head_dim"
    for first, second in combinations(ordered, 2):
        if first in follows or second in follows:
            continue
        values = shapes[first].nunique()
        if values < len(shapes) and len(shapes[[first, second]].drop_duplicates()) == values:
            follows[second] = first
    axes = tuple(name for name in ordered if name not in follows)
    return axes, tuple(name for name in columns if name not in ordered), follows


def _is_ordered(column: "pd.Series[AxisValue]") -> bool:
    return all(
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool | np.bool_)
        for value in column
    )


def _shapes(
    runs: pd.DataFrame,
    config: Sequence[str],
    shown: list[str],
    cost: str | None,
    crash_sd: float,
    warnings: list[str],
) -> list[Shape]:
    columns = [runs[name].tolist() for name in config]
    prices = runs[cost].tolist() if cost is not None else [math.nan] * len(runs)
    groups: dict[tuple[AxisValue, ...], list[tuple[str, float, bool, str, float]]] = {}
    recorded = (runs[name] for name in ("replicate", "quality", "complete", "status"))
    for *values, replicate, quality, complete, status, price in zip(
        *columns, *recorded, prices, strict=True
    ):
        key = tuple(plain(value) for value in values)
        groups.setdefault(key, []).append((replicate, quality, complete, status, price))
    done = [
        [(replicate, quality) for replicate, quality, complete, *_ in rows if complete]
        for rows in groups.values()
    ]
    full = [np.array([quality for _, quality in own], dtype=np.float64) for own in done]
    tested = iter(screen_crashes([values for values in full if values.size], crash_sd))
    crashed = [next(tested) if values.size else np.zeros(0, bool) for values in full]
    screened = sum(int(bad.sum()) for bad in crashed)
    if screened:
        warnings.append(
            f"{screened} crashed runs (over {crash_sd:g} seed sd below their shape's median) are"
            " left out"
        )
    shapes = []
    losses = []
    for (key, rows), own, bad in zip(groups.items(), done, crashed, strict=True):
        values_of = dict(zip(config, key, strict=True))
        label = describe({name: values_of[name] for name in shown} or values_of)
        statuses = [status for *_, status, _ in rows]
        paid = [price for *_, price in rows if not math.isnan(price)]
        if cost is not None and not paid:
            raise UserError(f"cost {cost!r} is missing for {label}")
        stopped = not set(DROPPED).isdisjoint(statuses)
        quality = dict(sorted(run for run, is_bad in zip(own, bad, strict=True) if not is_bad))
        losses.append((label, Losses.of(statuses, int(bad.sum()))))
        shapes.append(
            Shape(
                values_of,
                label,
                {} if stopped else quality,
                sum(paid) / len(paid) if paid else None,
                STOPPED if stopped else "" if quality else NOT_FULL,
            )
        )
    if named := losses_named(losses):
        warnings.append(f"shapes are read from the runs that are left: {named}")
    return sorted(shapes, key=lambda shape: [in_order(shape.config[name]) for name in config])
