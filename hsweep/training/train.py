"""The training loop: one generator that any runner can drive."""

import contextlib
import functools
import math
import statistics
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Final

import torch
from torch import nn

from hsweep.design.recipe import Recipe
from hsweep.design.trial import Assignment, Report, Setback
from hsweep.seeding import derived_seed
from hsweep.training.checkpoints import StorageError
from hsweep.training.memory import (
    DoesNotFitError,
    fitting,
    is_out_of_memory,
    measure_peak,
    needed_bytes,
    shown,
    with_room,
)
from hsweep.training.micro_batches import Gradients, has_batch_statistics
from hsweep.training.trial_state import TrialState
from models.conditioning import Conditioning
from tasks.base import Batch, FurtherEvaluated, TaskData

_LATENCY_PASSES: Final = 6


def train(assignment: Assignment, device: torch.device) -> Generator[Report | Setback, None, None]:
    """Train a trial and yield its reports.

    Starts from the newest valid checkpoint if there is one; reports the checkpoint remembers and
    the record lacks are yielded again, so the record has no gap. The generator ends after the last
    report or after one that says the trial diverged. Closing it before writes a checkpoint.

    Where memory does not suffice for an update, it is repeated in smaller parts whose gradients
    add up (see ``hsweep.training.micro_batches``), and so are all that follow. Where that does not
    help, or checkpoints cannot be written, the generator ends with a setback instead of a report.

    On the CPU the reports depend on the trial alone, to the bit, however often it was interrupted:
    the batch of a step and the state of the random generator at a report are functions of the
    seeds and the position. Two things are exceptions. How many steps a budget of seconds holds
    depends on the machine, and so does where memory gives out; the size of the parts is kept in
    the checkpoint.
    """
    measure_peak(device)
    try:
        yield from _reports(assignment, device)
        return
    except DoesNotFitError as error:
        setback = _memory_setback(assignment, device, error.what, error.asked_bytes)
    except StorageError as error:
        setback = Setback("storage", str(error))
    yield setback


def _reports(assignment: Assignment, device: torch.device) -> Generator[Report, None, None]:
    trial, recipe, budget = assignment.trial, assignment.trial.recipe, assignment.trial.budget
    with fitting("the data"):
        data = trial.task.open(
            data_seed=trial.seeds.data,
            sampling_seed=trial.seeds.sampling,
            batch_size=recipe.batch_size,
            device=device,
        )
    steps_per_unit = data.steps_per_epoch if budget.unit == "epochs" else 1
    num_steps = budget.amount * steps_per_unit
    by_time = budget.unit == "seconds"
    with fitting("the model"):
        torch.manual_seed(trial.seeds.init)
        model = trial.model.build().to(device)
        data.warm_start(model)
        state = TrialState(model, build_optimizer(model, recipe), assignment, _now)
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
    gradients = Gradients(
        data,
        model,
        autocast,
        batch_size=recipe.batch_size,
        seed=trial.seeds.sampling,
        at_once=state.history[-1].micro_batch if state.history else None,
    )
    probe = assignment.probe
    probed = probe.due(budget.report_units()) if probe is not None else frozenset()
    for unit in (unit for unit in budget.report_units() if unit > state.unit):
        torch.manual_seed(derived_seed(trial.seeds.sampling, step))
        model.train()
        losses: list[torch.Tensor] = []
        is_untouched = not has_batch_statistics(model)
        try:
            with fitting("an update"):
                while (state.train_seconds < unit) if by_time else (step < unit * steps_per_unit):
                    started = time.perf_counter()
                    if by_time:
                        lr = recipe.lr_at_share(state.train_seconds / budget.amount)
                    else:
                        lr = recipe.lr_at(step, num_steps)
                    _set_lr(state.optimizer, lr)
                    batch = next(batches)
                    state.data_seconds += time.perf_counter() - started
                    losses.append(gradients.of(batch, step))
                    if recipe.clip_norm is not None:
                        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
                    is_untouched = False
                    state.optimizer.step()
                    step += 1
                    state.train_seconds += time.perf_counter() - started
        except DoesNotFitError:
            if is_untouched:
                state.save_if_possible()
            raise
        is_last = unit == budget.amount
        watched_by = probe if unit in probed else None
        evaluate = functools.partial(
            _evaluated, data, model, autocast, watched_by, losses, step, is_last=is_last
        )
        metrics, diverged_at = with_room("the evaluation", evaluate, gradients.clear, device)
        wall_seconds = state.seconds()
        report = Report(
            unit=unit,
            step=step,
            metrics=metrics,
            wall_seconds=wall_seconds,
            is_last=is_last,
            diverged_at=diverged_at,
            train_seconds=state.train_seconds,
            data_seconds=state.data_seconds,
            latency_seconds=_latency(model, data, batch, autocast)
            if is_last and batch is not None and diverged_at is None
            else None,
            micro_batch=gradients.at_once,
            note="; ".join(filter(None, (state.take_note(unit), gradients.take_note()))),
        )
        problem = state.add(report)
        try:
            yield report
        except GeneratorExit:
            state.save_if_possible()
            raise
        if report.diverged_at is not None or report.is_last:
            return
        if problem is not None:
            raise problem
        state.resume_clock()


def _now() -> float:
    return time.perf_counter()


def _memory_setback(
    assignment: Assignment, device: torch.device, what: str, asked: int | None
) -> Setback:
    trial = assignment.trial
    needed = needed_bytes(device, asked, trial.train_memory_bytes)
    if assignment.is_alone:
        where = "the device even alone"
        precision = "" if trial.recipe.precision == "bfloat16" else ", train in bfloat16"
        advice = f"make the shape smaller{precision} or take a device with more memory"
    else:
        where, advice = "the device beside what else is on it", "it may fit alone"
    in_vain = f", {shown(asked)} of it asked for in vain" if asked else ""
    message = f"{what} does not fit {where}: about {shown(needed)} needed{in_vain}; {advice}"
    return Setback("memory", message, needed)


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


def _evaluated(
    data: TaskData,
    model: nn.Module,
    autocast: torch.autocast,
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


def _latency(
    model: nn.Module, data: TaskData, batch: Batch, autocast: torch.autocast
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
