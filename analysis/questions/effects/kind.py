"""Effects: what does each axis do with the others held?"""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.questions.base import Finding, Kind, StudyRuns
from analysis.questions.effects.charts import effect_charts
from analysis.questions.effects.fit import fit
from analysis.questions.effects.result import EffectsResult, EffectsSettings
from analysis.questions.effects.text import effects_sentences, effects_tables
from analysis.questions.settings import with_settings
from analysis.questions.shapes import (
    AXES,
    CONFIG,
    COSTS,
    EVAL_SIZE,
    NUISANCE,
    answered_axes,
    shapes_beyond_answer,
    study_shapes,
    table_shapes,
    task_axes,
    with_options,
)
from analysis.runs.table import Runs


class EffectsKind(Kind):
    """Tests each axis by matched pairs, of a study or of a table."""

    name = "effects"
    about = "What does each axis do with the others held?"
    settings = EffectsSettings
    options = (AXES, EVAL_SIZE, CONFIG, COSTS, NUISANCE)

    def of_table(self, runs: Runs, options: Mapping[str, Any]) -> Finding:
        settings = with_settings(EffectsSettings(), options["settings"])
        return self.finding(fit(table_shapes(runs, options, settings.crash_sd), settings=settings))

    def of_study(
        self, study: StudyRuns, options: Mapping[str, Any] | None, findings: Sequence[Finding]
    ) -> Finding | None:
        settings = EffectsSettings()
        if options is None:
            shapes = shapes_beyond_answer(study, settings.crash_sd)
        else:
            settings = with_settings(settings, options["settings"])
            study = with_options(study, options)
            shapes = study_shapes(study, settings.crash_sd)
        if shapes is None:
            return None
        within, answered = task_axes(study), answered_axes(study)
        return self.finding(fit(shapes, within=within, answered=answered, settings=settings))

    def finding(self, result: EffectsResult) -> Finding:
        """Return the finding of the effects."""
        words, charts = effects_sentences(result), lambda: effect_charts(result)
        return Finding(self, result, words, tables=effects_tables(result), charts=charts)


EFFECTS = EffectsKind()
