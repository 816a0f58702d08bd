"""Lean equivalents: which cheaper shapes are no worse than a baseline?"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from analysis.charts.chart import Chart
from analysis.questions.base import Finding, Kind, Section, StudyRuns
from analysis.questions.lean.charts import forest_chart, roles_in
from analysis.questions.lean.fit import fit
from analysis.questions.lean.groups import fit_groups
from analysis.questions.lean.result import LeanGroups, LeanResult, LeanSettings, comparisons
from analysis.questions.lean.text import (
    group_baselines_table,
    group_candidates_table,
    groups_badge,
    groups_sentences,
    lean_badge,
    lean_sentences,
    lean_table,
)
from analysis.questions.lean.training import with_training
from analysis.questions.pareto.charts import front_charts
from analysis.questions.pareto.text import pareto_table
from analysis.questions.settings import with_settings
from analysis.questions.shapes import (
    BASELINE,
    CONFIG,
    COSTS,
    MARGIN,
    NUISANCE,
    front_question,
    read_baseline,
)
from analysis.questions.study_shapes import asked_of, parting_axis
from analysis.runs.chance import study_chance
from analysis.runs.ladder import Ladder, ladder_of
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs
from analysis.statistics.noninferiority import confirming_seeds
from analysis.text.settled import budgets_table, missing_table
from analysis.text.tables import TERMINAL_ROWS, varying_columns
from hsweep.design.question import ALPHA, Missing
from hsweep.errors import UserError
from hsweep.record.manifest import NEW_SEED
from hsweep.record.tables import frame

_NEEDED: Final = (
    "a lean question needs --baseline (heads=12,depth=12, or a name) and --margin: how much worse "
    "still counts as equal has no default"
)
_FIRST_REPORT: Final = "score at the first report"
"""Column of what the baseline's trials scored at their first of several reports."""


class LeanKind(Kind):
    """Compares shapes with a baseline, of a study or of a table."""

    name = "lean"
    about = "Which cheaper shapes are no worse than a baseline by a margin?"
    settings = LeanSettings
    options = (CONFIG, COSTS, NUISANCE, BASELINE, MARGIN)

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        question = front_question(runs, chosen)
        if chosen["baseline"] is None or chosen["margin"] is None:
            raise UserError(_NEEDED)
        question |= {
            "baseline": read_baseline(chosen["baseline"], question["config"], runs.frame),
            "margin": chosen["margin"],
            "settings": with_settings(LeanSettings(), chosen["settings"]),
        }
        ladder = ladder_of(runs, [*question["config"], *question["nuisance"]])
        return self.finding(_answer(runs, ladder, question))

    def of_study(
        self, study: StudyRuns, chosen: Mapping[str, Any] | None, found: Sequence[Finding]
    ) -> Finding | None:
        """See `Kind.of_study`; what is not asked for is as in the study's own lean question."""
        settings = LeanSettings()
        if chosen is not None:
            study = _asked(study, chosen)
            settings = with_settings(settings, chosen["settings"])
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
            return self.finding(_answer(runs, study.ladder, question, _FIRST_REPORT))
        chances = {str(value): chance({within: value}) for value in runs.frame[within].unique()}
        groups = fit_groups(
            runs,
            within=within,
            axes=axes,
            chances={name: score for name, score in chances.items() if score is not None},
            with_fronts=len(data) > 1,
            ladder=study.ladder,
            first_report=_FIRST_REPORT,
            **question,
        )
        return self.finding(groups)

    def finding(self, result: LeanResult | LeanGroups) -> Finding:
        """Return what is said of one comparison or of several, with a front each where these learn
        different tasks."""
        compared = comparisons(result)
        if isinstance(result, LeanResult):
            badge, sentences = lean_badge(result), lean_sentences(result)
            rows = result.table
            if len(rows) > TERMINAL_ROWS:
                rows = tuple(sorted(rows, key=lambda row: not row.accepted))
            tables = [Section("Candidates", lean_table(replace(result, table=rows)))]
        else:
            badge, sentences = groups_badge(result), groups_sentences(result)
            tables = [
                Section("Candidates", group_candidates_table(result)),
                Section("Baselines", group_baselines_table(result)),
                *(
                    Section(f"Shapes, {result.within} = {value}", pareto_table(front))
                    for value, front in result.fronts.items()
                ),
            ]
        title = "Answer at each budget"
        tables += [
            Section(
                f"{title}, {each.heading}" if each.heading else title,
                budgets_table(each.sensitivity),
            )
            for each in compared
        ]
        missing = tuple(
            replace(runs, at={**each.at, **runs.at}) for each in compared for runs in each.missing
        )
        training = next((each.sensitivity for each in compared if each.sensitivity), None)
        tables.append(Section("Runs that would settle it", missing_table(missing, training)))
        return Finding(
            self,
            result,
            tuple(sentences),
            badge,
            tuple(section for section in tables if section.table.rows),
            lambda: _charts(result),
            missing,
            _confirming(compared),
        )


def _asked(study: StudyRuns, chosen: Mapping[str, Any]) -> StudyRuns:
    """Return a study with the lean question that options ask of it.

    Raises:
        UserError: no baseline or margin, or a baseline that names the axis of its own task.
    """
    own = study.question if study.question.get("type") == "Lean" else {}
    study = asked_of(study, chosen)
    margin = own.get("margin") if chosen["margin"] is None else chosen["margin"]
    source, within = own, own.get("within")
    if chosen["baseline"] is not None:
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
            **own,
            "type": "Lean",
            "baseline": tuple(dict(baseline).items()),
            "margin": margin,
            "costs": study.question.get("costs") or ("num_params",),
            "within": within,
            "nuisance": study.question.get("nuisance", ()),
        }
    )


def _answer(
    runs: Runs, ladder: Ladder, question: Mapping[str, Any], first_report: str | None = None
) -> LeanResult:
    """Return the answer with whether it is settled."""
    result = fit(runs, first_report=first_report, **question)
    return with_training(result, ladder, lambda some: fit(some, **question))


def _looks(extensions: Sequence[Mapping[str, Any]]) -> int:
    """Return how many times a study with these extensions has been looked at for its answer."""
    return 1 + sum(
        any(trial["how"] == NEW_SEED for trial in extension["trials"]) for extension in extensions
    )


def _first_reports(study: StudyRuns, baseline: Mapping[str, Any]) -> "pd.Series[float]":
    """Return what the baseline's finished trials scored at their first of several reports."""
    trials, metric = study.runs.frame, study.manifest.metric
    own = trials["status"].isin(FULL)
    for axis, value in baseline.items():
        own &= trials[axis].eq(value)
    reports = frame(study.tables.reports_of(list(trials.loc[own, "key"])))
    scores = reports.dropna(subset=[metric]).groupby("key")[metric].agg(["first", "size"])
    return trials["key"].map(scores.loc[scores["size"] > 1, "first"]).astype(float)


def _charts(result: LeanResult | LeanGroups) -> list[Chart]:
    compared = comparisons(result)
    fronts = result.fronts if isinstance(result, LeanGroups) else {}
    charts = []
    for value, front in fronts.items():
        assert isinstance(result, LeanGroups)
        within = result.within
        own = re.sub(r"\W+", "-", f"{within} = {value}").strip("-")
        charts += [
            replace(
                chart,
                name=f"{chart.name}-{own}",
                title=f"{chart.title}, {within} = {value}",
                picks=tuple(replace(pick, at=(*pick.at, (within, value))) for pick in chart.picks),
            )
            for chart in front_charts(front, roles_in(compared))
        ]
    return [*charts, *filter(None, [forest_chart(compared)])]


def _confirming(compared: Sequence[LeanResult]) -> tuple[Missing, ...]:
    """Return the runs that confirm what a study chose.

    The choice was the cheapest of several that passed, which inflates its estimate; seeds that no
    part of the study has seen tell whether it holds. Every chosen shape and its baseline is run
    with the seeds that find an equal shape nine times in ten (the most that any comparison needs).
    """
    usable = [
        (lean, lean.chosen, lean.margin_over_sd)
        for lean in compared
        if lean.chosen is not None
        and lean.margin_over_sd is not None
        and len(lean.table) + len(lean.stopped) > 1
    ]
    if not usable:
        return ()
    # Alone a comparison is tested at the error rate that the whole study had.
    alpha = ALPHA if usable[0][0].at else usable[0][0].settings.alpha
    seeds = max(confirming_seeds(ratio, alpha / len(usable)) for _, _, ratio in usable)
    why = "confirms the choice with fresh seeds"
    return tuple(
        # What is confirmed is the shape at the setting that stands for it.
        Missing({**lean.at, **config, **(setting.values if setting else {})}, seeds, why)
        for lean, row, _ in usable
        for config, setting in (
            (lean.baseline, lean.baseline_setting),
            (row.config, row.setting),
        )
    )


LEAN = LeanKind()
