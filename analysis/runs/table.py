"""A table of runs, read and checked once, whatever the number of questions put to it.

A run is a result only if it trained for its full budget. A run that was stopped early is a bound on
what it would have reached, never its last value.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.runs.choices import MOVES, form_of, moving_columns, refuse_unnamed
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
from analysis.runs.rows import RunRows
from analysis.runs.statuses import AT_CHANCE, FULL, SHORT, holds_endings, read_statuses
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
        why: what told the column of a role, where the question does not name it.
        unused: columns without a role.
    """

    metric: str
    shape: tuple[str, ...]
    settings: tuple[str, ...]
    seed: str | None
    budget: str | None
    at_budget: float | None
    status: str | None
    is_repeated: bool
    why: dict[str, str]
    unused: tuple[str, ...]

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
            **({"not used": first_of(self.unused)} if self.unused else {}),
        }
        reasons = {role: f" ({why})" for role, why in self.why.items()}
        return "; ".join(f"{role} {text}{reasons.get(role, '')}" for role, text in words.items())


MAX_RUNGS: Final = 8
"""More budgets a run than this are reports on its way, not runs of their own."""
_USUAL_REPLICATE: Final = "seed"
_USUAL_STATUS: Final = "status"
_CELL: Final = ["cell"]
_RUN: Final = ["cell", "replicate"]


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
        prefix = form_of(self.frame).prefix
        usual = (_USUAL_REPLICATE, prefix + _USUAL_REPLICATE)
        return next((name for name in usual if name in self.frame), None)

    @property
    def status_column(self) -> str | None:
        """Column of how each run ended; None without one."""
        return self._status_column(())

    def read_as(self, settings: Sequence[str], named: Collection[str] = ()) -> ReadAs | None:
        """Return which columns were taken for what when the rows were read first; of their keys
        ``settings`` are those of which each shape or cell takes its best, and the question has
        ``named`` some columns itself. None without keys."""
        if not self._keys:
            return None
        shape = [name for name in self._keys if name not in settings]
        budget = self.columns.get("budget_column")
        ends, _ = self._ends(self.frame, self._status_column(shape))
        columns = [*shape, *settings, *([] if budget is None else [budget])]
        status, seed = self._status_column(shape), self.replicate
        why = {}
        if not set(shape) <= set(named):
            is_chosen = set(shape) <= form_of(self.frame).chosen
            why["shape"] = "by the form of the table" if is_chosen else "by the values"
        if seed is not None and "replicate" not in self.columns:
            why["seeds"] = "by its name"
        if status is not None and self.columns.get("status_column") is None:
            why["status"] = "by its words"
        used = {*columns, self.metric, status, seed, *named}
        return ReadAs(
            self.metric,
            tuple(shape),
            tuple(settings),
            seed,
            budget,
            None if budget is None else float(ends["budget"].iloc[0]),
            status,
            bool(self.frame.duplicated(columns).any()),
            why,
            tuple(str(name) for name in self.frame if name not in used),
        )

    def rows(
        self, keys: Sequence[str], numbers: Sequence[str] = (), *, at_chance_counts: bool = False
    ) -> tuple[RunRows, list[str]]:
        """Return one checked row a run, and warnings.

        A run at chance beside others of its ``keys`` that learned something is no result but a
        failure of training, and not complete; ``at_chance_counts`` takes all of them for results.

        Seeds that are one training count once (`analysis.runs.repeats`), and so do copied rows.

        Of several rows of a run the one of the furthest budget counts. Where they are runs of their
        own, trained to up to `MAX_RUNGS` budgets, those of other budgets are left out.

        Raises:
            UserError: a missing column, a metric or ``numbers`` column that is not finite numbers,
                an unknown status, two rows of one run, rows of a cell that an unnamed column tells
                apart, no two of several ``keys`` with runs of one budget, or a key that changes no
                result.
        """
        self._keys[:] = self._keys or keys
        replicate, budget_column = self.replicate, self.columns.get("budget_column")
        if self.frame.empty:
            raise UserError("the table is empty: it has no rows")
        status_column = self._status_column([*keys, *numbers])
        optional = (replicate, status_column, budget_column)
        roles = [*keys, self.metric, *(name for name in optional if name is not None)]
        require(self.frame, [*roles, *numbers])
        repeated_roles = [name for name in roles if roles.count(name) > 1]
        if repeated_roles:
            raise UserError(f"column {repeated_roles[0]!r} is asked for in two roles at once")
        frame, notes = self._without_copies()
        if replicate is not None and frame[replicate].isna().any():
            raise UserError(
                f"column {replicate!r} has empty entries; every run needs its {replicate}"
            )
        at = frame[list(keys)].copy()
        for name in keys:
            if at[name].isna().any():
                at[name] = at[name].astype(object).where(at[name].notna(), NO_VALUE)
            at[name] = numbers_if_all_are(at[name])
        ends, ends_notes = self._ends(frame, status_column)
        warnings = [*self.notes, *notes, *ends_notes]
        ends["cell"] = at.groupby(list(keys), sort=False).ngroup() if keys else 0
        measured = {name: as_numbers(frame[name], name) for name in numbers}
        rows = RunRows(at, pd.DataFrame(measured, index=at.index), ends)
        used = {*roles, *numbers}
        if replicate is not None:
            ends["replicate"] = replicate_words(frame[replicate])
            self._refuse_repeated(frame, rows, used)
        is_full = ends["status"].isin(FULL)
        if not ("replicate" in self.columns and replicate is None):
            steps = ends.groupby(["cell", "step"], sort=False, dropna=False).ngroup()
            seeds = None if replicate is None else frame[replicate]
            refuse_unnamed(frame, steps.to_numpy(), at, used, seeds)
            known = is_full & ends["value"].notna()
            warnings += self._moves(frame.loc[known], rows.some(known), used)
        if replicate is None:
            self._refuse_close_budgets(rows)
            # Rows of a cell at rising budgets may be one run; what ended early is a run of its own.
            numbered = ends.groupby([*_CELL, "reached"], sort=False, dropna=False).cumcount()
            apart = ends.groupby("cell", sort=False).cumcount().map("of its own {}".format)
            ends["replicate"] = numbered.astype(str).where(is_full, apart)
        if budget_column is not None and ends.duplicated(_RUN).any():
            rows, left_out = self._of_one_budget(rows, has_words=status_column is not None)
            warnings += left_out
        runs = rows.runs
        runs["status"] = runs["status"].where(~runs["is_short"], SHORT)
        runs = runs.drop(columns=["step", "is_short"])
        blank = runs["status"].isin(FULL) & runs["value"].isna()
        if count := int(blank.sum()):
            runs.loc[blank, "status"] = "failed"
            warnings.append(f"{count} finished runs have no {self.metric}; counted as failed")
        runs["complete"] = runs["status"].isin(FULL)
        at_chance = runs["status"].eq(AT_CHANCE)
        if not at_chance_counts and at_chance.any():
            has_learned = runs["status"].eq("finished")
            runs["complete"] = has_learned | (
                at_chance & ~has_learned.groupby(runs["cell"]).transform("any")
            )
        rows = replace(rows, runs=runs)
        if not keys:
            return rows, warnings
        agreeing = with_chance(runs, frame.get(CURVE, 0.0))
        if agreeing.empty:
            return rows, warnings
        if idle := idle_axes(agreeing, at.loc[agreeing.index], self.parts, self.metric):
            raise UserError(idle)
        repeats, warning = repeated_runs(agreeing, at)
        return rows.some(~runs.index.isin(repeats)), [*warnings, *filter(None, [warning])]

    def _without_copies(self) -> tuple[pd.DataFrame, list[str]]:
        """Return the table without rows that equal another in all columns, where the seeds have a
        column, and a note on them; rows without seeds may agree by chance."""
        frame = self.frame.reset_index(drop=True)
        if self.replicate is None or not (copied := frame.duplicated()).any():
            return frame, []
        note = f"{int(copied.sum())} rows are copies of others and count once"
        return frame.loc[~copied], [note]

    def _moves(self, frame: pd.DataFrame, rows: RunRows, used: set[str]) -> list[str]:
        """Return a warning on the columns of ``frame`` that the metric moves with inside the cells
        of its ``rows``."""
        cells, value = (rows.runs[name].to_numpy() for name in ("cell", "value"))
        names = moving_columns(frame, cells, value, used)
        if not names:
            return []
        return [
            f"{MOVES} {self.metric} also moves with {first_of(names, 3)}: say what that is if it"
            " was chosen for the runs and did not come out of them"
        ]

    def _refuse_repeated(self, frame: pd.DataFrame, rows: RunRows, roles: set[str]) -> None:
        """Refuse two rows of one run at one budget, where several are known."""
        has_budget = self.columns.get("budget_column") is not None
        same = [*_RUN, *(["reached"] if has_budget else [])]
        repeated = rows.runs.duplicated(same)
        if not repeated.any():
            return
        names = rows.keys.assign(**{str(self.replicate): rows.runs["replicate"]})
        cells = rows.runs.groupby(same, sort=False, dropna=False).ngroup().to_numpy()
        refuse_unnamed(frame, cells, names, roles)
        others = [str(name) for name in frame if name not in roles]
        apart = [name for name in others if not frame[[name]].assign(cell=cells).duplicated().any()]
        telling = f"; {first_of(apart, 3)} tells them apart" if apart else ""
        raise UserError(
            f"{int(repeated.sum())} rows repeat a run, the first at"
            f" {_where(names.loc[repeated].iloc[0])}{telling}: name the column of how far a run got"
            " (--budget-column; of the rows of a run the last counts), the one that tells"
            " replicates apart (--replicate) or a setting (--nuisance), or keep one row a run"
        )

    def _refuse_close_budgets(self, rows: RunRows) -> None:
        """Refuse rows of a cell without seeds that may be two runs or two reports of one."""
        if "replicate" in self.columns or "budget_column" not in self.columns:
            return
        by_step = rows.runs.groupby([*_CELL, "step"], sort=False)["reached"]
        lowest, highest = by_step.transform("min"), by_step.transform("max")
        if (close := lowest < highest).any():
            low, high = lowest[close].iloc[0], highest[close].iloc[0]
            raise UserError(
                f"rows of {_where(rows.keys.loc[close].iloc[0])} stand at"
                f" {self.columns['budget_column']}={low:.12g} and {high:.12g}, the same budget but"
                " for rounding: two runs, or two reports of one? Name the column that tells runs"
                " apart with --replicate COLUMN"
            )

    def _of_one_budget(self, rows: RunRows, *, has_words: bool) -> tuple[RunRows, tuple[str, ...]]:
        """Return one row a run at the target budget, and notes on the cells without one.

        ``has_words``: whether a column says how each run ended.
        """
        runs = rows.runs
        by_run, by_cell = (
            runs.groupby(names, sort=False, dropna=False)["step"] for names in (_RUN, _CELL)
        )
        steps = by_run.transform("nunique")
        # A run without a row at a shorter budget that its cell has cannot have been stopped on the
        # way to a longer one: it is a run of its own, as those beside it are.
        rank = by_cell.rank("dense").groupby(by_run.ngroup()).transform("max")
        are_apart = (rank > steps).any() and runs.loc[steps > 1, "step"].nunique() <= MAX_RUNGS
        runs = runs.loc[~(runs["step"] > runs["budget"])].sort_values("reached", kind="stable")
        runs = runs.groupby(_RUN, sort=False, dropna=False).tail(1).sort_index()
        elsewhere = runs["is_short"]
        if not are_apart:
            is_full = runs["status"].isin(FULL) & ~runs["is_short"]
            by_cell_of_it = is_full.groupby(runs["cell"])
            elsewhere = elsewhere & (not has_words) & ~by_cell_of_it.transform("any")
        at_target = runs.loc[~elsewhere]
        name, target = self.columns["budget_column"], float(runs["budget"].iloc[0])
        num_cells, num_left = runs["cell"].nunique(), at_target["cell"].nunique()
        if num_left < min(num_cells, 2):
            ends = sorted(set(runs.loc[elsewhere, "reached"]))
            raise UserError(
                f"{num_left} of {num_cells} ({', '.join(map(str, rows.keys))}) have a run at the"
                f" largest budget, {name}={target:g}; the runs of the others end at"
                f" {first_of([f'{end:g}' for end in ends])}. Ask for"
                " a budget that all have with --target-budget, or name another column of the"
                " budget; of learning curves that end where they should, give the last row of each"
                " run"
            )
        left = rows.some(at_target.index)
        note = f"have no run at {name}={target:g} and are left out"
        num_absent = num_cells - num_left
        return left, (f"{num_absent} of {num_cells} {note}",) if num_absent else ()

    def _status_column(self, keys: Sequence[str]) -> str | None:
        """Return the column of how each run ended: the one that is named; else one that holds known
        words for it, whatever it is called; else ``status``."""
        column = self.columns.get("status_column")
        if column is not None:
            return column
        others = {*keys, self.metric, self.replicate, self.columns.get("budget_column")}
        names = [str(name) for name in self.frame.columns if name not in others]
        # One that is called so goes before one that holds such words.
        names.sort(key=lambda name: name.lower() not in (_USUAL_STATUS, "state"))
        numbers = {*map(str, self.frame.select_dtypes("number"))}
        words = [name for name in names if name not in numbers]
        holding = [name for name in words if holds_endings(self.frame[name])]
        return next(iter(holding), _USUAL_STATUS if _USUAL_STATUS in words else None)

    def _ends(
        self, frame: pd.DataFrame, status_column: str | None
    ) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """Return how each row ended, and warnings.

        Columns: ``value``, ``status`` as recorded, ``reached``, ``step`` (see `budget_steps`),
        ``budget``, ``is_short`` (of the budget).
        """
        budget_column = self.columns.get("budget_column")
        runs = pd.DataFrame(index=frame.index)
        runs["value"] = as_numbers(frame[self.metric], self.metric, infinite=True)
        warnings: tuple[str, ...] = ()
        runs["status"] = "finished"
        if status_column is not None:
            words = frame[status_column]
            runs["status"] = read_statuses(
                words,
                status_column,
                complete=self.columns.get("complete", ()),
                pruned=self.columns.get("pruned", ()),
                failed=self.columns.get("failed", ()),
            )
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


def _where(row: "pd.Series[Any]") -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items())


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
