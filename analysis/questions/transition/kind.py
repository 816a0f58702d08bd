"""The transition: at which value of an axis does the error collapse?"""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.questions.base import Finding, Kind, Section, StudyRuns
from analysis.questions.settings import Option, with_settings
from analysis.questions.shapes import EVAL_SIZE, NUISANCE, columns_text, goal_asked, scale_asked
from analysis.questions.study_shapes import asked_of
from analysis.questions.transition.charts import transition_charts
from analysis.questions.transition.fit import fit
from analysis.questions.transition.result import TransitionResult, TransitionSettings
from analysis.questions.transition.table import unnamed_setting
from analysis.questions.transition.text import (
    cells_table,
    numbers_table,
    transition_badge,
    transition_sentences,
)
from analysis.questions.transition.training import with_training
from analysis.runs.ladder import Ladder, ladder_of
from analysis.runs.table import Runs
from analysis.text.numbers import sentence
from analysis.text.settled import budgets_table, missing_table, sensitivity_badge
from analysis.text.tables import varying_columns
from hsweep.design.labels import listed
from hsweep.design.metric_names import scale_of
from hsweep.errors import UserError, unknown_name


class TransitionKind(Kind):
    """Reads a transition from a study or a table."""

    name = "transition"
    about = "At which value of an axis does the error collapse?"
    settings = TransitionSettings
    options = (
        Option("x", "The axis that is searched.  [default: heads]"),
        Option("by", "The modulating axis; '' for none.  [default: seq_len if there]"),
        EVAL_SIZE,
        NUISANCE,
    )

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        x, by, frame = chosen["x"] or "heads", chosen["by"], runs.frame
        if chosen["x"] is None and x not in frame:
            raise UserError(f"name the searched axis with --x COLUMN; {columns_text(frame)}")
        if by is None and "seq_len" in frame and x != "seq_len":
            by = "seq_len"
        by, goal, named = by or None, goal_asked(runs, chosen), list(chosen["nuisance"])
        unnamed = [] if named else unnamed_setting(runs, x, by)
        nuisance = named or unnamed
        axes = [x, *([] if by is None else [by]), *nuisance]
        return self._answer(
            runs,
            ladder_of(runs, axes),
            unnamed,
            x=x,
            by=by,
            goal=goal,
            scale=scale_asked(runs, goal, chosen),
            eval_size=chosen["eval_size"],
            nuisance=nuisance,
            settings=with_settings(TransitionSettings(), chosen["settings"]),
        )

    def of_study(
        self, study: StudyRuns, chosen: Mapping[str, Any] | None, found: Sequence[Finding]
    ) -> Finding | None:
        """See `Kind.of_study`; what is not asked for is as in the study's own such question."""
        settings = TransitionSettings()
        if chosen is not None:
            study = _asked(study, chosen)
            settings = with_settings(settings, chosen["settings"])
        question, trials = study.question, study.trials
        x, by = question["x"], question["by"]
        if by is not None and trials[by].nunique() < 1:
            by = None
        depths = set(trials["depth"]) if "depth" in trials and x != "depth" else set()
        # An axis with one value in every cell follows from x and by, and is a setting of nothing.
        cells = trials.groupby([x] if by is None else [x, by], dropna=False)
        axes = varying_columns(trials, study.manifest.axes)
        varying = [
            axis
            for axis in axes
            if axis not in (x, by) and (cells[axis].nunique(dropna=False) > 1).any()
        ]
        named = [axis for axis in question.get("nuisance", ()) if axis in varying]
        unnamed = [axis for axis in varying if axis not in named]
        return self._answer(
            study.runs,
            study.ladder,
            unnamed,
            x=x,
            by=by,
            goal=study.goal,
            scale=question["scale"],
            eval_size=question["eval_size"],
            nuisance=[*named, *unnamed],
            layers=int(depths.pop()) if len(depths) == 1 else 1,
            settings=settings,
            fixed_rate=study.fixed_rate(axes),
        )

    def _answer(
        self, runs: Runs, ladder: Ladder, unnamed: Sequence[str], **question: Any
    ) -> Finding:
        """Return the answer with whether it is settled; ``unnamed`` are the nuisance axes that the
        question does not name."""
        note = (
            f"the question does not name {listed(unnamed)}, which varies within the cells: every"
            f" cell is taken at its best {' and '.join(unnamed)}"
            if unnamed
            else ""
        )

        def answer(some: Runs) -> TransitionResult:
            return fit(some, note=note, **question)

        return self.finding(with_training(answer(runs), ladder, answer))

    def finding(self, result: TransitionResult) -> Finding:
        """Return what is said of a transition."""
        training = result.sensitivity
        tables = (
            Section("Numbers of the transition", numbers_table(result), in_columns=True),
            Section("Answer at each budget", budgets_table(training)),
            Section("Runs that would settle it", missing_table(result.missing, training)),
            *([Section("Cells", cells_table(result))] if result.nuisance else []),
        )
        return Finding(
            self,
            result,
            (*transition_sentences(result), *map(sentence, result.qualifications)),
            sensitivity_badge(transition_badge(result), training),
            tuple(section for section in tables if section.table.rows),
            lambda: transition_charts(result),
            result.missing,
        )


def _asked(study: StudyRuns, chosen: Mapping[str, Any]) -> StudyRuns:
    """Return a study with the transition question that options ask of it.

    Raises:
        UserError: no searched axis, or an axis that the study has not.
    """
    own = study.question if study.question.get("type") == "Transition" else {}
    axes = list(study.manifest.axes)
    x, by = chosen["x"] or own.get("x", "heads"), chosen["by"]
    if chosen["x"] is None and x not in axes:
        raise UserError(f"name the searched axis with --x AXIS; the axes are {listed(axes)}")
    if by is None:
        usual = own.get("by") if own else "seq_len"
        by = usual if usual in axes and usual != x else None
    for flag, axis in (("--x", x), ("--by", by)):
        if axis and axis not in axes:
            raise unknown_name(f"axis in {flag}", axis, axes)
    study = asked_of(study, chosen)
    nuisance = tuple(axis for axis in study.question.get("nuisance", ()) if axis not in (x, by))
    return study.asking(
        {
            **own,
            "type": "Transition",
            "x": x,
            "by": by or None,
            "scale": chosen["scale"]
            or own.get("scale")
            or scale_of(study.manifest.metric, study.goal),
            "eval_size": study.question.get("eval_size"),
            "nuisance": nuisance,
        }
    )


TRANSITION = TransitionKind()
