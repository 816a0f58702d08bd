"""Rung histories: what every run had reached on its way, one row a report.

A table of runs may lack those that were stopped early, or how far they got; the history has both.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from analysis.runs.columns import as_numbers, replicate_words, require
from analysis.runs.statuses import DROPPED, FULL
from analysis.runs.table import Runs
from hsweep.errors import UserError

KEYS: Final = ["x", "by", "replicate"]
UNIT: Final = "unit"
"""Column of a study's reports: how far the trial had got."""


def read_history(history: pd.DataFrame, runs: Runs, x: str, by: str | None) -> pd.DataFrame:
    """Return the reports in canonical form: columns x, by, replicate, reached and value.

    Args:
        history: one row a report: the run's columns, or a column that names the run in both
            tables, with the budget and the metric.
        runs: one row a run.
        x: searched axis.
        by: modulating axis, or None.

    Raises:
        UserError: a history that cannot be matched with the runs.
    """
    metric, replicate = runs.metric, runs.replicate
    budget_column = runs.columns.get("budget_column")
    if history.empty:
        raise UserError("the history is empty: it has no rows")
    if budget_column is None:
        raise UserError("a history needs the name of its budget column")
    if replicate is None:
        raise UserError(
            "a history needs the column of the seeds: without one its runs cannot be told apart"
        )
    names = [x, *([] if by is None else [by]), replicate]
    require(history, [budget_column, metric], "history")
    if any(name not in history.columns for name in names):
        history = _named(history, runs.frame, names)
    reports = pd.DataFrame(
        {
            "x": as_numbers(history[x], x),
            "by": np.nan if by is None else as_numbers(history[by], by),
            "replicate": replicate_words(history[replicate]).to_numpy(),
            "reached": as_numbers(history[budget_column], budget_column),
            "value": as_numbers(history[metric], metric, infinite=True),
        }
    )
    reports = reports[np.isfinite(reports["value"]) & reports["reached"].notna()]
    if reports.duplicated([*KEYS, "reached"]).any():
        raise UserError(f"the history holds two rows of one run at one {budget_column}")
    ordered: pd.DataFrame = reports.sort_values([*KEYS, "reached"], kind="stable")
    return ordered.reset_index(drop=True)


def _named(history: pd.DataFrame, table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Look up the axes of each report's run by a column that names the run in both tables."""
    shared = [
        name
        for name in history.columns
        if name in table.columns and name not in names and table[name].is_unique
        and history[name].isin(table[name]).all()
    ]  # fmt: skip
    missing = [name for name in names if name not in history.columns]
    if not shared:
        raise UserError(
            f"the history has no column {missing[0]!r}, and none that names each run of the table"
        )
    looked_up: pd.DataFrame = table[[shared[0], *missing]]
    matched: pd.DataFrame = history.merge(looked_up, on=shared[0], how="left")
    return matched


def study_history(trials: pd.DataFrame, reports: pd.DataFrame, metric: str) -> pd.DataFrame | None:
    """Return a study's reports as a history with the budget column `UNIT`.

    None where nothing was stopped early, or where finished trials had different budgets: then one
    full budget for all of them would be wrong.
    """
    if not trials["status"].isin(DROPPED).any():
        return None
    known = reports[["key", UNIT, metric]].dropna()
    known = known[known["key"].isin(trials["key"])].drop_duplicates(["key", UNIT], keep="last")
    finished = trials.loc[trials["status"].isin(FULL), "key"]
    ends = known.groupby("key")[UNIT].max().reindex(finished)
    if ends.nunique(dropna=False) != 1 or ends.isna().any() or known[UNIT].max() > ends.max():
        return None
    return known


def with_history(
    runs: pd.DataFrame, reports: pd.DataFrame, full: float | None
) -> tuple[pd.DataFrame, list[str]]:
    """Return canonical ``runs`` with what the reports add, and warnings.

    A run that only the history knows is added: it ended at its last report. A run whose budget the
    table does not give gets it from there.

    Args:
        runs: columns x, by, replicate, value, status, complete, reached, budget.
        reports: see `read_history`.
        full: the full budget; None takes the largest seen.
    """
    known = [value for value in (runs["reached"].max(), reports["reached"].max()) if value > 0]
    budget = full if full is not None else float(max(known))
    last = reports.groupby(KEYS, sort=False, dropna=False).tail(1)
    merged = runs.merge(
        last.rename(columns={"reached": "_reached", "value": "_value"}),
        on=KEYS, how="outer", indicator=True,
    )  # fmt: skip
    added = merged["_merge"].eq("right_only")
    late = merged["_reached"].notna() & merged["reached"].isna()
    merged.loc[late, "reached"] = merged.loc[late, "_reached"]
    merged["budget"] = budget
    merged.loc[added, "value"] = merged.loc[added, "_value"]
    merged.loc[added, "status"] = "finished"
    short = merged["status"].isin(FULL) & (added | late) & ~(merged["reached"] >= budget)
    merged.loc[short, "status"] = "stopped_early"
    merged["complete"] = merged["status"].isin(FULL)
    notes = []
    if added.any():
        notes.append(
            f"{int(added.sum())} runs are known from the history alone,"
            f" {int((added & short).sum())} of them stopped early"
        )
    return merged.drop(columns=["_reached", "_value", "_merge"]), notes
