"""A table of runs, read and checked once, whatever the number of questions put to it.

A run is a result only if it trained for its full budget. A run that was stopped early is a bound on
what it would have reached, never its last value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.runs.columns import (
    NO_VALUE,
    RunColumns,
    as_numbers,
    budget_steps,
    numbers_if_all_are,
    replicate_words,
    require,
)
from analysis.runs.repeats import CURVE, idle_axes, repeated_runs, with_chance
from analysis.runs.statuses import AT_CHANCE, FULL, are_statuses, read_statuses
from analysis.runs.unnamed import refuse_unnamed
from analysis.statistics.values import FloatArray, Mask
from hsweep.design.labels import first_of
from hsweep.errors import UserError


@dataclass(frozen=True, slots=True)
class ReadAs:
    """Which columns of a table were taken for what.

    Attributes:
        shape: columns whose values make a shape or cell.
        settings: of which each shape or cell takes its best.
        seed: None where rows are runs without a seed, or one a shape.
        budget, at_budget: how far each run got, and the budget that the answer is of.
        status: how each run ended.
        is_repeated: whether a shape has several rows at a setting and budget.
    """

    metric: str
    shape: tuple[str, ...]
    settings: tuple[str, ...]
    seed: str | None
    budget: str | None
    at_budget: float | None
    status: str | None
    is_repeated: bool

    @property
    def text(self) -> str:
        rows = "rows count as repeated runs" if self.is_repeated else "one row each"
        at = "" if self.at_budget is None else f" (the answer is of {self.at_budget:,.12g})"
        words = {
            "metric": self.metric,
            "shape": ", ".join(self.shape),
            "settings": ", ".join(self.settings) or "none",
            "seeds": self.seed or f"none, {rows}",
            "budget": f"{self.budget or 'none'}{at}",
            **({"status": self.status} if self.status else {}),
        }
        return "; ".join(f"{role} {value}" for role, value in words.items())


MAX_RUNGS: Final = 8
"""More budgets a run than this are reports on its way, not runs of their own."""
_USUAL_REPLICATE: Final = "seed"


@dataclass(frozen=True)
class Runs:
    """A table of runs with its metric, its seeds and how each run ended.

    Attributes:
        frame: one row a run.
        metric: column of the result.
        columns: which columns tell runs apart and say how each ended.
        notes: what was taken for granted when the table was read.
        parts: columns of studies beside one another, which may have the same results.
    """

    frame: pd.DataFrame
    metric: str
    columns: RunColumns = field(default_factory=RunColumns)
    notes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    _keys: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def replicate(self) -> str | None:
        """Column of the seeds; None where runs are numbered."""
        if "replicate" in self.columns:
            return self.columns["replicate"]
        return _USUAL_REPLICATE if _USUAL_REPLICATE in self.frame.columns else None

    @property
    def status_column(self) -> str | None:
        """Column of how each run ended; None without one."""
        return self._status_column(())

    def read_as(self, settings: Sequence[str]) -> ReadAs | None:
        """Return which columns were taken for what when the rows were read first; of their keys
        ``settings`` are those of which each shape or cell takes its best. None without keys."""
        if not self._keys:
            return None
        shape = [name for name in self._keys if name not in settings]
        budget = self.columns.get("budget_column")
        ends, _ = self._ends(self._status_column(shape))
        columns = [*shape, *settings, *([] if budget is None else [budget])]
        return ReadAs(
            self.metric,
            tuple(shape),
            tuple(settings),
            self.replicate,
            budget,
            None if budget is None else float(ends["budget"].iloc[0]),
            self._status_column(shape),
            bool(self.frame.duplicated(columns).any()),
        )

    def rows(
        self, keys: Sequence[str], numbers: Sequence[str] = (), *, at_chance_counts: bool = False
    ) -> tuple[pd.DataFrame, list[str]]:
        """Return one checked row a run, and warnings.

        A run at chance beside others of its ``keys`` that learned something is no result but a
        failure of training, and not complete; ``at_chance_counts`` takes all of them for results.

        The index is the row's number in the table. Columns: ``keys`` (`NO_VALUE` where empty) and
        ``numbers`` as they were, then ``replicate`` (str), ``value`` (float, NaN unless known),
        ``status`` (one of `analysis.runs.statuses.STATUSES`), ``complete`` (bool), ``reached`` and
        ``budget`` (float, NaN if unknown).

        Seeds that are one training count once (`analysis.runs.repeats`).

        Of several rows of a run the one of the furthest budget counts. Where they are runs of their
        own, trained to up to `MAX_RUNGS` budgets, those of other budgets are left out.

        Raises:
            UserError: a missing column, a metric or ``numbers`` column that is not finite numbers,
                an unknown status, two rows of one run, rows without seeds that an unnamed column
                tells apart, no two of several ``keys`` with runs of one budget, or a key that
                changes no result.
        """
        self._keys[:] = self._keys or keys
        frame, replicate = self.frame, self.replicate
        budget_column = self.columns.get("budget_column")
        if frame.empty:
            raise UserError("the table is empty: it has no rows")
        status_column = self._status_column(keys)
        optional = (replicate, status_column, budget_column)
        roles = [*keys, self.metric, *(name for name in optional if name is not None)]
        require(frame, [*roles, *numbers])
        repeated_roles = [name for name in roles if roles.count(name) > 1]
        if repeated_roles:
            raise UserError(f"column {repeated_roles[0]!r} is asked for in two roles at once")
        runs = frame[list(dict.fromkeys([*keys, *numbers]))].copy().reset_index(drop=True)
        if replicate is not None and frame[replicate].isna().any():
            raise UserError(
                f"column {replicate!r} has empty entries; every run needs its {replicate}"
            )
        for name in keys:
            if runs[name].isna().any():
                runs[name] = runs[name].astype(object).where(runs[name].notna(), NO_VALUE)
            runs[name] = numbers_if_all_are(runs[name])
        for name in numbers:
            runs[name] = as_numbers(frame[name], name)
        ends, notes = self._ends(status_column)
        runs = runs.assign(**ends)
        if replicate is not None:
            runs["replicate"] = replicate_words(frame[replicate]).to_numpy()
            self._refuse_repeated(runs, keys, {*roles, *numbers})
        self._refuse_unnamed(runs, keys, {*roles, *numbers})
        if replicate is None:
            cell: list[str] = list(keys)
            if budget_column is not None and status_column is None:
                # No word says how runs ended: rows of other budgets are none that were stopped.
                cell.append("reached")
                self._refuse_close_budgets(runs, keys, budget_column)
            numbers_in_cell = runs.groupby(cell, sort=False, dropna=False).cumcount()
            runs["replicate"] = numbers_in_cell.astype(str)
        warnings = [*self.notes, *notes]
        if budget_column is not None and runs.duplicated([*keys, "replicate"]).any():
            runs, notes = self._of_one_budget(runs, list(keys), has_words=status_column is not None)
            warnings += notes
        runs["status"] = runs["status"].where(~runs["is_short"], "stopped_early")
        runs = runs.drop(columns=["step", "is_short"])
        blank = runs["status"].isin(FULL) & runs["value"].isna()
        if count := int(blank.sum()):
            runs.loc[blank, "status"] = "failed"
            warnings.append(f"{count} finished runs have no {self.metric}; counted as failed")
        runs["complete"] = runs["status"].isin(FULL)
        at_chance = runs["status"].eq(AT_CHANCE)
        if not at_chance_counts and at_chance.any():
            has_learned = runs["status"].eq("finished")
            by_keys = has_learned.groupby([runs[name] for name in keys], dropna=False)
            runs["complete"] = has_learned | (at_chance & ~by_keys.transform("any"))
        if not keys:
            return runs, warnings
        full = with_chance(runs, keys, frame.reset_index(drop=True).get(CURVE, 0.0))
        if full.empty:
            return runs, warnings
        if idle := idle_axes(full, keys, self.parts, self.metric):
            raise UserError(idle)
        repeats, warning = repeated_runs(full, keys)
        return runs.drop(index=repeats), [*warnings, *filter(None, [warning])]

    def _refuse_repeated(self, runs: pd.DataFrame, keys: Sequence[str], roles: set[str]) -> None:
        """Refuse two rows of one run at one budget, where several are known."""
        has_budget = self.columns.get("budget_column") is not None
        same = [*keys, "replicate", *(["reached"] if has_budget else [])]
        repeated = runs.duplicated(same)
        if not repeated.any():
            return
        cells = runs.groupby(same, sort=False, dropna=False).ngroup().to_numpy()
        names = runs[[*keys, "replicate"]].rename(columns={"replicate": str(self.replicate)})
        refuse_unnamed(self.frame, cells, names, roles)
        first = runs.loc[repeated].iloc[0]
        raise UserError(
            f"{int(repeated.sum())} rows repeat a run, the first at {_where(first, keys)},"
            f" {self.replicate}={first['replicate']}; keep one row a run, name the column that"
            " tells replicates apart, or name the axes whose settings compete (nuisance)"
        )

    def _refuse_unnamed(self, runs: pd.DataFrame, keys: Sequence[str], roles: set[str]) -> None:
        """Refuse rows without seeds of their own that a column without a role tells apart."""
        replicate = self.replicate
        if "replicate" in self.columns and replicate is None:
            return  # repeated runs, as the user says
        full = runs["status"].isin(FULL).to_numpy(bool)
        if replicate is not None:
            # Names of single rows, log files say, are no seeds that cells have in common.
            names = self.frame.loc[full, replicate]
            if pd.api.types.is_numeric_dtype(names) or not names.is_unique:
                return
        some = runs.loc[full]
        cells = some.groupby([*keys, "step"], sort=False, dropna=False).ngroup().to_numpy()
        refuse_unnamed(self.frame.loc[full], cells, some[list(keys)], roles)

    def _refuse_close_budgets(self, runs: pd.DataFrame, keys: Sequence[str], name: str) -> None:
        """Refuse rows of a cell without seeds that may be two runs or two reports of one."""
        if "replicate" in self.columns:
            return
        by_step = runs.groupby([*keys, "step"], sort=False)["reached"]
        lowest, highest = by_step.transform("min"), by_step.transform("max")
        if (close := lowest < highest).any():
            low, high = lowest[close].iloc[0], highest[close].iloc[0]
            raise UserError(
                f"rows of {_where(runs.loc[close].iloc[0], keys)} stand at {name}={low:.12g} and"
                f" {high:.12g}, the same budget but for rounding: two runs, or two reports of one?"
                " Name the column that tells runs apart with --replicate COLUMN"
            )

    def _of_one_budget(
        self, runs: pd.DataFrame, keys: list[str], *, has_words: bool
    ) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """Return one row a run at the target budget, and notes on the cells without one.

        ``has_words``: whether a column says how each run ended.
        """
        same = [*keys, "replicate"]
        by_run, by_cell = (
            runs.groupby(names, sort=False, dropna=False)["step"] for names in (same, keys)
        )
        steps = by_run.transform("nunique")
        # A run without a row at a shorter budget that its cell has cannot have been stopped on the
        # way to a longer one: it is a run of its own, as those beside it are.
        rank = by_cell.rank("dense").groupby(by_run.ngroup()).transform("max")
        are_apart = (rank > steps).any() and runs.loc[steps > 1, "step"].nunique() <= MAX_RUNGS
        runs = runs.loc[~(runs["step"] > runs["budget"])].sort_values("reached", kind="stable")
        runs = runs.groupby(same, sort=False, dropna=False).tail(1).sort_index()
        elsewhere = runs["is_short"]
        if not are_apart:
            is_full = runs["status"].isin(FULL) & ~runs["is_short"]
            by_key = is_full.groupby([runs[name] for name in keys], dropna=False, sort=False)
            elsewhere = elsewhere & (not has_words) & ~by_key.transform("any")
        at_target = runs.loc[~elsewhere]
        name, target = self.columns["budget_column"], float(runs["budget"].iloc[0])
        num_cells, num_left = (len(rows[keys].drop_duplicates()) for rows in (runs, at_target))
        if num_left < min(num_cells, 2):
            ends = sorted(set(runs.loc[elsewhere, "reached"]))
            raise UserError(
                f"{num_left} of {num_cells} ({', '.join(keys)}) have a run at the largest budget,"
                f" {name}={target:g}; the runs of the others end at"
                f" {first_of([f'{end:g}' for end in ends])}. Ask for"
                " a budget that all have with --target-budget, or name another column of the"
                " budget; of learning curves that end where they should, give the last row of each"
                " run"
            )
        note = f"have no run at {name}={target:g} and are left out"
        num_absent = num_cells - num_left
        return at_target, (f"{num_absent} of {num_cells} {note}",) if num_absent else ()

    def _status_column(self, keys: Sequence[str]) -> str | None:
        column = self.columns.get("status_column")
        if column is not None:
            return column
        names = [str(name) for name in self.frame.columns if name not in keys]
        usual = [name for name in names if name.lower() in ("status", "state")]
        status_columns = [name for name in usual if are_statuses(self.frame[name])]
        return next(iter(status_columns), "status" if "status" in usual else None)

    def _ends(self, status_column: str | None) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """Return how each row ended, and warnings.

        Columns: ``value``, ``status`` as recorded, ``reached``, ``step`` (see `budget_steps`),
        ``budget``, ``is_short`` (of the budget).
        """
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
        runs["reached"] = runs["step"] = runs["budget"] = np.nan
        runs["is_short"] = False
        if budget_column is not None:
            reached = as_numbers(frame[budget_column], budget_column)
            full = _full_budget(reached, budget_column, self.columns.get("target_budget"))
            *steps, full = budget_steps(np.append(reached, full)).tolist()
            runs = runs.assign(reached=reached, step=steps, budget=full)
            runs["is_short"] = runs["status"].isin(FULL) & ~(runs["step"] >= full)
        is_full = runs["status"].isin(FULL) & ~runs["is_short"]
        _refuse_infinities(runs, self.metric, is_full.to_numpy(bool))
        return runs, warnings


def _where(row: "pd.Series[Any]", keys: Sequence[str]) -> str:
    return ", ".join(f"{name}={row[name]}" for name in keys)


def _full_budget(reached: FloatArray, name: str, target: float | None) -> float:
    if target is not None:
        if not (np.isfinite(target) and target > 0):
            raise UserError(f"the target budget must be above 0, not {target!r}")
        return float(target)
    if np.isnan(reached).all():
        raise UserError(f"column {name!r} is empty, so no run can be said to have its full budget")
    return float(np.nanmax(reached))


def _refuse_infinities(runs: pd.DataFrame, metric: str, full: Mask) -> None:
    """Refuse an infinite result; an infinite value of any other run becomes NaN."""
    infinite = np.isinf(runs["value"].to_numpy(np.float64))
    results = np.flatnonzero(infinite & full)
    if results.size:
        raise UserError(
            f"column {metric!r} holds an infinity in row {int(results[0]) + 1}; leave the"
            " entry of a diverged run empty and give it the status 'diverged'"
        )
    runs.loc[infinite, "value"] = np.nan
