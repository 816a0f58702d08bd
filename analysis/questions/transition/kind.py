"""The transition: at which value of an axis does the error collapse?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import pandas as pd

from analysis.charts.chart import Chart
from analysis.questions.base import Finding, Kind, Missing, Section, StudyRuns, fixed_rate
from analysis.questions.settings import Option, with_settings
from analysis.questions.shapes import (
    EVAL_SIZE,
    NUISANCE,
    columns_text,
    goal_asked,
    scale_asked,
)
from analysis.questions.study_shapes import asked_of
from analysis.questions.transition.budget_charts import budget_charts
from analysis.questions.transition.budget_text import (
    budgets_sentence,
    budgets_table,
    longer_table,
)
from analysis.questions.transition.budgets import with_budgets
from analysis.questions.transition.charts import transition_charts
from analysis.questions.transition.fit import fit
from analysis.questions.transition.plain import plain_transition
from analysis.questions.transition.result import CLAIMS, TransitionResult, TransitionSettings
from analysis.questions.transition.text import (
    cells_table,
    head_rows,
    missing_table,
    reading_table,
    transition_badge,
    transition_sentence,
)
from analysis.runs.ladder import ladder_of
from analysis.runs.table import Runs
from analysis.text.numbers import Tone
from analysis.text.settled import settled_badge
from analysis.text.tables import Table, varying_columns
from analysis.values import AxisValue, Number
from hsweep.design.labels import listed
from hsweep.design.metric_names import scale_of
from hsweep.errors import UserError, unknown_name


@dataclass(frozen=True)
class TransitionFinding(Finding):
    """A transition, or that none is established."""

    result: TransitionResult

    kind: ClassVar[str] = "transition"
    title: ClassVar[str] = "Where the error falls"
    answers: ClassVar[bool] = True
    counts_unfinished: ClassVar[bool] = True
    is_logarithmic: ClassVar[bool] = True

    @property
    def sentences(self) -> list[str]:
        return [f"{transition_sentence(self.result)}{budgets_sentence(self.result)}"]

    @property
    def plain(self) -> list[str]:
        return plain_transition(self.result)

    @property
    def badge(self) -> tuple[str, Tone]:
        budgets = self.result.budgets
        return settled_badge(transition_badge(self.result), budgets.verdict if budgets else None)

    @property
    def qualifications(self) -> tuple[str, ...]:
        return self.result.qualifications

    def page_tables(self, *, beside: bool) -> list[Section]:
        numbers = Section("Numbers of the transition", reading_table(self.result), in_columns=True)
        missing = missing_table(self.result)
        settling = [Section("Trials that would settle it", missing)] if missing.rows else []
        return [numbers, *self._budget_tables(), *settling]

    def terminal_tables(self, *, beside: bool) -> list[Section]:
        return [
            Section("numbers", reading_table(self.result)),
            *self._budget_tables(),
            Section("trials that would settle it", missing_table(self.result)),
            *([Section("cells", cells_table(self.result))] if self.result.nuisance else []),
        ]

    def _budget_tables(self) -> list[Section]:
        tables = {
            "Answer at each budget": budgets_table(self.result),
            "Trials that would tell whether it is settled": longer_table(self.result),
        }
        return [Section(title, table) for title, table in tables.items() if table.rows]

    def charts(self, trials: pd.DataFrame) -> list[Chart]:
        return [*transition_charts(self.result, trials), *budget_charts(self.result)]

    @property
    def missing(self) -> tuple[Missing, ...]:
        found = self.result
        if found.missing or found.budgets is None:
            # An answer first, and then whether it would survive.
            return tuple(
                Missing(self._at(each.x, each.by), each.trials, each.why) for each in found.missing
            )
        chosen = {(cell.x, cell.by): cell.setting for cell in found.counts}
        return tuple(
            Missing(
                {**self._at(each.x, each.by), **(setting.values if setting else {})},
                each.trials,
                each.why,
                None if each.budget is None else int(each.budget),
            )
            for each in found.budgets.missing
            for setting in (chosen.get((each.x, each.by)),)
        )

    @property
    def numbers(self) -> dict[str, float]:
        found = self.result
        # Without a collapse it is only where one would be.
        h_star = found.h_star if found.verdict in CLAIMS else None
        values = {"h_star": h_star, "drop": found.drop, "p_abrupt": found.p_abrupt}
        return {name: float(value) for name, value in values.items() if value is not None}

    def _at(self, x: Number, by: Number | None) -> dict[str, AxisValue]:
        return {self.result.x: x, **({self.result.by: by} if self.result.by and by else {})}

    @property
    def searched_axis(self) -> str | None:
        return self.result.x

    def cells(self) -> Table | None:
        return cells_table(self.result) if self.result.counts else None

    def rows(self) -> pd.DataFrame:
        return head_rows(self.result)


class TransitionKind(Kind):
    """Reads a transition from a study or a table."""

    name = "transition"
    about = "At which value of an axis does the error collapse?"
    settings = TransitionSettings
    result = TransitionResult
    question = "Transition"
    options = (
        Option("x", "The axis that is searched.  [default: heads]"),
        Option("by", "The modulating axis; '' for none.  [default: seq_len if there]"),
        EVAL_SIZE,
        NUISANCE,
    )

    def shape(self, runs: Runs, chosen: Mapping[str, Any]) -> list[str]:
        x, by, frame = chosen["x"], chosen["by"], runs.frame
        if x is None and "heads" not in frame:
            raise UserError(f"name the searched axis with --x COLUMN; {columns_text(frame)}")
        x = x or "heads"
        if by is None:
            by = "seq_len" if "seq_len" in frame and x != "seq_len" else None
        return [x, *filter(None, [by])]

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        x, *rest = self.shape(runs, chosen)
        by = next(iter(rest), None)
        goal = goal_asked(runs, chosen)
        asked = list(chosen["nuisance"])
        unnamed = [] if asked else _unnamed_settings(runs, x, by)
        nuisance = asked or unnamed
        answer = partial(
            fit,
            x=x,
            by=by,
            goal=goal,
            scale=scale_asked(runs, goal, chosen),
            eval_size=chosen["eval_size"],
            nuisance=nuisance,
            settings=with_settings(TransitionSettings(), chosen["settings"]),
        )
        found = answer(runs)
        axes = [x, *([by] if by is not None else []), *nuisance]
        found = with_budgets(_with_unnamed(found, unnamed), ladder_of(runs, axes), answer)
        return TransitionFinding(found)

    def of_study(self, study: StudyRuns, found: Sequence[Finding]) -> Finding | None:
        return self._answer(study, TransitionSettings())

    def ask_study(self, study: StudyRuns, chosen: Mapping[str, Any]) -> Finding:
        """See `Kind.ask_study`; what is not asked for is as in the study's own such question."""
        own = study.question if study.question.get("type") == self.question else {}
        axes, metric = list(study.manifest.axes), study.manifest.metric
        x, by = chosen["x"] or own.get("x", "heads"), chosen["by"]
        if chosen["x"] is None and x not in axes:
            raise UserError(f"name the searched axis with --x AXIS; the axes are {listed(axes)}")
        if by is None:
            usual = own.get("by", "seq_len" if not own else None)
            by = usual if usual in axes and usual != x else None
        for flag, axis in (("--x", x), ("--by", by)):
            if axis and axis not in axes:
                raise unknown_name(f"axis in {flag}", axis, axes)
        study = asked_of(study, chosen)
        asked = {
            **own,
            "type": self.question,
            "x": x,
            "by": by or None,
            "scale": chosen["scale"] or own.get("scale") or scale_of(metric, study.goal),
            "eval_size": study.question.get("eval_size"),
            "nuisance": tuple(
                axis for axis in study.question.get("nuisance", ()) if axis not in (x, by)
            ),
        }
        settings = with_settings(TransitionSettings(), chosen["settings"])
        return self._answer(study.asking(asked), settings)

    def _answer(self, study: StudyRuns, settings: TransitionSettings) -> Finding:
        question, manifest, trials = study.question, study.manifest, study.trials
        x, by = question["x"], question["by"]
        if by is not None and trials[by].nunique() < 1:
            by = None
        depths = set(trials["depth"]) if "depth" in trials and x != "depth" else set()
        cells = trials.groupby([x] if by is None else [x, by], dropna=False)
        varying = [
            axis
            for axis in varying_columns(trials, manifest.axes)
            if axis not in (x, by) and (cells[axis].nunique(dropna=False) > 1).any()
        ]
        # An axis with one value in every cell follows from x and by, and is a setting of nothing.
        asked = question.get("nuisance", ())
        nuisance = [axis for axis in (*asked, *varying) if axis in varying]
        nuisance = list(dict.fromkeys(nuisance))
        answer = partial(
            fit,
            x=x,
            by=by,
            goal=study.goal,
            scale=question["scale"],
            eval_size=question["eval_size"],
            nuisance=nuisance,
            layers=int(depths.pop()) if len(depths) == 1 else 1,
            settings=settings,
        )
        result = _with_unnamed(
            with_budgets(answer(study.runs), study.ladder, answer),
            [axis for axis in nuisance if axis not in asked],
        )
        rate = fixed_rate(manifest, varying_columns(trials, manifest.axes))
        return TransitionFinding(replace(result, fixed_rate=rate))


def _unnamed_settings(runs: Runs, x: str, by: str | None) -> list[str]:
    """Return the column of a table that alone tells runs of one cell and seed apart and is no
    result of theirs: each of its values stands in several cells. Empty without exactly one."""
    frame, replicate = runs.frame, runs.replicate
    cell = [x, *([] if by is None else [by])]
    own = [*cell, *([] if replicate is None else [replicate])]
    taken = {*own, runs.metric, *map(str, runs.columns.values())}
    is_read = replicate is not None and set(own) <= set(frame)
    # With a budget, several rows of a cell and seed are reports of one run.
    if not is_read or runs.columns.get("budget_column") or not frame.duplicated(own).any():
        return []
    found = [
        name
        for name in map(str, frame.columns)
        if name not in taken
        and not frame.duplicated([*own, name]).any()
        and (frame.groupby(name)[x].nunique() > 1).all()
    ]
    return found if len(found) == 1 else []


def _with_unnamed(result: TransitionResult, unnamed: Sequence[str]) -> TransitionResult:
    """Return a result that says which nuisance axes the question does not name."""
    if not unnamed:
        return result
    note = (
        f"{listed(unnamed)} varies within the cells and the question does not name it: every cell"
        f" is taken at its best {' and '.join(unnamed)}"
    )
    return replace(
        result,
        qualifications=(note, *result.qualifications),
        warnings=(note, *result.warnings),
    )


TRANSITION = TransitionKind()
