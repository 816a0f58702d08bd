"""The front: which shapes does no other beat in both metric and cost?"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analysis.questions.base import Finding, Kind, StudyRuns
from analysis.questions.pareto.finding import ParetoFinding
from analysis.questions.pareto.fit import fit
from analysis.questions.pareto.result import ParetoResult, ParetoSettings
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
        settings = with_settings(ParetoSettings(), chosen["settings"])
        return ParetoFinding(fit(runs, settings=settings, **asked))

    def ask_study(self, study: StudyRuns, chosen: Mapping[str, Any]) -> Finding:
        study = asked_of(study, chosen)
        nuisance, axes = nuisance_axes(study), study.manifest.axes
        varying = [axis for axis in varying_columns(study.trials, axes) if axis not in nuisance]
        found = fit(
            study.runs,
            config=varying or list(axes),
            goal=study.goal,
            costs=study.question.get("costs") or ("num_params",),
            nuisance=nuisance,
            settings=with_settings(ParetoSettings(), chosen["settings"]),
        )
        if (axis := parting_axis(study)) in varying:
            note = f"{axis} changes the task, and results at its values are compared all the same"
            found = replace(found, warnings=(note, *found.warnings))
        return ParetoFinding(found)


PARETO = ParetoKind()
