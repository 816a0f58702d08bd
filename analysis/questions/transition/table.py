"""The runs over a searched and a modulating axis, in the form that the analysis reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.questions.transition.cells import Grid
from analysis.runs.columns import Key, as_numbers
from analysis.runs.scale import check_goal, perfect_runs, transform
from analysis.runs.table import Runs
from analysis.runs.tuned import Tuned, tuned_runs
from hsweep.design.scales import Goal, Scale
from hsweep.errors import UserError


@dataclass(frozen=True)
class RunTable:
    """The runs of a sweep over ``x`` and ``by`` in canonical form.

    Attributes:
        frame: one row a run, columns ``x`` (float), ``by`` (float, NaN without a modulating axis),
            ``replicate`` (str), ``value`` (float, NaN unless known), ``y`` (float, NaN unless
            complete), ``status`` (one of `analysis.runs.statuses.STATUSES`), ``complete`` (bool).
        scale: how ``value`` became ``y``.
        nuisance: axes whose settings compete within a cell; ``frame`` has the runs that represent
            each cell.
        aside: the other runs of the cells, with the same columns; None without nuisance axes.
        without_floor: number of runs with an error of 0 whose smallest possible error is not known.
        tuned: the setting chosen in each cell, by the cell's ``x`` and ``by``.
    """

    frame: pd.DataFrame
    x: str
    by: str | None
    metric: str
    goal: Goal
    scale: Scale
    warnings: tuple[str, ...]
    nuisance: tuple[str, ...] = ()
    aside: pd.DataFrame | None = None
    without_floor: int = 0
    tuned: Mapping[Key, Tuned] = field(default_factory=dict)

    def tuned_at(self, x: float, by: float | None) -> Tuned | None:
        """Return the setting chosen in a cell; ``by`` is None or NaN without a modulating axis."""
        return self.tuned.get((x,) if by is None or np.isnan(by) else (x, by))


def canonical(
    runs: Runs,
    *,
    x: str,
    by: str | None,
    goal: Goal,
    scale: Scale,
    eval_size: int | None = None,
    nuisance: Sequence[str] = (),
) -> RunTable:
    """Check a table of runs and bring it into canonical form.

    Args:
        x, by: the axis that is searched; the modulating one, of positive numbers, or None.
        eval_size: evaluation examples behind an accuracy.
        nuisance: axes (a learning rate, say) whose settings compete within a cell: one run a seed
            is read, of the setting that the other seeds choose (`analysis.runs.tuned`).

    Raises:
        UserError: a table from which any answer would be wrong.
    """
    check_goal(goal, scale)
    axes = [x] if by is None else [x, by]
    for name in axes:
        if name in runs.frame and runs.frame[name].isna().any():
            raise UserError(f"column {name!r} has empty entries; every run needs its {name}")
    rows, warnings = runs.rows([*axes, *nuisance], at_chance_counts=True)
    done = rows.runs["complete"].to_numpy(bool)
    results = rows.runs["value"].to_numpy(np.float64)[done]
    y = np.full(len(done), np.nan)
    y[done], notes = transform(results, scale, eval_size, runs.metric)
    frame = rows.runs.assign(
        x=_axis(rows.keys[x], x, positive=False),
        by=np.nan if by is None else _axis(rows.keys[by], by, positive=True),
        y=y,
    )
    warnings += notes
    names = ["x", "by", "replicate", "value", "y", "status", "complete"]
    aside: pd.DataFrame | None = None
    tuned: dict[Key, Tuned] = {}
    if nuisance:
        kept, tuned, notes = tuned_runs(
            replace(rows, runs=frame),
            config=axes, nuisance=nuisance, goal="min", value="y", noun="cell",
        )  # fmt: skip
        aside = frame.drop(index=kept.runs.index)[names]
        # A cell without the setting that its neighbours are best at is larger for want of it.
        lacks = {key for key, choice in tuned.items() if choice.setting.lacks}
        cells = kept.keys[axes].itertuples(index=False, name=None)
        whole = np.array([tuple(cell) not in lacks for cell in cells], dtype=bool)
        frame = kept.runs.assign(complete=kept.runs["complete"] & whole)
        warnings += notes
    frame = frame.sort_values(["x", "by", "replicate"], kind="stable")[names]
    return RunTable(
        frame=frame.reset_index(drop=True),
        x=x,
        by=by,
        metric=runs.metric,
        goal=goal,
        scale=scale,
        warnings=tuple(dict.fromkeys(warnings)),
        nuisance=tuple(nuisance),
        aside=aside,
        without_floor=perfect_runs(results, scale) if eval_size is None else 0,
        tuned=tuned,
    )


def _axis(column: "pd.Series[Any]", name: str, *, positive: bool) -> "pd.Series[float]":
    values = pd.Series(as_numbers(column, name), index=column.index)
    if positive and (values <= 0).any():
        raise UserError(
            f"axis {name!r} holds {float(values.min())!r}; its logarithm is used, so it must be"
            " above 0"
        )
    return values


def build_grid(table: RunTable) -> Grid:
    """Return the complete runs of a table cell by cell."""
    done = table.frame.loc[table.frame["complete"]]
    x, by, y = (done[name].to_numpy(np.float64) for name in ("x", "by", "y"))
    heads, lengths = np.unique(x), np.unique(by)
    rows = tuple(
        tuple(
            np.sort(y[(x == head) & ((by == length) | (np.isnan(by) & np.isnan(length)))])
            for length in lengths
        )
        for head in heads
    )
    chosen = {
        (k, j): tuned.fit
        for k, head in enumerate(heads.tolist())
        for j, length in enumerate(lengths.tolist())
        if (tuned := table.tuned_at(head, length)) is not None and tuned.fit is not None
    }
    return Grid(heads, lengths, rows, chosen)
