"""The training loop: one generator that any runner can drive."""

import functools
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import nn

from hsweep.design.recipe import Recipe
from hsweep.design.trial import Assignment, Event, OutOfMemory, Report, StorageFailure
from hsweep.seeding import derived_seed
from hsweep.training.checkpoints import StorageError
from hsweep.training.compiled import compiled, forget_compiled, is_graphed
from hsweep.training.evaluation import Declared, evaluated, latency
from hsweep.training.memory import (
    DoesNotFitError,
    fitting,
    held_at_most,
    measure_peak,
    needed_bytes,
    shown,
    with_room,
)
from hsweep.training.micro_batches import Gradients, has_batch_statistics
from hsweep.training.optimizers import AdamW
from hsweep.training.process_state import ProcessState, seed_all
from hsweep.training.trial_state import TrialState
from hsweep.training.update import Update
from tasks.base import Batch, TaskData


def train(assignment: Assignment, device: torch.device) -> Generator[Event, None, None]:
    """Train a trial and yield its reports.

    Starts from the newest valid checkpoint if there is one; reports the checkpoint remembers and
    the record lacks are yielded again, so the record has no gap. The generator ends after the last
    report or after one that says the trial diverged. Closing it before writes a checkpoint.

    Where memory does not suffice for an update, it is repeated in smaller parts whose gradients
    add up (see ``hsweep.training.micro_batches``), and so are all that follow. Where that does not
    help, or checkpoints cannot be written, the generator ends by saying so instead of a report.

    On the CPU the reports depend on the trial alone, to the bit, however often it was interrupted:
    the batch of a step and the state of the random generator at a report are functions of the
    seeds and the position. Two things are exceptions. How many steps a budget of seconds holds
    depends on the machine, and so does where memory gives out; the size of the parts is kept in
    the checkpoint.
    """
    measure_peak(device)
    process = ProcessState()
    try:
        yield from _reports(assignment, device, process)
        return
    except DoesNotFitError as error:
        ending: Event = _out_of_memory(assignment, device, error.what, error.asked_bytes)
    except StorageError as error:
        ending = StorageFailure(str(error))
    finally:
        process.restore()
    yield ending


def _reports(
    assignment: Assignment, device: torch.device, process: ProcessState
) -> Generator[Report, None, None]:
    begun = begin(assignment, device, _now)
    try:
        yield from _from_there(assignment, device, begun, process)
    finally:
        # Whoever is given the trial next finds all that was kept.
        begun.state.close()
        if assignment.trial.recipe.compile != "off":
            forget_compiled()


def _from_there(
    assignment: Assignment, device: torch.device, begun: "Begun", process: ProcessState
) -> Generator[Report, None, None]:
    data, model, state = begun
    trial, recipe, budget = assignment.trial, assignment.trial.recipe, assignment.trial.budget
    steps_per_unit = data.steps_per_epoch if budget.unit == "epochs" else 1
    num_steps = budget.amount * steps_per_unit
    by_time = budget.unit == "seconds"
    yield from (r for r in state.history if r.unit > assignment.recorded_through)
    if state.history and state.history[-1].diverged_at is not None:
        return
    step = state.history[-1].step if state.history else 0
    batches = data.batches(step)
    batch: Batch | None = None
    autocast = autocast_of(recipe, device)
    gradients = Gradients(
        data,
        compiled(model, recipe, device),
        autocast,
        batch_size=recipe.batch_size,
        seed=trial.seeds.sampling,
        at_once=state.history[-1].micro_batch if state.history else None,
    )
    graphed = is_graphed(recipe, device)
    update, clock = Update(model, state.optimizer, recipe), time.perf_counter
    declared = Declared.of(trial)
    probe = assignment.probe
    probed = probe.due(budget.report_units()) if probe is not None else frozenset()
    is_first = True
    for unit in (unit for unit in budget.report_units() if unit > state.unit):
        seed_all(derived_seed(trial.seeds.sampling, step))
        model.train()
        losses: list[torch.Tensor] = []
        is_untouched = not has_batch_statistics(model)
        try:
            with fitting("an update"):
                while (state.train_seconds < unit) if by_time else (step < unit * steps_per_unit):
                    started = clock()
                    if by_time:
                        lr = recipe.lr_at_share(state.train_seconds / budget.amount)
                    else:
                        lr = recipe.lr_at(step, num_steps)
                    batch = next(batches)
                    state.data_seconds += clock() - started
                    if graphed:
                        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
                    loss = gradients.of(batch, step)
                    # The next replay of a graph writes over what this one returned.
                    losses.append(loss.clone() if graphed else loss)
                    update.clip()
                    is_untouched = False
                    update.step(lr)
                    step += 1
                    state.train_seconds += clock() - started
        except DoesNotFitError:
            if is_untouched:
                state.save_if_possible()
            raise
        is_last = unit == budget.amount
        watched_by = probe if unit in probed else None
        evaluate = functools.partial(
            evaluated,
            data,
            model,
            autocast,
            declared,
            watched_by,
            losses,
            step,
            is_last=is_last,
        )
        metrics, diverged_at = with_room("the evaluation", evaluate, gradients.clear, device)
        wall_seconds = state.seconds()
        notes = [state.take_note(unit), gradients.take_note()]
        if is_first or is_last:
            notes.append(_changes_note(process))
            is_first = False
        report = Report(
            unit=unit,
            step=step,
            metrics=metrics,
            wall_seconds=wall_seconds,
            is_last=is_last,
            diverged_at=diverged_at,
            train_seconds=state.train_seconds,
            data_seconds=state.data_seconds,
            latency_seconds=latency(model, data, batch, autocast)
            if is_last and batch is not None and diverged_at is None
            else None,
            micro_batch=gradients.at_once,
            note="; ".join(filter(None, notes)),
            peak_memory_bytes=held_at_most(device),
        )
        problem = state.add(report)
        try:
            yield report
        except GeneratorExit:
            state.save_if_possible()
            raise
        if report.diverged_at is not None or report.is_last:
            return
        problem = problem or state.problem()
        if problem is not None:
            raise problem
        state.resume_clock()


class Begun(NamedTuple):
    """A trial ready to train.

    Attributes:
        data: the task's, opened under the trial's seeds.
        model: on the device, with the weights that training goes on from.
        state: the model, its optimizer and what was reported so far.
    """

    data: TaskData
    model: nn.Module
    state: TrialState


def begin(assignment: Assignment, device: torch.device, clock: Callable[[], float]) -> Begun:
    """Open a trial's data, build its model, and go on from its newest checkpoint if it has one.

    Args:
        assignment: the trial, and where its checkpoints lie.
        device: where it trains.
        clock: seconds, from any start.

    Raises:
        DoesNotFitError: memory does not suffice for the data or the model.
        StorageError: checkpoints cannot be looked for.
    """
    trial, recipe = assignment.trial, assignment.trial.recipe
    with fitting("the data"):
        data = trial.task.open(
            data_seed=trial.seeds.data,
            sampling_seed=trial.seeds.sampling,
            batch_size=recipe.batch_size,
            device=device,
        )
    with fitting("the model"):
        seed_all(trial.seeds.init)
        model = trial.model.build().to(device)
        data.warm_start(model)
        state = TrialState(model, build_optimizer(model, recipe), assignment, clock)
        state.restore(device)
    return Begun(data, model, state)


def _now() -> float:
    return time.perf_counter()


def _changes_note(process: ProcessState) -> str:
    changed = process.changed()
    if not changed:
        return ""
    return f"the task or model changed {', '.join(changed)}: put back after the trial"


def _out_of_memory(
    assignment: Assignment, device: torch.device, what: str, asked: int | None
) -> OutOfMemory:
    trial = assignment.trial
    needed = needed_bytes(device, asked, trial.train_memory_bytes)
    if assignment.is_exclusive:
        where = "the device even alone"
        precision = "" if trial.recipe.precision == "bfloat16" else ", train in bfloat16"
        advice = f"make the shape smaller{precision} or take a device with more memory"
    else:
        where, advice = "the device beside what else is on it", "it may fit alone"
    in_vain = f", {shown(asked)} of it asked for in vain" if asked else ""
    message = f"{what} does not fit {where}: about {shown(needed)} needed{in_vain}; {advice}"
    return OutOfMemory(message, needed)


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
    return AdamW(groups, lr=recipe.lr, betas=recipe.betas, fused=True)


def autocast_of(
    recipe: Recipe, device: torch.device
) -> AbstractContextManager[object, bool | None]:
    """Return what losses and evaluations are computed under; it can be entered again and again."""
    if recipe.precision == "bfloat16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    # Autocast that is switched off takes its time all the same.
    return nullcontext()
