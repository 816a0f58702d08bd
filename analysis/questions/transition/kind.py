"""The transition: at which value of an axis does the error collapse?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from analysis.questions.base import Finding, Kind, StudyRuns, fixed_rate
from analysis.questions.settings import Option, with_settings
from analysis.questions.shapes import (
    EVAL_SIZE,
    NUISANCE,
    columns_text,
    goal_asked,
    scale_asked,
)
from analysis.questions.study_shapes import asked_of
from analysis.questions.transition.finding import transition_finding
from analysis.questions.transition.fit import fit
from analysis.questions.transition.result import TransitionResult, TransitionSettings
from analysis.questions.transition.training import with_training
from analysis.runs.ladder import ladder_of
from analysis.runs.table import Runs
from analysis.text.tables import varying_columns
from hsweep.design.labels import listed
from hsweep.design.metric_names import scale_of
from hsweep.errors import UserError, unknown_name


class TransitionKind(Kind):
    """Reads a transition from a study or a table."""

    name = "transition"
    about = "At which value of an axis does the error collapse?"
    settings = TransitionSettings
    result = TransitionResult
    options = (
        Option("x", "The axis that is searched.  [default: heads]"),
        Option("by", "The modulating axis; '' for none.  [default: seq_len if there]"),
        EVAL_SIZE,
        NUISANCE,
    )

    def _cell(self, runs: Runs, chosen: Mapping[str, Any]) -> list[str]:
        x, by, frame = chosen["x"], chosen["by"], runs.frame
        if x is None and "heads" not in frame:
            raise UserError(f"name the searched axis with --x COLUMN; {columns_text(frame)}")
        x = x or "heads"
        if by is None:
            by = "seq_len" if "seq_len" in frame and x != "seq_len" else None
        return [x, *filter(None, [by])]

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        x, *rest = self._cell(runs, chosen)
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
        found = with_training(_with_unnamed(found, unnamed), ladder_of(runs, axes), answer)
        return transition_finding(self, found)

    def of_study(
        self, study: StudyRuns, chosen: Mapping[str, Any] | None, found: Sequence[Finding]
    ) -> Finding | None:
        """See `Kind.of_study`; what is not asked for is as in the study's own such question."""
        if chosen is None:
            return self._answer(study, TransitionSettings())
        own = study.question if study.question.get("type") == "Transition" else {}
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
            "type": "Transition",
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
            with_training(answer(study.runs), study.ladder, answer),
            [axis for axis in nuisance if axis not in asked],
        )
        rate = fixed_rate(manifest, varying_columns(trials, manifest.axes))
        return transition_finding(self, replace(result, fixed_rate=rate))


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
        f"the question does not name {listed(unnamed)}, which varies within the cells: every cell"
        f" is taken at its best {' and '.join(unnamed)}"
    )
    return replace(
        result,
        qualifications=(note, *result.qualifications),
        warnings=(note, *result.warnings),
    )


TRANSITION = TransitionKind()
