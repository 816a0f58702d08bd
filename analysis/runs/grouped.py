"""A table of runs grouped by shape, each with its full-budget runs, for questions about shapes.

Early stopping leaves a shape only the runs that did well, and their mean would flatter it. So a
shape that lost a run to early stopping counts as tried and is not compared.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.runs.columns import Key, moving_together, rows_by_values
from analysis.runs.losses import LOST_WORDS, NONE_LOST, Losses, losses_named
from analysis.runs.scale import check_goal, to_quality
from analysis.runs.statuses import DROPPED, FULL, SHORT
from analysis.runs.table import Runs
from analysis.runs.tuned import Tuned, tuned_runs
from analysis.statistics.moderated import FAR, outliers, seed_variance
from analysis.statistics.values import FloatArray, Mask
from analysis.values import Config, describe
from hsweep.design.labels import listed
from hsweep.design.scales import Goal, Scale
from hsweep.errors import UserError

TASK_AXES: Final = ("seq_len",)
"""Axes of the task rather than of the model."""
_UNEVEN: Final = 2.0
"""Ratio of costs from which runs hardly belong to one shape."""
_ENDED: Final = frozenset({*FULL, *DROPPED, *LOST_WORDS, SHORT})


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape that was tried.

    Attributes:
        values: metric of every full-budget run that is not far from the others, in the table's
            order; empty where a run was stopped early.
        quality: ``values`` on the question's scale, turned so that higher is better.
        replicates: the seed or number of each run in ``values``.
        costs: mean of each cost over the runs in ``values``; over all runs if that is empty.
        numbers: each cost and further column, run by run; NaN where a further entry is empty.
        crash_share: share of the ended runs that failed, diverged, were too large, at chance or
            far from the others.
        stopped: how many of its runs were stopped early.
        lost: how many runs are left out of ``values`` for other reasons.
        tuned: the choice among the shape's settings of the nuisance axes; None without such axes.
    """

    config: Config
    label: str
    values: FloatArray
    quality: FloatArray
    replicates: tuple[str, ...]
    costs: dict[str, float]
    crash_share: float
    numbers: dict[str, FloatArray]
    stopped: int = 0
    lost: Losses = NONE_LOST
    tuned: Tuned | None = None

    def some(self, runs: Mask) -> "Shape":
        """Return the shape with the runs that are True in ``runs`` alone."""
        return replace(
            self,
            values=self.values[runs],
            quality=self.quality[runs],
            replicates=tuple(itertools.compress(self.replicates, runs)),
            numbers={name: values[runs] for name, values in self.numbers.items()},
        )

    @property
    def inflation(self) -> float:
        """Variance of the mean, as a multiple of that of independent runs; above 1 where the runs
        chose one another's setting."""
        return self.tuned.fit.inflation if self.tuned is not None and self.tuned.fit else 1.0

    @property
    def row_fields(self) -> dict[str, Any]:
        """What the row of a result says of the shape, by field."""
        return {
            "config": self.config,
            "label": self.label,
            "mean": float(self.values.mean()),
            "n": self.values.size,
            "values": tuple(self.values.tolist()),
            "costs": self.costs,
            "crash_share": self.crash_share,
            "lost": self.lost,
            "setting": self.tuned.setting if self.tuned else None,
        }

    @property
    def seed_variance(self) -> tuple[float, float]:
        """The variance between its seeds, 0 where these agree, and its degrees of freedom."""
        if self.tuned is not None and self.tuned.fit:
            return self.tuned.fit.variance, self.tuned.fit.df
        return seed_variance(self.values)


@dataclass(frozen=True)
class Grouped:
    """A table of runs by shapes, sorted by their axis values.

    Attributes:
        shapes: all that were tried.
        columns: the columns whose values make a shape.
        costs: names of the costs; the shapes are ordered by the first.
        warnings: notes on runs that were left out and on choices that were made.
        are_replicates_named: whether runs of the same name in two shapes share their seed.
    """

    shapes: tuple[Shape, ...]
    columns: tuple[str, ...]
    metric: str
    goal: Goal
    scale: Scale | None
    costs: tuple[str, ...]
    nuisance: tuple[str, ...]
    warnings: tuple[str, ...]
    are_replicates_named: bool

    @cached_property
    def comparable(self) -> list[Shape]:
        """The shapes with full-budget runs and none stopped early, cheapest first."""
        usable = [shape for shape in self.shapes if shape.values.size]
        return sorted(usable, key=lambda s: (*(s.costs[name] for name in self.costs), s.label))

    @cached_property
    def stopped(self) -> list[Shape]:
        """The shapes that lost a run to early stopping."""
        return [shape for shape in self.shapes if shape.stopped]


def grouped(
    runs: Runs,
    config: Sequence[str],
    nuisance: Sequence[str] = (),
    *,
    goal: Goal,
    scale: Scale | None = None,
    eval_size: int | None = None,
    costs: Sequence[str] = (),
    numbers: Sequence[str] = (),
    far: float = FAR,
    noun: str = "shape",
) -> Grouped:
    """Return the shapes of a table with their full-budget runs.

    Args:
        config: columns whose values make a shape.
        nuisance: columns of settings (a learning rate). Each shape is compared at its best setting,
            which is chosen for every seed by the other seeds (`analysis.runs.tuned`).
        scale: how quality is put on an axis; None leaves it in the metric's own unit.
        eval_size: number of evaluation examples, for errors of 0 (see `analysis.runs.scale`).
        numbers: further columns of numbers, which may have empty entries.
        far: how far runs lie from the others of their shape that are left out (`outliers`); with 0
            none is.
        noun: what a shape is called in warnings.

    Raises:
        UserError: no column, a goal that contradicts the scale, a bad table (`Runs.rows`), a
            missing cost, or no full-budget run at all.
    """
    if scale is not None:
        check_goal(goal, scale)
    if not config:
        raise UserError("name at least one configuration column (heads, depth, ...)")
    if both := sorted(set(config) & set(nuisance)):
        raise UserError(
            f"{both[0]!r} cannot both name a shape and be a nuisance axis, of which every shape"
            " stands at its best value"
        )
    rows, warnings = runs.rows([*config, *nuisance], [*costs, *numbers])
    tuned: dict[Key, Tuned] = {}
    if nuisance:
        rows, tuned, notes = tuned_runs(
            rows, config=config, nuisance=nuisance, goal=goal, noun=noun
        )
        warnings += notes
    runs_of, numbers_of = rows.runs, rows.numbers
    value, complete = runs_of["value"].to_numpy(np.float64), runs_of["complete"].to_numpy(bool)
    done, notes = to_quality(value[complete], goal, scale, eval_size=eval_size, metric=runs.metric)
    warnings += notes
    quality = np.full(len(value), np.nan)
    quality[complete] = done
    status, seed = (runs_of[name].to_numpy(object) for name in ("status", "replicate"))
    columns = {name: numbers_of[name].to_numpy(np.float64) for name in (*costs, *numbers)}
    parts = rows_by_values(rows.keys, config)
    full = [at[complete[at]] for _, at in parts]
    dropped = runs_of["status"].isin(DROPPED).to_numpy()
    stopped = [int(dropped[at].sum()) for _, at in parts]
    shapes = []
    for (key, all_rows), at, num_stopped in zip(parts, full, stopped, strict=True):
        at_values = dict(zip(config, key, strict=True))
        label = _label(at_values)
        # What was stopped early keeps the runs that did well.
        bad = outliers(quality[at], 0.0 if num_stopped else far)
        unknown = [name for name in costs if np.isnan(columns[name][at]).any()]
        if unknown and not num_stopped:
            raise UserError(f"cost {unknown[0]!r} is missing for a full-budget run of {label}")
        good = at[:0] if num_stopped else at[~bad]
        ends = status[all_rows].tolist()
        lost = Losses.of(ends, int(bad.sum()))
        ended = sum(word in _ENDED for word in ends)
        shapes.append(
            Shape(
                at_values,
                label,
                value[good],
                quality[good],
                tuple(map(str, seed[good])),
                {name: _mean(columns[name][good if good.size else all_rows]) for name in costs},
                float((lost.total - lost.short) / ended) if ended else 0.0,
                {name: column[good] for name, column in columns.items()},
                num_stopped,
                lost,
                tuned.get(key),
            )
        )
    groups = Grouped(
        tuple(shapes),
        tuple(config),
        runs.metric,
        goal,
        scale,
        tuple(costs),
        tuple(nuisance),
        tuple(dict.fromkeys([*warnings, *_warnings(shapes, noun)])),
        runs.replicate is not None,
    )
    _need_full_runs(groups)
    return groups


def _mean(values: FloatArray) -> float:
    """Return the mean of the values that are known; NaN where none is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


def _label(config: Config) -> str:
    """Return a shape's label: its only value if that is text or in a column ``config``, else all
    its values by name."""
    if len(config) == 1:
        ((column, value),) = config.items()
        if column == "config" or isinstance(value, str):
            return str(value)
    return describe(config)


def _warnings(shapes: Sequence[Shape], noun: str) -> list[str]:
    warnings = []
    if stopped := sum(shape.stopped > 0 for shape in shapes):
        warnings.append(
            f"{stopped} of {len(shapes)} {noun}s lost runs to early stopping and are not compared:"
            " the runs they kept are those that did well"
        )
    if empty := [shape for shape in shapes if not shape.stopped and not shape.values.size]:
        named = losses_named([(shape.label, shape.lost) for shape in empty])
        warnings.append(
            f"{len(empty)} {noun}s have no full-budget run{f': {named}' if named else ''}"
        )
    usable = [shape for shape in shapes if shape.values.size]
    if named := losses_named([(shape.label, shape.lost) for shape in usable]):
        warnings.append(f"some means are those of the runs that were left: {named}")
    warnings += [
        f"{listed(names)} move together, so that what is said of one may be due to another"
        for names in moving_together(pd.DataFrame([shape.config for shape in shapes]))
    ]
    for cost, (ratio, label) in _uneven_costs(usable).items():
        warnings.append(f"{cost} differs {ratio:.3g}fold between the runs of {label}: is it one?")
    sizes = {shape.values.size for shape in usable}
    if len(sizes) > 1:
        warnings.append(f"{noun}s hold between {min(sizes)} and {max(sizes)} runs")
    return warnings


def _uneven_costs(shapes: Sequence[Shape]) -> dict[str, tuple[float, str]]:
    """Return the costs that differ by `_UNEVEN` or more between runs of one shape, each with the
    largest ratio and its shape."""
    found: dict[str, tuple[float, str]] = {}
    for shape in shapes:
        for cost in shape.costs:
            low, high = (float(end(shape.numbers[cost])) for end in (np.min, np.max))
            if low > 0 and high / low >= max(_UNEVEN, found.get(cost, (0.0, ""))[0]):
                found[cost] = high / low, shape.label
    return found


def _need_full_runs(shapes: Grouped) -> None:
    if shapes.comparable:
        return
    if shapes.stopped:
        raise UserError(
            f"no shape has all its runs at full budget with a {shapes.metric}: "
            f"{len(shapes.stopped)} of {len(shapes.shapes)} lost runs to early stopping; runs that"
            " were to be shorter are a budget of their own: ask for it alone with"
            " --where COLUMN=VALUE"
        )
    raise UserError(f"no run of the table reached its full budget with a {shapes.metric}")
