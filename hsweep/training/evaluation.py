"""What a trial is asked at a report: its metrics, whether it still makes sense, and its latency."""

import contextlib
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from hsweep.design.trial import Trial
from hsweep.errors import shown
from hsweep.training.memory import is_out_of_memory
from models.conditioning import Conditioning
from tasks.base import Batch, FurtherEvaluated, TaskData

_LATENCY_PASSES: Final = 6


class MetricsError(ValueError):
    """What an evaluation returned are not the metrics that its task declares."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The metrics that a task declares, and the one that decides.

    Without this rule a trial that never returns the metric that decides would finish without a
    value.

    Attributes:
        task: the task's name, for messages.
        names: every declared metric.
        deciding: the sweep's metric.
    """

    task: str
    names: tuple[str, ...]
    deciding: str

    @classmethod
    def of(cls, trial: Trial) -> "Declared":
        """Return what a trial's evaluations have to return."""
        names = tuple(metric.name for metric in trial.task.metrics)
        return cls(trial.task.name, names, trial.metric)

    def checked(self, returned: object, *, may_lack: bool = False) -> dict[str, float]:
        """Return what ``evaluate`` or ``evaluate_further`` returned, as numbers.

        Args:
            returned: metrics and their values; a value may be infinite or NaN, and a tensor of one
                element counts as its number.
            may_lack: whether declared metrics may be left out: those of ``evaluate_further``.

        Raises:
            MetricsError: names that are not the declared ones, or a value that is not a number.
        """
        if not isinstance(returned, Mapping):
            raise MetricsError(
                f"task {self.task!r} must return its metrics as a dictionary of numbers, not "
                f"{shown(returned)}"
            )
        unknown = [name for name in returned if name not in self.names]
        lacking = [] if may_lack else [name for name in self.names if name not in returned]
        if unknown or lacking:
            raise MetricsError(self._difference(unknown, lacking))
        return {name: self._number(name, value) for name, value in returned.items()}

    def require_deciding(self, metrics: Mapping[str, float]) -> None:
        """Refuse the metrics of a last report without the one that decides.

        Raises:
            MetricsError: it is not there.
        """
        if self.deciding not in metrics:
            raise MetricsError(self._difference([], [self.deciding]))

    def _difference(self, unknown: Sequence[object], lacking: Sequence[str]) -> str:
        parts = []
        if lacking:
            decides = f" ({self.deciding!r} decides)" if self.deciding in lacking else ""
            parts.append(f"lacks {_listed(lacking)}{decides}")
        if unknown:
            parts.append(f"returns {_listed(unknown)}, which it does not declare")
        return (
            f"the evaluation of task {self.task!r} {' and '.join(parts)}; declared in `metrics`: "
            f"{_listed(self.names)}. Both must be the same"
        )

    def _number(self, name: str, value: object) -> float:
        try:
            if isinstance(value, (str, bytes)):
                raise TypeError
            return float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise MetricsError(
                f"metric {name!r} of task {self.task!r} must be one number, not {shown(value)}; "
                "return float(...) of it"
            ) from None


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(shown, names)) or "none"


def evaluated(
    data: TaskData,
    model: nn.Module,
    autocast: AbstractContextManager[object, bool | None],
    declared: Declared,
    probe: Conditioning | None,
    losses: Sequence[torch.Tensor],
    step: int,
    *,
    is_last: bool,
) -> tuple[dict[str, float | None], int | None]:
    """Return a report's metrics, and the update at which the trial stopped making sense.

    Raises:
        MetricsError: the metrics are not those that the task declares.
    """
    model.eval()
    watching = probe.watching(model) if probe is not None else contextlib.nullcontext()
    with torch.no_grad(), autocast, watching as watch:
        returned = data.evaluate(model)
    metrics = declared.checked(returned, may_lack=isinstance(data, FurtherEvaluated))
    diverged_at = _first_bad_step(losses, metrics, step)
    if isinstance(data, FurtherEvaluated) and diverged_at is None:
        with autocast:
            further = data.evaluate_further(model, is_last=is_last)
        metrics.update(declared.checked(further, may_lack=True))
    if is_last and diverged_at is None:
        declared.require_deciding(metrics)
    finite = {name: _finite(value) for name, value in metrics.items()}
    return finite | (watch.metrics() if watch else {}), diverged_at


def latency(
    model: nn.Module,
    data: TaskData,
    batch: Batch,
    autocast: AbstractContextManager[object, bool | None],
) -> float | None:
    """Return the median time of a forward pass over ``batch``; changes nothing else.

    None where memory does not suffice for the whole batch.
    """
    device = next(model.parameters()).device
    devices = [device] if device.type == "cuda" else []
    taken = []
    try:
        with torch.random.fork_rng(devices), torch.no_grad(), autocast:
            for _ in range(_LATENCY_PASSES):
                started = time.perf_counter()
                data.loss(model, batch)
                if devices:
                    torch.cuda.synchronize(device)
                taken.append(time.perf_counter() - started)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    # The first pass warms caches up.
    return statistics.median(taken[1:])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _first_bad_step(
    losses: Sequence[torch.Tensor], metrics: Mapping[str, float], step: int
) -> int | None:
    """Return the update at which the trial stopped making sense, None if it did not.

    Args:
        losses: of the updates since the last report, the last of them update number ``step``.
            None are left where one update took longer than the time between two reports.
        metrics: as evaluated after that update.
        step: updates done.
    """
    if losses:
        bad = (~torch.isfinite(torch.stack(tuple(losses)))).nonzero()
        if len(bad):
            return step - len(losses) + int(bad[0]) + 1
    return None if all(math.isfinite(value) for value in metrics.values()) else step
