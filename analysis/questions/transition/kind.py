"""The transition: at which value of an axis does the error collapse?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from analysis.questions.base import Finding, Kind, StudyRuns
from analysis.questions.groups import together
from analysis.questions.settings import Option, with_settings
from analysis.questions.shapes import (
    EVAL_SIZE,
    NUISANCE,
    axes_within_cells,
    axis_columns,
    columns_text,
    table_goal,
    with_options,
)
from analysis.questions.transition.charts import transition_charts
from analysis.questions.transition.fit import fit
from analysis.questions.transition.question import Transition
from analysis.questions.transition.result import TransitionResult, TransitionSettings
from analysis.questions.transition.searched import searched_answer
from analysis.questions.transition.table import canonical
from analysis.questions.transition.text import (
    transition_badge,
    transition_sentences,
    transition_tables,
)
from analysis.questions.transition.training import with_training
from analysis.runs.columns import moving_together, require
from analysis.runs.ladder import Ladder, ladder_of
from analysis.runs.table import Runs
from analysis.text.numbers import sentence
from analysis.text.settled import sensitivity_badge
from analysis.text.tables import varying_columns
from hsweep.design.labels import listed
from hsweep.design.metric_names import is_cost, scale_of
from hsweep.design.scales import ALPHA
from hsweep.errors import UserError, unknown_name


def of_table(runs: Runs, options: Mapping[str, Any]) -> Finding:
    x, by, frame = options["x"] or "heads", options["by"], runs.frame
    if options["x"] is None and x not in frame:
        raise UserError(f"name the searched axis with --x COLUMN; {columns_text(frame)}")
    if by is None and "seq_len" in frame and x != "seq_len":
        by = "seq_len"
    by, goal, nuisance = by or None, table_goal(runs, options), list(options["nuisance"])
    axes = [x, *([] if by is None else [by]), *nuisance]
    require(frame, axes)
    cells: dict[str, Any] = {"x": x, "by": by, "goal": goal, "nuisance": nuisance}
    scale = options["scale"] or scale_of(runs.metric, goal)
    cells |= {"scale": scale, "eval_size": options["eval_size"]}
    settings = with_settings(TransitionSettings(), options["settings"])
    result = _answer(runs, ladder_of(runs, axes), (), cells, settings=settings)
    return transition_finding(result)


def of_study(study: StudyRuns, options: Mapping[str, Any] | None, _: Sequence[Finding]) -> Finding:
    """Answer a study's transition question, or the question that options ask.

    An option that is not given has the value of the study's own transition question.
    """
    if options is not None:
        study = _apply_options(study, options)
    within = study.question.get("within")

    def answer(part: StudyRuns, at: Mapping[str, Any]) -> TransitionResult:
        result = _study_answer(part, options)
        missing = [replace(runs, at={**at, **runs.at}) for runs in result.missing]
        return replace(result, missing=study.counting(missing))

    if within is None or study.trials[within].nunique() < 2:
        return transition_finding(answer(study, {}))

    found, problems = study.by_value(
        within, lambda part, value: transition_finding(answer(part, {within: value}))
    )
    return together(TRANSITION, within, found, problems)


def _study_answer(study: StudyRuns, options: Mapping[str, Any] | None) -> TransitionResult:
    question, trials = study.question, study.trials
    x, by = question["x"], question["by"]
    if by is not None and trials[by].nunique() < 1:
        by = None
    depths = set(trials["depth"]) if "depth" in trials and x != "depth" else set()
    axes = varying_columns(trials, study.manifest.axes)
    varying = axes_within_cells(trials, [x] if by is None else [x, by], axes)
    named = [axis for axis in question.get("nuisance", ()) if axis in varying]
    unnamed = [axis for axis in varying if axis not in named]
    cells_of = {
        **{"x": x, "by": by, "goal": study.goal, "nuisance": [*named, *unnamed]},
        **{name: question[name] for name in ("scale", "eval_size")},
    }
    layers = int(depths.pop()) if len(depths) == 1 else 1
    if study.manifest.is_sequential and options is None:
        # The tests of the search replace those of a grid, so that these need no draws.
        few = TransitionSettings(alpha=ALPHA / question.get("parts", 1), B=1, n_mc=1)
        result = searched_answer(
            study,
            Transition.recorded(question),
            lambda runs: fit(canonical(runs, **cells_of), settings=few),
            layers,
        )
    else:
        settings = with_settings(TransitionSettings(), options["settings"] if options else ())
        settings = replace(settings, alpha=settings.alpha / question.get("parts", 1))
        choices = {"layers": layers, "settings": settings}
        result = _answer(study.runs, study.ladder, unnamed, cells_of, **choices)
    return replace(result, fixed_rate=study.fixed_rate(axes))


def _answer(
    runs: Runs, ladder: Ladder, unnamed: Sequence[str], cells: Mapping[str, Any], **choices: Any
) -> TransitionResult:
    """Return the answer with whether it is settled; ``unnamed`` are the nuisance axes that the
    question does not name, ``cells`` and ``choices`` the arguments of `canonical` and of `fit`."""
    notes = []
    if unnamed:
        notes.append(
            f"the question does not name {listed(unnamed)}, which varies within the cells: every"
            f" cell is taken at its best {' and '.join(unnamed)}"
        )
    x, frame = str(cells["x"]), runs.frame
    beside = [name for name in axis_columns(frame, {runs.metric, x}) if not is_cost(name)]
    for names in moving_together(frame[[x, *beside]]):
        if x in names:
            others = listed([name for name in names if name != x])
            notes.append(f"{others} moves with {x}, so that what is said of {x} may be due to it")
    note = "; ".join(notes)

    def fit_runs(runs: Runs) -> TransitionResult:
        return fit(canonical(runs, **cells), note=note, **choices)

    return with_training(fit_runs(runs), ladder, fit_runs)


def _apply_options(study: StudyRuns, options: Mapping[str, Any]) -> StudyRuns:
    """Return a study with the transition question that options ask of it."""
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


def _sentences(result: TransitionResult) -> tuple[str, ...]:
    return (*transition_sentences(result), *map(sentence, result.qualifications))


def transition_finding(result: TransitionResult) -> Finding:
    """Return the sentences, badge, tables, charts and missing runs of a result."""
    return Finding(
        TRANSITION,
        result,
        _sentences(result),
        sensitivity_badge(transition_badge(result), result.sensitivity),
        transition_tables(result),
        lambda: transition_charts(result),
        result.missing,
    )


TRANSITION: Final = Kind(
    "transition",
    "At which value of an axis does the error collapse?",
    TransitionSettings,
    of_study,
    of_table,
    (
        Option("x", "The axis that is searched.  [default: heads]"),
        Option("by", "The modulating axis; '' for none.  [default: seq_len if there]"),
        EVAL_SIZE,
        NUISANCE,
    ),
    stands_beside=False,
)
