"""Measured training speed on this home's hardware, from which a study's duration is estimated.

For each task and machine it keeps what finished trials took, and fits seconds for one budget unit
as ``a + b * training FLOPs``: a small model is bound by the cost of a step, a large one by its
arithmetic.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from hsweep.design.trial import Trial
from hsweep.design.user_training import TRAINING_PARTS
from hsweep.files import write_text

_KEPT_SAMPLES: Final = 200

Samples = list[list[float]]
"""Pairs of training FLOPs for an example and seconds for a budget unit."""


class Calibration:
    """Durations of finished trials, by kind of training, in a file that may be missing; those of
    other hardware do not count."""

    def __init__(self, path: Path, hardware: Mapping[str, Any]) -> None:
        self._path = path
        text = json.dumps(dict(hardware), sort_keys=True, default=str)
        self._machine = hashlib.sha256(text.encode()).hexdigest()[:12]
        try:
            self._content = _checked(json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError, AttributeError):
            # No measurement yet, or something else: the next study measures again.
            self._content = {}

    def add(self, measured: Iterable[tuple[Trial, float, int]]) -> None:
        """Keep durations of trials, each as (trial, training seconds, budget units done)."""
        kinds = self._content.setdefault(self._machine, {})
        for trial, seconds, units in measured:
            if units > 0 and seconds > 0:
                samples = kinds.setdefault(_kind(trial), [])
                samples.append([float(_flops(trial)), seconds / units])
                del samples[:-_KEPT_SAMPLES]
        write_text(self._path, json.dumps(self._content))

    def estimate(self, trials: Iterable[tuple[Trial, float]]) -> float | None:
        """Return the training seconds of all trials together, each given with its budget units;
        None where the speed of one is not known."""
        kinds = self._content.get(self._machine, {})
        speeds: dict[str, tuple[float, float]] = {}
        total = 0.0
        for trial, units in trials:
            kind = _kind(trial)
            if not kinds.get(kind):
                return None
            if kind not in speeds:
                speeds[kind] = fitted(kinds[kind])
            constant, slope = speeds[kind]
            total += (constant + slope * _flops(trial)) * units
        return total


def fitted(samples: Samples) -> tuple[float, float]:
    """Return seconds for a budget unit, and for a training FLOP of it; neither is negative."""
    import numpy as np
    from scipy.optimize import nnls

    flops, seconds = np.array(samples).T
    # Relative errors: without the weights the largest trials alone would decide.
    design = np.column_stack([np.ones_like(flops), flops / flops.max()]) / seconds[:, None]
    (constant, slope), _ = nnls(design, np.ones_like(seconds))
    return float(constant), float(slope / flops.max())


def _checked(content: Any) -> dict[str, dict[str, Samples]]:
    """Return the samples in a file, by machine and kind of training.

    Raises:
        ValueError, TypeError, AttributeError: it holds something else.
    """
    samples = (pair for kinds in content.values() for pairs in kinds.values() for pair in pairs)
    if not all(0 < flops < math.inf and 0 < seconds < math.inf for flops, seconds in samples):
        raise ValueError("times and FLOPs are positive")
    return content  # type: ignore[no-any-return]


def _flops(trial: Trial) -> int:
    """Return the FLOPs of training on one example, 1 where they are not known."""
    return trial.counts.train_flops if trial.counts and trial.counts.train_flops else 1


def _kind(trial: Trial) -> str:
    """Trials of one kind differ in their model alone, as far as speed is concerned: of a user's
    training, in their point."""
    recipe, resources = trial.recipe, trial.resources
    hashes = [trial.parts[part] for part in TRAINING_PARTS.values() if part in trial.parts]
    return (
        f"{''.join(hashes) or trial.task.name}:{trial.budget.unit}:{recipe.batch_size}:"
        f"{recipe.accumulate}:{recipe.precision}:{resources.cpus:g}:{resources.gpus}:"
        f"{resources.processes}"
    )
