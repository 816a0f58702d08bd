"""The front: which shapes does no other beat in both metric and cost?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from analysis.questions.base import Finding, Kind, Section, StudyRuns
from analysis.questions.lean.charts import roles_in
from analysis.questions.lean.result import LeanGroups, LeanResult, comparisons
from analysis.questions.pareto.charts import front_charts
from analysis.questions.pareto.fit import fit
from analysis.questions.pareto.result import ParetoResult, ParetoSettings
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
from analysis.runs.table import Runs
from analysis.text.tables import varying_columns


class ParetoKind(Kind):
    """Reads a front from a study or a table."""

    name = "pareto"
    about = "Which shapes lie on the front of metric and cost?"
    settings = ParetoSettings
    options = (CONFIG, COSTS, NUISANCE)

    def of_table(self, runs: Runs, options: Mapping[str, Any]) -> Finding:
        settings = with_settings(ParetoSettings(), options["settings"])
        return self.finding(fit(runs, settings=settings, **front_question(runs, options)))

    def of_study(
        self, study: StudyRuns, options: Mapping[str, Any] | None, findings: Sequence[Finding]
    ) -> Finding | None:
        """See `Kind.of_study`; unasked a front stands beside a lean question of one task."""
        several_tasks = len(study.manifest.provenance.get("data", ())) > 1
        is_apart = study.question.get("within") is not None and several_tasks
        if options is None and (study.question.get("type") != "Lean" or is_apart):
            return None
        settings, axes = ParetoSettings(), study.manifest.axes
        config_axes = set(dict(study.question.get("baseline") or {})) if options is None else set()
        if options is not None:
            study = with_options(study, options)
            settings = with_settings(settings, options["settings"])
        nuisance = nuisance_axes(study)
        config_axes |= set(varying_columns(study.trials, axes))
        config = [axis for axis in axes if axis in config_axes - set(nuisance)] or list(axes)
        costs = study.question.get("costs") or ("num_params",)
        roles: dict[str, Any] = {"config": config, "costs": costs, "nuisance": nuisance}
        result = fit(study.runs, goal=study.goal, settings=settings, **roles)
        if (apart := parting_axis(study)) in config:
            note = f"{apart} changes the task, and results at its values are compared all the same"
            result = replace(result, warnings=(note, *result.warnings))
        return self.finding(result, findings)

    def finding(self, result: ParetoResult, findings: Sequence[Finding] = ()) -> Finding:
        """Return the finding of a front; its charts mark the lean results' baseline and choice."""
        lean = [
            item.result for item in findings if isinstance(item.result, LeanResult | LeanGroups)
        ]
        roles = roles_in([item for result in lean for item in comparisons(result)])
        words, badge = pareto_sentences(result), pareto_badge(result)
        shapes = Section("Shapes", pareto_table(result))
        return Finding(self, result, words, badge, (shapes,), lambda: front_charts(result, roles))


PARETO = ParetoKind()
