"""The lean question to a study or a table, and its answer.

Where a study holds several comparisons, each has its own baseline: families of models are compared
with their originals, not with each other. If each family were tested at the full error rate, some
family would be wrong the more often the more families there are. So the rate is divided among the
families (Bonferroni), and Holm's procedure divides each part over the family's candidates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from analysis.questions.base import StudyRuns
from analysis.questions.lean.result import LeanGroups, LeanResult, LeanSettings
from analysis.questions.lean.training import answer
from analysis.questions.pareto import fit as pareto
from analysis.questions.pareto.result import ParetoResult
from analysis.questions.settings import with_settings
from analysis.questions.shapes import front_question, parting_axis, read_baseline, with_options
from analysis.runs.chance import study_chance
from analysis.runs.ladder import Ladder, ladder_of
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs
from analysis.text.tables import varying_columns
from analysis.values import AxisValue
from hsweep.design.question import Goal
from hsweep.errors import UserError
from hsweep.record.manifest import NEW_SEED
from hsweep.record.tables import frame

_NEEDED: Final = (
    "a lean question needs --baseline (heads=12,depth=12, or a name) and --margin: how much worse "
    "still counts as equal has no default"
)
_FIRST_REPORT: Final = "score at the first report"
"""Column of the scores of the baseline's trials at the first of several reports."""


def fit_groups(
    runs: Runs,
    *,
    within: str,
    baseline: Mapping[str, AxisValue],
    margin: float,
    axes: Sequence[str],
    goal: Goal = "max",
    costs: Sequence[str] = ("num_params",),
    nuisance: Sequence[str] = (),
    settings: LeanSettings | None = None,
    chances: Mapping[str, float] | None = None,
    first_report: str | None = None,
    with_fronts: bool = False,
    ladder: Ladder | None = None,
    fixed_rate: float | None = None,
) -> LeanGroups:
    """Compare the shapes at each value of ``within`` with the baseline there.

    Args:
        baseline: axis values that pick exactly one shape at each value of ``within``.
        settings: as in ``lean.fit``; ``alpha`` is the error rate of the whole study.
        chances: a constant predictor's score, by the value of ``within`` in words, where it is
            known.
        with_fronts: whether each value gets a front of its own.
        ladder: the runs of each budget; None leaves open whether the answers are settled.
        fixed_rate: the one learning rate of all runs, which was not tuned.

    Raises:
        UserError: a margin that is not a positive number.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise UserError(f"margin must be a positive number, not {margin!r}")
    groups = dict(list(runs.frame.groupby(within, sort=False)))
    whole = settings or LeanSettings()
    results: dict[str, LeanResult] = {}
    problems: dict[str, str] = {}
    fronts: dict[str, ParetoResult] = {}
    for value, rows in groups.items():
        part, name = Runs(rows, runs.metric, runs.columns), str(value)
        shared: dict[str, Any] = {
            "config": [
                axis
                for axis in axes
                if axis not in nuisance
                and (axis in baseline or rows[axis].nunique(dropna=False) > 1)
            ],
            "goal": goal,
            "costs": costs,
            "nuisance": nuisance,
        }
        chance = (chances or {}).get(name, whole.chance)
        group_settings = replace(whole, alpha=whole.alpha / len(groups), chance=chance)
        question = {**shared, "baseline": baseline, "margin": margin, "settings": group_settings}
        budgets = None if ladder is None else ladder.where(within, value)
        try:
            if with_fronts:
                fronts[name] = pareto.fit(part, **shared)
            results[name] = replace(
                answer(part, budgets, question, first_report), at={within: name}
            )
        except UserError as error:
            # Typically the baseline has not finished; the other comparisons stand without it.
            problems[name] = str(error)
    return LeanGroups(within, results, problems, fronts, fixed_rate)


def answer_table(runs: Runs, options: Mapping[str, Any]) -> LeanResult:
    """Answer the question that options ask of a table (see `Kind.of_table`)."""
    question = front_question(runs, options)
    if options["baseline"] is None or options["margin"] is None:
        raise UserError(_NEEDED)
    question |= {
        "baseline": read_baseline(options["baseline"], question["config"], runs.frame),
        "margin": options["margin"],
        "settings": with_settings(LeanSettings(), options["settings"]),
    }
    ladder = ladder_of(runs, [*question["config"], *question["nuisance"]])
    return answer(runs, ladder, question)


def answer_study(study: StudyRuns, options: Mapping[str, Any] | None) -> LeanResult | LeanGroups:
    """Answer a study's lean question, or the question that options ask (see `Kind.of_study`).

    An option that is not given has the value of the study's own lean question.
    """
    settings = LeanSettings()
    if options is not None:
        study = _apply_options(study, options)
        settings = with_settings(settings, options["settings"])
    manifest, trials, within = study.manifest, study.trials, study.question.get("within")
    baseline = dict(study.question["baseline"])
    varying = varying_columns(trials, manifest.axes)
    nuisance = [axis for axis in study.question.get("nuisance", ()) if axis in varying]
    axes = [
        axis
        for axis in manifest.axes
        if (axis in varying or axis in baseline) and axis not in nuisance
    ]
    data = manifest.provenance.get("data", ())

    def chance(at: Mapping[str, Any]) -> float | None:
        return study_chance(data, manifest.metric, {**baseline, **at})

    first = _first_reports(study, baseline)
    runs = Runs(study.runs.frame.assign(**{_FIRST_REPORT: first}), manifest.metric)
    question: dict[str, Any] = {
        "baseline": baseline,
        "margin": study.question["margin"],
        "goal": study.goal,
        "costs": study.question["costs"],
        "nuisance": nuisance,
        "settings": replace(settings, chance=chance({}), looks=_looks(manifest.extensions)),
        "fixed_rate": study.fixed_rate(varying),
    }
    if within is None or trials[within].nunique() < 2:
        question["config"] = axes
        return answer(runs, study.ladder, question, _FIRST_REPORT)
    chances = {str(value): chance({within: value}) for value in runs.frame[within].unique()}
    return fit_groups(
        runs,
        within=within,
        axes=axes,
        chances={name: score for name, score in chances.items() if score is not None},
        with_fronts=len(data) > 1,
        ladder=study.ladder,
        first_report=_FIRST_REPORT,
        **question,
    )


def _apply_options(study: StudyRuns, options: Mapping[str, Any]) -> StudyRuns:
    """Return a study with the lean question that options ask of it.

    Raises:
        UserError: no baseline or margin, or a baseline that names the axis of its own task.
    """
    defaults = study.question if study.question.get("type") == "Lean" else {}
    study = with_options(study, options)
    margin = defaults.get("margin") if options["margin"] is None else options["margin"]
    source, within = defaults, defaults.get("within")
    if options["baseline"] is not None:
        source, within = study.question, parting_axis(study)
    baseline = source.get("baseline")
    if baseline is None or margin is None:
        raise UserError(_NEEDED)
    if within is not None and within in dict(baseline):
        raise UserError(
            f"{within} changes the task, so each of its values is compared with the baseline "
            "of its own; leave it out of --baseline"
        )
    return study.asking(
        {
            **defaults,
            "type": "Lean",
            "baseline": tuple(dict(baseline).items()),
            "margin": margin,
            "costs": study.question.get("costs") or ("num_params",),
            "within": within,
            "nuisance": study.question.get("nuisance", ()),
        }
    )


def _looks(extensions: Sequence[Mapping[str, Any]]) -> int:
    """Return how many times a study with these extensions has been looked at for its answer."""
    return 1 + sum(
        any(trial["how"] == NEW_SEED for trial in extension["trials"]) for extension in extensions
    )


def _first_reports(study: StudyRuns, baseline: Mapping[str, Any]) -> "pd.Series[float]":
    """Return the scores of the baseline's finished trials at the first of several reports."""
    trials, metric = study.runs.frame, study.manifest.metric
    is_baseline = trials["status"].isin(FULL)
    for axis, value in baseline.items():
        is_baseline &= trials[axis].eq(value)
    reports = frame(study.tables.reports_of(list(trials.loc[is_baseline, "key"])))
    scores = reports.dropna(subset=[metric]).groupby("key")[metric].agg(["first", "size"])
    return trials["key"].map(scores.loc[scores["size"] > 1, "first"]).astype(float)
