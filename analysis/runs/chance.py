"""The score of a constant predictor in a study, and the runs that do no better."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.runs.statuses import AT_CHANCE
from analysis.statistics.moderated import PAIR_SCALE
from analysis.statistics.values import FloatArray, Mask
from hsweep.design.metric_names import counts_examples
from hsweep.design.scales import Goal

_LEVEL: Final = 1.645
"""One-sided 95 % quantile of a normal."""
_NEAR: Final = 0.5
"""Runs with at most this share of the best gain measure the noise of runs that learned nothing."""
_DIGITS: Final = 7
"""Decimal places of an accuracy that count; further ones are rounding, as no evaluation has more
than 10 million examples."""
_NOTHING: Final = 0.01
"""Gains up to this share of the best one count as none, however small the noise is."""


def study_chance(
    data: Sequence[Mapping[str, Any]], metric: str, at: Mapping[str, object] | None = None
) -> float | None:
    """Return the score of the best constant predictor; None where it is not known.

    Args:
        data: the tasks on record, ``provenance["data"]`` of a study's manifest. A task may have
            ``chance``, a constant predictor's scores by metric, and ``at``, the axis values whose
            trials learn this task.
        metric: name of the score.
        at: axis values that choose among the tasks. Where the chosen tasks have different scores
            the result is None.
    """
    scores = {
        entry.get("chance", {}).get(metric)
        for entry in data
        if all(
            str(value) == str((at or {}).get(axis, value))
            for axis, value in entry.get("at", {}).items()
        )
    }
    return scores.pop() if len(scores) == 1 else None


def with_at_chance(
    trials: pd.DataFrame,
    data: Sequence[Mapping[str, Any]],
    *,
    metric: str,
    goal: Goal,
    axes: Sequence[str],
    eval_size: int | None = None,
) -> pd.DataFrame:
    """Return a study's trials; finished ones that learned nothing have the status ``at_chance``.

    Args:
        data: see `study_chance`; trials of a task whose chance is not known stay as they are.
        metric, goal: the score that is compared with chance, and which direction is better.
        axes: the sweep's axes; trials with the same values of all axes differ in their seed alone.
        eval_size: evaluation examples behind the metric; None where that is not stated.
    """
    if metric not in trials or not any(metric in entry.get("chance", {}) for entry in data):
        return trials
    finished = trials.loc[trials["status"].eq("finished") & trials[metric].notna()]
    parting = sorted({axis for entry in data for axis in entry.get("at", {})} & set(trials))
    tasks = finished.groupby(parting, dropna=False) if parting else [((), finished)]
    at_chance: list[Any] = []
    for values, part in tasks:
        chance = study_chance(data, metric, dict(zip(parting, values, strict=True)))
        if chance is not None and len(part):
            names = [name for name in axes if name in part]
            point: np.ndarray[Any, Any] = np.zeros(len(part))
            if names:
                point = part.groupby(names, dropna=False).ngroup().to_numpy()
            gain = (part[metric].to_numpy(np.float64) - chance) * (1 if goal == "max" else -1)
            scores = part[metric].to_numpy(np.float64)
            most = evaluation_noise(scores, chance, eval_size) if counts_examples(metric) else None
            at_chance += list(part.index[learned_nothing(gain, point, most)])
    status = trials["status"].mask(trials.index.isin(at_chance), AT_CHANCE)
    return trials.assign(status=status)


def evaluation_noise(values: FloatArray, chance: float, eval_size: int | None) -> float | None:
    """Return the largest sd that the accuracy of a constant predictor can have; None if unknown.

    An accuracy over n examples is a multiple of 1 / n, so two different accuracies are at least
    1 / n apart: where n (``eval_size``) is not stated, the smallest difference between runs (their
    accuracies are the ``values``) stands for 1 / n.
    """
    steps = np.diff(np.unique(np.round(values, _DIGITS)))
    if eval_size is None and not steps.size:
        return None
    share = float(steps.min()) if eval_size is None else 1 / eval_size
    return math.sqrt(max(chance * (1 - chance), 0.0) * share)


def learned_nothing(
    gain: FloatArray, point: "np.ndarray[Any, Any]", most: float | None = None
) -> Mask:
    """Return which runs are no better than a constant predictor, apart from noise.

    The noise is the sd between seeds of one point, measured at the runs that are nearer to the
    constant predictor than to the best run, and at most the evaluation's own noise: a run whose
    gain exceeds the evaluation's noise has learned something, however far its seeds lie apart. A
    gain counts as none if a constant predictor reaches it by chance in one of twenty runs, or if
    it is less than a hundredth of the best gain.

    Args:
        gain: how much better than a constant predictor each run is, in the metric's unit.
        point: number of each run's point; runs of one point differ in their seed alone.
        most: the noise of the evaluation; None where it is not known.
    """
    best = float(gain.max())
    near = np.abs(gain) <= _NEAR * best
    apart = pd.Series(gain[near]).groupby(point[near]).diff().abs().median()
    noise = 0.0 if np.isnan(apart) else float(apart) / PAIR_SCALE
    noise = noise if most is None else min(noise, most)
    return np.asarray(gain <= max(_LEVEL * noise, _NOTHING * best))
