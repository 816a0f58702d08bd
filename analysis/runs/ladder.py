"""Runs of the same cell and seed that were trained to several budgets, one run for each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.runs.columns import ROUNDING, as_numbers, budget_steps, require
from analysis.runs.table import MAX_RUNGS, Runs


@dataclass(frozen=True, slots=True)
class Rung:
    """The runs of one budget."""

    budget: float
    runs: Runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The budgets at which runs were trained, ascending.

    Attributes:
        rungs: the runs of each budget up to the answer's; empty where no cell and seed was trained
            to more than one budget.
        further: the runs of longer budgets, which may lack some of the cells.
        reports: number of budgets, where there are too many for separate runs, so that rows are
            reports of learning curves; else 0.
        to_extend: the answer's budget, where runs of other budgets can be added; else None.
        unit: what a budget counts (epochs); empty where only its column is known.
        column: the column of the budget; empty without one.
    """

    rungs: tuple[Rung, ...] = ()
    further: tuple[Rung, ...] = ()
    reports: int = 0
    to_extend: int | None = None
    unit: str = ""
    column: str = ""

    @property
    def is_single(self) -> bool:
        """Whether there is only one budget."""
        return not self.reports and len(self.rungs) + len(self.further) < 2

    @property
    def obstacle(self) -> str:
        """Why no two budgets can be compared; empty where they can."""
        if self.reports:
            return (
                f"a run has {self.reports} budgets, which are reports on its way, not runs trained"
                " to each of them"
            )
        return "all runs have one budget" if self.is_single else ""


def ladder_of(
    runs: Runs,
    axes: Sequence[str],
    column: str | None = None,
    answered: float = math.inf,
) -> Ladder:
    """Return the budgets at which runs of one cell, and of one seed where seeds are named, trained.

    Args:
        axes: columns that tell the cells apart, including nuisance axes.
        column: the column of the budget, by default the ``budget_column`` of ``runs``.
        answered: the budget of the answer; longer ones are ``further``.
    """
    frame = runs.frame
    name = column or runs.columns.get("budget_column")
    if name is None:
        return Ladder()
    identity = [*axes, *([] if runs.replicate is None else [runs.replicate])]
    require(frame, [*identity, name])
    numbers = as_numbers(frame[name], name)
    reached, budgets = (
        pd.Series(values, index=frame.index) for values in (numbers, budget_steps(numbers))
    )
    by_step = reached.groupby([*(frame[key] for key in identity), budgets], dropna=False)
    if (by_step.nunique() > 1).any():
        budgets = reached  # several of one run: reports on its way, however close
    target = runs.columns.get("target_budget")
    if target is not None:
        budgets = budgets.where(budgets <= target * (1 + ROUNDING))
    several = budgets.groupby([frame[key] for key in identity], dropna=False).transform("nunique")
    steps = sorted(set(budgets[several > 1].dropna()))
    if steps and budgets.max() > steps[-1]:
        steps.append(float(budgets.max()))
    if len(steps) > MAX_RUNGS:
        return Ladder(column=name, reports=len(steps))
    alone = runs.columns.copy()
    alone.pop("budget_column", None)
    alone.pop("target_budget", None)
    rungs = [Rung(budget, Runs(frame[budgets == budget], runs.metric, alone)) for budget in steps]
    return Ladder(
        column=name,
        rungs=tuple(rung for rung in rungs if rung.budget <= answered),
        further=tuple(rung for rung in rungs if rung.budget > answered),
    )


def furthest(trials: pd.DataFrame, identity: Sequence[str]) -> pd.DataFrame:
    """Return each run's row of the largest ``budget``; ``identity`` are the columns that name a
    run."""
    ordered = trials.sort_values("budget", kind="stable")
    last: pd.DataFrame = ordered.drop_duplicates(list(identity), keep="last").sort_index()
    return last
