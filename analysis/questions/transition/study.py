"""The transition that a study or a table is asked for, and its answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.questions.base import StudyRuns
from analysis.questions.settings import with_settings
from analysis.questions.shapes import columns_text, goal_asked, scale_asked
from analysis.questions.study_shapes import asked_of
from analysis.questions.transition.fit import fit
from analysis.questions.transition.result import TransitionResult, TransitionSettings
from analysis.questions.transition.table import unnamed_setting
from analysis.questions.transition.training import with_training
from analysis.runs.ladder import Ladder, ladder_of
from analysis.runs.table import Runs
from analysis.text.tables import varying_columns
from hsweep.design.labels import listed
from hsweep.design.metric_names import scale_of
from hsweep.errors import UserError, unknown_name


def answer_table(runs: Runs, chosen: Mapping[str, Any]) -> TransitionResult:
    """Answer the question that options ask of a table (see `Kind.of_table`)."""
    x, by, frame = chosen["x"] or "heads", chosen["by"], runs.frame
    if chosen["x"] is None and x not in frame:
        raise UserError(f"name the searched axis with --x COLUMN; {columns_text(frame)}")
    if by is None and "seq_len" in frame and x != "seq_len":
        by = "seq_len"
    by, goal, named = by or None, goal_asked(runs, chosen), list(chosen["nuisance"])
    unnamed = [] if named else unnamed_setting(runs, x, by)
    nuisance = named or unnamed
    axes = [x, *([] if by is None else [by]), *nuisance]
    return _answer(
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


def answer_study(study: StudyRuns, chosen: Mapping[str, Any] | None) -> TransitionResult:
    """Answer a study's transition question, or what options ask of it (see `Kind.of_study`); what
    is not asked for is as in the study's own such question."""
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
    return _answer(
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
    runs: Runs, ladder: Ladder, unnamed: Sequence[str], **question: Any
) -> TransitionResult:
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

    return with_training(answer(runs), ladder, answer)


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
