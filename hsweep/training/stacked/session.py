"""Replicates of one point, trained as one program.

They run the same kernels on other numbers. Stacked they share every launch and every line of
Python: see ``hsweep.training.stacked.stack``. All else stays each trial's own: data stream,
evaluation, reports, checkpoints, the early end. What they report equals what they report when
trained separately, up to the rounding of floating-point numbers. A trial can go on here from a
checkpoint written separately, and the other way round.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from hsweep.design.trial import Assignment, StorageFailure
from hsweep.training.batch_norm import has_batch_statistics
from hsweep.training.memory import DoesNotFitError, is_out_of_memory, measure_peak, release
from hsweep.training.process_state import ProcessState
from hsweep.training.session import TrialEvent
from hsweep.training.stacked.replicate import Replicate
from hsweep.training.stacked.stack import CannotStackError, Member, Stack, own_gradients
from hsweep.training.train import TrialSession
from tasks.base import Batch, Stackable

_WARM_UP: Final = 1
_TIMED: Final = 3
_WORTH_IT: Final = 0.95
"""Stacked, an update must take less than this share of the time it takes separately."""
_MOST_APART: Final = {"float32": 1e-3, "bfloat16": 5e-2}
"""How far gradients may be apart, as a share of the largest: rounding, and nothing else."""


class StackedSession:
    """Trials that differ in seeds alone, in training.

    Those that have come less far (their checkpoints lag behind) are trained first, until they are
    where the others are. Time is shared out: an update of K trials counts for each as a K-th of
    what it took. A trial that cannot go on beside the others is trained separately from its newest
    checkpoint afterwards; so are all of them where memory does not suffice for them, where losses
    or gradients are not what they are separately, and where separately is quicker.

    Args:
        assignments: trials of one kind (see ``candidates.kind_of``).
        always: stack them wherever that is possible; else a few gradients are computed both ways,
            and the quicker way is taken.

    Attributes:
        reason: why some or all of them are trained separately; empty while none are.
    """

    def __init__(self, assignments: Sequence[Assignment], *, always: bool = False) -> None:
        first, resources = assignments[0].trial, assignments[0].resources
        torch.set_num_threads(resources.num_threads)
        self._device = torch.device("cuda" if resources.gpus else "cpu")
        self._budget, self._recipe = first.budget, first.recipe
        self._steps_per_unit = 1
        self._always = always
        self._is_verified = False
        self._is_untouched = True
        self._stack: Stack | None = None
        self._in_stack: list[Replicate] = []
        self._replicates: list[Replicate] = []
        self._separate: deque[Assignment] = deque()
        self._single: TrialSession | None = None
        self.reason = ""
        self._process = ProcessState()
        measure_peak(self._device)
        try:
            self._replicates = [self._opened(each, len(assignments)) for each in assignments]
            if self._budget.unit == "epochs":
                lengths = {each.data.steps_per_epoch for each in self._replicates}
                if len(lengths) > 1:
                    raise CannotStackError("their epochs are of different length")
                self._steps_per_unit = lengths.pop()
        except CannotStackError as error:
            self._replicates, self.reason = [], str(error)
            self._separate.extend(assignments)

    @property
    def current(self) -> Assignment | None:
        """The trial that is trained separately just now, None while several are stacked: what is
        raised then is this one's failure."""
        return self._single.current if self._single is not None else None

    def next_events(self) -> Sequence[TrialEvent]:
        """Train up to the next reports, those first that have come least far.

        Raises:
            Exception: whatever a trial raises that is trained separately (see ``current``).
        """
        while self._replicates:
            events = self._without_training()
            if self._replicates and not events:
                events = self._advance()
            if events:
                return events
        while self._single is not None or self._separate:
            if self._single is None:
                self._let_go()
                self._single = TrialSession(self._separate.popleft())
            if found := self._single.next_events():
                return found
            self._end_single()
        return []

    def drop(self, key: str) -> None:
        for each in self._replicates:
            if each.trial.key == key:
                each.state.save_if_possible()
                self._remove(each)
                return
        if self._single is not None and self._single.assignment.trial.key == key:
            self._end_single()
        self._separate = deque(each for each in self._separate if each.trial.key != key)

    def close(self) -> None:
        for each in list(self._replicates):
            self.drop(each.trial.key)
        self._separate.clear()
        self._end_single()
        self._let_go()

    def _end_single(self) -> None:
        single, self._single = self._single, None
        if single is not None:
            single.close()

    def _let_go(self) -> None:
        """Leave process and device as a trial finds them that is trained separately."""
        self._stack, self._in_stack = None, []
        self._process.restore()
        if self._device.type == "cuda":
            release(self._device)

    def _opened(self, assignment: Assignment, count: int) -> Replicate:
        try:
            opened = Replicate(assignment, count, self._device)
        except Exception as error:
            raise CannotStackError(f"one of them cannot be opened ({error})") from error
        self._refuse_changes()
        if not isinstance(opened.data, Stackable):
            raise CannotStackError(
                f"the task {assignment.trial.task.name!r} does not say that its loss depends on "
                "the model and the batch alone"
            )
        if has_batch_statistics(opened.model):
            raise CannotStackError("batch norm keeps statistics of the batches")
        if any(report.micro_batch is not None for report in opened.state.history[-1:]):
            raise CannotStackError("one of them is trained in parts of batches")
        return opened

    def _refuse_changes(self) -> None:
        """Raise if a trial has changed what all trials of a process share."""
        if changed := self._process.changed():
            self._process.restore()
            raise CannotStackError(f"one of them changes {' and '.join(changed)}")

    def _without_training(self) -> list[TrialEvent]:
        """Return the reports that the record lacks, and why a trial cannot go on."""
        events: list[TrialEvent] = []
        for each in list(self._replicates):
            for report in each.unsent:
                events.append((each.assignment, report))
                each.sent_through = report.unit
            each.unsent = []
            each.problem = each.problem or each.state.problem()
            if each.state.is_over:
                self._remove(each)
            elif each.problem is not None:
                events.append((each.assignment, StorageFailure(str(each.problem))))
                self._remove(each)
        return events

    def _advance(self) -> list[TrialEvent]:
        behind = min(each.state.unit for each in self._replicates)
        group = [each for each in self._replicates if each.state.unit == behind]
        unit = next(each for each in self._budget.report_units() if each > behind)
        end = unit * self._steps_per_unit
        self._is_untouched = True
        try:
            if self._stack is None or self._in_stack != group:
                self._stack, self._in_stack = None, group
                members = [Member(each.model, each.state.optimizer) for each in group]
                self._stack = Stack(members, group[0].data, group[0].autocast)
            stack = self._stack
            losses, norms = self._updated(stack, group, end)
        except Exception as error:
            for each in list(self._replicates):
                is_as_reported = self._is_untouched or each not in self._in_stack
                self._leave(each, _why(error), keep=is_as_reported)
            return []
        events: list[TrialEvent] = []
        for number, each in enumerate(group):
            own = [row[number] for row in losses]
            try:
                report = each.report(unit, end, own, norms[number], stack.clear)
                events.append((each.assignment, report))
            except Exception as error:
                self._leave(each, _why(error), keep=False)
        return events

    def _updated(
        self, stack: Stack, group: Sequence[Replicate], end: int
    ) -> tuple[list[Tensor], list[float]]:
        """Update trials until so many updates are done; return the losses of each, (K,), and the
        norms of each trial's last gradient."""
        losses: list[Tensor] = []
        norms: Tensor | None = None
        num_steps = self._budget.amount * self._steps_per_unit
        for each in group:
            each.model.train()
        for step in range(group[0].step, end):
            started = time.perf_counter()
            batches = [each.next_batch() for each in group]
            waited = time.perf_counter() - started
            if not self._is_verified:
                self._verify(stack, group, batches)
            started = time.perf_counter()
            losses.append(stack.gradients(batches))
            if self._recipe.clip_norm is not None:
                norms = stack.clip(self._recipe.clip_norm)
            self._is_untouched = False
            stack.update(self._recipe.lr_at(step, num_steps))
            taken = waited + time.perf_counter() - started
            for each in group:
                each.clock.seconds += taken / len(group)
                each.state.train_seconds += taken / len(group)
                each.state.data_seconds += waited / len(group)
        stack.share_state()
        return losses, (stack.norms() if norms is None else norms).tolist()

    def _verify(self, stack: Stack, group: Sequence[Replicate], batches: Sequence[Batch]) -> None:
        """Check, once, that trials are as they are separately, and that stacked is quicker.

        Raises:
            CannotStackError: they are not.
        """
        self._is_verified = True
        before = [each.clone() for each in stack.buffers]
        losses = stack.gradients(batches)
        if not all(map(torch.equal, before, stack.buffers)):
            raise CannotStackError("a forward pass changes more than gradients")
        for number in sorted({0, len(group) - 1}):
            loss, gradients = _separately(group[number])
            self._check_equal(loss, gradients, losses[number], stack.gradient_of(number))
        self._refuse_changes()
        if not self._always:
            stacked = self._timed(lambda: stack.gradients(batches))
            stack.clear()
            separate = self._timed(lambda: _separately(group[0])) * len(group)
            if stacked >= _WORTH_IT * separate:
                raise CannotStackError("that is quicker here")

    def _check_equal(
        self,
        loss: Tensor,
        gradients: dict[str, Tensor],
        stacked_loss: Tensor,
        stacked: dict[str, Tensor],
    ) -> None:
        """Check that a loss, a scalar, and its gradients by parameter are the same when stacked."""
        if not torch.isfinite(loss):
            return
        most = _MOST_APART[self._recipe.precision]
        largest = max((float(each.norm()) for each in gradients.values()), default=0.0)
        is_equal = gradients.keys() == stacked.keys() and all(
            float((gradients[name] - stacked[name]).norm()) <= most * largest for name in gradients
        )
        if not is_equal or float((loss - stacked_loss).abs()) > most * max(1.0, float(loss.abs())):
            raise CannotStackError("stacked, losses or gradients are others")

    def _timed(self, action: Callable[[], object]) -> float:
        taken = []
        for _ in range(_WARM_UP + _TIMED):
            started = time.perf_counter()
            action()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            taken.append(time.perf_counter() - started)
        return statistics.median(taken[_WARM_UP:])

    def _leave(self, each: Replicate, reason: str, *, keep: bool) -> None:
        """Leave a trial to be trained separately; ``keep`` it if its state is that of its last
        report."""
        if keep:
            each.state.save_if_possible()
        self._remove(each)
        self.reason = self.reason or reason
        self._separate.append(replace(each.assignment, recorded_through=each.sent_through))

    def _remove(self, each: Replicate) -> None:
        # The next attempt finds all that was kept.
        each.state.close()
        self._replicates.remove(each)


def _separately(each: Replicate) -> tuple[Tensor, dict[str, Tensor]]:
    return own_gradients(each.data, each.model, each.autocast, each.batch)


def _why(error: Exception) -> str:
    if isinstance(error, DoesNotFitError) or is_out_of_memory(error):
        return "memory does not suffice"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
