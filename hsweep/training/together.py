"""Trials of one shape, trained as one batched program.

Replicates (and trials that differ in learning rate or weight decay alone) run the same kernels on
other numbers. Together they share every launch and every line of Python: see
``hsweep.training.stack``. All else stays each trial's own: data stream, evaluation, reports,
checkpoints, the early end. What they report equals what they report when trained separately, up to
the rounding of floating-point numbers, and a checkpoint written here can be gone on from there, and
the other way round.
"""

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import torch
from torch import Tensor, nn

from hsweep.design.trial import Assignment, Report, StorageFailure, Trial
from hsweep.seeding import derived_seed
from hsweep.training.checkpoints import StorageError
from hsweep.training.comparing import can_train_together, check_equal, check_gradients
from hsweep.training.evaluation import Declared, evaluated, latency
from hsweep.training.memory import (
    DoesNotFitError,
    held_at_most,
    is_out_of_memory,
    measure_peak,
    release,
    with_room,
)
from hsweep.training.process_state import ProcessState, seed_all
from hsweep.training.session import TrialEvent
from hsweep.training.stack import Stack, own_gradients
from hsweep.training.stacked_batches import CannotTrainTogetherError
from hsweep.training.stacked_updates import Member
from hsweep.training.train import autocast_of, begin
from hsweep.training.trial_state import TrialState
from tasks.base import Batch, Stackable, TaskData

_WARM_UP: Final = 1
_TIMED: Final = 3
_WORTH_IT: Final = 0.95
"""Together, an update must take less than this share of the time it takes separately."""
_FEWER: Final = 4
"""By how much fewer at once are tried, as long as that is quicker."""

_quickest: dict[str, int] = {}
"""Trials at once by shape and number, as measured in this process; 0: separately."""


class _Clock:
    """A trial's share of the time that passes here."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass(slots=True, eq=False)
class _Replicate:
    """One of the trials, with what is its own."""

    assignment: Assignment
    data: TaskData
    model: nn.Module
    state: TrialState
    clock: _Clock
    said_through: int
    batches: Iterator[Batch] | None = None
    next_step: int = 0
    batch: Batch | None = None
    problem: StorageError | None = None
    is_noted: bool = False
    pending: list[Report] = field(default_factory=list)

    @property
    def trial(self) -> Trial:
        return self.assignment.trial

    @property
    def step(self) -> int:
        """Updates done at the last report."""
        return self.state.history[-1].step if self.state.history else 0

    def take_batch(self, step: int) -> Batch:
        """Return the batch of a step, which may be the one that was taken last."""
        if self.batch is not None and self.next_step == step + 1:
            return self.batch
        if self.batches is None or self.next_step != step:
            self.batches = iter(self.data.batches(step))
        self.batch = next(self.batches)
        self.next_step = step + 1
        return self.batch


class TogetherSession:
    """Trials that differ in seeds, learning rate and weight decay alone, in training.

    Those that have come less far (their checkpoints lag behind) are trained first, until they are
    where the others are. Time is shared out: an update of K trials counts for each as a K-th of
    what it took. A trial that cannot go on beside the others is ``left``, to be trained separately
    from its newest checkpoint; so are all of them where memory does not suffice for even one, where
    losses or gradients are not what they are separately, and where separately is quicker.

    Args:
        assignments: the trials, and where their checkpoints lie.
        is_settled: train together in any case; else a few gradients are computed both ways, and the
            quicker way is taken.

    Attributes:
        left: trials to be trained separately once nothing more is said here.
        reason: why there are such trials; empty while there are none.

    Raises:
        CannotTrainTogetherError: what the trials are does not allow it; nothing has been trained.
    """

    def __init__(self, assignments: Sequence[Assignment], *, is_settled: bool = False) -> None:
        if not assignments:
            raise CannotTrainTogetherError("there are none")
        trials = [assignment.trial for assignment in assignments]
        check_equal(trials)
        for trial in trials[:1]:
            if reason := can_train_together(trial):
                raise CannotTrainTogetherError(reason)
        first = trials[0]
        resources = assignments[0].resources
        torch.set_num_threads(resources.num_threads)
        self._device = torch.device("cuda" if resources.gpus else "cpu")
        self._budget = first.budget
        self._precision = first.recipe.precision
        self._clip_norm = first.recipe.clip_norm
        self._autocast = autocast_of(first.recipe, self._device)
        self._probe = assignments[0].probe
        self._units = self._budget.report_units()
        self._probed = self._probe.due(self._units) if self._probe is not None else frozenset()
        self._is_settled = is_settled
        self._is_verified = False
        self._is_untouched = True
        self._stack: Stack | None = None
        self._in_stack: list[_Replicate] = []
        self.left: list[Assignment] = []
        self.reason = ""
        self._count = len(assignments)
        self._process = ProcessState()
        measure_peak(self._device)
        self._replicates = [self._begun(assignment) for assignment in assignments]
        # Equal recipes side by side are updated at once.
        self._replicates.sort(key=lambda each: repr(each.trial.recipe))
        self._steps_per_unit = self._checked_steps()

    @property
    def keys(self) -> frozenset[str]:
        """The trials that are still in training here."""
        return frozenset(each.trial.key for each in self._replicates)

    def next_events(self) -> Sequence[TrialEvent]:
        """Train up to the next report of those that have come least far, and return what they say.

        Returns:
            Reports, or why a trial cannot go on, in the order of the trials; nothing once there is
            no more, which for those that are ``left`` is not everything.
        """
        while self._replicates:
            words = self._kept_back()
            if self._replicates and not words:
                behind = min(each.state.unit for each in self._replicates)
                words = self._advance([e for e in self._replicates if e.state.unit == behind])
            if words:
                return words
        return []

    def drop(self, key: str) -> None:
        """End a trial, keeping what is not yet on disk; the others pay no more for it."""
        for each in self._replicates:
            if each.trial.key == key:
                each.state.save_if_possible()
                self._remove(each)
                return
        self.left = [each for each in self.left if each.trial.key != key]

    def close(self) -> None:
        """End all trials, keeping what is not yet on disk, and give the device's memory back."""
        for key in self.keys:
            self.drop(key)
        self._unstack()
        self._process.restore()
        if self._device.type == "cuda":
            release(self._device)

    def _begun(self, assignment: Assignment) -> _Replicate:
        clock = _Clock()
        # Of the trials' time together no more is at risk than of one trial's.
        share = replace(assignment, checkpoint_seconds=assignment.checkpoint_seconds / self._count)
        try:
            data, model, state = begin(share, self._device, clock)
        except Exception as error:
            raise CannotTrainTogetherError(f"one of them cannot be begun ({error})") from error
        self._refuse_changes()
        if not isinstance(data, Stackable):
            raise CannotTrainTogetherError(
                f"the task {assignment.trial.task.name!r} does not say that its loss depends on "
                "the model and the batch alone"
            )
        history = state.history
        if history and history[-1].micro_batch is not None:
            raise CannotTrainTogetherError("one of them is trained in parts of batches")
        lacking = [each for each in history if each.unit > assignment.recorded_through]
        return _Replicate(
            assignment, data, model, state, clock, assignment.recorded_through, pending=lacking
        )

    def _refuse_changes(self) -> None:
        """Raise if a trial has changed what all trials of a process share."""
        if changed := self._process.changed():
            self._process.restore()
            raise CannotTrainTogetherError(f"one of them changes {' and '.join(changed)}")

    def _checked_steps(self) -> int:
        if self._budget.unit == "steps":
            return 1
        found = {each.data.steps_per_epoch for each in self._replicates}
        if len(found) > 1:
            raise CannotTrainTogetherError("their epochs are of different length")
        return found.pop()

    def _kept_back(self) -> list[TrialEvent]:
        """Return what need not be trained for: reports that the record lacks, and why a
        trial cannot go on."""
        words: list[TrialEvent] = []
        for each in list(self._replicates):
            for report in each.pending:
                words.append((each.assignment, report))
                each.said_through = report.unit
            each.pending.clear()
            last = each.state.history[-1] if each.state.history else None
            if last is not None and (last.is_last or last.diverged_at is not None):
                self._remove(each)
                continue
            each.problem = each.problem or each.state.problem()
            if each.problem is not None:
                words.append((each.assignment, StorageFailure(str(each.problem))))
                self._remove(each)
        return words

    def _advance(self, group: list[_Replicate]) -> list[TrialEvent]:
        """Train some trials that have come equally far up to their next report."""
        begun_at = group[0].step
        unit = next(each for each in self._units if each > group[0].state.unit)
        self._is_untouched = True
        try:
            stack = self._stacked(group)
            self._verify(stack, group, begun_at)
            losses = self._updated(stack, group, begun_at, unit * self._steps_per_unit)
        except Exception as error:
            self._dissolve(_why(error), keep=self._is_untouched)
            return []
        words: list[TrialEvent] = []
        for number, each in enumerate(group):
            own = [row[number] for row in losses]
            try:
                report = self._reported(each, unit, begun_at, own, stack)
            except Exception as error:
                self._leave(each, _why(error))
            else:
                words.append((each.assignment, report))
        return words

    def _updated(
        self, stack: Stack, group: Sequence[_Replicate], begun_at: int, end: int
    ) -> list[Tensor]:
        """Update trials until so many updates are done, and return the losses of each, (K,)."""
        losses: list[Tensor] = []
        num_steps = self._budget.amount * self._steps_per_unit
        for each in group:
            each.model.train()
        for step in range(begun_at, end):
            started = time.perf_counter()
            batches = self._batches(group, step)
            waited = time.perf_counter() - started
            losses.append(stack.gradients(batches))
            if self._clip_norm is not None:
                stack.clip(self._clip_norm)
            self._is_untouched = False
            stack.update(step, num_steps)
            taken = time.perf_counter() - started
            for each in group:
                each.clock.seconds += taken / len(group)
                each.state.train_seconds += taken / len(group)
                each.state.data_seconds += waited / len(group)
        return losses

    def _reported(
        self,
        each: _Replicate,
        unit: int,
        begun_at: int,
        losses: list[Tensor],
        stack: Stack,
    ) -> Report:
        """Evaluate a trial, and note its report."""
        state, is_last = each.state, unit == self._budget.amount
        step = unit * self._steps_per_unit
        started = time.perf_counter()
        # The state of the random generator at a report is a function of the position.
        seed_all(derived_seed(each.trial.seeds.sampling, begun_at))
        probe = self._probe if unit in self._probed else None
        evaluate = functools.partial(
            evaluated,
            each.data,
            each.model,
            self._autocast,
            Declared.of(each.trial),
            probe,
            losses,
            step,
            is_last=is_last,
        )
        metrics, diverged_at = with_room("the evaluation", evaluate, stack.clear, self._device)
        each.clock.seconds += time.perf_counter() - started
        report = Report(
            unit=unit,
            step=step,
            metrics=metrics,
            wall_seconds=state.seconds(),
            is_last=is_last,
            diverged_at=diverged_at,
            train_seconds=state.train_seconds,
            data_seconds=state.data_seconds,
            latency_seconds=latency(each.model, each.data, each.batch, self._autocast)
            if is_last and each.batch is not None and diverged_at is None
            else None,
            # What all hold together is no measure of one: data and workspaces are common.
            peak_memory_bytes=held_at_most(self._device) if self._count == 1 else None,
            note="; ".join(filter(None, (state.take_note(unit), self._company(each, unit)))),
        )
        each.problem = state.add(report)
        each.said_through = unit
        state.resume_clock()
        return report

    def _company(self, each: _Replicate, unit: int) -> str:
        """Return what the first report that is new to the record says of the trial's company."""
        if each.is_noted or unit <= each.assignment.recorded_through or self._count == 1:
            return ""
        each.is_noted = True
        return (
            f"trained as one program with {self._count - 1} other trials of its shape: as "
            "separately, up to rounding"
        )

    def _batches(self, group: Sequence[_Replicate], step: int) -> list[Batch]:
        """Return the batches of a step: one for each trial, or one that is the same for all."""
        seeds = {(each.trial.seeds.data, each.trial.seeds.sampling) for each in group}
        if len(seeds) > 1:
            return [each.take_batch(step) for each in group]
        batch = group[0].take_batch(step)
        for each in group[1:]:
            each.batches, each.batch, each.next_step = None, batch, step + 1
        return [batch]

    def _stacked(self, group: list[_Replicate]) -> Stack:
        """Return the stack of these trials, made anew if others were in it."""
        if self._stack is None or self._in_stack != group:
            at_once = self._stack.at_once if self._stack is not None else None
            if self._stack is not None and at_once == len(self._stack):
                at_once = None
            self._unstack()
            members = [Member(e.model, e.state.optimizer, e.trial.recipe) for e in group]
            self._stack = Stack(members, group[0].data, self._autocast, at_once)
            self._in_stack = list(group)
        return self._stack

    def _unstack(self) -> None:
        if self._stack is not None:
            self._stack.release_members()
        self._stack, self._in_stack = None, []

    def _verify(self, stack: Stack, group: Sequence[_Replicate], step: int) -> None:
        """See to it, once, that trials are as they are separately, and that together is quicker.

        Raises:
            CannotTrainTogetherError: they are not.
        """
        if self._is_verified:
            return
        self._is_verified = True
        for each in group:
            each.model.train()
        batches = self._batches(group, step)
        before = [each.clone() for each in stack.buffers]
        losses = stack.gradients(batches)
        if not all(map(torch.equal, before, stack.buffers)):
            raise CannotTrainTogetherError("a forward pass changes more than gradients")
        for number in sorted({0, len(group) - 1}):
            check_gradients(
                *self._separately(group[number]),
                losses[number],
                stack.gradient_of(number),
                self._precision,
            )
        stack.clear()
        self._refuse_changes()
        if not self._is_settled:
            self._settle(stack, group, batches)

    def _settle(self, stack: Stack, group: Sequence[_Replicate], batches: list[Batch]) -> None:
        """Take as many trials at once as is quickest.

        Raises:
            CannotTrainTogetherError: separately is quicker.
        """
        trial = group[0].trial
        shape = f"{trial.model!r}/{trial.task!r}/{trial.recipe.without_rates!r}"
        what = f"{len(group)}/{self._device}/{torch.get_num_threads()}/{len(batches)}/{shape}"
        if what not in _quickest:
            separate = self._timed(lambda: self._separately(group[0])) * len(group)
            best, at_once = _WORTH_IT * separate, 0
            tried = stack.at_once
            while tried > 1:
                stack.at_once = tried
                taken = self._timed(lambda: stack.gradients(batches))
                if taken >= best and at_once:
                    break
                if taken < best:
                    best, at_once = taken, stack.at_once
                tried = min(stack.at_once, tried) // _FEWER
            stack.clear()
            _quickest[what] = at_once
        if not _quickest[what]:
            raise CannotTrainTogetherError("that is quicker here")
        stack.at_once = _quickest[what]

    def _timed(self, action: Callable[[], object]) -> float:
        taken = []
        for _ in range(_WARM_UP + _TIMED):
            started = time.perf_counter()
            action()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            taken.append(time.perf_counter() - started)
        return statistics.median(taken[_WARM_UP:])

    def _separately(self, each: _Replicate) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a trial's loss and gradient as they are when it is trained alone."""
        return own_gradients(each.data, each.model, self._autocast, each.batch)

    def _dissolve(self, reason: str, *, keep: bool) -> None:
        """Leave all trials to be trained separately.

        Args:
            reason: why.
            keep: whether they are where their last report found them.
        """
        for each in list(self._replicates):
            self._leave(each, reason, keep=keep or each not in self._in_stack)
        self._unstack()

    def _leave(self, each: _Replicate, reason: str, *, keep: bool = False) -> None:
        if keep:
            each.state.save_if_possible()
        self._remove(each)
        self.reason = self.reason or reason
        self.left.append(replace(each.assignment, recorded_through=each.said_through))

    def _remove(self, each: _Replicate) -> None:
        # Whoever is given the trial next finds all that was kept.
        each.state.close()
        self._replicates.remove(each)


def _why(error: Exception) -> str:
    if isinstance(error, CannotTrainTogetherError):
        return error.reason
    if isinstance(error, DoesNotFitError) or is_out_of_memory(error):
        return "memory does not suffice"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
