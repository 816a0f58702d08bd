"""The runs over a searched and a modulating axis, in the form that the transition starts from."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.questions.transition.cells import Grid
from analysis.questions.transition.run_table import RunTable
from analysis.runs.columns import Key, as_numbers
from analysis.runs.scale import check_goal, perfect_runs, transform
from analysis.runs.table import Runs
from analysis.runs.tuned import Tuned, tuned_runs
from hsweep.design.question import Goal, Scale
from hsweep.errors import UserError


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
        by: modulating axis, positive numbers, or None.
        eval_size: evaluation examples behind an accuracy.
        nuisance: axes (a learning rate, say) whose settings compete within a cell: one run a seed
            is kept, of the setting that the other seeds choose (`analysis.runs.tuned`).

    Raises:
        UserError: anything about the table that would make an answer wrong.
    """
    check_goal(goal, scale)
    metric = runs.metric
    axes = [x] if by is None else [x, by]
    for name in axes:
        if name in runs.frame and runs.frame[name].isna().any():
            raise UserError(f"column {name!r} has empty entries; every run needs its {name}")
    rows, warnings = runs.rows([*axes, *nuisance], at_chance_counts=True)
    rows = rows.rename(columns={x: "x"} if by is None else {x: "x", by: "by"})
    rows["x"] = _axis(rows["x"], x, positive=False)
    rows["by"] = np.nan if by is None else _axis(rows["by"], by, positive=True)
    done = rows["complete"].to_numpy(bool)
    y = np.full(len(rows), np.nan)
    results = rows.loc[done, "value"].to_numpy(np.float64)
    y[done], notes = transform(results, scale, eval_size, metric)
    rows["y"] = y
    warnings += notes
    names = ["x", "by", "replicate", "value", "y", "status", "complete", "reached", "budget"]
    aside: pd.DataFrame | None = None
    tuned: dict[Key, Tuned] = {}
    if nuisance:
        every, cell = rows, ["x"] if by is None else ["x", "by"]
        rows, tuned, notes = tuned_runs(
            every, config=cell, nuisance=nuisance, goal="min", value="y", what="cell"
        )
        aside = every.drop(index=rows.index)[names]
        warnings += notes
    rows = rows.sort_values(["x", "by", "replicate"], kind="stable")[names].reset_index(drop=True)
    return RunTable(
        frame=rows,
        x=x,
        by=by,
        metric=metric,
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
    heads = np.unique(done["x"].to_numpy(np.float64))
    lengths = np.unique(done["by"].to_numpy(np.float64))
    x, by = done["x"].to_numpy(np.float64), done["by"].to_numpy(np.float64)
    y = done["y"].to_numpy(np.float64)
    rows = tuple(
        tuple(
            np.sort(y[(x == head) & ((by == length) | (np.isnan(by) & np.isnan(length)))])
            for length in lengths
        )
        for head in heads
    )
    chosen = {
        (k, j): found.fit
        for k, head in enumerate(heads.tolist())
        for j, length in enumerate(lengths.tolist())
        if (found := table.tuned_at(head, length)) is not None and found.fit is not None
    }
    return Grid(heads, lengths, rows, chosen)
