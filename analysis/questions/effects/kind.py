"""Effects: what does each axis do with the others held?"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from analysis.charts.chart import Chart
from analysis.questions.base import Finding, Kind, Section, StudyRuns
from analysis.questions.effects.charts import effect_charts
from analysis.questions.effects.fit import fit
from analysis.questions.effects.result import AxisEffect, EffectsResult, EffectsSettings
from analysis.questions.effects.text import (
    effects_sentence,
    effects_table,
    equal_cost_table,
    interaction_table,
)
from analysis.questions.settings import with_settings
from analysis.questions.shapes import CONFIG, COSTS, EVAL_SIZE, NUISANCE
from analysis.questions.study_shapes import (
    AXES,
    answered_axes,
    asked_of,
    study_shapes,
    table_axes,
    table_shapes,
    task_axes,
    untold_shapes,
)
from analysis.runs.shape_runs import ShapeRuns
from analysis.runs.table import Runs
from analysis.values import Jsonable


@dataclass(frozen=True)
class EffectsFinding(Finding):
    """What each axis does."""

    result: EffectsResult

    kind: ClassVar[str] = "effects"
    title: ClassVar[str] = "What each axis does"
    headlines: ClassVar[bool] = False

    @property
    def sentences(self) -> list[str]:
        return [effects_sentence(self.result)]

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.result.warnings

    def page_tables(self, *, beside: bool) -> list[Section]:
        first, *others = self.terminal_tables(beside=False)
        note = f"{self.sentence} {first.table.note}"
        return [first._replace(table=dataclasses.replace(first.table, note=note)), *others]

    def terminal_tables(self, *, beside: bool) -> list[Section]:
        if beside:
            return []
        found = [Section("Effects of single axes", effects_table(self.result))]
        if self.result.interactions:
            found.append(Section("Axes together", interaction_table(self.result)))
        if self.result.equal_cost:
            found.append(Section("Shapes of equal cost", equal_cost_table(self.result)))
        return found

    def charts(self, trials: pd.DataFrame) -> list[Chart]:
        return effect_charts(self.result)

    @property
    def settings(self) -> Mapping[str, Jsonable]:
        return {"effects": self.result.settings}

    def rows(self) -> pd.DataFrame:
        return pd.DataFrame([row for axis in self.result.axes for row in _rows(axis)])


def _rows(axis: AxisEffect) -> list[dict[str, Any]]:
    """Return an axis and its steps; the axis itself has no ends."""
    own = (None, None, axis.effect, axis.p, axis.p_holm, axis.pairs)
    steps = [
        (step.low, step.high, step.effect, step.p, step.p_holm, len(step.pairs))
        for step in axis.steps
    ]
    names = ("from", "to", "gain", "gain_low", "gain_high", "p", "p_holm", "pairs")
    return [
        {"axis": axis.axis, **dict(zip(names, (low, high, *gain, *rest), strict=True))}
        for low, high, gain, *rest in (own, *steps)
    ]


class EffectsKind(Kind):
    """Tests each axis by matched pairs, of a study or of a table."""

    name = "effects"
    about = "What does each axis do with the others held?"
    settings = EffectsSettings
    result = EffectsResult
    options = (AXES, EVAL_SIZE, CONFIG, COSTS, NUISANCE)

    def shape(self, runs: Runs, chosen: Mapping[str, Any]) -> list[str]:
        return table_axes(runs, chosen)

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        settings = with_settings(EffectsSettings(), chosen["settings"])
        shapes = table_shapes(runs, chosen, settings.crash_sd)
        return EffectsFinding(fit(shapes, settings=settings))

    def of_study(self, study: StudyRuns, found: Sequence[Finding]) -> Finding | None:
        settings = EffectsSettings()
        shapes = untold_shapes(study, settings.crash_sd)
        return None if shapes is None else _fit(study, shapes, settings)

    def ask_study(self, study: StudyRuns, chosen: Mapping[str, Any]) -> Finding:
        settings = with_settings(EffectsSettings(), chosen["settings"])
        study = asked_of(study, chosen)
        return _fit(study, study_shapes(study, settings.crash_sd), settings)


def _fit(study: StudyRuns, shapes: ShapeRuns, settings: EffectsSettings) -> Finding:
    answered = answered_axes(study)
    return EffectsFinding(
        fit(shapes, within=task_axes(study), answered=answered, settings=settings)
    )


EFFECTS = EffectsKind()
