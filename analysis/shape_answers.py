"""What a study's shapes say besides its question: effects of single axes, and the surrogate."""

import contextlib
from collections.abc import Mapping, Sequence

import pandas as pd

from analysis.findings.results import AxisValue
from analysis.questions.effects import fit as effects
from analysis.questions.effects.result import EffectsResult, EffectsSettings
from analysis.questions.surrogate import fit as surrogate
from analysis.questions.surrogate.result import SurrogateResult, SurrogateSettings
from analysis.runs.columns import plain
from analysis.runs.shape_runs import TASK_AXES, ShapeRuns, read_shapes
from hsweep.design.space import parse_values
from hsweep.errors import UserError
from hsweep.record.study import Manifest


def study_effects(
    trials: pd.DataFrame,
    manifest: Manifest,
    settings: EffectsSettings | None = None,
    shapes: ShapeRuns | None = None,
) -> EffectsResult:
    """Return what each axis of a study does; axes, metric and goal are those of its manifest.

    ``shapes`` are those of the trials, if they are at hand.

    Raises:
        UserError: nothing can be said, with the reason.
    """
    return effects.fit(
        shapes or _shapes(trials, manifest),
        within=_within(manifest),
        answered=_answered(manifest),
        settings=settings or EffectsSettings(),
    )


def study_surrogate(
    trials: pd.DataFrame,
    manifest: Manifest,
    shapes: Sequence[Mapping[str, AxisValue]] = (),
    settings: SurrogateSettings | None = None,
    tried: ShapeRuns | None = None,
) -> SurrogateResult:
    """Return a surrogate of a study; a lean question's baseline and margin are its reference.

    ``tried`` are the shapes of the trials, if they are at hand.

    Raises:
        UserError: nothing can be said, with the reason.
    """
    question = manifest.question or {}
    baseline: dict[str, AxisValue] | None = None
    if "baseline" in question and question.get("within") is None:
        baseline = dict(question["baseline"])
        settings = settings or SurrogateSettings(margin=float(question["margin"]))
    if baseline is not None and not _has(_whole(trials, manifest), baseline):
        baseline = None  # not run to its end: the best shape stands in
    return surrogate.fit(
        tried or _shapes(trials, manifest),
        within=_within(manifest),
        baseline=baseline,
        shapes=shapes,
        settings=settings or SurrogateSettings(),
    )


def shape_results(
    trials: pd.DataFrame, manifest: Manifest
) -> tuple[EffectsResult | None, SurrogateResult | None]:
    """Return both for a study of at least two ordered axes, each None where it has nothing.

    Where no axis varies but those of a transition question, its answer has said it all: means of
    the same cells by a weaker test, or a smooth surface over a drop, would only contradict it.
    """
    try:
        shapes = _shapes(trials, manifest)
    except UserError:  # nothing that either could start from
        return None, None
    if {*shapes.axes, *shapes.names} <= set(_answered(manifest)):
        return None, None
    effect: EffectsResult | None = None
    predicted: SurrogateResult | None = None
    # Too few shapes or no grid: the report does without.
    with contextlib.suppress(UserError):
        effect = study_effects(trials, manifest, shapes=shapes)
    with contextlib.suppress(UserError):
        predicted = study_surrogate(trials, manifest, tried=shapes)
    ordered = effect.axes if effect is not None else predicted.axes if predicted is not None else ()
    return (effect, predicted) if len(ordered) >= 2 else (None, None)


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


def _shapes(trials: pd.DataFrame, manifest: Manifest) -> ShapeRuns:
    question = manifest.question or {}
    scale = question.get("scale")
    is_transition = question.get("type") == "Transition"
    return read_shapes(
        _whole(trials, manifest),
        config=manifest.axes,
        metric=manifest.metric,
        goal="max" if manifest.goal == "max" else "min",
        # A lean question's margin is in the metric's own unit, and so are its effects.
        scale=scale if is_transition or scale == "error" else None,
        eval_size=question.get("eval_size"),
        costs=question.get("costs") or ("num_params",),
    )


def _within(manifest: Manifest) -> tuple[str, ...]:
    question = manifest.question or {}
    within = question.get("by" if question.get("type") == "Transition" else "within")
    return tuple(dict.fromkeys((*TASK_AXES, *((within,) if within else ()))))


def _answered(manifest: Manifest) -> tuple[str, ...]:
    """Return the axes that a transition question tests itself."""
    question = manifest.question or {}
    if question.get("type") != "Transition":
        return ()
    return tuple(str(question[role]) for role in ("x", "by") if question.get(role) is not None)


def _whole(trials: pd.DataFrame, manifest: Manifest) -> pd.DataFrame:
    """Return the trials with "none" for an axis that only part of a space has."""
    return trials.assign(
        **{
            axis: trials[axis].astype(object).where(trials[axis].notna(), "none")
            for axis in manifest.axes
            if trials[axis].isna().any()
        }
    )


def _has(trials: pd.DataFrame, baseline: Mapping[str, AxisValue]) -> bool:
    chosen = trials["status"].eq("finished")
    for axis, value in baseline.items():
        chosen &= trials[axis].eq(value)
    lost = trials["status"].eq("stopped_early")
    for axis, value in baseline.items():
        lost &= trials[axis].eq(value)
    return bool(chosen.any()) and not bool(lost.any())
