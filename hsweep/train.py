"""The training loop: one generator that any runner can drive."""

import contextlib
import math
import statistics
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn

from hsweep.checkpoints import CheckpointStore
from hsweep.recipe import Recipe
from hsweep.seeding import derived_seed
from hsweep.trial import Assignment, Report
from tasks.base import Batch, FurtherEvaluated, TaskData

_LATENCY_PASSES: Final = 6


def train(assignment: Assignment, device: torch.device) -> Generator[Report, None, None]:
    """Train a trial and yield its reports.

    Starts from the newest valid checkpoint if there is one; reports the checkpoint remembers and
    the record lacks are yielded again, so the record has no gap. The generator ends after the last
    report or after one that says the trial diverged. Closing it before writes a checkpoint.

    On the CPU the reports depend on the trial alone, to the bit, however often it was interrupted:
    the batch of a step and the state of the random generator at a report are functions of the
    seeds and the position. A budget of seconds is the exception: how many steps it holds depends
    on the machine.
    """
    trial, recipe, budget = assignment.trial, assignment.trial.recipe, assignment.trial.budget
    data = trial.task.open(
        data_seed=trial.seeds.data,
        sampling_seed=trial.seeds.sampling,
        batch_size=recipe.batch_size,
        device=device,
    )
    steps_per_unit = data.steps_per_epoch if budget.unit == "epochs" else 1
    num_steps = budget.amount * steps_per_unit
    by_time = budget.unit == "seconds"
    torch.manual_seed(trial.seeds.init)
    model = trial.model.build().to(device)
    data.warm_start(model)
    state = _State(model, build_optimizer(model, recipe), assignment)
    state.restore(device)
    yield from (r for r in state.history if r.unit > assignment.recorded_through)
    if state.history and state.history[-1].diverged_at is not None:
        return
    step = state.history[-1].step if state.history else 0
    batches = data.batches(step)
    batch: Batch | None = None
    autocast = torch.autocast(
        device.type, dtype=torch.bfloat16, enabled=recipe.precision == "bfloat16"
    )
    probe = assignment.probe
    probed = probe.due(budget.report_units()) if probe is not None else frozenset()
    for unit in (unit for unit in budget.report_units() if unit > state.unit):
        torch.manual_seed(derived_seed(trial.seeds.sampling, step))
        model.train()
        losses = []
        while (state.train_seconds < unit) if by_time else (step < unit * steps_per_unit):
            started = time.perf_counter()
            if by_time:
                lr = recipe.lr_at_share(state.train_seconds / budget.amount)
            else:
                lr = recipe.lr_at(step, num_steps)
            _set_lr(state.optimizer, lr)
            batch = next(batches)
            state.data_seconds += time.perf_counter() - started
            with autocast:
                loss = data.loss(model, batch)
            state.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            if recipe.clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
            state.optimizer.step()
            losses.append(loss.detach())
            step += 1
            state.train_seconds += time.perf_counter() - started
        model.eval()
        watching = probe.watching(model) if probe and unit in probed else contextlib.nullcontext()
        with torch.no_grad(), autocast, watching as watch:
            metrics = dict(data.evaluate(model))
        diverged_at = _first_bad_step(losses, metrics, step)
        if isinstance(data, FurtherEvaluated) and diverged_at is None:
            with autocast:
                metrics.update(data.evaluate_further(model, is_last=unit == budget.amount))
        wall_seconds = state.seconds()
        is_last = unit == budget.amount
        report = Report(
            unit=unit,
            step=step,
            metrics={name: _finite(value) for name, value in metrics.items()}
            | (watch.metrics() if watch else {}),
            wall_seconds=wall_seconds,
            is_last=is_last,
            diverged_at=diverged_at,
            train_seconds=state.train_seconds,
            data_seconds=state.data_seconds,
            latency_seconds=_latency(model, data, batch, autocast)
            if is_last and batch is not None and diverged_at is None
            else None,
        )
        state.add(report)
        try:
            yield report
        except GeneratorExit:
            state.save()
            raise
        if report.diverged_at is not None:
            return
        state.resume_clock()


class _State:
    """All that changes while a trial trains, and its way to disk and back.

    Neither the schedule nor the random generators are part of it: both are functions of the step.

    Attributes:
        model: what is trained.
        optimizer: what trains it.
        history: every report so far.
        train_seconds: time spent on updates and their data, over all attempts.
        data_seconds: the part of it spent waiting for data.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, assignment: Assignment
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.history: list[Report] = []
        self._amount = assignment.trial.budget.amount
        self._store = CheckpointStore(
            assignment.checkpoints, assignment.trial.key, assignment.attempt
        )
        self._checkpoint_seconds = assignment.checkpoint_seconds
        self.train_seconds = 0.0
        self.data_seconds = 0.0
        self._seconds_before = 0.0
        self._seconds_saved = 0.0
        self._saved_unit = 0
        self.resume_clock()

    @property
    def unit(self) -> int:
        """Budget units done."""
        return self.history[-1].unit if self.history else 0

    def seconds(self) -> float:
        """Training time so far, over all attempts."""
        return self._seconds_before + time.perf_counter() - self._resumed_at

    def resume_clock(self) -> None:
        """Count time again: waiting for the driver's decision is not training."""
        self._resumed_at = time.perf_counter()

    def add(self, report: Report) -> None:
        """Note a report, and write a checkpoint if enough work is at risk."""
        self.history.append(report)
        self._seconds_before = report.wall_seconds
        at_risk = report.wall_seconds - self._seconds_saved
        if at_risk >= self._checkpoint_seconds and not report.is_last:
            self.save()

    def save(self) -> None:
        """Write a checkpoint, unless this state is already on disk."""
        if self._saved_unit == self.unit:
            return
        self._store.save(
            self.unit,
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "history": [_row(report) for report in self.history],
            },
        )
        self._saved_unit, self._seconds_saved = self.unit, self._seconds_before

    def restore(self, device: torch.device) -> None:
        """Continue from the newest valid checkpoint, if there is one."""
        saved = self._store.newest(device)
        if saved is None:
            return
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.history = [
            Report(**row, is_last=row["unit"] == self._amount) for row in saved["history"]
        ]
        self._seconds_before = self._seconds_saved = self.history[-1].wall_seconds
        self._saved_unit = self.unit
        self.train_seconds = self.history[-1].train_seconds
        self.data_seconds = self.history[-1].data_seconds
        self.resume_clock()


def build_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Return the recipe's optimizer; vectors and scalars are exempt from weight decay."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.betas[0])
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, fused=True)


def _set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


def _latency(model: nn.Module, data: TaskData, batch: Batch, autocast: torch.autocast) -> float:
    """Return the median time of a forward pass over ``batch``; changes nothing else."""
    device = next(model.parameters()).device
    devices = [device] if device.type == "cuda" else []
    taken = []
    with torch.random.fork_rng(devices), torch.no_grad(), autocast:
        for _ in range(_LATENCY_PASSES):
            started = time.perf_counter()
            data.loss(model, batch)
            if devices:
                torch.cuda.synchronize(device)
            taken.append(time.perf_counter() - started)
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


def _row(report: Report) -> dict[str, Any]:
    return {
        "unit": report.unit,
        "step": report.step,
        "metrics": dict(report.metrics),
        "wall_seconds": report.wall_seconds,
        "train_seconds": report.train_seconds,
        "data_seconds": report.data_seconds,
        "latency_seconds": report.latency_seconds,
        "diverged_at": report.diverged_at,
    }
