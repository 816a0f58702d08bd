"""What a constant predictor scores in a study, and which runs have learned no more than that."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.runs.statuses import AT_CHANCE
from analysis.statistics.values import FloatArray, Mask
from hsweep.design.metric_names import counts_examples
from hsweep.design.question import Goal

_LEVEL: Final = 1.645
"""One-sided 95 % quantile of a normal."""
_ABS_NORMAL_DIFFERENCE: Final = 0.9539
"""Median of |a - b| for two draws of a normal with sd 1."""
_NEAR: Final = 0.5
"""Share of the best gain up to which a run tells how much runs without success scatter."""
_DIGITS: Final = 7
"""Of an accuracy that count: no evaluation is of more examples."""
_NOTHING: Final = 0.01
"""Share of the best gain that counts as none, however little the runs scatter."""


def study_chance(
    data: Sequence[Mapping[str, Any]], metric: str, at: Mapping[str, object] | None = None
) -> float | None:
    """Return what the best constant predictor scores; None where that is not known.

    Args:
        data: the tasks on record, ``provenance["data"]`` of a study's manifest: each may have
            ``chance``, scores by metric, and ``at``, the axis values at which it is learned where
            other points learn another task.
        metric: which score.
        at: axis values that choose among the tasks. Where those left score differently there is no
            one answer, and so None.
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
        trials: one row a trial.
        data: see `study_chance`; trials of a task whose chance is not known stay as they are.
        metric, goal: what decides.
        axes: of the sweep: trials that share all of them differ in their seed alone.
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

    An accuracy over n examples is a multiple of 1 / n, so two runs that differ do so by 1 / n at
    least: where n is not stated, the smallest difference that was seen tells how small it can be.

    Args:
        values: the accuracies of runs.
        chance: what a constant predictor scores.
        eval_size: n.
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

    The noise of a run without success is that between seeds of one point, seen at runs that are
    nearer to the constant predictor than to the best run, but no more than the evaluation has: a
    run that is better by more has learned something, however far its seeds lie apart. A gain is
    none if a run of a constant predictor has it once in twenty times, or if it is less than a
    hundredth of the best one.

    Args:
        gain: by how much each run is better than a constant predictor, in the metric's unit.
        point: which runs differ in their seed alone.
        most: the noise of the evaluation; None where that is not known.
    """
    best = float(gain.max())
    near = np.abs(gain) <= _NEAR * best
    apart = pd.Series(gain[near]).groupby(point[near]).diff().abs().median()
    noise = 0.0 if np.isnan(apart) else float(apart) / _ABS_NORMAL_DIFFERENCE
    noise = noise if most is None else min(noise, most)
    return np.asarray(gain <= max(_LEVEL * noise, _NOTHING * best))
