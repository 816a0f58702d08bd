"""The training of one trial by this project's own loop: updates, and a report at each unit."""

import contextlib
import functools
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from hsweep.design.recipe import Recipe
from hsweep.design.trial import Report
from hsweep.training.batches import prefetched, queue_limit
from hsweep.training.compiled import compiled, is_graphed
from hsweep.training.devices import (
    DoesNotFitError,
    fitting,
    held_at_most,
    wait_for,
    with_room,
    within_share,
)
from hsweep.training.division import Division, from_rank, own_seed
from hsweep.training.evaluation import evaluate, latency, mean_loss
from hsweep.training.micro_batches import Gradients
from hsweep.training.opening import TrainingSetup, has_batch_statistics, open_trial
from hsweep.training.optimizers import set_rate
from hsweep.training.process_state import random_states, seed_all, set_random_states
from hsweep.training.trial_run import Pause, TrialRun, now
from tasks.base import Batch


def train_model(run: TrialRun) -> None:
    """Train the trial's model on its task, from the newest checkpoint to the end of the budget.

    Raises:
        DoesNotFitError: memory does not suffice for a single example.
        StorageError: checkpoints or final weights cannot be written.
        StopTrial: the trial ends at a report.
    """
    try:
        with within_share(run.assignment.resources.gpus, run.device):
            setup = open_trial(run)
            run.send_again()
            if not run.is_over:
                train_setup(run, setup)
    finally:
        if run.assignment.trial.recipe.compile != "off":
            torch.compiler.reset()  # nothing of the model stays behind


def train_setup(run: TrialRun, setup: TrainingSetup) -> None:
    """Train a trial that is open from where it is to the end of its budget.

    Raises:
        DoesNotFitError: memory does not suffice for a single example.
        StorageError: checkpoints or final weights cannot be written.
        StopTrial: the trial ends at a report.
    """
    with products_in(run.assignment.trial.recipe):
        _Loop(run, setup).train()


@contextlib.contextmanager
def products_in(recipe: Recipe) -> Iterator[None]:
    """Compute float32 products on CUDA in TensorFloat-32 if the recipe says so.

    In float32 they are computed as torch is set up, which is in full; only convolutions of cuDNN
    are in TensorFloat-32 unless torch is set up otherwise.
    """
    before = torch.get_float32_matmul_precision()
    if recipe.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        if recipe.precision == "tf32":
            torch.set_float32_matmul_precision(before)


class _Loop:
    """Updates of one trial from where it is, and its reports."""

    def __init__(self, run: TrialRun, setup: TrainingSetup) -> None:
        self._run, self._world = run, run.world
        self._setup, self._model = setup, setup.model
        self._trial = run.assignment.trial
        self._recipe = recipe = self._trial.recipe
        last = run.history[-1] if run.history else None
        updates = setup.updates or {"micro_batch": last and last.micro_batch, "note": ""}
        self._division = Division(setup.data, recipe.batch_size, self._world)
        self._gradients = Gradients(
            self._division,
            compiled(self._model, recipe, run.device),
            setup,
            self._trial,
            fitting=updates["micro_batch"],
            pause=self._pause,
        )
        self._gradients.note = updates["note"]
        self._parameters = list(self._model.parameters())
        self._lr = 0.0
        self._norm: Tensor | None = None
        self._is_graphed = is_graphed(recipe, run.device)
        by_epochs = self._trial.budget.unit == "epochs"
        self._steps_per_unit = setup.data.steps_per_epoch if by_epochs else 1
        self._step = (last.step if last is not None else 0) + run.steps_within
        self._batches = prefetched(self._division.batches(self._step), run.device)
        self._limit_queue = queue_limit(run.device)
        self._batch: Batch | None = None
        self._is_unchanged = True

    def train(self) -> None:
        """Train to the end of the budget, and report at each of its units; see ``train_setup``."""
        units = [unit for unit in self._trial.budget.report_units() if unit > self._run.unit]
        for unit in units:
            report = self._report(unit, self._update_until(unit))
            if unit in (units[0], units[-1]):
                notes = filter(None, [report.note, self._run.changes_note("the task or model")])
                report = replace(report, note="; ".join(notes))
            if self._world.size > 1:
                # Times differ between processes; what follows from a report must not.
                report = Report(**from_rank(self._world, 0, functools.partial(asdict, report)))
            self._run.keep_weights(report, self._setup.weights)
            self._run.send(report, self._setup.contents)

    def _report(self, unit: int, losses: list[Tensor]) -> Report:
        """Evaluate the model and return its report, whose time excludes measuring the latency."""
        run, device, gradients = self._run, self._run.device, self._gradients
        figures: dict[str, Any] = {}
        if self._batch is not None and losses:
            norm = self._gradient_norm()  # waits for the device
            seconds = run.seconds() - (run.history[-1].wall_seconds if run.history else 0.0)
            examples = len(losses) * self._division.num_examples(self._batch)
            figures = {
                "learning_rate": self._lr,
                "grad_norm": norm if math.isfinite(norm) else None,
                "examples_per_second": examples / seconds if seconds > 0 else None,
            }
        action = functools.partial(evaluate, run, self._setup, unit, self._step, losses)
        metrics, diverged_at = with_room("the evaluation", action, gradients.clear, device)
        figures["wall_seconds"] = run.seconds()
        note, gradients.note = gradients.note, ""
        is_last = unit == self._trial.budget.amount
        if is_last and self._batch is not None and diverged_at is None:
            part = self._division.parts(self._batch)[0][0]
            figures["latency_seconds"] = latency(self._setup, part)
        return Report(
            unit=unit,
            step=self._step,
            metrics=metrics,
            is_last=is_last,
            diverged_at=diverged_at,
            train_seconds=run.train_seconds,
            data_seconds=run.data_seconds,
            micro_batch=gradients.reduced,
            note=note,
            running_loss=mean_loss(losses),
            peak_memory_bytes=held_at_most(device),
            **figures,
        )

    def _gradient_norm(self) -> float:
        """Return the norm of the last update's gradient, before it was clipped."""
        if self._norm is not None:
            return float(self._norm)
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        return float(nn.utils.get_total_norm(gradients))

    def _update_until(self, unit: int) -> list[Tensor]:
        """Update the model until a unit of the budget is done; return the updates' losses. A trial
        that has to end before writes a checkpoint."""
        self._model.train()
        losses = self._begin_unit()
        self._is_unchanged = not has_batch_statistics(self._model)
        try:
            with fitting("an update"):
                while not self._has_done(unit):
                    losses.append(self._update())
                    if self._gradients.pause and not self._has_done(unit):
                        self._save_within(losses)
                started = now()
                wait_for(self._run.device)
                self._count_seconds(started)
        except DoesNotFitError:
            if self._is_unchanged:
                self._run.save_if_possible()
            raise
        return losses

    def _begin_unit(self) -> list[Tensor]:
        """Set the random generators for the updates up to the next report; return the losses of
        those that an earlier attempt has done."""
        world, device = self._world, self._run.device
        updates, self._setup.updates = self._setup.updates, None
        seed_all(own_seed(world, self._trial.seeds.sampling, self._step), device)
        if updates is None:
            return []
        if len(updates["generators"]) == world.size:  # not trained by another number of processes
            set_random_states(updates["generators"][world.rank], device)
        return [*updates["losses"].to(device)]

    def _pause(self) -> Pause:
        """Return what follows this update; by time nothing where each report has a checkpoint."""
        pause, is_by_time = self._run.pause, self._run.assignment.checkpoint_seconds > 0
        return pause if is_by_time or pause is Pause.END else Pause.NONE

    def _save_within(self, losses: list[Tensor]) -> None:
        """Write a checkpoint between two reports, and end the trial if it has to."""
        run, world = self._run, self._world
        states = functools.partial(random_states, run.device)
        updates = {
            "losses": torch.stack(losses),
            "generators": [from_rank(world, rank, states) for rank in range(world.size)],
            "micro_batch": self._gradients.reduced,
            "note": self._gradients.note,
        }
        run.save_within(
            Pause(self._gradients.pause),
            len(losses),
            lambda: {**self._setup.contents(), "updates": updates},
        )

    def _count_seconds(self, started: float) -> None:
        self._run.train_seconds += now() - started
        if self._trial.budget.unit == "seconds":
            # A learning rate or an end that depends on the clock is then the same in all processes.
            self._run.train_seconds = self._world.of_rank_0(self._run.train_seconds)

    def _next_batch(self) -> Batch:
        """Return the batch of this update. Where memory does not suffice to make it beside the
        update before, it is made again now, and no batch after it is made ahead."""

        def make_room() -> None:
            self._gradients.clear()
            self._batches = self._division.batches(self._step)

        return with_room("a batch", lambda: next(self._batches), make_room, self._run.device)

    def _update(self) -> Tensor:
        started = now()
        lr = self._learning_rate()
        self._batch = self._next_batch()
        self._run.data_seconds += now() - started
        if self._is_graphed:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        loss = self._gradients.compute(self._batch, self._step)
        if self._is_graphed:
            loss = loss.clone()  # the next replay of the graph writes over it
        self._is_unchanged = False
        self._apply_gradients(lr)
        self._limit_queue()
        self._step += 1
        self._count_seconds(started)
        return loss

    def _apply_gradients(self, lr: float) -> None:
        setup = self._setup
        if setup.scaler is not None:
            setup.scaler.unscale_(setup.optimizer)
        if self._recipe.clip_norm is not None:
            self._norm = nn.utils.clip_grad_norm_(self._parameters, self._recipe.clip_norm)
        set_rate(setup.optimizer, lr)
        if setup.scaler is not None:
            setup.scaler.step(setup.optimizer)
            setup.scaler.update()
        else:
            setup.optimizer.step()
        if setup.average is not None:
            setup.average.update(self._model)
        self._lr = lr

    def _has_done(self, unit: int) -> bool:
        if self._trial.budget.unit == "seconds":
            return self._run.train_seconds >= unit
        return self._step >= unit * self._steps_per_unit

    def _learning_rate(self) -> float:
        amount = self._trial.budget.amount
        if self._trial.budget.unit == "seconds":
            return self._recipe.lr_at_share(self._run.train_seconds / amount)
        return self._recipe.lr_at(self._step, amount * self._steps_per_unit)
