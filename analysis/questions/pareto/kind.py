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
from analysis.questions.shapes import CONFIG, COSTS, NUISANCE, front_question
from analysis.questions.study_shapes import asked_of, nuisance_axes, parting_axis
from analysis.runs.table import Runs
from analysis.text.tables import varying_columns


class ParetoKind(Kind):
    """Reads a front from a study or a table."""

    name = "pareto"
    about = "Which shapes lie on the front of metric and cost?"
    settings = ParetoSettings
    result = ParetoResult
    options = (CONFIG, COSTS, NUISANCE)

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        asked = front_question(runs, chosen)
        return self.finding(
            fit(runs, settings=with_settings(ParetoSettings(), chosen["settings"]), **asked)
        )

    def of_study(
        self, study: StudyRuns, chosen: Mapping[str, Any] | None, found: Sequence[Finding]
    ) -> Finding | None:
        """See `Kind.of_study`; unasked a front stands beside a lean question of one task."""
        several_tasks = len(study.manifest.provenance.get("data", ())) > 1
        is_apart = study.question.get("within") is not None and several_tasks
        if chosen is None and (study.question.get("type") != "Lean" or is_apart):
            return None
        settings = ParetoSettings()
        if chosen is not None:
            study, settings = asked_of(study, chosen), with_settings(settings, chosen["settings"])
        nuisance, axes = nuisance_axes(study), study.manifest.axes
        baseline = dict(study.question.get("baseline") or {}) if chosen is None else {}
        varying = varying_columns(study.trials, axes)
        result = fit(
            study.runs,
            config=[a for a in axes if (a in varying or a in baseline) and a not in nuisance]
            or list(axes),
            goal=study.goal,
            costs=study.question.get("costs") or ("num_params",),
            nuisance=nuisance,
            settings=settings,
        )
        if (apart := parting_axis(study)) in result.table[0].config:
            note = f"{apart} changes the task, and results at its values are compared all the same"
            result = replace(result, warnings=(note, *result.warnings))
        return self.finding(result, found)

    def finding(self, result: ParetoResult, found: Sequence[Finding] = ()) -> Finding:
        """Return what is said of a front, on which lean results mark baseline and choice."""
        lean = [each.result for each in found if isinstance(each.result, LeanResult | LeanGroups)]
        compared = [each for result in lean for each in comparisons(result)]
        return Finding(
            self,
            result,
            pareto_sentences(result),
            pareto_badge(result),
            (Section("Shapes", pareto_table(result)),),
            lambda: front_charts(result, roles_in(compared)),
        )


PARETO = ParetoKind()
