"""The report of a trial: its metrics, whether they are still finite, and its latency."""

import contextlib
import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from hsweep.design.trial import Report, Trial
from hsweep.errors import shown
from hsweep.training.division import evaluation_share
from hsweep.training.memory import held_at_most, is_out_of_memory, with_room
from tasks.base import Batch, FurtherEvaluated, TaskData, TrainingEvaluated
from tasks.division import divide_evaluation

if TYPE_CHECKING:
    from hsweep.training.opening import Opened
    from hsweep.training.trial_run import TrialRun

_LATENCY_PASSES: Final = 6


class MetricsError(ValueError):
    """The metrics of an evaluation are not those that its task declares."""


def checked_metrics(
    trial: Trial,
    returned: object,
    *,
    of_training: bool | None = None,
    may_lack: bool = False,
) -> dict[str, float]:
    """Return metrics of a task as numbers.

    Args:
        trial: whose task declares its metrics.
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


def evaluated(
    trial: Trial, data: TaskData, model: nn.Module, *, with_training: bool
) -> dict[str, float]:
    """Return the metrics of an evaluation, but for those of ``evaluate_further``.

    Args:
        trial: whose task declares its metrics.
        data: its data.
        model: in eval mode.
        with_training: whether to measure metrics of training examples, too.

    Raises:
        MetricsError: the metrics are not those that the task declares.
    """
    may_lack = isinstance(data, FurtherEvaluated)
    metrics = checked_metrics(trial, data.evaluate(model), of_training=False, may_lack=may_lack)
    if with_training:
        of_training = data.evaluate_training(model) if isinstance(data, TrainingEvaluated) else {}
        metrics |= checked_metrics(trial, of_training, of_training=True)
    return metrics


class Reporter:
    """Makes the reports of one trial."""

    def __init__(self, run: "TrialRun", opened: "Opened") -> None:
        self._run, self._opened, self._model = run, opened, opened.evaluated
        self._trial = trial = run.assignment.trial
        probe = run.assignment.probe
        self._probed = probe.due(trial.budget.report_units()) if probe else frozenset()
        self._every = run.assignment.measures_training or trial.is_decided_in_training
        self._share = evaluation_share(run.world)

    def report(
        self,
        unit: int,
        step: int,
        losses: Sequence[torch.Tensor],
        batch: Batch | None,
        make_room: Callable[[], None],
    ) -> Report:
        """Evaluate the model and return its report; a latency is not part of the report's time.

        Args:
            unit: budget units done.
            step: updates done.
            losses: of the updates since the last report, of which there may be none.
            batch: this process's part of the last one, to measure a latency on.
            make_room: called where memory does not suffice, before the evaluation is repeated.

        Raises:
            MetricsError: the metrics are not those that the task declares.
            DoesNotFitError: memory does not suffice for the evaluation.
        """
        opened, state, device = self._opened, self._run.state, self._run.device
        evaluate = functools.partial(self._evaluated, unit, step, losses)
        metrics, diverged_at = with_room("the evaluation", evaluate, make_room, device)
        wall_seconds = state.seconds()
        is_last = unit == self._trial.budget.amount
        has_latency = is_last and batch is not None and diverged_at is None
        return Report(
            running_loss=_mean(losses),
            unit=unit,
            step=step,
            metrics=metrics,
            wall_seconds=wall_seconds,
            is_last=is_last,
            diverged_at=diverged_at,
            train_seconds=state.train_seconds,
            data_seconds=state.data_seconds,
            latency_seconds=(
                latency(self._model, opened.data, batch, opened.autocast) if has_latency else None
            ),
            peak_memory_bytes=held_at_most(device),
        )

    def _evaluated(
        self, unit: int, step: int, losses: Sequence[torch.Tensor]
    ) -> tuple[dict[str, float | None], int | None]:
        """Return the metrics, and the update at which the trial stopped making sense."""
        trial, data, model = self._trial, self._opened.data, self._model
        autocast, probe = self._opened.autocast, self._run.assignment.probe
        is_last = unit == trial.budget.amount
        model.eval()
        watching: Any = contextlib.nullcontext()
        share = self._share
        if probe is not None and unit in self._probed:
            from models.attention_probe import watching as watching_attention

            watching = watching_attention(model, probe.examples)
            share = None  # it watches the first examples of the whole evaluation
        with_training = is_last or self._every
        with torch.no_grad(), autocast, divide_evaluation(share), watching as watch:
            metrics = evaluated(trial, data, model, with_training=with_training)
        diverged_at = _first_bad_step(losses, metrics, step)
        if isinstance(data, FurtherEvaluated) and diverged_at is None:
            with autocast:
                further = data.evaluate_further(model, is_last=is_last)
            metrics.update(checked_metrics(trial, further, may_lack=True))
        if is_last and diverged_at is None and trial.metric not in metrics:
            # Without this a trial would finish without the value that decides.
            _refuse_difference(trial, [], [trial.metric])
        finite = {name: v if math.isfinite(v) else None for name, v in metrics.items()}
        return finite | (watch.metrics() if watch else {}), diverged_at


def latency(
    model: nn.Module,
    data: TaskData,
    batch: Batch,
    autocast: contextlib.AbstractContextManager[Any, Any],
) -> float | None:
    """Return the median time of a forward pass over ``batch``; changes nothing else.

    None where memory does not suffice for the whole batch.
    """
    device = next(model.parameters()).device
    devices = [device] if device.type == "cuda" else []
    durations = []
    try:
        with torch.random.fork_rng(devices), torch.no_grad(), autocast:
            for _ in range(_LATENCY_PASSES):
                started = time.perf_counter()
                data.loss(model, batch)
                if devices:
                    torch.cuda.synchronize(device)
                durations.append(time.perf_counter() - started)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    # The first pass warms caches up.
    return statistics.median(durations[1:])


def _mean(losses: Sequence[torch.Tensor]) -> float | None:
    """Return the mean of scalars; None of none, and where it is not finite."""
    mean = torch.stack(tuple(losses)).double().mean().item() if losses else math.nan
    return mean if math.isfinite(mean) else None


def _first_bad_step(
    losses: Sequence[torch.Tensor], metrics: Mapping[str, float], step: int
) -> int | None:
    """Return the first update whose loss is not finite, ``step`` if a metric is not, else None."""
    if losses:
        bad = (~torch.isfinite(torch.stack(tuple(losses)))).nonzero()
        if len(bad):
            return step - len(losses) + int(bad[0]) + 1
    return None if all(math.isfinite(value) for value in metrics.values()) else step
