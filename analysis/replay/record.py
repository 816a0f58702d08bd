"""The runs of a study, or of a table of learning curves, with what they reported on their way."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pandas as pd

from analysis.questions.base import Kind, StudyRuns
from analysis.questions.lean.kind import LEAN
from analysis.questions.shapes import shape_columns, table_goal
from analysis.questions.transition.kind import TRANSITION
from analysis.runs.columns import as_numbers
from analysis.runs.ladder import furthest
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs
from analysis.text.tables import varying_columns
from analysis.values import describe
from hsweep.design.question import Goal
from hsweep.design.search import BY_ROUNDS
from hsweep.errors import UserError

_QUESTION: Final = ("x", "by", "scale", "baseline", "costs", "margin", "nuisance", "within")
_NO_DRAWS: Final = ("B=1",)
"""The verdict of a transition needs none of the draws for the set of places."""


@dataclass(frozen=True)
class Record:
    """Runs with their reports.

    Attributes:
        frame: one row a report.
        columns: of the metric, of how far a report is, and of the seeds, of which the first
            ``scouts`` only choose a setting.
        full: rows at which a run has its whole budget.
        cells, nuisance: columns of a cell, and of the settings that compete in one.
        question: as a sweep records it; empty where the cell with the best mean is the answer.
        ask: returns the result of the question from the last report that each run has left, given
            whether the run would have gone on.
    """

    frame: pd.DataFrame
    columns: tuple[str, str, str]
    full: Collection[int]
    cells: list[str]
    nuisance: list[str]
    question: Mapping[str, Any]
    goal: Goal
    ask: Callable[[pd.DataFrame, "pd.Series[bool]"], Any]
    scouts: int = 0

    @cached_property
    def reports(self) -> pd.DataFrame:
        """Columns ``run`` (its number), ``unit``, ``value``: the rows of the frame in order."""
        metric, unit, seed = self.columns
        by = self.frame.groupby([*self.cells, *self.nuisance, seed], sort=False, dropna=False)
        value = as_numbers(self.frame[metric], metric, infinite=True)
        columns = {"run": by.ngroup(), "unit": as_numbers(self.frame[unit], unit), "value": value}
        return pd.DataFrame(columns).sort_values(["run", "unit"], kind="stable")

    @cached_property
    def last(self) -> pd.DataFrame:
        """The last report of each run; the value of a run that was cut off is NaN."""
        last = self.reports.groupby("run").tail(1)
        return last.assign(value=last["value"].where(last.index.isin(self.full)))

    def answer(self, kept: Mapping[int, float]) -> str:
        """Return the answer, in words, of what runs train, given as budget units by run."""
        left = self.reports[self.reports["unit"] <= self.reports["run"].map(kept)]
        left = (
            left[~self.frame[self.columns[2]].lt(self.scouts)[left.index]] if self.scouts else left
        )
        rows = self.frame.loc[left.groupby("run").tail(1).index]
        is_cut = pd.Series(~rows.index.isin(self.last.index), rows.index)
        if not self.question:
            values = self.last["value"].reindex(rows.index)
            means = values.groupby([rows[name] for name in (*self.cells, *self.nuisance)]).mean()
            best = means[means == getattr(means, self.goal)()].reset_index()[self.cells]
            return "; ".join(map(describe, best.to_dict("records"))) or "none"
        try:
            result = self.ask(rows, is_cut)
        except UserError as error:
            return f"no answer: {error}"
        if self.question["type"] == "Transition":
            return f"h* = {result.h_star:g}" if result.verdict == "collapse" else result.verdict
        choice = (row.config for row in result.table if row.label == result.choice)
        return next(map(describe, choice), str(result.verdict))


def table_record(table: Runs, kind: Kind, options: Mapping[str, Any]) -> Record:
    """Return the record of a table, which is read as ``hsweep analyze --table`` does with these
    options; of kinds other than transition and lean the best cell is the answer.

    Raises:
        UserError: a table without histories, or without an answer.
    """
    unit, seed, frame = table.columns.get("budget_column"), table.replicate, table.frame
    if unit is None or seed is None:
        raise UserError(
            "a replay needs the histories of runs: name the column of how far each row is with "
            "--budget-column, and the column that tells runs apart with --replicate"
        )
    answer_of, nuisance, question = kind.of_table, list(options["nuisance"]), dict[str, Any]()
    assert answer_of is not None
    if kind is TRANSITION:
        options = {**options, "settings": (*options["settings"], *_NO_DRAWS)}
    if kind in (TRANSITION, LEAN):
        result = answer_of(table, options).result
        question = {name: getattr(result, name, None) for name in _QUESTION}
        question |= {"type": kind.name.title(), "eval_size": options.get("eval_size")}
        nuisance = list(result.nuisance)
    cells = [question[name] for name in ("x", "by") if question.get(name)]
    cells = cells or shape_columns(table, {"config": (), "cost": (), **options})
    rows, _ = table.rows([*cells, *nuisance], at_chance_counts=True)
    target = table.columns.get("target_budget") or as_numbers(frame[unit], unit).max()
    columns: Any = {**table.columns, "target_budget": float(target)}

    def ask(rows: pd.DataFrame, _is_cut: "pd.Series[bool]") -> Any:
        runs = Runs(rows.reset_index(drop=True), table.metric, columns)
        return answer_of(runs, options).result

    full, goal = rows.index[rows["complete"]], table_goal(table, options)
    return Record(frame, (table.metric, unit, seed), full, cells, nuisance, question, goal, ask)


def study_record(study: StudyRuns) -> Record:
    """Return the record of a study.

    Raises:
        UserError: a study that cannot be replayed.
    """
    manifest, question, metric = study.manifest, study.question, study.manifest.metric
    if manifest.search in BY_ROUNDS or question.get("within"):
        what = "comparisons apart (within)" if question.get("within") else "a search of its own"
        raise UserError(f"a replay is of one grid with one answer, and this study has {what}")
    trials = study.every_trial.query("budget <= @study.budget")
    trials = furthest(trials.dropna(subset=[metric]), [*manifest.axes, "seed"])
    reports = study.tables.reports_of(list(trials["key"]))[["key", "unit", metric]]
    frame = reports.merge(trials.drop(columns=metric), on="key")
    full = frame.index[frame["status"].isin(FULL) & frame["budget"].eq(study.budget)]
    varying = varying_columns(trials, manifest.axes) or list(manifest.axes)
    cells = [axis for axis in varying if axis not in question.get("nuisance", ())]
    kind, options = LEAN, None
    if question.get("type") == "Transition":
        cells = [question[name] for name in ("x", "by") if question[name]]
        options = dict.fromkeys(("x", "by", "scale", "eval_size", "nuisance"))
        kind, options = TRANSITION, {**options, "settings": _NO_DRAWS}

    def ask(rows: pd.DataFrame, is_cut: "pd.Series[bool]") -> Any:
        only = rows.assign(status=rows["status"].mask(is_cut, "stopped_early"))
        only = only.assign(reached=rows["unit"]).drop(columns="unit").reset_index(drop=True)
        finding = kind.of_study(replace(study, only=only), options, ())
        assert finding is not None
        return finding.result

    columns, nuisance = (metric, "unit", "seed"), [axis for axis in varying if axis not in cells]
    asked = question, study.goal, ask, manifest.scouts
    return Record(frame, columns, full, cells, nuisance, *asked)
