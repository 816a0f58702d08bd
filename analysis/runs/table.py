"""A table of runs, read and checked once, whatever the number of questions put to it.

A run is a result only if it trained for its full budget. A run that was stopped early is a bound on
what it would have reached, never its last value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from analysis.runs.columns import (
    RunColumns,
    as_numbers,
    numbers_if_all_are,
    replicate_words,
    require,
)
from analysis.runs.statuses import AT_CHANCE, FULL, read_statuses
from analysis.statistics.values import FloatArray
from hsweep.errors import UserError


@dataclass(frozen=True)
class Runs:
    """A table of runs with its metric, its seeds and how each run ended.

    Attributes:
        frame: one row a run.
        metric: column of the result.
        columns: which columns tell runs apart and say how each ended.
    """

    frame: pd.DataFrame
    metric: str
    columns: RunColumns = field(default_factory=RunColumns)
    _known: dict[str | None, tuple[pd.DataFrame, tuple[str, ...]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if unknown := set(self.columns) - set(RunColumns.__annotations__):
            raise TypeError(f"no such columns of runs: {', '.join(sorted(unknown))}")

    @classmethod
    def of(cls, table: "pd.DataFrame | Runs", metric: str | None, columns: RunColumns) -> "Runs":
        """Return ``table`` as runs; a table that is read already stays what it is.

        Raises:
            UserError: no metric named.
        """
        if isinstance(table, Runs):
            return table
        if metric is None:
            raise UserError("metric must name the column of the result")
        return cls(table, metric, columns)

    @property
    def replicate(self) -> str | None:
        """Column of the seeds; None where runs are numbered."""
        return self.columns.get("replicate", "seed")

    @property
    def statuses(self) -> "pd.Series[str]":
        """How each row ended, one of `analysis.runs.statuses.STATUSES`."""
        ends, _ = self._ends(self._status_column(()))
        return ends["status"].set_axis(self.frame.index)

    def rows(
        self, keys: Sequence[str], numbers: Sequence[str] = (), *, at_chance_counts: bool = False
    ) -> tuple[pd.DataFrame, list[str]]:
        """Return one checked row a run, and warnings.

        A run at chance beside others of its ``keys`` that learned something is no result but a
        failure of training, and not complete; ``at_chance_counts`` takes all of them for results.

        Columns: ``keys`` and ``numbers`` as they were, then ``replicate`` (str), ``value`` (float,
        NaN unless known), ``status`` (one of `analysis.runs.statuses.STATUSES`), ``complete``
        (bool), ``reached`` and ``budget`` (float, NaN if unknown).

        Raises:
            UserError: a missing column, a metric or ``numbers`` column that is not finite numbers,
                an unknown status, or two rows of one run.
        """
        frame, replicate = self.frame, self.replicate
        budget_column = self.columns.get("budget_column")
        if frame.empty:
            raise UserError("the table is empty: it has no rows")
        status_column = self._status_column(keys)
        optional = (replicate, status_column, budget_column)
        roles = [*keys, self.metric, *(name for name in optional if name is not None)]
        require(frame, [*roles, *numbers], "table")
        twice = [name for name in roles if roles.count(name) > 1]
        if twice:
            raise UserError(f"column {twice[0]!r} is asked for in two roles at once")
        runs = frame[list(dict.fromkeys([*keys, *numbers]))].copy().reset_index(drop=True)
        for name in (*keys, *([replicate] if replicate is not None else [])):
            if frame[name].isna().any():
                raise UserError(f"column {name!r} has empty entries; every run needs its {name}")
        for name in keys:
            runs[name] = numbers_if_all_are(runs[name])
        for name in numbers:
            runs[name] = as_numbers(frame[name], name)
        ends, notes = self._ends(status_column)
        runs = runs.assign(**ends)
        if replicate is None:
            runs["replicate"] = runs.groupby(list(keys), sort=False).cumcount().astype(str)
        else:
            runs["replicate"] = replicate_words(frame[replicate]).to_numpy()
        if budget_column is not None:
            runs = _furthest_row(runs, list(keys))
        _refuse_duplicates(runs, list(keys), replicate)
        warnings = list(notes)
        blank = runs["status"].isin(FULL) & runs["value"].isna()
        if count := int(blank.sum()):
            runs.loc[blank, "status"] = "failed"
            warnings.append(f"{count} finished runs have no {self.metric}; counted as failed")
        runs["complete"] = runs["status"].isin(FULL)
        at_chance = runs["status"].eq(AT_CHANCE)
        if not at_chance_counts and at_chance.any():
            learned = runs["status"].eq("finished")
            by_keys = learned.groupby([runs[name] for name in keys], dropna=False)
            runs["complete"] = learned | (at_chance & ~by_keys.transform("any"))
        return runs, warnings

    def _status_column(self, keys: Sequence[str]) -> str | None:
        given = self.columns.get("status_column")
        is_usual = "status" in self.frame.columns and "status" not in keys
        return "status" if given is None and is_usual else given

    def _ends(self, status_column: str | None) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """Return value, status, reached and budget of every row, and warnings; read once."""
        if status_column not in self._known:
            self._known[status_column] = self._read_ends(status_column)
        return self._known[status_column]

    def _read_ends(self, status_column: str | None) -> tuple[pd.DataFrame, tuple[str, ...]]:
        frame, budget_column = self.frame, self.columns.get("budget_column")
        runs = pd.DataFrame({"value": as_numbers(frame[self.metric], self.metric, infinite=True)})
        warnings: tuple[str, ...] = ()
        runs["status"] = "finished"
        if status_column is not None:
            words = frame[status_column]
            runs["status"] = read_statuses(
                words,
                status_column,
                complete=self.columns.get("complete", "finished"),
                pruned=self.columns.get("pruned", ()),
                failed=self.columns.get("failed", ()),
            ).to_numpy()
            if budget_column is None and words.astype(str).str.lower().eq("terminated").any():
                warnings = (
                    "TERMINATED is also Ray Tune's word for a trial that its scheduler stopped;"
                    " name the column of the budget to tell the two apart",
                )
        runs["reached"] = runs["budget"] = np.nan
        if budget_column is not None:
            reached = as_numbers(frame[budget_column], budget_column)
            runs["reached"] = reached
            full = _full_budget(reached, budget_column, self.columns.get("target_budget"))
            runs["budget"] = full
            short = runs["status"].isin(FULL) & ~(reached >= full)
            runs.loc[short, "status"] = "stopped_early"
        _refuse_infinities(runs, self.metric)
        return runs, warnings


def _full_budget(reached: FloatArray, name: str, target: float | None) -> float:
    if target is not None:
        if not (np.isfinite(target) and target > 0):
            raise UserError(f"the target budget must be above 0, not {target!r}")
        return float(target)
    if np.isnan(reached).all():
        raise UserError(f"column {name!r} is empty, so no run can be said to have its full budget")
    return float(np.nanmax(reached))


def _refuse_infinities(runs: pd.DataFrame, metric: str) -> None:
    """Refuse an infinite result; an infinity of a run that is none is no value."""
    infinite = np.isinf(runs["value"].to_numpy(np.float64))
    results = np.flatnonzero(infinite & runs["status"].isin(FULL).to_numpy(bool))
    if results.size:
        raise UserError(
            f"column {metric!r} holds an infinity in row {int(results[0])}; leave the entry of a"
            " diverged run empty and give it the status 'diverged'"
        )
    runs.loc[infinite, "value"] = np.nan


def _furthest_row(runs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Of several rows of one run at different budgets, keep the furthest."""
    same = [*keys, "replicate"]
    repeated_at_one_budget = runs.duplicated([*same, "reached"]).any()
    if repeated_at_one_budget or not runs.duplicated(same).any():
        return runs
    last = runs.sort_values("reached", kind="stable").groupby(same, sort=False).tail(1)
    return last.sort_index().reset_index(drop=True)


def _refuse_duplicates(runs: pd.DataFrame, keys: list[str], replicate: str | None) -> None:
    duplicated = runs.duplicated([*keys, "replicate"])
    if not duplicated.any():
        return
    first = runs.loc[duplicated].iloc[0]
    where = ", ".join(f"{name}={first[name]}" for name in keys)
    raise UserError(
        f"{int(duplicated.sum())} rows repeat a run, the first at {where},"
        f" {replicate}={first['replicate']}; keep one row a run, name the column that tells"
        " replicates apart, or name the axes whose settings compete (nuisance)"
    )
