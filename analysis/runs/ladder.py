"""Runs that were trained to several budgets: the same seed of the same cell, one run at each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from analysis.runs.columns import as_numbers, require
from analysis.runs.table import Runs
from analysis.statistics.training import SINGLE

_MOST_RUNGS: Final = 8
"""More budgets a run than this are reports on its way, not runs of their own."""


@dataclass(frozen=True, slots=True)
class Rung:
    """The runs of one budget."""

    budget: float
    runs: Runs


@dataclass(frozen=True, slots=True)
class Ladder:
    """The budgets at which runs were trained, ascending.

    Attributes:
        rungs: empty where no run was trained to more than one budget.
        column: of the budget.
        unit: what it counts (epochs); empty where only its column is known.
        reports: budgets a run, where they are too many to be runs of their own; else 0.
    """

    rungs: tuple[Rung, ...] = ()
    column: str = ""
    unit: str = ""
    reports: int = 0

    @property
    def obstacle(self) -> str:
        """Why no two budgets can be compared; empty where they can."""
        if self.reports:
            return (
                f"a run has {self.reports} budgets, which are reports on its way, not runs trained"
                " to each of them"
            )
        return SINGLE if len(self.rungs) < 2 else ""

    def where(self, column: str, value: Any) -> "Ladder":
        """Return the budgets of those runs alone that have a value in a column."""
        parts = (
            Rung(rung.budget, Runs(rows, rung.runs.metric, rung.runs.columns))
            for rung in self.rungs
            if len(rows := rung.runs.frame.loc[rung.runs.frame[column].eq(value)])
        )
        return replace(self, rungs=tuple(parts))

    def at(self, budget: float) -> str:
        """Return a budget in words."""
        return f"{budget:g} {self.unit}" if self.unit else f"{self.column} = {budget:g}"


def ladder_of(runs: Runs, axes: Sequence[str], column: str | None = None, unit: str = "") -> Ladder:
    """Return the budgets at which runs of one cell and seed were trained.

    Args:
        runs: of a table, whose ``budget_column`` it is by default.
        axes: columns that tell the cells apart, nuisance axes among them.
        column: of the budget.
        unit: what it counts.
    """
    frame = runs.frame
    name = column or runs.columns.get("budget_column")
    if name is None or runs.replicate is None:
        return Ladder()
    identity = [*axes, runs.replicate]
    require(frame, [*identity, name], "table")
    budgets = pd.Series(as_numbers(frame[name], name), index=frame.index)
    target = runs.columns.get("target_budget")
    if target is not None:
        budgets = budgets.where(budgets <= target)
    several = budgets.groupby([frame[key] for key in identity], dropna=False).transform("nunique")
    found = sorted(set(budgets[several > 1].dropna()))
    if found and budgets.max() > found[-1]:
        found.append(float(budgets.max()))
    if len(found) > _MOST_RUNGS:
        return Ladder((), name, unit, len(found))
    alone = runs.columns.copy()
    alone.pop("budget_column", None)
    alone.pop("target_budget", None)
    return Ladder(
        tuple(Rung(budget, Runs(frame[budgets == budget], runs.metric, alone)) for budget in found),
        name,
        unit,
    )


def furthest(frame: pd.DataFrame, identity: Sequence[str], column: str) -> pd.DataFrame:
    """Return of each run, by the columns that tell runs apart, the row of the largest budget."""
    if not frame.duplicated(list(identity)).any():
        return frame
    ordered = frame.sort_values(column, kind="stable")
    kept: pd.DataFrame = ordered.drop_duplicates(list(identity), keep="last").sort_index()
    return kept
