"""At which head count does the error collapse, and is that more than diminishing returns?

Location and existence are two procedures: the largest drop finds the place well and proves nothing;
a test against every convex decline decides whether there is anything to find.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import pandas as pd

from analysis.questions.base import StudyRuns
from analysis.questions.settings import with_settings
from analysis.questions.shapes import columns_text, table_goal, table_scale, with_options
from analysis.questions.transition.answer import answer
from analysis.questions.transition.cells import seed_noise
from analysis.questions.transition.coverage import audit, missing_runs
from analysis.questions.transition.result import (
    LIMITS,
    RunValue,
    TransitionResult,
    TransitionSettings,
)
from analysis.questions.transition.table import RunTable, build_grid, canonical, unnamed_setting
from analysis.questions.transition.training import with_training
from analysis.runs.columns import RunColumns
from analysis.runs.ladder import Ladder, ladder_of
from analysis.runs.table import Runs
from analysis.text.tables import varying_columns
from analysis.values import number
from hsweep.design.labels import listed
from hsweep.design.metric_names import scale_of
from hsweep.design.question import Goal, Scale
from hsweep.errors import UserError, unknown_name

_DEFAULT_SETTINGS = TransitionSettings()


def fit(
    table: pd.DataFrame | Runs | RunTable,
    *,
    metric: str | None = None,
    x: str = "heads",
    by: str | None = "seq_len",
    goal: Goal = "min",
    scale: Scale = "error",
    eval_size: int | None = None,
    nuisance: Sequence[str] = (),
    layers: int = 1,
    settings: TransitionSettings = _DEFAULT_SETTINGS,
    fixed_rate: float | None = None,
    note: str = "",
    **columns: Unpack[RunColumns],
) -> TransitionResult:
    """Fit the transition of ``metric`` along ``x``, modulated by ``by``.

    Args:
        table: one row a run; or `Runs`, which carry metric and columns; or a `RunTable`, which
            carries the arguments up to ``nuisance``.
        x: ordered axis that is searched.
        by: modulating axis, or None for a sweep at one length.
        scale: error, accuracy or loss (see `analysis.runs.scale`).
        eval_size: evaluation examples behind an accuracy.
        nuisance: axes whose settings compete within a cell.
        layers: attention layers of the models, for the retrieval dimension.
        settings: levels, thresholds, draws and the seed.
        fixed_rate: the one learning rate of all runs, which was not tuned.
        note: a further qualification of the answer.

    Raises:
        UserError: a table that cannot be used, with what to change.
    """
    if not isinstance(table, RunTable):
        table = canonical(
            Runs.of(table, metric, columns),
            x=x,
            by=by,
            goal=goal,
            scale=scale,
            eval_size=eval_size,
            nuisance=nuisance,
        )
    if layers < 1:
        raise UserError(f"layers must be at least 1, not {layers!r}")
    limits = settings.limits(table.scale)
    settings = replace(settings, **{name: getattr(limits, name) for name in LIMITS})
    coverage = audit(table)
    grid = build_grid(table)
    noise = seed_noise(grid, limits, settings.assumed_sd)
    fields, needs, reading_note = answer(grid, noise, table, coverage, settings, layers)
    fields = {"h_set": tuple(coverage.xs), **fields}
    qualifications = (note, reading_note, *table.warnings, *coverage.qualifications)
    return TransitionResult(
        **fields,
        x=table.x,
        by=table.by,
        metric=table.metric,
        goal=table.goal,
        scale=table.scale,
        runs=_run_values(table.frame),
        counts=coverage.counts,
        missing=missing_runs(coverage, needs),
        n1_assumed_sd=noise.stand_in if len(grid.heads) else None,
        settings=settings,
        qualifications=tuple(dict.fromkeys(filter(None, qualifications))),
        warnings=coverage.warnings,
        nuisance=table.nuisance,
        fixed_rate=fixed_rate,
    )


def _run_values(frame: pd.DataFrame) -> tuple[RunValue, ...]:
    done = frame.loc[frame["complete"]]
    columns = (done[name].tolist() for name in ("x", "by", "replicate", "value", "y"))
    return tuple(
        RunValue(number(x), None if np.isnan(by) else number(by), str(replicate), value, y)
        for x, by, replicate, value, y in zip(*columns, strict=True)
    )


def answer_table(runs: Runs, options: Mapping[str, Any]) -> TransitionResult:
    """Answer the question that options ask of a table (see `Kind.of_table`)."""
    x, by, frame = options["x"] or "heads", options["by"], runs.frame
    if options["x"] is None and x not in frame:
        raise UserError(f"name the searched axis with --x COLUMN; {columns_text(frame)}")
    if by is None and "seq_len" in frame and x != "seq_len":
        by = "seq_len"
    by, goal, named = by or None, table_goal(runs, options), list(options["nuisance"])
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
        scale=table_scale(runs, goal, options),
        eval_size=options["eval_size"],
        nuisance=nuisance,
        settings=with_settings(TransitionSettings(), options["settings"]),
    )


def answer_study(study: StudyRuns, options: Mapping[str, Any] | None) -> TransitionResult:
    """Answer a study's transition question, or the question that options ask (see `Kind.of_study`).

    An option that is not given has the value of the study's own transition question.
    """
    settings = TransitionSettings()
    if options is not None:
        study = _apply_options(study, options)
        settings = with_settings(settings, options["settings"])
    question, trials = study.question, study.trials
    x, by = question["x"], question["by"]
    if by is not None and trials[by].nunique() < 1:
        by = None
    depths = set(trials["depth"]) if "depth" in trials and x != "depth" else set()
    # An axis with one value in every cell follows from x and by, so it is no setting.
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

    def fit_runs(runs: Runs) -> TransitionResult:
        return fit(runs, note=note, **question)

    return with_training(fit_runs(runs), ladder, fit_runs)


def _apply_options(study: StudyRuns, options: Mapping[str, Any]) -> StudyRuns:
    """Return a study with the transition question that options ask of it.

    Raises:
        UserError: no searched axis, or an axis that is not in the study.
    """
    defaults = study.question if study.question.get("type") == "Transition" else {}
    axes = list(study.manifest.axes)
    x, by = options["x"] or defaults.get("x", "heads"), options["by"]
    if options["x"] is None and x not in axes:
        raise UserError(f"name the searched axis with --x AXIS; the axes are {listed(axes)}")
    if by is None:
        usual = defaults.get("by") if defaults else "seq_len"
        by = usual if usual in axes and usual != x else None
    for flag, axis in (("--x", x), ("--by", by)):
        if axis and axis not in axes:
            raise unknown_name(f"axis in {flag}", axis, axes)
    study = with_options(study, options)
    nuisance = tuple(axis for axis in study.question.get("nuisance", ()) if axis not in (x, by))
    return study.asking(
        {
            **defaults,
            "type": "Transition",
            "x": x,
            "by": by or None,
            "scale": options["scale"]
            or defaults.get("scale")
            or scale_of(study.manifest.metric, study.goal),
            "eval_size": study.question.get("eval_size"),
            "nuisance": nuisance,
        }
    )
