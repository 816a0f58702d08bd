"""Conditioning: does better conditioned attention go with better results?"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.questions.base import Finding, Kind, Section, StudyRuns
from analysis.questions.conditioning.charts import conditioning_charts
from analysis.questions.conditioning.fit import CONDITION, fit, has_probe
from analysis.questions.conditioning.result import ConditioningResult, ConditioningSettings
from analysis.questions.conditioning.text import (
    conditioning_badge,
    conditioning_sentences,
    correlations_table,
    shapes_table,
)
from analysis.questions.settings import Option, with_settings
from analysis.questions.shapes import CONFIG, COSTS, goal_asked, scale_asked, shape_columns
from analysis.runs.table import Runs
from analysis.text.tables import varying_columns


class ConditioningKind(Kind):
    """Correlates condition numbers with the metric, of a probed study or of a table."""

    name = "conditioning"
    about = "Does better conditioned attention go with better results, and as the theory says?"
    settings = ConditioningSettings
    result = ConditioningResult
    options = (
        Option("x", "The axis of heads.  [default: heads]"),
        CONFIG,
        dataclasses.replace(COSTS, of_table=True),
        Option("condition", "Column of the condition number.", of_table=True),
        Option("prediction", "Column of the theory's value.", of_table=True),
    )

    def _shape(self, runs: Runs, chosen: Mapping[str, Any]) -> list[str]:
        shape, frame = shape_columns(runs, chosen), runs.frame
        # Its empty entries tell shapes apart, too.
        is_coupled = "head_dim" in frame and frame["head_dim"].nunique(dropna=False) > 1
        if not chosen["config"] and is_coupled and "head_dim" not in shape:
            shape.append("head_dim")
        return shape

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        goal = goal_asked(runs, chosen)
        found = fit(
            runs,
            config=self._shape(runs, chosen),
            x=chosen["x"] or "heads",
            goal=goal,
            scale=scale_asked(runs, goal, chosen),
            condition=chosen["condition"] or CONDITION,
            prediction=chosen["prediction"],
            size=next(iter(chosen["cost"]), None),
            settings=with_settings(ConditioningSettings(), chosen["settings"]),
        )
        return self.finding(found)

    def of_study(
        self, study: StudyRuns, chosen: Mapping[str, Any] | None, found: Sequence[Finding]
    ) -> Finding | None:
        if chosen is None:
            if not has_probe(study.trials):
                return None
            chosen = {}
        manifest = study.manifest
        scale = chosen.get("scale") or study.question.get("scale")
        result = fit(
            Runs(study.trials, manifest.metric, {"replicate": "seed"}),
            config=varying_columns(study.trials, manifest.axes) or list(manifest.axes),
            x=str(chosen.get("x") or study.question.get("x") or "heads"),
            goal=study.goal,
            scale=scale or ("accuracy" if study.goal == "max" else "loss"),
        )
        return self.finding(result)

    def finding(self, result: ConditioningResult) -> Finding:
        """Return what is said of condition numbers."""
        return Finding(
            self,
            result,
            conditioning_sentences(result),
            conditioning_badge(result),
            (
                Section("Correlations", correlations_table(result)),
                Section("Condition numbers", shapes_table(result)),
            ),
            lambda: conditioning_charts(result),
        )


CONDITIONING = ConditioningKind()
