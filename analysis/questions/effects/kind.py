"""Effects: what does each axis do with the others held?"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from analysis.questions.base import Finding, Kind, StudyRuns
from analysis.questions.effects.charts import effect_charts
from analysis.questions.effects.fit import fit
from analysis.questions.effects.result import EffectsResult, EffectsSettings
from analysis.questions.effects.text import effects_sentences, effects_tables
from analysis.questions.settings import with_settings
from analysis.questions.shapes import (
    CONFIG,
    EVAL_SIZE,
    NUISANCE,
    answered_axes,
    study_shapes,
    table_shapes,
    with_options,
)
from analysis.runs.statuses import FULL
from analysis.runs.table import Runs


def of_table(runs: Runs, options: Mapping[str, Any]) -> Finding:
    settings = with_settings(EffectsSettings(), options["settings"])
    shapes = table_shapes(runs, options)
    return effects_finding(fit(shapes, settings=settings))


def of_study(
    study: StudyRuns, options: Mapping[str, Any] | None, _: Sequence[Finding]
) -> Finding | None:
    """Return the effects of axes; unasked only where one varies that no question answers."""
    settings = with_settings(EffectsSettings(), options["settings"] if options else ())
    if options is not None:
        study = with_options(study, options)
    elif not study.trials["status"].isin(FULL).any():
        return None
    shapes, answered = study_shapes(study), answered_axes(study)
    if options is None and (len(shapes.columns) < 2 or set(shapes.columns) <= {*answered}):
        return None
    return effects_finding(fit(shapes, answered=answered, settings=settings))


def effects_finding(result: EffectsResult) -> Finding:
    words, charts = effects_sentences(result), lambda: effect_charts(result)
    return Finding(EFFECTS, result, words, tables=effects_tables(result), charts=charts)


EFFECTS: Final = Kind(
    "effects",
    "What does each axis do with the others held?",
    EffectsSettings,
    of_study,
    of_table,
    (EVAL_SIZE, CONFIG, NUISANCE),
)
