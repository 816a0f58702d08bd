"""Lean equivalents: which cheaper shapes are no worse than a baseline?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from analysis.questions.base import Finding, Kind, StudyRuns
from analysis.questions.lean.finding import groups_finding, lean_finding
from analysis.questions.lean.fit import fit
from analysis.questions.lean.groups import fit_groups
from analysis.questions.lean.result import LeanResult, LeanSettings
from analysis.questions.lean.training import with_training
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
from analysis.runs.ladder import ladder_of
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs
from analysis.text.tables import varying_columns
from hsweep.errors import UserError
from hsweep.record.manifest import NEW_SEED
from hsweep.record.tables import frame

_NEEDED: Final = (
    "a lean question needs --baseline (heads=12,depth=12, or a name) and --margin: how much worse "
    "still counts as equal has no default"
)
_FIRST_REPORT = "score at the first report"
"""Column of what the baseline's trials scored at their first of several reports."""


class LeanKind(Kind):
    """Compares shapes with a baseline, of a study or of a table."""

    name = "lean"
    about = "Which cheaper shapes are no worse than a baseline by a margin?"
    settings = LeanSettings
    result = LeanResult
    options = (CONFIG, COSTS, NUISANCE, BASELINE, MARGIN)

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        asked = front_question(runs, chosen)
        baseline, margin = chosen["baseline"], chosen["margin"]
        if baseline is None or margin is None:
            raise UserError(_NEEDED)
        asked["baseline"] = read_baseline(baseline, asked["config"], runs.frame)
        settings = with_settings(LeanSettings(), chosen["settings"])

        def answer(some: Runs) -> LeanResult:
            return fit(some, margin=margin, settings=settings, **asked)

        ladder = ladder_of(runs, [*asked["config"], *asked["nuisance"]])
        return lean_finding(self, with_training(answer(runs), ladder, answer))

    def of_study(
        self, study: StudyRuns, chosen: Mapping[str, Any] | None, found: Sequence[Finding]
    ) -> Finding | None:
        """See `Kind.of_study`; what is not asked for is as in the study's own lean question."""
        if chosen is None:
            return self._answer(study, LeanSettings())
        own = study.question if study.question.get("type") == "Lean" else {}
        study, margin = asked_of(study, chosen), chosen["margin"]
        baseline = own.get("baseline") if chosen["baseline"] is None else study.question["baseline"]
        margin = own.get("margin") if margin is None else margin
        if baseline is None or margin is None:
            raise UserError(_NEEDED)
        within = own.get("within") if chosen["baseline"] is None else parting_axis(study)
        if within is not None and within in dict(baseline):
            raise UserError(
                f"{within} changes the task, so each of its values is compared with the baseline "
                "of its own; leave it out of --baseline"
            )
        asked = {
            **own,
            "type": "Lean",
            "baseline": tuple(dict(baseline).items()),
            "margin": margin,
            "costs": study.question.get("costs") or ("num_params",),
            "within": within,
            "nuisance": study.question.get("nuisance", ()),
        }
        settings = with_settings(LeanSettings(), chosen["settings"])
        return self._answer(study.asking(asked), settings)

    def _answer(self, study: StudyRuns, settings: LeanSettings) -> Finding:
        question, manifest = study.question, study.manifest
        baseline = dict(question["baseline"])
        axes = varying_columns(study.trials, manifest.axes)
        nuisance = [axis for axis in question.get("nuisance", ()) if axis in axes]
        config = [
            axis
            for axis in manifest.axes
            if (axis in axes or axis in baseline) and axis not in nuisance
        ]
        rate = study.fixed_rate(axes)
        within = question.get("within")
        if within is not None and study.trials[within].nunique() < 2:
            within = None
        data = manifest.provenance.get("data", ())
        several_tasks = within is not None and len(data) > 1
        asked: dict[str, Any] = {
            "goal": study.goal,
            "costs": question["costs"],
            "nuisance": nuisance,
        }
        common = study_chance(data, manifest.metric, baseline)
        asked |= {
            "baseline": baseline,
            "margin": question["margin"],
            "settings": replace(settings, chance=common, looks=_looks(manifest.extensions)),
            "first_report": _FIRST_REPORT,
        }
        reported = study.runs.frame.assign(**{_FIRST_REPORT: _first_reports(study, baseline)})
        runs = Runs(reported, manifest.metric)
        if within is not None:
            chances = {
                str(value): study_chance(data, manifest.metric, {**baseline, within: value})
                for value in reported[within].unique()
            }
            groups = fit_groups(
                runs,
                within=within,
                axes=config,
                chances={name: chance for name, chance in chances.items() if chance is not None},
                with_fronts=several_tasks,
                ladder=study.ladder,
                **asked,
            )
            return groups_finding(self, replace(groups, fixed_rate=rate))
        result = replace(fit(runs, config=config, **asked), fixed_rate=rate)

        def answer(some: Runs) -> LeanResult:
            return fit(some, config=config, **{**asked, "first_report": None})

        return lean_finding(self, with_training(result, study.ladder, answer))


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


LEAN = LeanKind()
