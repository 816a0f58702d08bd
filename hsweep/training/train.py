"""The training of one trial: a session that any runner can drive, and the loop in it."""

import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, replace

import torch
from torch import Tensor

from hsweep.design.trial import Assignment, Event, OutOfMemory, Report, StorageFailure
from hsweep.training.batch_norm import has_batch_statistics
from hsweep.training.checkpoints import StorageError
from hsweep.training.compiled import compiled, is_graphed
from hsweep.training.division import Division, from_rank_0, own_seed, seconds_of_rank_0
from hsweep.training.evaluation import Reporter
from hsweep.training.memory import DoesNotFitError, fitting, measure_peak, release, shown
from hsweep.training.micro_batches import Gradients
from hsweep.training.opening import open_trial
from hsweep.training.precision import products_in
from hsweep.training.prefetch import prefetched
from hsweep.training.process_state import ProcessState, seed_all
from hsweep.training.session import TrialEvent
from hsweep.training.trial_state import Opened
from hsweep.training.updates import Updates
from hsweep.training.world import ALONE, World
from tasks.base import Batch


class TrialSession:
    """A trial in training. To close it before its last report writes a checkpoint.

    Of several processes that train it each has a session, and rank 0's alone returns reports: the
    others return nothing until the trial is over, or ended by rank 0, or does not fit.
    """

    def __init__(self, assignment: Assignment, world: World = ALONE) -> None:
        resources = assignment.resources
        # Workers are reused between trials, so whatever a trial sets it sets for itself.
        torch.set_num_threads(resources.num_threads)
        self.assignment = assignment
        self._device = torch.device("cuda" if resources.gpus else "cpu")
        self._reports = train(assignment, self._device, world)

    def next_events(self) -> Sequence[TrialEvent]:
        event = next(self._reports, None)
        return [(self.assignment, event)] if event else []

    def drop(self, key: str) -> None:
        assert key == self.assignment.trial.key
        self.close()

    def close(self) -> None:
        # Work that cannot be kept is lost: the trial then goes on from an older checkpoint.
        self._reports.close()
        if self._device.type == "cuda":
            release(self._device)


def train(
    assignment: Assignment, device: torch.device, world: World = ALONE
) -> Generator[Event, None, None]:
    """Train a trial and yield its reports.

    Starts from the newest valid checkpoint if there is one; reports the checkpoint remembers and
    the record lacks are yielded again, so the record has no gap. The generator ends after the last
    report or after one that says the trial diverged. Closing it before writes a checkpoint. Where
    memory does not suffice for a single example, or checkpoints cannot be written, it ends by
    saying so instead of a report.

    Where several processes train the trial, all of them call this. Rank 0 yields the reports and
    keeps the checkpoints; the others agree with it at each report on whether the trial goes on.
    One process or several give the same numbers up to rounding, but for what dropout draws.

    On the CPU the reports depend on the trial alone, to the bit, however often it was interrupted:
    the batch of a step and the state of the random generator at a report are functions of the
    seeds and the position. Two things are exceptions. How many steps a budget of seconds holds
    depends on the machine, and so does where memory gives out; the size of the parts is kept in
    the checkpoint.
    """
    measure_peak(device)
    process = ProcessState()
    try:
        opened = open_trial(assignment, device, _now, world)
        try:
            goes_on = yield from _sent_again(opened)
            if goes_on and not opened.state.is_over:
                with products_in(assignment.trial.recipe):
                    yield from _Loop(assignment, device, opened, process).reports()
        finally:
            # The next attempt finds all that was kept.
            opened.state.close()
            if assignment.trial.recipe.compile != "off":
                torch.compiler.reset()  # nothing of the model stays behind
        return
    except DoesNotFitError as error:
        ending: Event = _out_of_memory(assignment, device, error)
    except StorageError as error:
        ending = StorageFailure(str(error))
    finally:
        process.restore()
    yield ending


def _sent_again(opened: Opened) -> Generator[Report, None, bool]:
    """Yield what the record lacks, and return whether the trial goes on."""
    for report in opened.state.unrecorded():
        try:
            if opened.world.rank == 0:
                yield report
        except GeneratorExit:
            opened.world.agree(False)
            raise
        if not opened.world.agree(True):
            return False
    return True


class _Loop:
    """Updates of one trial from where its state is, and its reports."""

    def __init__(
        self, assignment: Assignment, device: torch.device, opened: Opened, process: ProcessState
    ) -> None:
        self._data, self._model, self._state = opened.data, opened.model, opened.state
        self._process = process
        self._trial, recipe = assignment.trial, assignment.trial.recipe
        self._reporter = Reporter(assignment, opened)
        last = self._state.history[-1] if self._state.history else None
        self._world = opened.world
        self._division = Division(self._data, recipe.batch_size, self._world)
        self._gradients = Gradients(
            self._division,
            compiled(self._model, recipe, device),
            opened.autocast,
            seed=self._trial.seeds.sampling,
            asked=recipe.at_once,
            fitting=last.micro_batch if last is not None else None,
            scaler=self._state.scaler,
            is_sharded=self._state.is_sharded,
        )
        self._updates = Updates(self._state, recipe)
        self._is_graphed = is_graphed(recipe, device)
        by_epochs = self._trial.budget.unit == "epochs"
        self._steps_per_unit = self._data.steps_per_epoch if by_epochs else 1
        self._step = last.step if last is not None else 0
        self._batches = prefetched(self._division.batches(self._step), device)
        self._batch: Batch | None = None
        self._is_untouched = True

    def reports(self) -> Generator[Report, None, None]:
        """Train to the end of the budget, and yield a report at each of its units.

        Raises:
            DoesNotFitError: not even one example at once fits, or the evaluation does not.
            StorageError: a checkpoint cannot be written.
        """
        state, gradients = self._state, self._gradients
        units = [unit for unit in self._trial.budget.report_units() if unit > state.unit]
        for unit in units:
            started = _now()
            losses = self._updated_until(unit)
            own, examples = None, 0
            if self._batch is not None:
                own = self._division.parts(self._batch)[0][0]
                examples = self._division.num_examples(self._batch)
            figures = self._updates.figures(len(losses), examples, started, _now)
            report = self._reporter.report(unit, self._step, losses, own, gradients.clear)
            notes = [state.take_note(unit), gradients.take_note()]
            if unit in (units[0], units[-1]):
                notes.append(self._changes_note())
            note = "; ".join(filter(None, notes))
            report = replace(report, micro_batch=gradients.reduced, note=note, **figures)
            report = self._of_rank_0(report)
            problem = state.add(report)
            try:
                if self._world.rank == 0:
                    yield report
            except GeneratorExit:
                self._world.agree(False)
                state.save_if_possible()
                raise
            problem = None if state.is_over else problem or state.problem()
            goes_on = self._world.agree(problem is None)
            if not goes_on and self._world.size > 1:
                state.save_if_possible()
            if state.is_over:
                return
            if problem is not None:
                raise problem
            if not goes_on:
                return
            state.resume_clock()

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
        state, started = self._state, _now()
        lr = self._learning_rate()
        self._batch = next(self._batches)
        state.data_seconds += _now() - started
        if self._is_graphed:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        loss = self._gradients.of(self._batch, self._step)
        if self._is_graphed:
            loss = loss.clone()  # the next replay of the graph writes over it
        self._is_untouched = False
        self._updates.apply(lr)
        self._step += 1
        state.train_seconds += _now() - started
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

    def _changes_note(self) -> str:
        changed = self._process.changed()
        if not changed:
            return ""
        return f"the task or model changed {', '.join(changed)}: put back after the trial"


def _now() -> float:
    return time.perf_counter()


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
