"""The training of one trial by this project's own loop: updates, and a report at each unit."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hsweep.design.trial import Assignment, OutOfMemory, Report
from hsweep.training.batch_norm import has_batch_statistics
from hsweep.training.compiled import compiled, is_graphed
from hsweep.training.division import Division, from_rank_0, own_seed, seconds_of_rank_0
from hsweep.training.evaluation import Reporter
from hsweep.training.memory import DoesNotFitError, fitting, shown
from hsweep.training.micro_batches import Gradients
from hsweep.training.opening import Opened, open_trial
from hsweep.training.precision import products_in
from hsweep.training.prefetch import Pace, prefetched
from hsweep.training.process_state import seed_all
from hsweep.training.run import CannotGoOnError
from hsweep.training.trial_state import now
from hsweep.training.updates import Updates
from tasks.base import Batch

if TYPE_CHECKING:
    from hsweep.training.trial_run import TrialRun


def train_model(run: "TrialRun") -> None:
    """Train the trial's model on its task, from the newest checkpoint to the end of the budget.

    Raises:
        CannotGoOnError: memory does not suffice for a single example.
        StorageError: checkpoints or final weights cannot be written.
        StopTrial: the trial ends at a report.
    """
    recipe = run.assignment.trial.recipe
    try:
        opened = open_trial(run)
        run.send_again()
        if not run.state.is_over:
            train_opened(run, opened)
    except DoesNotFitError as error:
        raise CannotGoOnError(_out_of_memory(run.assignment, run.device, error)) from None
    finally:
        if recipe.compile != "off":
            torch.compiler.reset()  # nothing of the model stays behind


def train_opened(run: "TrialRun", opened: Opened) -> None:
    """Train a trial that is open from where its state is to the end of its budget.

    Raises:
        DoesNotFitError: memory does not suffice for a single example.
        StorageError: checkpoints or final weights cannot be written.
        StopTrial: the trial ends at a report.
    """
    with products_in(run.assignment.trial.recipe):
        _Loop(run, opened).train()


class _Loop:
    """Updates of one trial from where its state is, and its reports."""

    def __init__(self, run: "TrialRun", opened: Opened) -> None:
        self._run, self._state, self._world = run, run.state, run.world
        self._data, self._model, self._learned = opened.data, opened.learned.model, opened.learned
        self._trial, recipe = run.assignment.trial, run.assignment.trial.recipe
        self._reporter = Reporter(run, opened)
        last = self._state.history[-1] if self._state.history else None
        self._division = Division(self._data, recipe.batch_size, self._world)
        self._gradients = Gradients(
            self._division,
            compiled(self._model, recipe, run.device),
            opened.autocast,
            seed=self._trial.seeds.sampling,
            asked=recipe.at_once,
            fitting=last.micro_batch if last is not None else None,
            scaler=opened.learned.scaler,
            is_sharded=self._state.is_sharded,
        )
        self._updates = Updates(opened.learned, recipe)
        self._is_graphed = is_graphed(recipe, run.device)
        by_epochs = self._trial.budget.unit == "epochs"
        self._steps_per_unit = self._data.steps_per_epoch if by_epochs else 1
        self._step = last.step if last is not None else 0
        self._batches = prefetched(self._division.batches(self._step), run.device)
        self._pace = Pace(run.device)
        self._batch: Batch | None = None
        self._is_untouched = True

    def train(self) -> None:
        """Train to the end of the budget, and report at each of its units.

        Raises:
            DoesNotFitError: not even one example at once fits, or the evaluation does not.
            StorageError: a checkpoint cannot be written.
            StopTrial: the trial ends at a report.
        """
        units = [unit for unit in self._trial.budget.report_units() if unit > self._state.unit]
        for unit in units:
            started = now()
            losses = self._updated_until(unit)
            report = self._report(unit, losses, started)
            if unit in (units[0], units[-1]):
                notes = filter(None, [report.note, self._run.changes_note("the task or model")])
                report = replace(report, note="; ".join(notes))
            report = self._of_rank_0(report)
            self._learned.keep_weights(self._run.assignment, report)
            self._run.send(report, self._learned.contents)

    def _report(self, unit: int, losses: list[Tensor], started: float) -> Report:
        gradients = self._gradients
        own, examples = None, 0
        if self._batch is not None:
            own = self._division.parts(self._batch)[0][0]
            examples = self._division.num_examples(self._batch)
        figures = self._updates.figures(len(losses), examples, started, now)
        report = self._reporter.report(unit, self._step, losses, own, gradients.clear)
        note = gradients.take_note()
        return replace(report, micro_batch=gradients.reduced, note=note, **figures)

    def _of_rank_0(self, report: Report) -> Report:
        # Times differ between processes; what follows from a report must not.
        if self._world.size == 1:
            return report
        return Report(**from_rank_0(self._world, lambda: asdict(report)))

    def _updated_until(self, unit: int) -> list[Tensor]:
        """Update the model until a unit of the budget is done; return the updates' losses."""
        seed_all(own_seed(self._world, self._trial.seeds.sampling, self._step))
        self._model.train()
        losses: list[Tensor] = []
        self._is_untouched = not has_batch_statistics(self._model)
        try:
            with fitting("an update"):
                while not self._has_done(unit):
                    losses.append(self._updated())
        except DoesNotFitError:
            if self._is_untouched and not self._state.is_sharded:
                self._state.save_if_possible()
            raise
        return losses

    def _updated(self) -> Tensor:
        state, started = self._state, now()
        lr = self._learning_rate()
        self._batch = next(self._batches)
        state.data_seconds += now() - started
        if self._is_graphed:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        loss = self._gradients.of(self._batch, self._step)
        if self._is_graphed:
            loss = loss.clone()  # the next replay of the graph writes over it
        self._is_untouched = False
        self._updates.apply(lr)
        self._pace.keep()
        self._step += 1
        state.train_seconds += now() - started
        if self._trial.budget.unit == "seconds":
            state.train_seconds = seconds_of_rank_0(self._world, state.train_seconds)
        return loss

    def _has_done(self, unit: int) -> bool:
        if self._trial.budget.unit == "seconds":
            return self._state.train_seconds >= unit
        return self._step >= unit * self._steps_per_unit

    def _learning_rate(self) -> float:
        recipe, amount = self._trial.recipe, self._trial.budget.amount
        if self._trial.budget.unit == "seconds":
            return recipe.lr_at_share(self._state.train_seconds / amount)
        return recipe.lr_at(self._step, amount * self._steps_per_unit)


def _out_of_memory(
    assignment: Assignment, device: torch.device, error: DoesNotFitError
) -> OutOfMemory:
    trial, asked = assignment.trial, error.asked_bytes
    if device.type == "cuda":
        needed = torch.cuda.max_memory_allocated(device) + (asked or 0)
    else:
        needed = max(trial.train_memory_bytes or 0, asked or 0)
    if assignment.is_exclusive:
        where = "the device even alone"
        is_narrow = trial.recipe.precision in ("bfloat16", "float16")
        precision = "" if is_narrow else ", train in bfloat16"
        advice = f"make the shape smaller{precision} or take a device with more memory"
    else:
        where, advice = "the device beside what else is on it", "it may fit alone"
    in_vain = f", {shown(asked)} of it asked for in vain" if asked else ""
    return OutOfMemory(
        f"{error.what} does not fit {where}: about {shown(needed)} needed{in_vain}; {advice}"
    )
