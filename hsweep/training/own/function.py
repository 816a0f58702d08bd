"""A trial of a function of the user's own, driven report by report.

The function runs in a thread of its own. Each of its reports is handed to the session, and the
thread waits until the session is asked for the next one, so the driver may end the trial there.
"""

import queue
import shutil
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hsweep.design.budget import BudgetUnit
from hsweep.design.own_training import Command, OwnTask
from hsweep.design.space import Point
from hsweep.design.trial import Assignment, Report, StorageFailure
from hsweep.errors import UserError
from hsweep.paths import trial_folder
from hsweep.seeding import Seeds
from hsweep.training.checkpoints import StorageError
from hsweep.training.own.run import StopTrial
from hsweep.training.own.state import OwnState
from hsweep.training.process_state import ProcessState
from hsweep.training.session import TrialEvent
from hsweep.training.world import ALONE, World

if TYPE_CHECKING:
    import torch

_RESTORED = "restored"
_ENDED = -1
"""In place of a unit: the function has returned."""
_THREAD_NAME = "training"


@dataclass(frozen=True, slots=True)
class _End:
    """The function is over; ``error`` is what it raised."""

    error: BaseException | None


class FunctionRun:
    """One trial as its training function sees it (see ``hsweep.training.own.run.Run``)."""

    def __init__(self, assignment: Assignment, state: OwnState, world: World) -> None:
        self._assignment, self._state, self._world = assignment, state, world
        self.rank, self.world_size = world.rank, world.size
        self._events: queue.SimpleQueue[Report | _End] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.is_stopped = False
        trial = assignment.trial
        self.budget: int = trial.budget.amount
        self.budget_unit: BudgetUnit = trial.budget.unit
        self.seeds: Seeds = trial.seeds
        self.folder: Path = trial_folder(assignment.checkpoints, trial.key)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.checkpoint: Path | None = None
        if state.files is not None:
            # Each process reads a copy of its own: processes of one node share the folder.
            restored = self.folder / (f"{_RESTORED}-{self.rank}" if self.rank else _RESTORED)
            shutil.rmtree(restored, ignore_errors=True)
            restored.mkdir()
            self.checkpoint = state.write_files(restored)

    @property
    def device(self) -> "torch.device":
        """CUDA where the trial has a device, the CPU else."""
        import torch

        return torch.device("cuda" if self._assignment.resources.gpus else "cpu")

    def report(
        self, unit: int, checkpoint: Path | str | None = None, **metrics: float | None
    ) -> None:
        """Report the metrics after ``unit`` units of the budget; see ``Run.report``."""
        if self.is_stopped:
            raise StopTrial
        folder = None if checkpoint is None else Path(checkpoint)
        check_ranks(self._world, unit, self._state.unit)
        if self.rank:
            self._state.follow(unit)
        else:
            report = self._state.add(unit, metrics, folder)
        if unit <= self._assignment.recorded_through:
            return
        self._state.pause()
        goes_on = True
        if not self.rank:
            self._events.put(report)
            goes_on = self._answers.get()
        self.is_stopped = not self._world.agree(goes_on)
        self._state.go_on()
        if self.is_stopped:
            raise StopTrial

    # What follows is the session's side, called from another thread.

    def next_event(self, *, go_on: bool | None) -> Report | _End:
        """Answer the report before (None: there is none), and wait for what comes next."""
        if go_on is not None:
            self._answers.put(go_on)
        return self._events.get()

    def end(self, error: BaseException | None) -> None:
        if error is None and not self.is_stopped:
            # Another rank may be waiting at a report; one that raised is told of by its process.
            try:
                check_ranks(self._world, _ENDED, self._state.unit)
            except UserError as other:
                error = other
        self._events.put(_End(error))


def check_ranks(world: World, unit: int, before: int) -> None:
    """Refuse processes of one trial that are at different units.

    Args:
        world: the processes; all of them call this.
        unit: that this one reports; ``_ENDED`` where its function has returned.
        before: the unit that it reported before.

    Raises:
        UserError: they differ.
    """
    if world.size == 1:
        return
    # What is no whole number is refused by the state, in the rank that gave it.
    units = world.gather(unit if isinstance(unit, int) else before)
    if len(set(units)) > 1:
        named = ", ".join(
            f"rank {rank} {'has returned' if each == _ENDED else f'reports unit {each}'}"
            for rank, each in enumerate(units)
        )
        raise UserError(
            "every process of a trial reports the same units, one after another, and after unit "
            f"{before} they differ: {named}"
        )


class FunctionSession:
    """A trial of a function in training: ask for its next report, or close it.

    Closing it lets the function end at its next report: that raises ``StopTrial`` there.

    In a rank above 0 there is nothing to tell a driver but how it ended: its first events are asked
    for once, and it goes on at each report as rank 0 does.

    Args:
        assignment: the trial, and where its checkpoints lie.
        world: this process among those of the trial.
    """

    def __init__(self, assignment: Assignment, world: World = ALONE) -> None:
        self.assignment = assignment
        self._world = world
        self._process = ProcessState()
        self._unsent: deque[Report] = deque()
        self._thread: threading.Thread | None = None
        self._run: FunctionRun | None = None
        self._last: Report | None = None
        self._failure: StorageFailure | None = None
        self._is_over = False
        # Other ranks wait to hear that this one begins.
        self._is_awaited = world.rank == 0
        try:
            self._state = OwnState(assignment)
            self._state.restore()
        except StorageError as error:
            self._failure = StorageFailure(str(error))
            return
        if world.rank == 0:
            self._unsent.extend(self._state.unrecorded())
            self._is_awaited = not self._state.is_over

    @property
    def current(self) -> Assignment | None:
        """The trial."""
        return self.assignment

    def next_events(self) -> Sequence[TrialEvent]:
        """Train up to the next report; nothing after the last.

        Raises:
            BaseException: what the function raised, or why what it did cannot be.
        """
        if self._failure is not None:
            failure, self._failure, self._is_over = self._failure, None, True
            return [(self.assignment, failure)]
        if self._unsent:
            return [(self.assignment, self._unsent.popleft())]
        if self._is_over or (self._thread is None and self._state.is_over):
            return []
        event = self._next_of_function()
        if isinstance(event, Report):
            return [(self.assignment, event)]
        self._is_over = True
        if self._world.rank and (self._run is None or self._run.is_stopped):
            return []
        if isinstance(event.error, StorageError):
            return [(self.assignment, StorageFailure(str(event.error)))]
        self._check_end(event)
        return []

    def drop(self, key: str) -> None:
        """End the trial, which is the only one."""
        assert key == self.assignment.trial.key
        self.close()

    def close(self) -> None:
        """End the function at its next report, and return when it has ended."""
        if self._is_awaited:
            self._is_awaited = False
            self._world.gather(_ENDED)
        if self._thread is not None and not self._is_over:
            assert self._run is not None
            answer = None if self._last is None else False
            while isinstance(self._run.next_event(go_on=answer), Report):
                answer = False
            self._is_over = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._process.restore()

    def _next_of_function(self) -> Report | _End:
        if self._thread is None:
            if not self._all_begin():
                return _End(StopTrial())
            self._start()
            answer = None
        else:
            assert self._last is not None
            # After the last report, and one that diverged, the function may still tidy up.
            answer = not self._last.diverged_at
        assert self._run is not None
        event = self._run.next_event(go_on=answer)
        self._last = event if isinstance(event, Report) else self._last
        return event

    def _all_begin(self) -> bool:
        """Return whether rank 0 begins, once every rank has read the checkpoint: only then may it
        write a newer one.

        Raises:
            UserError: they have read different ones.
        """
        self._is_awaited = False
        units = self._world.gather(self._state.unit)
        if units[0] != _ENDED and len(set(units)) > 1:
            raise UserError(
                f"the processes of a trial found checkpoints of different units ({units}, by "
                "rank); its storage must be a folder or URI that every node reaches"
            )
        return units[0] != _ENDED

    def _start(self) -> None:
        import torch

        resources = self.assignment.resources
        torch.set_num_threads(resources.num_threads)
        self._run = FunctionRun(self.assignment, self._state, self._world)
        self._thread = threading.Thread(target=self._call, name=_THREAD_NAME, daemon=True)
        self._thread.start()

    def _call(self) -> None:
        run, trial = self._run, self.assignment.trial
        assert run is not None
        assert isinstance(trial.task, OwnTask)
        assert not isinstance(trial.task.train, Command)
        error: BaseException | None = None
        try:
            trial.task.train(Point(trial.point), run)
        except BaseException as raised:
            error = raised
        run.end(error)

    def _check_end(self, end: _End) -> None:
        """Raise what the function raised, or why its end is none."""
        state, budget = self._state, self.assignment.trial.budget
        if isinstance(end.error, SystemExit):
            raise UserError(
                f"the training function called sys.exit({end.error.code!r}) after unit "
                f"{state.unit}; let it return, or raise an error"
            ) from end.error
        if isinstance(end.error, StopTrial):
            if state.is_over:
                return
            raise UserError(
                f"the training function raised StopTrial after unit {state.unit}, and the trial "
                "was not to end there; only a report raises it"
            ) from end.error
        if end.error is not None:
            raise end.error
        if not state.is_over:
            raise UserError(
                f"the training function returned after unit {state.unit} of {budget.amount} "
                f"{budget.unit}; it has to report unit {budget.amount} last"
            )
