"""The front: which shapes does no other beat in both metric and cost?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from analysis.questions.base import Finding, Kind, Section, StudyRuns, tables_with_rows
from analysis.questions.groups import results_of, together
from analysis.questions.lean.charts import roles_in
from analysis.questions.lean.result import LeanResult
from analysis.questions.pareto.charts import front_charts
from analysis.questions.pareto.design import LEVELS
from analysis.questions.pareto.fit import fit
from analysis.questions.pareto.question import Pareto
from analysis.questions.pareto.result import ParetoResult, ParetoSettings
from analysis.questions.pareto.search import FrontSearch
from analysis.questions.pareto.text import pareto_badge, pareto_sentences, pareto_table
from analysis.questions.settings import with_settings
from analysis.questions.shapes import (
    CONFIG,
    COSTS,
    NUISANCE,
    front_question,
    nuisance_axes,
    parting_axis,
    with_options,
)
from analysis.runs.grouped import grouped
from analysis.runs.table import Runs
from analysis.text.settled import rounds_table
from analysis.text.tables import varying_columns
from analysis.values import value_text


def of_table(runs: Runs, options: Mapping[str, Any]) -> Finding:
    settings = with_settings(ParetoSettings(), options["settings"])
    shapes = grouped(runs, **front_question(runs, options))
    return pareto_finding(fit(shapes, settings))


def of_study(
    study: StudyRuns, options: Mapping[str, Any] | None, findings: Sequence[Finding]
) -> Finding | None:
    """Return a front; unasked it stands beside a question of costs, one for each of its tasks."""
    lean = results_of(findings, LeanResult)
    if options is not None:
        return _finding(study, options, lean)
    within, tasks = study.question.get("within"), study.manifest.provenance.get("data", ())
    if "costs" not in study.question:
        return None
    if within is None or len(tasks) < 2:
        return _finding(study, None, lean)

    def answer(part: StudyRuns, value: object) -> Finding:
        its = [replace(each, at={}) for each in lean if value_text(value) in each.at.values()]
        return _finding(part, None, its)

    # Results of different tasks are not compared.
    return together(PARETO, within, *study.by_value(within, answer))


def _finding(
    study: StudyRuns, options: Mapping[str, Any] | None, lean: Sequence[LeanResult]
) -> Finding:
    film, settings = None, ParetoSettings()
    is_asked = study.question.get("type") == Pareto.__name__
    if options is None and is_asked and study.manifest.is_sequential:
        rows, amount = study.tables.rows, int(study.manifest.budget["amount"])
        question, scouts = Pareto.recorded(study.question), study.manifest.scouts
        search = FrontSearch(rows, question, study.goal, amount, scouts)
        search.replay(rows, study.manifest.metric)
        film, settings = search.film(), ParetoSettings(alpha=LEVELS[-1])
    settings = with_settings(settings, options["settings"] if options else ())
    axes, baseline = study.manifest.axes, dict(study.question.get("baseline") or {})
    if options is not None:
        study, baseline = with_options(study, options), {}
    nuisance = nuisance_axes(study)
    shape_axes = {*baseline, *varying_columns(study.trials, axes)} - set(nuisance)
    config = [axis for axis in axes if axis in shape_axes] or list(axes)
    costs = study.question.get("costs") or ("num_params",)
    roles: Any = {"goal": study.goal, "costs": costs}
    result = replace(fit(grouped(study.runs, config, nuisance, **roles), settings), film=film)
    if is_asked:
        varying = varying_columns(study.trials, axes)
        result = replace(result, fixed_rate=study.fixed_rate(varying))
    if (apart := parting_axis(study)) in config:
        note = f"{apart} changes the task, and results at its values are compared all the same"
        result = replace(result, warnings=(note, *result.warnings))
    return pareto_finding(result, lean)


def pareto_finding(result: ParetoResult, lean: Sequence[LeanResult] = ()) -> Finding:
    """Return the finding of a front; its charts mark the lean results' baseline and choice."""
    roles = roles_in(lean)
    words, badge = pareto_sentences(result), pareto_badge(result)
    rounds = Section("Rounds of the search", rounds_table(result.film))
    tables = tables_with_rows(Section("Shapes", pareto_table(result)), rounds)
    return Finding(PARETO, result, words, badge, tables, lambda: front_charts(result, roles))


PARETO: Final = Kind(
    "pareto",
    "Which shapes lie on the front of metric and cost?",
    ParetoSettings,
    of_study,
    of_table,
    (CONFIG, COSTS, NUISANCE),
)
