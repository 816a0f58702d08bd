"""The surrogate: what is to be expected of shapes that were never tried?"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from analysis.charts.chart import Chart
from analysis.questions.base import Finding, Kind, Section, StudyRuns
from analysis.questions.settings import Option, with_settings
from analysis.questions.shapes import (
    BASELINE,
    CONFIG,
    COSTS,
    EVAL_SIZE,
    MARGIN,
    NUISANCE,
    read_baseline,
    shape_columns,
)
from analysis.questions.study_shapes import (
    AXES,
    asked_of,
    study_shapes,
    table_axes,
    table_shapes,
    task_axes,
    untold_shapes,
)
from analysis.questions.surrogate.charts import surrogate_charts
from analysis.questions.surrogate.fit import fit
from analysis.questions.surrogate.result import (
    Prediction,
    SurrogateResult,
    SurrogateSettings,
    TriedShape,
)
from analysis.questions.surrogate.text import (
    left_out_table,
    predictions_table,
    surrogate_sentence,
)
from analysis.runs.columns import plain
from analysis.runs.shape_runs import ShapeRuns
from analysis.runs.statuses import DROPPED, FULL
from analysis.runs.table import Runs
from analysis.statistics.values import Interval
from analysis.values import AxisValue, Jsonable
from hsweep.design.space import parse_values
from hsweep.errors import UserError


@dataclass(frozen=True)
class SurrogateFinding(Finding):
    """What other shapes are expected to do."""

    result: SurrogateResult

    kind: ClassVar[str] = "surrogate"
    title: ClassVar[str] = "What to expect of shapes not tried"
    headlines: ClassVar[bool] = False

    @property
    def sentences(self) -> list[str]:
        return [surrogate_sentence(self.result)]

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.result.warnings

    def page_tables(self, *, beside: bool) -> list[Section]:
        *others, last = self.terminal_tables(beside=False)
        table = dataclasses.replace(last.table, note=self.sentence)
        return [*others, last._replace(table=table)]

    def terminal_tables(self, *, beside: bool) -> list[Section]:
        if beside:
            return []
        result, others = self.result, "What the surrogate predicts of each shape from the others"
        shown = {
            "Predicted shapes": result.predictions,
            "Untried smaller shapes": result.suggestions,
        }
        return [
            *(
                Section(name, predictions_table(result, rows))
                for name, rows in shown.items()
                if rows
            ),
            Section(others, left_out_table(result)),
        ]

    def charts(self, trials: pd.DataFrame) -> list[Chart]:
        return surrogate_charts(self.result)

    @property
    def settings(self) -> Mapping[str, Jsonable]:
        return {"surrogate": self.result.settings}

    def rows(self) -> pd.DataFrame:
        result = self.result
        tried = [_row(each, True, each.metric, each.left_out, False) for each in result.shapes]
        untried = [
            _row(each, each.tried, None, each.mean, each.extrapolates)
            for each in (*result.predictions, *result.suggestions)
        ]
        return pd.json_normalize([*tried, *untried], sep=".")


def _row(
    shape: TriedShape | Prediction,
    tried: bool,
    metric: float | None,
    expected: Interval,
    extrapolates: bool,
) -> dict[str, Any]:
    return {
        "config": shape.config,
        "label": shape.label,
        "tried": tried,
        "cost": shape.cost,
        "metric": metric,
        **dict(zip(("expected", "expected_low", "expected_high"), expected, strict=True)),
        "extrapolates": extrapolates,
    }


class SurrogateKind(Kind):
    """Predicts untried shapes from those of a study or of a table."""

    name = "surrogate"
    about = "What is to be expected of shapes that were never tried?"
    settings = SurrogateSettings
    result = SurrogateResult
    options = (
        *(AXES, EVAL_SIZE, CONFIG, COSTS, NUISANCE, BASELINE, MARGIN),
        Option(
            *("predict", "A shape to predict, as heads=8,depth=3; repeat."),
            multiple=True,
            metavar="AXIS=VALUE,...",
        ),
    )

    def shape(self, runs: Runs, chosen: Mapping[str, Any]) -> list[str]:
        return table_axes(runs, chosen)

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        baseline, shape = chosen["baseline"], shape_columns(runs, chosen)
        settings = with_settings(_with_margin(chosen["margin"]), chosen["settings"])
        found = fit(
            table_shapes(runs, chosen, settings.crash_sd),
            baseline=None if baseline is None else read_baseline(baseline, shape, runs.frame),
            shapes=_shapes_to_predict(chosen["predict"]),
            settings=settings,
        )
        return SurrogateFinding(found)

    def of_study(self, study: StudyRuns, found: Sequence[Finding]) -> Finding | None:
        margin = study.question["margin"] if _has_baseline(study.question) else None
        settings = _with_margin(margin)
        shapes = untold_shapes(study, settings.crash_sd)
        return None if shapes is None else _fit(study, shapes, settings)

    def ask_study(self, study: StudyRuns, chosen: Mapping[str, Any]) -> Finding:
        wanted, margin = _shapes_to_predict(chosen["predict"]), chosen["margin"]
        if margin is None:
            margin = study.question.get("margin", 0.0)
        settings = with_settings(_with_margin(margin), chosen["settings"])
        study = asked_of(study, chosen)
        return _fit(study, study_shapes(study, settings.crash_sd), settings, wanted)


def _fit(
    study: StudyRuns,
    shapes: ShapeRuns,
    settings: SurrogateSettings,
    wanted: Sequence[Mapping[str, AxisValue]] = (),
) -> Finding:
    baseline = dict(study.question["baseline"]) if _has_baseline(study.question) else None
    if baseline is not None and not _has_run(study.runs.frame, baseline):
        baseline = None  # not run to its end: the best shape stands in
    return SurrogateFinding(
        fit(shapes, baseline=baseline, shapes=wanted, within=task_axes(study), settings=settings)
    )


def _has_baseline(question: Mapping[str, Any]) -> bool:
    """Whether a lean question has one baseline, and not one for each of several groups."""
    return "baseline" in question and question.get("within") is None


def _has_run(trials: pd.DataFrame, baseline: Mapping[str, AxisValue]) -> bool:
    own = trials
    for axis, value in baseline.items():
        own = own[own[axis].eq(value)]
    return bool(own["status"].isin(FULL).any() and not own["status"].isin(DROPPED).any())


def _with_margin(margin: float | None) -> SurrogateSettings:
    return SurrogateSettings() if margin is None else SurrogateSettings(margin=float(margin))


def _shapes_to_predict(texts: Sequence[str]) -> list[dict[str, AxisValue]]:
    """Read texts such as ``heads=8,depth=3``.

    Raises:
        UserError: another form.
    """
    shapes = []
    for text in texts:
        shape: dict[str, AxisValue] = {}
        for part in text.split(","):
            name, equals, value = (each.strip() for each in part.partition("="))
            if not equals or not name or not value:
                raise UserError(f"a shape to predict is AXIS=VALUE,AXIS=VALUE; got {text!r}")
            shape[name] = plain(parse_values(value)[0])
        shapes.append(shape)
    return shapes


SURROGATE = SurrogateKind()
