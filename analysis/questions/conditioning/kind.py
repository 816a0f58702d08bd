"""Conditioning: does better conditioned attention go with better results?"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from analysis.charts.chart import Chart
from analysis.questions.base import Finding, Kind, Section, StudyRuns
from analysis.questions.conditioning.charts import conditioning_charts
from analysis.questions.conditioning.fit import CONDITION, fit, has_probe
from analysis.questions.conditioning.result import ConditioningResult, ConditioningSettings
from analysis.questions.conditioning.text import (
    conditioning_badge,
    conditioning_sentence,
    correlations_table,
    shapes_table,
)
from analysis.questions.settings import Option, with_settings
from analysis.questions.shapes import CONFIG, COSTS, goal_asked, scale_asked, shape_columns
from analysis.runs.table import Runs
from analysis.text.numbers import Tone
from analysis.text.tables import varying_columns
from analysis.values import Jsonable


@dataclass(frozen=True)
class ConditioningFinding(Finding):
    """What condition numbers say."""

    result: ConditioningResult

    kind: ClassVar[str] = "conditioning"
    title: ClassVar[str] = "Condition numbers"

    @property
    def sentences(self) -> list[str]:
        return [conditioning_sentence(self.result)]

    @property
    def badge(self) -> tuple[str, Tone]:
        return conditioning_badge(self.result)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.result.warnings

    def page_tables(self, *, beside: bool) -> list[Section]:
        tests = correlations_table(self.result)
        if beside:
            tests = dataclasses.replace(tests, note=f"{self.sentence} {tests.note}")
        return [
            Section("Conditioning", tests),
            Section("Condition numbers", shapes_table(self.result)),
        ]

    def terminal_tables(self, *, beside: bool) -> list[Section]:
        return [
            Section("condition numbers", shapes_table(self.result)),
            Section("correlations", correlations_table(self.result)),
        ]

    def charts(self, trials: pd.DataFrame) -> list[Chart]:
        return conditioning_charts(self.result)

    @property
    def settings(self) -> Mapping[str, Jsonable]:
        return {"conditioning": self.result.settings}

    @property
    def saved(self) -> Finding | None:
        return None


class ConditioningKind(Kind):
    """Correlates condition numbers with the metric, of a probed study or of a table."""

    name = "conditioning"
    about = "Does better conditioned attention go with better results, and as the theory says?"
    settings = ConditioningSettings
    options = (
        Option("x", "The axis of heads.  [default: heads]"),
        CONFIG,
        dataclasses.replace(COSTS, of_table=True),
        Option("condition", "Column of the condition number.", of_table=True),
        Option("prediction", "Column of the theory's value.", of_table=True),
    )

    def shape(self, runs: Runs, chosen: Mapping[str, Any]) -> list[str]:
        shape, frame = shape_columns(runs, chosen), runs.frame
        # Its empty entries tell shapes apart, too.
        is_coupled = "head_dim" in frame and frame["head_dim"].nunique(dropna=False) > 1
        if not chosen["config"] and is_coupled and "head_dim" not in shape:
            shape.append("head_dim")
        return shape

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        goal = goal_asked(runs, chosen)
        found = fit(
            runs.frame,
            metric=runs.metric,
            config=self.shape(runs, chosen),
            x=chosen["x"] or "heads",
            goal=goal,
            scale=scale_asked(runs, goal, chosen),
            condition=chosen["condition"] or CONDITION,
            prediction=chosen["prediction"],
            size=next(iter(chosen["cost"]), None),
            settings=with_settings(ConditioningSettings(), chosen["settings"]),
            **runs.columns,
        )
        return ConditioningFinding(found)

    def of_study(self, study: StudyRuns, found: Sequence[Finding]) -> Finding | None:
        return self.ask_study(study, {}) if has_probe(study.trials) else None

    def ask_study(self, study: StudyRuns, chosen: Mapping[str, Any]) -> Finding:
        manifest = study.manifest
        scale = chosen.get("scale") or study.question.get("scale")
        result = fit(
            study.trials,
            metric=manifest.metric,
            config=varying_columns(study.trials, manifest.axes) or list(manifest.axes),
            x=str(chosen.get("x") or study.question.get("x") or "heads"),
            goal=study.goal,
            scale=scale or ("accuracy" if study.goal == "max" else "loss"),
            replicate="seed",
        )
        return ConditioningFinding(result)


CONDITIONING = ConditioningKind()
