"""Effects, surrogate, conditioning and published results behind the protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from analysis.pictures.conditioning_figures import conditioning_pictures
from analysis.pictures.drawing import Picture
from analysis.pictures.effect_figures import effect_pictures
from analysis.pictures.surrogate_figures import surrogate_pictures
from analysis.published.numbers import Setup, setup_of, setups
from analysis.questions.base import Finding, Kind, Option, Section, StudyRuns
from analysis.questions.conditioning import fit as conditioning
from analysis.questions.conditioning import text as conditioning_text
from analysis.questions.conditioning.result import ConditioningResult, ConditioningSettings
from analysis.questions.effects import fit as effects
from analysis.questions.effects import text as effects_text
from analysis.questions.effects.result import AxisEffect, EffectsResult, EffectsSettings
from analysis.questions.published import fit as published
from analysis.questions.published import text as published_text
from analysis.questions.published.result import PublishedResult, PublishedSettings
from analysis.questions.settings import with_settings
from analysis.questions.shapes import (
    BASELINE,
    CONFIG,
    COSTS,
    EVAL_SIZE,
    MARGIN,
    read_baseline,
    shape_columns,
)
from analysis.questions.surrogate import fit as surrogate
from analysis.questions.surrogate import text as surrogate_text
from analysis.questions.surrogate.result import SurrogateResult, SurrogateSettings
from analysis.questions.transition.kind import TransitionFinding
from analysis.runs.columns import plain
from analysis.runs.shape_runs import TASK_AXES, ShapeRuns, read_shapes
from analysis.runs.table import Runs
from analysis.text.numbers import Tone
from analysis.text.tables import Table, varying_columns
from analysis.values import AxisValue
from hsweep.design.question import Scale
from hsweep.design.space import parse_values
from hsweep.errors import UserError, unknown_name
from hsweep.record.manifest import Manifest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# --- conditioning ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConditioningFinding(Finding):
    result: ConditioningResult

    kind: ClassVar[str] = "conditioning"

    @property
    def sentences(self) -> list[str]:
        return [conditioning_text.conditioning_sentence(self.result)]

    @property
    def badge(self) -> tuple[str, Tone]:
        return conditioning_text.conditioning_badge(self.result)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.result.warnings

    def page_tables(self, *, beside: bool) -> list[Section]:
        tests = conditioning_text.correlations_table(self.result)
        if beside:
            tests = replace(tests, note=f"{self.sentence} {tests.note}")
        return [
            Section("Conditioning", tests),
            Section("Condition numbers", conditioning_text.shapes_table(self.result)),
        ]

    def terminal_tables(self, *, beside: bool) -> list[Section]:
        return [
            Section("condition numbers", conditioning_text.shapes_table(self.result)),
            Section("correlations", conditioning_text.correlations_table(self.result)),
        ]

    def charts(self, trials: pd.DataFrame) -> list[Picture]:
        return conditioning_pictures(self.result)

    def print_figures(self, trials: pd.DataFrame) -> "list[tuple[str, Figure]]":
        from analysis.pictures.conditioning_plots import conditioning_figures

        return conditioning_figures(self.result)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"conditioning": self.result.settings}

    @property
    def saved(self) -> Finding | None:
        return None


class ConditioningKind(Kind):
    name = "conditioning"
    about = "Does better conditioned attention go with better results, and as the theory says?"
    settings = ConditioningSettings
    options = (
        Option("x", "The axis of heads.  [default: heads]"),
        CONFIG,
        COSTS,
        Option("condition", "Column of the condition number."),
        Option("prediction", "Column of the theory's value."),
    )
    study_options = ()

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        shape, frame = shape_columns(runs, chosen), runs.frame
        # Its empty entries tell shapes apart, too.
        is_coupled = "head_dim" in frame and frame["head_dim"].nunique(dropna=False) > 1
        if not chosen["config"] and is_coupled and "head_dim" not in shape:
            shape.append("head_dim")
        goal = chosen["goal"]
        scale: Scale = chosen["scale"] or ("error" if goal == "min" else "accuracy")
        found = conditioning.fit(
            frame,
            metric=runs.metric,
            config=shape,
            x=chosen["x"] or "heads",
            goal=goal or ("max" if scale == "accuracy" else "min"),
            scale=scale,
            condition=chosen["condition"] or conditioning.CONDITION,
            prediction=chosen["prediction"],
            size=next(iter(chosen["cost"]), None),
            settings=with_settings(ConditioningSettings(), chosen["settings"]),
            **runs.columns,
        )
        return ConditioningFinding(found)

    def of_study(self, study: StudyRuns, found: Sequence[Finding]) -> Finding | None:
        return self.ask_study(study, {}) if conditioning.has_probe(study.trials) else None

    def ask_study(self, study: StudyRuns, chosen: Mapping[str, Any]) -> Finding:
        manifest = study.manifest
        axes = varying_columns(study.trials, manifest.axes) or list(manifest.axes)
        usual = "accuracy" if manifest.goal == "max" else "loss"
        result = conditioning.fit(
            study.trials,
            metric=manifest.metric,
            config=axes,
            x=str(study.question.get("x") or "heads"),
            goal=study.goal,
            scale=study.question.get("scale", usual),
            replicate="seed",
        )
        return ConditioningFinding(result)


# --- effects and surrogate ------------------------------------------------------------------------


def _asked(manifest: Manifest) -> dict[str, Any]:
    question = manifest.question or {}
    is_transition = question.get("type") == "Transition"
    scale = question.get("scale")
    within = question.get("by") if is_transition else question.get("within")
    return {
        "config": list(manifest.axes),
        "metric": manifest.metric,
        "goal": manifest.goal,
        # A lean question's margin is in the metric's own unit, and so are its effects.
        "scale": scale if is_transition or scale == "error" else None,
        "eval_size": question.get("eval_size"),
        "costs": list(question.get("costs") or ["num_params"]),
        "within": tuple(dict.fromkeys((*TASK_AXES, *((within,) if within else ())))),
    }


def _answered(question: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the axes that a transition question tests itself."""
    if question.get("type") != "Transition":
        return ()
    return tuple(str(question[role]) for role in ("x", "by") if question.get(role) is not None)


def _study_shapes(study: StudyRuns) -> ShapeRuns | None:
    """Return the shapes of at least two ordered axes; None where the answer has said it all.

    Where no axis varies but those of a transition question, means of the same cells by a weaker
    test, or a smooth surface over a drop, would only contradict the answer.
    """
    if not study.trials["status"].eq("finished").any():
        return None
    asked = _asked(study.manifest)
    asked.pop("within")
    if "shapes" not in study.shared:
        crash_sd = EffectsSettings().crash_sd
        study.shared["shapes"] = read_shapes(study.runs, **asked, crash_sd=crash_sd)
    shapes: ShapeRuns = study.shared["shapes"]
    is_answered = {*shapes.axes, *shapes.names} <= set(_answered(study.question))
    return None if is_answered or len(shapes.axes) < 2 else shapes


def _table_question(runs: Runs, chosen: Mapping[str, Any]) -> dict[str, Any]:
    shape, x, scale = shape_columns(runs, chosen), chosen["x"], chosen["scale"]
    return {
        "config": shape if x is None else list(dict.fromkeys([*x.split(","), *shape])),
        "goal": chosen["goal"] or ("min" if scale in ("error", "loss") else "max"),
        "scale": scale,
        "eval_size": chosen["eval_size"],
        "costs": tuple(chosen["cost"]) or ("num_params",),
        "metric": runs.metric,
        **runs.columns,
    }


_AXES = Option("x", "Axes of the shape, with commas between, besides those found.")


@dataclass(frozen=True)
class EffectsFinding(Finding):
    result: EffectsResult

    kind: ClassVar[str] = "effects"
    headlines: ClassVar[bool] = False

    @property
    def sentences(self) -> list[str]:
        return [effects_text.effects_sentence(self.result)]

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.result.warnings

    def page_tables(self, *, beside: bool) -> list[Section]:
        table = effects_text.effects_table(self.result)
        table = replace(table, note=f"{self.sentence} {table.note}")
        return [Section("Effects of single axes", table), *self._other_tables()]

    def terminal_tables(self, *, beside: bool) -> list[Section]:
        if beside:
            return []
        table = effects_text.effects_table(self.result)
        return [Section("Effects of single axes", table), *self._other_tables()]

    def _other_tables(self) -> list[Section]:
        found = []
        if self.result.interactions:
            found.append(Section("Axes together", effects_text.interaction_table(self.result)))
        if self.result.equal_cost:
            table = effects_text.equal_cost_table(self.result)
            found.append(Section("Shapes of equal cost", table))
        return found

    def charts(self, trials: pd.DataFrame) -> list[Picture]:
        return effect_pictures(self.result)

    def print_figures(self, trials: pd.DataFrame) -> "list[tuple[str, Figure]]":
        from analysis.pictures.effect_plots import effect_plots

        return effect_plots(self.result)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"effects": self.result.settings}

    def rows(self) -> pd.DataFrame:
        return pd.DataFrame([row for axis in self.result.axes for row in _axis_rows(axis)])


class EffectsKind(Kind):
    name = "effects"
    about = "What does each axis do with the others held?"
    settings = EffectsSettings
    result = EffectsResult
    options = (_AXES, EVAL_SIZE, CONFIG, COSTS)
    study_options = ("settings",)

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        settings = with_settings(EffectsSettings(), chosen["settings"])
        asked = _table_question(runs, chosen)
        return EffectsFinding(effects.fit(runs, settings=settings, **asked))

    def of_study(self, study: StudyRuns, found: Sequence[Finding]) -> Finding | None:
        shapes = _study_shapes(study)
        return None if shapes is None else self._fit(study, shapes, EffectsSettings())

    def ask_study(self, study: StudyRuns, chosen: Mapping[str, Any]) -> Finding:
        settings = with_settings(EffectsSettings(), chosen["settings"])
        return self._fit(study, study.runs, settings)

    def _fit(self, study: StudyRuns, table: Runs | ShapeRuns, settings: EffectsSettings) -> Finding:
        answered = _answered(study.question)
        asked = _asked(study.manifest)
        return EffectsFinding(effects.fit(table, **asked, answered=answered, settings=settings))


@dataclass(frozen=True)
class SurrogateFinding(Finding):
    result: SurrogateResult

    kind: ClassVar[str] = "surrogate"
    headlines: ClassVar[bool] = False

    @property
    def sentences(self) -> list[str]:
        return [surrogate_text.surrogate_sentence(self.result)]

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.result.warnings

    def page_tables(self, *, beside: bool) -> list[Section]:
        *others, last = self.terminal_tables(beside=False)
        return [*others, last._replace(table=replace(last.table, note=self.sentence))]

    def terminal_tables(self, *, beside: bool) -> list[Section]:
        found, result = [], self.result
        if beside:
            return []
        if result.predictions:
            asked = surrogate_text.predictions_table(result, result.predictions)
            found.append(Section("Predicted shapes", asked))
        if result.suggestions:
            untried = surrogate_text.predictions_table(result, result.suggestions)
            found.append(Section("Untried smaller shapes", untried))
        table = surrogate_text.left_out_table(result)
        title = "What the surrogate predicts of each shape from the others"
        return [*found, Section(title, table)]

    def charts(self, trials: pd.DataFrame) -> list[Picture]:
        return surrogate_pictures(self.result)

    def print_figures(self, trials: pd.DataFrame) -> "list[tuple[str, Figure]]":
        from analysis.pictures.effect_plots import surrogate_plots

        return surrogate_plots(self.result)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"surrogate": self.result.settings}

    def rows(self) -> pd.DataFrame:
        return pd.json_normalize(_surrogate_rows(self.result), sep=".")


class SurrogateKind(Kind):
    name = "surrogate"
    about = "What is to be expected of shapes that were never tried?"
    settings = SurrogateSettings
    result = SurrogateResult
    options = (
        *(_AXES, EVAL_SIZE, CONFIG, COSTS, BASELINE, MARGIN),
        Option(
            *("predict", "A shape to predict, as heads=8,depth=3; repeat."),
            multiple=True,
            metavar="AXIS=VALUE,...",
        ),
    )
    study_options = ("settings", "predict", "margin")

    def of_table(self, runs: Runs, chosen: Mapping[str, Any]) -> Finding:
        asked, baseline = _table_question(runs, chosen), chosen["baseline"]
        shape = shape_columns(runs, chosen)
        found = surrogate.fit(
            runs,
            baseline=None if baseline is None else read_baseline(baseline, shape, runs.frame),
            shapes=read_shapes_to_predict(chosen["predict"]),
            settings=with_settings(_with_margin(chosen["margin"]), chosen["settings"]),
            **asked,
        )
        return SurrogateFinding(found)

    def of_study(self, study: StudyRuns, found: Sequence[Finding]) -> Finding | None:
        shapes = _study_shapes(study)
        return None if shapes is None else self._fit(study, shapes, None)

    def ask_study(self, study: StudyRuns, chosen: Mapping[str, Any]) -> Finding:
        shapes, margin = read_shapes_to_predict(chosen["predict"]), chosen["margin"]
        if margin is None:
            margin = float(study.question.get("margin", 0.0))
        settings = with_settings(_with_margin(margin), chosen["settings"])
        return self._fit(study, study.runs, settings, shapes)

    def _fit(
        self,
        study: StudyRuns,
        table: Runs | ShapeRuns,
        settings: SurrogateSettings | None,
        shapes: Sequence[Mapping[str, AxisValue]] = (),
    ) -> Finding:
        question, baseline = study.question, None
        if "baseline" in question and question.get("within") is None:
            baseline = dict(question["baseline"])
            settings = settings or SurrogateSettings(margin=float(question["margin"]))
            if not _has(study.runs.frame, baseline):
                baseline = None  # not run to its end: the best shape stands in
        found = surrogate.fit(
            table,
            **_asked(study.manifest),
            baseline=baseline,
            shapes=shapes,
            settings=settings or SurrogateSettings(),
        )
        return SurrogateFinding(found)


def _with_margin(margin: float | None) -> SurrogateSettings:
    return SurrogateSettings() if margin is None else SurrogateSettings(margin=margin)


def _has(trials: pd.DataFrame, baseline: Mapping[str, AxisValue]) -> bool:
    own = trials
    for axis, value in baseline.items():
        own = own[own[axis].eq(value)]
    return bool(own["status"].eq("finished").any() and not own["status"].eq("stopped_early").any())


def read_shapes_to_predict(texts: Sequence[str]) -> list[dict[str, AxisValue]]:
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


def _axis_rows(axis: AxisEffect) -> list[dict[str, Any]]:
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


def _surrogate_rows(result: SurrogateResult) -> list[dict[str, Any]]:
    tried = [
        {
            "config": shape.config,
            "label": shape.label,
            "tried": True,
            "cost": shape.cost,
            "metric": shape.metric,
            "expected": shape.left_out.estimate,
            "expected_low": shape.left_out.low,
            "expected_high": shape.left_out.high,
            "extrapolates": False,
        }
        for shape in result.shapes
    ]
    untried = [
        {
            "config": found.config,
            "label": found.label,
            "tried": found.tried,
            "cost": found.cost,
            "metric": None,
            "expected": found.mean.estimate,
            "expected_low": found.mean.low,
            "expected_high": found.mean.high,
            "extrapolates": found.extrapolates,
        }
        for found in (*result.predictions, *result.suggestions)
    ]
    return [*tried, *untried]


# --- published results ----------------------------------------------------------------------------


@dataclass(frozen=True)
class PublishedFinding(Finding):
    result: PublishedResult

    kind: ClassVar[str] = "published"
    leads: ClassVar[bool] = False
    headlines: ClassVar[bool] = False

    @property
    def sentences(self) -> list[str]:
        return [published_text.published_sentence(self.result)]

    @property
    def terminal_note(self) -> str:
        return self.sentence

    def page_tables(self, *, beside: bool) -> list[Section]:
        if not self.result.comparable:
            return [Section("Beside the paper", Table(("outcome",), ((self.sentence,),)))]
        compared = published_text.published_table(self.result)
        compared = replace(compared, note=f"{self.sentence} {compared.note}")
        missing = published_text.missing_printed_table(self.result)
        sections = [Section("Beside the paper", compared)]
        return [*sections, *([Section("Published, not run", missing)] if missing.rows else [])]

    def terminal_tables(self, *, beside: bool) -> list[Section]:
        return []

    @property
    def settings(self) -> Mapping[str, Any]:
        return {}


class PublishedKind(Kind):
    name = "published"
    about = "How do a study's results compare with the papers' printed ones?"
    settings = PublishedSettings
    takes_tables = False

    def of_study(self, study: StudyRuns, found: Sequence[Finding]) -> Finding | None:
        if not study.trials["status"].eq("finished").any():
            return None
        result = self.beside(study, found)
        return None if result is None else PublishedFinding(result)

    def beside(
        self,
        study: StudyRuns,
        found: Sequence[Finding],
        *,
        setup_name: str | None = None,
        same_data: bool = False,
    ) -> PublishedResult | None:
        """Lay a study beside the published results that it repeats; None if it repeats none.

        Args:
            study: what was run.
            found: its own findings.
            setup_name: which results; None finds them by the sweep's name or the task.
            same_data: the user vouches that the data are those of the paper.

        Raises:
            UserError: an unknown name, or a table that cannot be read.
        """
        manifest = study.manifest
        tasks = [each["task"] for each in manifest.provenance.get("data", ()) if "task" in each]
        setup = setup_of(manifest.sweep, tasks) if setup_name is None else _setup(setup_name)
        if setup is None:
            return None
        transitions = [each.result for each in found if isinstance(each, TransitionFinding)]
        return published.fit(
            study.trials,
            setup,
            axes=manifest.axes,
            tasks=tasks,
            transition=transitions[0] if transitions else None,
            budget=_budget_text(manifest.budget),
            settings=PublishedSettings(same_data=same_data),
        )


def _setup(name: str) -> Setup:
    named = {each.name: each for each in setups()}
    if name not in named:
        raise unknown_name("group of published results", name, named)
    return named[name]


def _budget_text(budget: Mapping[str, Any]) -> str:
    unit = str(budget["unit"])
    return f"{budget['amount']} {unit.removesuffix('s') if budget['amount'] == 1 else unit}"


CONDITIONING = ConditioningKind()
EFFECTS = EffectsKind()
SURROGATE = SurrogateKind()
PUBLISHED = PublishedKind()
