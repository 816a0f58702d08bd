"""The y axis of a metric, and the thresholds for changes along that axis.

Errors and 1 - accuracy live on log10 axes, where a constant factor is a constant step. A loss with
an irreducible part (cross-entropy on text) stays in nats: its logarithm would shrink every step
near the floor.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.statistics.bounds import ANYWHERE, AT_LEAST_0, SHARE, Span
from analysis.statistics.values import FloatArray
from hsweep.design.scales import Goal, Scale, outside_scale
from hsweep.errors import UserError


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The sizes from which differences count, in units of a scale's y axis.

    Attributes:
        unit: unit of y, for sentences.
        min_drop: smallest drop that counts as a transition.
        min_excess: smallest part of such a drop that a smooth decline does not explain.
        max_growth: largest slope of y in log10 T that counts as no growth (0.10 decades: a factor
            of 1.32 over a 16-fold T).
        d_min: smallest drop to the next head count that can move h* up.
        head_sd: sd of single head counts about a smooth decline, beyond the sd between seeds.
        assumed_sd: seed sd assumed when no cell holds two runs and the user states none.
        sd_floor: lower limit of the seed sd (identical runs are not noiseless).
    """

    unit: str
    min_drop: float
    min_excess: float
    max_growth: float
    d_min: float
    head_sd: float
    assumed_sd: float
    sd_floor: float


_NONE: Final[dict[Scale, float]] = {"accuracy": 1e-12, "error": 0.0}
"""Errors up to this one count as 0: those of an accuracy are rounded, others have any unit."""
_DECADES: Final = Thresholds("decades", 0.5, 0.3, 0.10, 0.1, 0.05, 0.1, 1e-3)
_NATS: Final = Thresholds("nats", 0.05, 0.03, 0.02, 0.01, 0.005, 0.01, 1e-4)
THRESHOLDS: Final[dict[Scale, Thresholds]] = {
    "error": _DECADES,
    "accuracy": _DECADES,
    "loss": _NATS,
}


def check_goal(goal: Goal, scale: Scale) -> None:
    """Refuse a goal that contradicts the scale.

    Raises:
        UserError: naming what the scale needs.
    """
    needed = "max" if scale == "accuracy" else "min"
    if goal != needed:
        raise UserError(
            f"goal {goal!r} contradicts scale {scale!r}: {scale} needs goal {needed!r}"
            " (scales: error and loss are minimised, accuracy is maximised)"
        )


def metric_span(values: Iterable[float], goal: Goal, scale: Scale | None) -> Span:
    """Return the range in which a metric's values can lie.

    An error is at least 0, and an accuracy lies between 0 and 1. For a loss or a metric without a
    scale the range follows from the ``values`` in the table: a metric that is never below 0 has at
    least 0, and if it is maximised and never above 1, lies between 0 and 1.
    """
    if scale == "accuracy":
        return SHARE
    if scale == "error":
        return AT_LEAST_0
    seen = [value for value in values if math.isfinite(value)]
    if not seen or min(seen) < 0:
        return ANYWHERE
    if goal == "min":
        return AT_LEAST_0
    return SHARE if max(seen) <= 1 else ANYWHERE


def perfect_runs(values: FloatArray, scale: Scale) -> int:
    """Return the number of runs with an error of 0; 0 on a scale without a logarithm."""
    if scale == "loss":
        return 0
    errors = 1.0 - values if scale == "accuracy" else values
    return int((errors <= _NONE[scale]).sum())


def transform(
    values: FloatArray, scale: Scale, eval_size: int | None, metric: str
) -> tuple[FloatArray, list[str]]:
    """Return y (lower is better) and warnings.

    An error of 0 has no logarithm. It is replaced by half the smallest error above 0, or by the
    error of half an evaluation example, whichever is smaller.

    Args:
        values: finite metric values, any shape.
        scale: ``error``: log10; ``accuracy``: log10(1 - acc); ``loss``: unchanged.
        eval_size: evaluation examples behind the metric; None where that is not known.
        metric: name of the column, for messages.

    Raises:
        UserError: values that the scale cannot hold.
    """
    if scale == "loss" or values.size == 0:
        return values.copy(), []
    if eval_size is not None and eval_size < 1:
        raise UserError(f"eval_size must be at least 1, not {eval_size!r}")
    for value in (float(values.min()), float(values.max())):
        if problem := outside_scale(value, scale):
            raise UserError(f"metric {metric!r} holds {value!r}; {problem}")
    errors = np.maximum(1.0 - values, 0.0) if scale == "accuracy" else values
    if scale == "accuracy" and eval_size is not None:
        return np.log10(np.maximum(errors, 0.5 / eval_size)), []
    perfect = errors <= _NONE[scale]
    if not perfect.any():
        return np.log10(errors), []
    score = f"{metric} = {1 if scale == 'accuracy' else 0}"
    seen = errors[~perfect]
    if eval_size is None and not seen.size:
        raise UserError(
            f"every run has {score}; give eval_size (the number of evaluation examples) so that a "
            "perfect run has a place on the log axis"
        )
    of_one = math.inf if eval_size is None else 0.5 / eval_size
    half = float(seen.min()) / 2 if seen.size else math.inf
    floor = min(of_one, half)
    why = "" if eval_size else "eval_size is unknown: "
    origin = f"half of one in {eval_size:,}" if of_one <= half else "half the smallest seen"
    note = f"{why}runs with {score} were given the error {floor:.3g}, {origin}"
    return np.log10(np.where(perfect, floor, errors)), [note]


def to_quality(
    values: FloatArray, goal: Goal, scale: Scale | None, *, eval_size: int | None, metric: str
) -> tuple[FloatArray, list[str]]:
    """Return the quality of metric values, and warnings.

    Higher quality is better. It is minus log10 of an error, an accuracy in points, or else the
    metric in its own unit, negated where it is minimised.

    Raises:
        UserError: values that the scale cannot hold.
    """
    if scale is None:
        return (values.copy() if goal == "max" else -values), []
    y, notes = transform(values, scale, eval_size, metric)
    return (100 * values, []) if scale == "accuracy" else (-y, notes)
