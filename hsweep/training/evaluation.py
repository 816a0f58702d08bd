"""The evaluation of a trial: its metrics, whether they are still finite, and its latency."""

import contextlib
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from hsweep.design.trial import Trial
from hsweep.errors import shown
from hsweep.training.devices import is_out_of_memory, wait_for
from hsweep.training.division import evaluation_share
from tasks.base import Batch, FurtherEvaluated, TrainingEvaluated
from tasks.division import divide_evaluation

if TYPE_CHECKING:
    from hsweep.training.opening import TrainingSetup
    from hsweep.training.trial_run import TrialRun

_LATENCY_PASSES: Final = 6


class MetricsError(ValueError):
    """The metrics of an evaluation differ from the metrics that its task declares."""


def checked_metrics(
    trial: Trial,
    returned: object,
    *,
    of_training: bool | None = None,
    may_lack: bool = False,
) -> dict[str, float]:
    """Return metrics of a task as numbers.

    Args:
        returned: the evaluation's result; a value may be infinite or NaN, and a tensor of one
            element counts as its number.
        of_training: whether these are metrics of training examples, or all others; None for both.
        may_lack: whether declared metrics may be missing: those of ``evaluate_further``.

    Raises:
        MetricsError: names that are not the declared ones, or a value that is not a number.
    """
    if not isinstance(returned, Mapping):
        raise MetricsError(
            f"task {trial.task.name!r} must return its metrics as a dictionary of numbers, not "
            f"{shown(returned)}"
        )
    names = [
        metric.name
        for metric in trial.task.metrics
        if of_training is None or metric.of_training is of_training
    ]
    unknown = [name for name in returned if name not in names]
    lacking = [] if may_lack else [name for name in names if name not in returned]
    _refuse_difference(trial, unknown, lacking)
    return {name: _number(trial, name, value) for name, value in returned.items()}


def _refuse_difference(trial: Trial, unknown: Sequence[object], lacking: Sequence[str]) -> None:
    parts = []
    if lacking:
        decides = f" ({trial.metric!r} decides)" if trial.metric in lacking else ""
        parts.append(f"lacks {_listed(lacking)}{decides}")
    if unknown:
        parts.append(f"returns {_listed(unknown)}, which it does not declare")
    if parts:
        raise MetricsError(
            f"the evaluation of task {trial.task.name!r} {' and '.join(parts)}; declared in "
            f"`metrics`: {_listed([metric.name for metric in trial.task.metrics])}. Both must be "
            "the same"
        )


def _number(trial: Trial, name: str, value: object) -> float:
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise MetricsError(
            f"metric {name!r} of task {trial.task.name!r} must be one number, not {shown(value)}; "
            "return float(...) of it"
        ) from None


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(shown, names)) or "none"


def evaluate(
    run: "TrialRun", setup: "TrainingSetup", unit: int, step: int, losses: Sequence[torch.Tensor]
) -> tuple[dict[str, float | None], int | None]:
    """Return the metrics of a trial after ``unit`` units and ``step`` updates, with what a probe
    measures if one is due there, and the first update that was not finite; None for none.
    ``losses`` are of the updates since the last report, of which there may be none.

    Raises:
        MetricsError: the metrics are not those that the task declares.
    """
    trial, assignment = run.assignment.trial, run.assignment
    data, model, probe = setup.data, setup.evaluated, assignment.probe
    is_last = unit == trial.budget.amount
    model.eval()
    watching: Any = contextlib.nullcontext()
    share = evaluation_share(run.world)
    if probe is not None and unit in probe.due(trial.budget.report_units()):
        from models.attention_probe import watching as watching_attention

        watching = watching_attention(model, probe.examples)
        share = None  # it watches the first examples of the whole evaluation
    with torch.no_grad(), setup.autocast, divide_evaluation(share), watching as watch:
        may_lack = isinstance(data, FurtherEvaluated)
        metrics = checked_metrics(trial, data.evaluate(model), of_training=False, may_lack=may_lack)
        if is_last or assignment.measures_training or trial.is_decided_in_training:
            training_metrics = (
                data.evaluate_training(model) if isinstance(data, TrainingEvaluated) else {}
            )
            metrics |= checked_metrics(trial, training_metrics, of_training=True)
    diverged_at = _first_bad_step(losses, metrics.get(trial.metric, 0.0), step)
    if isinstance(data, FurtherEvaluated) and diverged_at is None:
        with setup.autocast:
            further = data.evaluate_further(model, is_last=is_last)
        metrics.update(checked_metrics(trial, further, may_lack=True))
        diverged_at = _first_bad_step((), metrics.get(trial.metric, 0.0), step)
    if is_last and diverged_at is None and trial.metric not in metrics:
        # Without this a trial would finish without the value that decides.
        _refuse_difference(trial, [], [trial.metric])
    finite = {name: v if math.isfinite(v) else None for name, v in metrics.items()}
    return finite | (watch.metrics() if watch else {}), diverged_at


def latency(setup: "TrainingSetup", batch: Batch) -> float | None:
    """Return the median seconds of a forward pass over ``batch``; changes nothing else.

    None where memory does not suffice for the whole batch.
    """
    model, autocast = setup.evaluated, setup.autocast
    device = next(model.parameters()).device
    devices = [] if device.type == "cpu" else [device]
    durations = []
    try:
        with torch.random.fork_rng(devices, device_type=device.type), torch.no_grad(), autocast:
            for _ in range(_LATENCY_PASSES):
                started = time.perf_counter()
                setup.data.loss(model, batch)
                wait_for(device)
                durations.append(time.perf_counter() - started)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    # The first pass warms caches up.
    return statistics.median(durations[1:])


def mean_loss(losses: Sequence[torch.Tensor]) -> float | None:
    """Return the mean of scalars; None of none, and where it is not finite."""
    mean = torch.stack(tuple(losses)).double().mean().item() if losses else math.nan
    return mean if math.isfinite(mean) else None


def _first_bad_step(losses: Sequence[torch.Tensor], value: float, step: int) -> int | None:
    """Return the first update whose loss is not finite, ``step`` if the metric that decides is not
    finite, else None."""
    if losses:
        bad = (~torch.isfinite(torch.stack(tuple(losses)))).nonzero()
        if len(bad):
            return step - len(losses) + int(bad[0]) + 1
    return None if math.isfinite(value) else step
