"""Lean equivalents: which cheaper shapes are no worse than a baseline?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from analysis.questions.base import Finding, Kind, Section, StudyRuns, tables_with_rows
from analysis.questions.groups import together
from analysis.questions.lean.answer import answer
from analysis.questions.lean.charts import lean_charts
from analysis.questions.lean.fit import FIRST_REPORT
from analysis.questions.lean.question import Lean
from analysis.questions.lean.result import (
    LeanResult,
    LeanSettings,
    confirming_runs,
)
from analysis.questions.lean.search import LeanSearch
from analysis.questions.lean.text import lean_badge, lean_sentences, lean_tables
from analysis.questions.settings import with_settings
from analysis.questions.shapes import (
    BASELINE,
    CONFIG,
    COSTS,
    MARGIN,
    NUISANCE,
    front_question,
    nuisance_axes,
    parting_axis,
    read_baseline,
    with_options,
)
from analysis.runs.chance import study_chance
from analysis.runs.ladder import ladder_of
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs
from analysis.text.numbers import settings_text
from analysis.text.settled import rounds_table
from analysis.text.tables import varying_columns
from hsweep.errors import UserError
from hsweep.record.manifest import NEW_SEED

_NEEDED: Final = (
    "a lean question needs --baseline (heads=12,depth=12, or a name) and --margin: how much worse "
    "still counts as equal has no default"
)


def of_table(runs: Runs, options: Mapping[str, Any]) -> Finding:
    question = front_question(runs, options)
    if options["baseline"] is None or options["margin"] is None:
        raise UserError(_NEEDED)
    question |= {
        "baseline": read_baseline(options["baseline"], question["config"], runs.frame),
        "margin": options["margin"],
        "settings": with_settings(LeanSettings(), options["settings"]),
    }
    ladder = ladder_of(runs, [*question["config"], *question["nuisance"]])
    return lean_finding(answer(runs, ladder, question))


def of_study(
    study: StudyRuns, options: Mapping[str, Any] | None, _: Sequence[Finding]
) -> Finding | None:
    """Answer a study's lean question, or the question that options ask; None without one.

    An option that is not given has the value of the study's own lean question.

    Several comparisons of one study have each their own baseline: families of models are compared
    with their originals, not with each other. If each family were tested at the full error rate,
    some family would be wrong the more often the more families there are. So the rate is divided
    among the families (Bonferroni), and Holm's procedure divides each part over the family's
    candidates.
    """
    if options is not None:
        study = _apply_options(study, options)
    manifest, asked = study.manifest, study.question
    data = manifest.provenance.get("data", ())
    settings = with_settings(LeanSettings(), options["settings"] if options else ())
    # Seeds are added after a look at the answer.
    looks = [any(trial["how"] == NEW_SEED for trial in e["trials"]) for e in manifest.extensions]
    settings = replace(settings, looks=1 + sum(looks))
    baseline, nuisance, within = dict(asked["baseline"]), nuisance_axes(study), asked.get("within")
    race: LeanSearch | None = None
    if manifest.is_sequential and options is None:
        rows, amount = study.tables.rows, int(manifest.budget["amount"])
        race = LeanSearch(rows, Lean.recorded(asked), study.goal, amount, manifest.scouts)
        race.replay(rows, manifest.metric)

    def answer_at(part: StudyRuns, at: Mapping[str, Any]) -> LeanResult:
        of_shape = {*varying_columns(part.trials, manifest.axes), *baseline} - {*nuisance}
        chance = study_chance(data, manifest.metric, {**baseline, **at})
        alpha = settings.alpha / part.question.get("parts", 1)
        first = _first_reports(part, baseline)
        runs = Runs(part.runs.frame.assign(**{FIRST_REPORT: first}), manifest.metric)
        roles: dict[str, Any] = {
            "config": [axis for axis in manifest.axes if axis in of_shape],
            **{"goal": study.goal, "costs": asked["costs"], "nuisance": nuisance},
        }
        choices = replace(settings, alpha=alpha, chance=chance)
        question = {**roles, "baseline": baseline, "margin": asked["margin"], "settings": choices}
        seeds_planned = None
        if study.unfinished:
            seeds_planned = int(runs.frame.groupby(roles["config"])["seed"].nunique().max())
        result = answer(runs, part.ladder, question, race, at, seeds_planned)
        missing = [replace(lacking, at={**at, **lacking.at}) for lacking in result.missing]
        at = {axis: str(value) for axis, value in at.items()}
        return replace(result, at=at, missing=study.counting(missing))

    rate = study.fixed_rate(varying_columns(study.trials, manifest.axes))
    film = race.film() if race else None
    if within is None or study.trials[within].nunique() < 2:
        return lean_finding(replace(answer_at(study, {}), fixed_rate=rate, film=film))
    # Every comparison is of the same budget.
    parts = replace(study, answered=study.budget)
    found, problems = parts.by_value(within, lambda part, value: answer_at(part, {within: value}))
    findings = {value: lean_finding(result) for value, result in found.items()}
    finding = together(LEAN, within, findings, problems)
    rounds = tables_with_rows(Section("Rounds of the search", rounds_table(film)))
    confirm = confirming_runs(list(found.values()))
    said = tuple(filter(None, [*finding.sentences, settings_text((), rate)]))
    return replace(finding, sentences=said, tables=(*finding.tables, *rounds), confirm=confirm)


def _apply_options(study: StudyRuns, options: Mapping[str, Any]) -> StudyRuns:
    """Return a study with the lean question that options ask of it."""
    defaults = study.question if study.question.get("type") == "Lean" else {}
    study = with_options(study, options)
    margin = defaults.get("margin") if options["margin"] is None else options["margin"]
    source, within = defaults, defaults.get("within")
    if options["baseline"] is not None:
        source, within = study.question, parting_axis(study)
    baseline = source.get("baseline")
    if baseline is None or margin is None:
        raise UserError(_NEEDED)
    if not margin > 0:
        raise UserError(f"--margin must be a positive number, not {margin!r}")
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


def _first_reports(study: StudyRuns, baseline: Mapping[str, Any]) -> "pd.Series[float]":
    """Return the scores of the baseline's finished trials at the first of several reports."""
    trials, metric = study.runs.frame, study.manifest.metric
    is_baseline = trials["status"].isin(FULL)
    for axis, value in baseline.items():
        is_baseline &= trials[axis].eq(value)
    reports = study.tables.reports_of(list(trials.loc[is_baseline, "key"]))
    scores = reports.dropna(subset=[metric]).groupby("key")[metric].agg(["first", "size"])
    return trials["key"].map(scores.loc[scores["size"] > 1, "first"]).astype(float)


def lean_finding(result: LeanResult) -> Finding:
    """Return the sentences, badge, tables, charts and further runs of a result."""
    return Finding(
        LEAN,
        result,
        tuple(lean_sentences(result)),
        lean_badge(result),
        lean_tables(result),
        lambda: lean_charts(result),
        result.missing,
        confirming_runs([result]),
    )


LEAN: Final = Kind(
    "lean",
    "Which cheaper shapes are no worse than a baseline by a margin?",
    LeanSettings,
    of_study,
    of_table,
    (CONFIG, COSTS, NUISANCE, BASELINE, MARGIN),
    stands_beside=False,
)
