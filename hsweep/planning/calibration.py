"""Measured training speed on this home's hardware, to say beforehand what a study will take.

For each task and machine it keeps what finished trials took, and fits seconds for one budget unit
as ``a + b * training FLOPs``: a small model is bound by the cost of a step, a large one by its
arithmetic.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hsweep.design.trial import Trial
from hsweep.files import write_text

_KEPT_SAMPLES: Final = 200


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """Seconds for a budget unit as a function of a model's training FLOPs for one example."""

    seconds_a_unit: float
    seconds_a_flop: float

    def seconds(self, trial: Trial) -> float:
        """Return the estimated training time of a whole trial."""
        each = self.seconds_a_unit + self.seconds_a_flop * trial.counts.train_flops
        return each * trial.budget.amount


class Calibration:
    """What trials took, by kind of training.

    Args:
        path: the file; it may be missing.
        hardware: a description of the machine; speeds of another do not count.
    """

    def __init__(self, path: Path, hardware: Mapping[str, Any]) -> None:
        self._path = path
        text = json.dumps(dict(hardware), sort_keys=True, default=str)
        self._machine = hashlib.sha256(text.encode()).hexdigest()[:12]
        try:
            self._content = _measurements(json.loads(path.read_text()))
        except (OSError, ValueError, TypeError, AttributeError):
            # No measurement yet, or something else: the next study measures again.
            self._content = {}

    def add(self, measured: Iterable[tuple[Trial, float, int]]) -> None:
        """Keep what trials took: (trial, training seconds, budget units done)."""
        kinds = self._content.setdefault(self._machine, {})
        for trial, seconds, units in measured:
            if units > 0 and seconds > 0:
                samples = kinds.setdefault(_kind(trial), [])
                samples.append([float(trial.counts.train_flops), seconds / units])
                del samples[:-_KEPT_SAMPLES]
        write_text(self._path, json.dumps(self._content))

    def model(self, trial: Trial) -> SpeedModel | None:
        """Return the speed fitted for trials of this kind, None if none was measured here."""
        samples = self._content.get(self._machine, {}).get(_kind(trial), [])
        if not samples:
            return None
        import numpy as np
        from scipy.optimize import nnls

        flops, seconds = np.array(samples).T
        # Relative errors: without the weights the largest trials alone would decide.
        design = np.column_stack([np.ones_like(flops), flops / flops.max()]) / seconds[:, None]
        (constant, slope), _ = nnls(design, np.ones_like(seconds))
        return SpeedModel(float(constant), float(slope / flops.max()))

    def estimate(self, trials: Iterable[Trial]) -> float | None:
        """Return the training seconds of all trials together, None where any is unknown."""
        total = 0.0
        models: dict[str, SpeedModel | None] = {}
        for trial in trials:
            kind = _kind(trial)
            if kind not in models:
                models[kind] = self.model(trial)
            speed = models[kind]
            if speed is None:
                return None
            total += speed.seconds(trial)
        return total


def _measurements(found: Any) -> dict[str, dict[str, list[list[float]]]]:
    """Return what a file holds, by machine and kind of training: pairs of training FLOPs and
    seconds for a unit.

    Raises:
        ValueError, TypeError, AttributeError: it holds something else.
    """
    content = {
        machine: {
            kind: [[float(flops), float(seconds)] for flops, seconds in samples]
            for kind, samples in kinds.items()
        }
        for machine, kinds in found.items()
    }
    numbers = (n for kinds in content.values() for each in kinds.values() for s in each for n in s)
    if not all(0 < number < math.inf for number in numbers):
        raise ValueError("times and FLOPs are positive")
    return content


def _kind(trial: Trial) -> str:
    """Trials of one kind differ in their model alone, as far as speed is concerned."""
    recipe, resources = trial.recipe, trial.resources
    return (
        f"{trial.task.name}:{trial.budget.unit}:{recipe.batch_size}:{recipe.precision}:"
        f"{resources.cpus:g}:{resources.gpus}"
    )
