"""The shapes that effects start from, of a study or of any table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pandas.api.types import is_numeric_dtype

from analysis.questions.base import StudyRuns
from analysis.questions.settings import Option
from analysis.questions.shapes import goal_asked, read_baseline, shape_columns
from analysis.runs.grouped import TASK_AXES, Grouped, grouped
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs
from analysis.text.tables import varying_columns
from hsweep.design.metric_names import goal_of
from hsweep.design.question import Goal, Scale
from hsweep.errors import unknown_name

AXES: Final = Option(
    "x", "Axes of the shape, with commas between, besides those found.", of_table=True
)


def table_shapes(runs: Runs, chosen: Mapping[str, Any], crash_sd: float) -> Grouped:
    """Return the shapes of any table, as the options of ``hsweep analyze`` name them.

    Raises:
        UserError: as `shape_columns` and `grouped` do.
    """
    goal, x = goal_asked(runs, chosen), chosen["x"]
    found = shape_columns(runs, chosen)
    return _shapes(
        runs,
        found if x is None else list(dict.fromkeys([*x.split(","), *found])),
        tuple(chosen["nuisance"]),
        goal,
        scale=chosen["scale"] or share_scale(runs, goal),
        eval_size=chosen["eval_size"],
        cost=next(iter(chosen["cost"]), "num_params"),
        crash_sd=crash_sd,
    )


def _shapes(
    runs: Runs,
    by: Sequence[str],
    nuisance: Sequence[str],
    goal: Goal,
    *,
    cost: str,
    **choices: Any,
) -> Grouped:
    """Return shapes with their first cost, where there is such a column."""
    has_cost = cost in runs.frame.columns
    found = grouped(runs, by, nuisance, goal=goal, costs=(cost,) if has_cost else (), **choices)
    if has_cost:
        return found
    note = f"the table has no column {cost!r}, so nothing is said about cost"
    return replace(found, warnings=(note, *found.warnings))


def share_scale(runs: Runs, goal: Goal) -> Scale | None:
    """Return the scale of a metric that is an accuracy by name and values; None for any other."""
    values = runs.frame[runs.metric]
    is_share = goal == "max" and goal_of(runs.metric) == "max" and is_numeric_dtype(values)
    return "accuracy" if is_share and values.dropna().between(0, 1).all() else None


def study_shapes(study: StudyRuns, crash_sd: float) -> Grouped:
    """Return a study's shapes.

    Raises:
        UserError: as `grouped` does.
    """
    question, nuisance = study.question, nuisance_axes(study)
    scale, is_transition = question.get("scale"), question.get("type") == "Transition"
    own = [axis for axis in study.manifest.axes if axis not in nuisance]
    return _shapes(
        study.runs,
        varying_columns(study.trials, own) or own,
        nuisance,
        study.goal,
        # A lean question's margin is in the metric's own unit, and so are its effects.
        scale=scale if is_transition or scale == "error" else share_scale(study.runs, study.goal),
        eval_size=question.get("eval_size"),
        cost=next(iter(question.get("costs") or ()), "num_params"),
        crash_sd=crash_sd,
        what="cell" if is_transition else "shape",
    )


def asked_of(study: StudyRuns, chosen: Mapping[str, Any]) -> StudyRuns:
    """Return a study with those options in its question that shapes are read by.

    Raises:
        UserError: a nuisance axis or a baseline that the study has not.
    """
    axes = list(study.manifest.axes)
    nuisance, baseline = chosen.get("nuisance"), chosen.get("baseline")
    for axis in nuisance or ():
        if axis not in axes:
            raise unknown_name("axis in --nuisance", axis, axes)
    given = {
        "nuisance": tuple(nuisance or ()),
        "costs": tuple(chosen.get("cost") or ()),
        "eval_size": chosen.get("eval_size"),
        "scale": chosen.get("scale"),
    }
    question = {**study.question, **{name: value for name, value in given.items() if value}}
    if baseline is not None:
        shape = [axis for axis in axes if axis not in question.get("nuisance", ())]
        question["baseline"] = read_baseline(baseline, shape, study.trials)
        question["within"] = None
    return study.asking(question)


def untold_shapes(study: StudyRuns, crash_sd: float) -> Grouped | None:
    """Return a study's shapes of at least two axes; None where its answer says it all.

    Where no axis varies but those of a transition question, means of the same cells by a weaker
    test would only contradict the answer.

    Raises:
        UserError: as `grouped` does.
    """
    if not study.trials["status"].isin(FULL).any():
        return None
    shapes = study_shapes(study, crash_sd)
    is_told = set(shapes.columns) <= set(answered_axes(study))
    return None if is_told or len(shapes.columns) < 2 else shapes


def answered_axes(study: StudyRuns) -> tuple[str, ...]:
    """Return the axes that a transition question tests itself."""
    if study.question.get("type") != "Transition":
        return ()
    found = (study.question.get(role) for role in ("x", "by"))
    return tuple(str(axis) for axis in found if axis is not None)


def nuisance_axes(study: StudyRuns) -> tuple[str, ...]:
    """Return the axes of whose settings a study's shapes are compared at their best."""
    varying = varying_columns(study.trials, study.manifest.axes)
    return tuple(axis for axis in study.question.get("nuisance", ()) if axis in varying)


def parting_axis(study: StudyRuns) -> str | None:
    """Return the axis at whose values a study learns different tasks, so that results at one are
    not held against those at another; None where it learns one task."""
    of_tasks = [
        axis for each in study.manifest.provenance.get("data", ()) for axis in each.get("at", ())
    ]
    varying = varying_columns(study.trials, study.manifest.axes)
    return next((axis for axis in (*of_tasks, *TASK_AXES) if axis in varying), None)


def task_axes(study: StudyRuns) -> tuple[str, ...]:
    """Return the axes of a study's task rather than of its models."""
    question = study.question
    within = question.get("by" if question.get("type") == "Transition" else "within")
    return tuple(dict.fromkeys((*TASK_AXES, *((within,) if within else ()))))
