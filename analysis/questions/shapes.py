"""Options that several kinds share, and the shapes of a study or of any table."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import pandas as pd
from pandas.api.types import is_numeric_dtype

from analysis.questions.base import StudyRuns
from analysis.questions.settings import Option
from analysis.runs.choices import form_of
from analysis.runs.columns import require
from analysis.runs.grouped import TASK_AXES, Grouped, grouped
from analysis.runs.table import Runs
from analysis.text.tables import varying_columns
from analysis.values import AxisValue
from hsweep.design.metric_names import goal_of, is_cost
from hsweep.design.scales import Goal, Scale
from hsweep.design.space import parse_values
from hsweep.errors import UserError, unknown_name

EVAL_SIZE: Final = Option("eval_size", "Evaluation examples behind the metric.", int)
CONFIG: Final = Option("config", "A column of the shape; repeat.", multiple=True, of_table=True)
COSTS: Final = Option(
    "cost", "A column to keep small; repeat; NAME:min where the name tells not so.", multiple=True
)
NUISANCE: Final = Option(
    "nuisance", "An axis of which each cell or shape keeps the best value; repeat.", multiple=True
)
BASELINE: Final = Option("baseline", "The baseline, as heads=12,depth=12, or its name.")
MARGIN: Final = Option("margin", "How much worse still counts as equal.", float)
USUAL_COST: Final = "num_params"
_SMALL: Final = ":min"


def table_goal(runs: Runs, options: Mapping[str, Any]) -> Goal:
    """Return whether the metric is minimised or maximised: by the option ``goal``, else by the
    scale, else by the metric's name.

    Raises:
        UserError: none of the three decides it.
    """
    scale: Scale | None = options["scale"]
    goal: Goal | None = options["goal"]
    if goal is None and scale is not None:
        goal = "max" if scale == "accuracy" else "min"
    result = goal or goal_of(runs.metric)
    if result is None:
        raise UserError(
            f"the name {runs.metric!r} does not tell whether smaller or larger is better; say it "
            "with --goal min or --goal max"
        )
    return result


def columns_text(frame: pd.DataFrame) -> str:
    return f"the table has: {', '.join(map(str, frame.columns))}"


def shape_columns(runs: Runs, options: Mapping[str, Any]) -> list[str]:
    """Return the columns that name a shape.

    They are the columns of ``--config``; else a column called ``config``; else a column of names
    that fixes all other columns; else what was chosen for a run by the table's form; else all
    columns of names or whole numbers that have no other use and do not vary between the seeds of a
    shape.

    Raises:
        UserError: a nuisance axis that is no column or is part of the shape, or no column at all.
    """
    frame, config = runs.frame, list(options["config"])
    nuisance = options.get("nuisance", ())
    for name in nuisance:
        if name not in frame:
            raise unknown_name("column in --nuisance", name, map(str, frame.columns))
        if name in config:
            raise UserError(
                f"{name!r} is given with --config and with --nuisance; a nuisance axis is none of "
                "the shape"
            )
    if config:
        require(frame, config)
        return config
    if "config" in frame:
        return ["config"]
    replicate = runs.replicate
    ends = (runs.status_column, runs.columns.get("budget_column"))
    other = {runs.metric, replicate, *cost_columns(options), *nuisance, *ends}
    shape = axis_columns(frame, other)
    if replicate is not None and frame[replicate].nunique() > 1:
        # A shape has several seeds: what hardly ever stands with two of them is a run's own.
        seeds = (
            frame.groupby(name, dropna=False)[replicate].transform("nunique") for name in shape
        )
        shape = [
            name for name, several in zip(shape, seeds, strict=True) if several.gt(1).mean() > 0.5
        ]
        # What came out has more values than what was chosen; in any order of the columns.
        for name in sorted(shape, key=lambda name: (-frame[name].nunique(), name)):
            rest = [column for column in shape if column != name]
            if rest and not frame.duplicated([*rest, *nuisance, replicate]).any():
                groups = frame.groupby(rest, dropna=False)[name]
                if (groups.nunique(dropna=False) > 1).any():
                    shape = rest
    if not shape:
        raise UserError("no column names the shape; give one with --config COLUMN")
    pairs = (options.get("baseline") or "").split(",")
    if named := {pair.partition("=")[0].strip() for pair in pairs if "=" in pair}:
        # The baseline says what makes a shape; a name of each row is none of that.
        ids = {name for name in shape if frame[name].is_unique} - {*frame.select_dtypes("number")}
        shape = [name for name in shape if name in named or name not in ids]
    for name in shape:
        rest = [column for column in shape if column != name]
        if not rest or is_numeric_dtype(frame[name]) or (named and name not in named):
            continue
        by_name = frame.groupby(name, dropna=False)
        fixed = by_name[rest].nunique(dropna=False).le(1).all()
        # A name of single runs is no shape where settings compete.
        names = frame.groupby(rest, dropna=False)[name].nunique()
        if fixed.all() and not (nuisance and (names > 1).any()):
            return [name]
        # One that several runs share, and that tells what they cost, is.
        costs = [cost for cost in cost_columns(options) if cost in frame]
        is_costed = bool(costs) and by_name[costs].nunique(dropna=False).le(1).all(axis=None)
        if is_costed and fixed.any() and by_name.ngroups < len(frame):
            return [name]
    return shape


def cost_columns(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns to keep small, without the mark that says so."""
    return tuple(cost.removesuffix(_SMALL) for cost in options.get("cost") or (USUAL_COST,))


def _check_costs(options: Mapping[str, Any], axes: Collection[str]) -> None:
    """Refuse a cost that is no axis, and of which nothing says that less of it is better."""
    for cost in options.get("cost") or ():
        name = cost.removesuffix(_SMALL)
        if name == cost and name not in axes and not is_cost(name):
            raise UserError(
                f"the name {name!r} does not tell that less of it is better: --cost {name}{_SMALL}"
                " says so; of what should be large (a throughput) give the inverse as a column"
                " (seconds a token)"
            )


def axis_columns(frame: pd.DataFrame, other: Collection[object]) -> list[str]:
    """Return the columns, except ``other``, that vary and were chosen by the table's form, or look
    chosen rather than measured."""
    form = form_of(frame.columns)
    varying = [str(name) for name in frame if name not in other and frame[name].nunique() > 1]
    return [name for name in varying if name in form.chosen] or [
        name for name in varying if name not in form.others and not _is_measured(frame[name])
    ]


def _is_measured(column: "pd.Series[Any]") -> bool:
    if not pd.api.types.is_float_dtype(column):
        return False
    return column.nunique() > column.count() // 2


def front_question(runs: Runs, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a front and a lean question share, from the options for a table.

    Raises:
        UserError: no cost, or one that is the metric.
    """
    shape, costs = shape_columns(runs, options), cost_columns(options)
    if not options["cost"] and USUAL_COST not in runs.frame:
        raise UserError(f"name what to keep small with --cost COLUMN; {columns_text(runs.frame)}")
    if runs.metric in costs:
        raise UserError(f"{runs.metric!r} cannot be both the metric and a cost")
    _check_costs(options, shape)
    return {
        "config": shape,
        "goal": table_goal(runs, options),
        "costs": costs,
        "nuisance": tuple(options["nuisance"]),
    }


def read_baseline(text: str, shape: Sequence[str], frame: pd.DataFrame) -> dict[str, AxisValue]:
    """Read a baseline: column=value pairs with commas between, or a value of one column.

    Raises:
        UserError: another form, or a column that does not belong to the shape.
    """
    if "=" not in text or (len(shape) == 1 and text in set(frame[shape[0]])):
        if len(shape) == 1:
            return {shape[0]: read_value(text, frame[shape[0]])}
        holding = [name for name in shape if text in set(frame[name].astype(str))]
        if len(holding) == 1 and not pd.api.types.is_numeric_dtype(frame[holding[0]]):
            return {holding[0]: text}
        raise UserError(
            f"--baseline {text!r} names no column; write {shape[0]}=VALUE,... for the shape's "
            f"columns {', '.join(shape)}"
        )
    pairs = [part.partition("=") for part in text.split(",")]
    for column, equals, value in pairs:
        if not equals or not value:
            raise UserError(f"--baseline is COLUMN=VALUE,COLUMN=VALUE; got {text!r}")
        if column.strip() not in shape:
            raise unknown_name("column in --baseline", column.strip(), shape)
    return {name.strip(): read_value(value, frame[name.strip()]) for name, _, value in pairs}


def read_value(text: str, column: "pd.Series[Any]") -> Any:
    """Return a text as an entry of a column: a number where the column holds numbers."""
    return parse_values(text)[0] if pd.api.types.is_numeric_dtype(column) else text.strip()


def table_shapes(runs: Runs, options: Mapping[str, Any]) -> Grouped:
    """Return the shapes of any table, with the columns that options of ``hsweep analyze`` name.

    Raises:
        UserError: as `shape_columns` and `grouped` do.
    """
    goal = table_goal(runs, options)
    return grouped(
        runs,
        shape_columns(runs, options),
        tuple(options["nuisance"]),
        goal=goal,
        scale=options["scale"] or share_scale(runs, goal),
        eval_size=options["eval_size"],
    )


def share_scale(runs: Runs, goal: Goal) -> Scale | None:
    """Return the scale of a metric that is an accuracy by name and values; None for any other."""
    values = runs.frame[runs.metric]
    is_share = goal == "max" and goal_of(runs.metric) == "max" and is_numeric_dtype(values)
    return "accuracy" if is_share and values.dropna().between(0, 1).all() else None


def study_shapes(study: StudyRuns) -> Grouped:
    """Return a study's shapes.

    Raises:
        UserError: as `grouped` does.
    """
    question, nuisance = study.question, nuisance_axes(study)
    scale, is_by_scale = question.get("scale"), question.get("is_by_scale", False)
    axes = [axis for axis in study.manifest.axes if axis not in nuisance]
    return grouped(
        study.runs,
        varying_columns(study.trials, axes) or axes,
        nuisance,
        goal=study.goal,
        # The margin of another question is in the metric's own unit, and so are its effects.
        scale=scale if is_by_scale or scale == "error" else share_scale(study.runs, study.goal),
        eval_size=question.get("eval_size"),
        noun=study.manifest.place if is_by_scale else "shape",
    )


def with_options(study: StudyRuns, options: Mapping[str, Any]) -> StudyRuns:
    """Return a study with those options in its question that shapes are read by.

    Raises:
        UserError: a nuisance axis or a baseline that the study has not.
    """
    axes = list(study.manifest.axes)
    nuisance, baseline = options.get("nuisance"), options.get("baseline")
    for axis in nuisance or ():
        if axis not in axes:
            raise unknown_name("axis in --nuisance", axis, axes)
    _check_costs(options, axes)
    values = {
        "nuisance": tuple(nuisance or ()),
        "costs": cost_columns(options) if options.get("cost") else (),
        "eval_size": options.get("eval_size"),
        "scale": options.get("scale"),
    }
    question = {**study.question, **{name: value for name, value in values.items() if value}}
    if baseline is not None:
        shape = [axis for axis in axes if axis not in question.get("nuisance", ())]
        question["baseline"] = read_baseline(baseline, shape, study.trials)
        question["within"] = None
    return study.asking(question)


def answered_axes(study: StudyRuns) -> tuple[str, ...]:
    """Return the axes whose effect a study's question answers by itself."""
    return tuple(study.question.get("answers", ()))


def axes_within_cells(trials: pd.DataFrame, cell: Sequence[str], axes: Sequence[str]) -> list[str]:
    """Return the axes that vary within cells. One that has one value in every cell, as a width that
    goes with the heads, follows from the cell and is no setting."""
    cells = trials.groupby(list(cell), dropna=False)
    return [
        axis for axis in axes if axis not in cell and (cells[axis].nunique(dropna=False) > 1).any()
    ]


def nuisance_axes(study: StudyRuns) -> tuple[str, ...]:
    """Return the varying axes of which a study's shapes are compared at their best settings."""
    varying = varying_columns(study.trials, study.manifest.axes)
    return tuple(axis for axis in study.question.get("nuisance", ()) if axis in varying)


def parting_axis(study: StudyRuns) -> str | None:
    """Return the axis whose values are different tasks, so that results at different values are
    not compared; None where the study learns one task."""
    of_tasks = [
        axis for entry in study.manifest.provenance.get("data", ()) for axis in entry.get("at", ())
    ]
    varying = varying_columns(study.trials, study.manifest.axes)
    return next((axis for axis in (*of_tasks, *TASK_AXES) if axis in varying), None)
