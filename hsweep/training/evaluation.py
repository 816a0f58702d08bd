"""What a trial is asked at a report: its metrics, whether it still makes sense, and its latency."""

import contextlib
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

import torch
from torch import nn

from hsweep.training.memory import is_out_of_memory
from models.conditioning import Conditioning
from tasks.base import Batch, FurtherEvaluated, TaskData

_LATENCY_PASSES: Final = 6


def evaluated(
    data: TaskData,
    model: nn.Module,
    autocast: AbstractContextManager[object, bool | None],
    probe: Conditioning | None,
    losses: Sequence[torch.Tensor],
    step: int,
    *,
    is_last: bool,
) -> tuple[dict[str, float | None], int | None]:
    """Return a report's metrics, and the update at which the trial stopped making sense."""
    model.eval()
    watching = probe.watching(model) if probe is not None else contextlib.nullcontext()
    with torch.no_grad(), autocast, watching as watch:
        metrics = dict(data.evaluate(model))
    diverged_at = _first_bad_step(losses, metrics, step)
    if isinstance(data, FurtherEvaluated) and diverged_at is None:
        with autocast:
            metrics.update(data.evaluate_further(model, is_last=is_last))
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
    return float(value) if math.isfinite(value) else None


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
