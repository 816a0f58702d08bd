"""Conditioning: does better conditioned attention go with better results?"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from analysis.questions.base import Finding, Kind, StudyRuns
from analysis.questions.conditioning.charts import conditioning_charts
from analysis.questions.conditioning.fit import fit, has_probe
from analysis.questions.conditioning.result import (
    HEAD_DIM,
    ConditioningResult,
    ConditioningSettings,
)
from analysis.questions.conditioning.text import (
    conditioning_badge,
    conditioning_sentences,
    conditioning_tables,
)
from analysis.questions.settings import Option, with_settings
from analysis.questions.shapes import CONFIG, COSTS, shape_columns, table_goal
from analysis.runs.table import Runs
from analysis.text.tables import varying_columns
from hsweep.design.metric_names import scale_of


def of_table(runs: Runs, options: Mapping[str, Any]) -> Finding:
    goal, shape = table_goal(runs, options), shape_columns(runs, options)
    is_named = options["config"] or HEAD_DIM in shape or HEAD_DIM not in runs.frame
    if not is_named and runs.frame[HEAD_DIM].nunique(dropna=False) > 1:
        shape.append(HEAD_DIM)  # its empty entries tell shapes apart, too
    result = fit(
        runs,
        config=shape,
        x=options["x"] or "heads",
        goal=goal,
        scale=options["scale"] or scale_of(runs.metric, goal),
        size=next(iter(options["cost"]), None),
        settings=with_settings(ConditioningSettings(), options["settings"]),
    )
    return conditioning_finding(result)


def of_study(
    study: StudyRuns, options: Mapping[str, Any] | None, _: Sequence[Finding]
) -> Finding | None:
    if options is None and not has_probe(study.trials):
        return None
    question = {**study.question, **{k: v for k, v in (options or {}).items() if v}}
    settings = with_settings(ConditioningSettings(), question.get("settings", ()))
    axes, metric = study.manifest.axes, study.manifest.metric
    runs = Runs(study.trials, metric, {"replicate": "seed"})
    config = varying_columns(study.trials, axes) or list(axes)
    roles: dict[str, Any] = {"x": str(question.get("x") or "heads"), "goal": study.goal}
    roles["scale"] = question.get("scale") or ("accuracy" if study.goal == "max" else "loss")
    return conditioning_finding(fit(runs, config=config, settings=settings, **roles))


def conditioning_finding(result: ConditioningResult) -> Finding:
    words, badge = conditioning_sentences(result), conditioning_badge(result)
    tables = conditioning_tables(result)
    return Finding(CONDITIONING, result, words, badge, tables, lambda: conditioning_charts(result))


CONDITIONING: Final = Kind(
    "conditioning",
    "Does better conditioned attention go with better results, and as the theory says?",
    ConditioningSettings,
    of_study,
    of_table,
    (
        Option("x", "The axis of heads.  [default: heads]"),
        CONFIG,
        dataclasses.replace(COSTS, of_table=True),
    ),
)
