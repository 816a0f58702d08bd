"""The runs over a searched and a modulating axis, in the form that the transition starts from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.questions.transition.history import read_history, with_history
from analysis.runs.columns import as_numbers
from analysis.runs.scale import check_goal, transform
from analysis.runs.table import Runs
from hsweep.design.question import Goal, Scale
from hsweep.errors import UserError


@dataclass(frozen=True)
class RunTable:
    """The runs of a sweep over ``x`` and ``by`` in canonical form.

    Attributes:
        frame: one row a run, columns ``x`` (float), ``by`` (float, NaN without a modulating axis),
            ``replicate`` (str), ``value`` (float, NaN unless known), ``y`` (float, NaN unless
            complete), ``status`` (one of `analysis.runs.statuses.STATUSES`), ``complete`` (bool),
            ``reached`` and ``budget`` (float, NaN if unknown).
        scale: how ``value`` became ``y``.
        history: one row a report (columns ``x``, ``by``, ``replicate``, ``reached``, ``value``,
            ``y``), or None.
    """

    frame: pd.DataFrame
    x: str
    by: str | None
    metric: str
    goal: Goal
    scale: Scale
    warnings: tuple[str, ...]
    history: pd.DataFrame | None = None


def canonical(
    runs: Runs,
    *,
    x: str,
    by: str | None,
    goal: Goal,
    scale: Scale,
    eval_size: int | None = None,
    nuisance: Sequence[str] = (),
    history: pd.DataFrame | None = None,
) -> RunTable:
    """Check a table of runs and bring it into canonical form.

    Args:
        by: modulating axis, positive numbers, or None.
        eval_size: evaluation examples behind an accuracy.
        nuisance: axes (a learning rate, say) whose settings compete within a cell: of the settings
            with the most full-budget runs the one with the best median is kept.
        history: one row a report of a run; adds the runs that only it knows, and says how far each
            got where the table does not (see `analysis.questions.transition.history`).

    Raises:
        UserError: anything about the table that would make an answer wrong.
    """
    check_goal(goal, scale)
    metric = runs.metric
    axes = [x] if by is None else [x, by]
    reports: pd.DataFrame | None = None
    if history is not None:
        if nuisance:
            raise UserError("a history cannot be matched with runs of competing settings")
        reports = read_history(history, runs, x, by)
        if runs.columns.get("budget_column") not in runs.frame.columns:
            runs = Runs(runs.frame, metric, {**runs.columns, "budget_column": None})
    rows, warnings = runs.rows([*axes, *nuisance])
    rows = rows.rename(columns={x: "x"} if by is None else {x: "x", by: "by"})
    rows["x"] = _axis(rows["x"], x, positive=False)
    rows["by"] = np.nan if by is None else _axis(rows["by"], by, positive=True)
    if reports is not None:
        rows, notes = with_history(rows, reports, runs.columns.get("target_budget"))
        warnings += notes
    done = rows["complete"].to_numpy(bool)
    y = np.full(len(rows), np.nan)
    results = rows.loc[done, "value"].to_numpy(np.float64)
    y[done], notes = transform(results, scale, eval_size, metric)
    rows["y"] = y
    warnings += notes
    if reports is not None:
        values = np.concatenate([results, reports["value"].to_numpy(np.float64)])
        reports["y"] = transform(values, scale, eval_size, metric)[0][len(results) :]
    if nuisance:
        rows, notes = _best_setting(rows, list(nuisance))
        warnings += notes
    names = ["x", "by", "replicate", "value", "y", "status", "complete", "reached", "budget"]
    rows = rows.sort_values(["x", "by", "replicate"], kind="stable")[names]
    notes = list(dict.fromkeys(warnings))
    return RunTable(rows.reset_index(drop=True), x, by, metric, goal, scale, tuple(notes), reports)


def _axis(column: "pd.Series[Any]", name: str, *, positive: bool) -> "pd.Series[float]":
    values = pd.Series(as_numbers(column, name), index=column.index)
    if positive and (values <= 0).any():
        raise UserError(
            f"axis {name!r} holds {float(values.min())!r}; its logarithm is used, so it must be"
            " above 0"
        )
    return values


def _best_setting(runs: pd.DataFrame, nuisance: list[str]) -> tuple[pd.DataFrame, list[str]]:
    """Keep one nuisance setting a cell: the best median among those with the most full runs."""
    kept: list[pd.DataFrame] = []
    places: dict[str, list[str]] = {}
    competed = False
    for _, cell in runs.groupby(["x", "by"], sort=True, dropna=False):
        settings = list(cell.groupby(nuisance, sort=True))
        competed |= len(settings) > 1
        most = max(int(rows["complete"].sum()) for _, rows in settings)
        best_setting, best_rows = min(
            (entry for entry in settings if int(entry[1]["complete"].sum()) == most),
            key=lambda entry: float(entry[1]["y"].median()) if most else 0.0,
        )
        kept.append(best_rows)
        words = ", ".join(
            f"{name}={value}" for name, value in zip(nuisance, best_setting, strict=True)
        )
        x, by = float(cell["x"].iloc[0]), float(cell["by"].iloc[0])
        places.setdefault(words, []).append(f"{x:g}" if np.isnan(by) else f"({x:g}, {by:g})")
    if not competed:
        return runs, []
    chosen = (
        f"{words} in every cell" if len(places) == 1 else f"{words} at {', '.join(cells)}"
        for words, cells in places.items()
    )
    note = (
        f"{', '.join(nuisance)} compete within a cell, best median kept: {'; '.join(chosen)}."
        " Choice and value come from the same runs, so values are optimistic"
    )
    return pd.concat(kept), [note]
