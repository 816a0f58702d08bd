"""A trial of a function of the user's own, driven report by report.

The function runs in a thread of its own. Each of its reports is handed to the session, and the
thread waits until the session is asked for the next one, so the driver may end the trial there.

A function that ends by neither a return nor the exception that a stop raises is ended by other
means, as far as there are any: see ``FunctionSession.close``.
"""

import contextlib
import ctypes
import errno
import operator
import os
import queue
import shutil
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from hsweep.design.budget import BudgetUnit
from hsweep.design.own_training import Command, OwnTask
from hsweep.design.space import Point
from hsweep.design.trial import Assignment, Event, OutOfMemory, Report, StorageFailure
from hsweep.errors import UserError, nearest, told, user_frame
from hsweep.paths import trial_folder
from hsweep.seeding import Seeds
from hsweep.training.checkpoints import StorageError
from hsweep.training.memory import held_at_most, is_out_of_memory, measure_peak, release
from hsweep.training.own.leftovers import Leftovers
from hsweep.training.own.run import Run, StopTrial
from hsweep.training.own.state import OwnState
from hsweep.training.process_state import ProcessState
from hsweep.training.session import TrialEvent
from hsweep.training.world import ALONE, World

if TYPE_CHECKING:
    import torch

ENDING_SECONDS: Final = 30.0
"""How long a function may take to end once a report has raised StopTrial."""
_FORCED_SECONDS: Final = 5.0
_ENDED: Final = -1
"""In place of a unit: the function has returned."""
_THREAD_NAME: Final = "training"
_SEEDS_BELOW: Final = 2**31
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class FunctionGoesOnError(RuntimeError):
    """The function goes on though its trial was ended, so its process has to end."""


@dataclass(frozen=True, slots=True)
class _End:
    """The function is over; ``error`` is what it raised."""

    error: BaseException | None


class FunctionRun:
    """One trial as its training function sees it (see ``hsweep.training.own.run.Run``).

    Raises:
        OSError: its folder cannot be written to.
    """

    def __init__(
        self, assignment: Assignment, state: OwnState, process: ProcessState, world: World
    ) -> None:
        self._assignment, self._state, self._process = assignment, state, process
        self._world = world
        self.rank, self.world_size = world.rank, world.size
        self._events: queue.SimpleQueue[Report | _End] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._pid = os.getpid()
        self._num_reports = 0
        self.is_stopped = self._is_abandoned = False
        self._refused: UserError | OSError | None = None
        trial = assignment.trial
        self.budget: int = trial.budget.amount
        self.budget_unit: BudgetUnit = trial.budget.unit
        self.seeds: Seeds = trial.seeds.below(_SEEDS_BELOW)
        self.folder: Path = trial_folder(assignment.checkpoints, trial.key)
        if assignment.attempt == 1 and not self.rank:
            # What lies there is of a study that was removed, or of one with the same storage.
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        # Each process reads a copy of its own: those of one node share the folder.
        self._restored = self.folder.with_name(f"{trial.key}.restored-{self.rank}")
        self.remove_restored()
        self.checkpoint: Path | None = None
        if state.files is not None:
            self._restored.mkdir()
            self.checkpoint = state.write_files(self._restored)

    if not TYPE_CHECKING:  # which would let any name of this class pass

        def __getattr__(self, name: str) -> NoReturn:
            known = [each for each in dir(Run) if not each.startswith("_")]
            near = nearest(name, known)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"run has no {name!r}, but {', '.join(known)}{hint}")

    @property
    def device(self) -> "torch.device":
        """CUDA where the trial has a device, the CPU else."""
        import torch

        return torch.device("cuda" if self._assignment.resources.gpus else "cpu")

    def report(
        self, unit: int, checkpoint: Path | str | None = None, **metrics: float | None
    ) -> None:
        """Report the metrics after ``unit`` units of the budget; see ``Run.report``."""
        if os.getpid() != self._pid:
            raise UserError(
                "report was called in a process that the training function has started; only the "
                "process that the function was called in can report"
            )
        if self._is_abandoned:
            threading.Event().wait()
        if self.is_stopped:
            raise StopTrial
        if self._refused is not None:
            raise self._refused
        try:
            folder = None if checkpoint is None else Path(checkpoint)
            check_ranks(self._world, unit, self._state.unit)
            if self.rank:
                self._state.follow(unit)
            else:
                report = self._state.add(unit, metrics, folder, self._changes_note(unit))
        except (UserError, OSError) as error:
            # Though the function may catch it: it is how the trial ends.
            self._refused = error
            raise
        self._num_reports += 1
        self._state.pause()
        goes_on = True
        if not self.rank:
            self._events.put(report)
            goes_on = self._answers.get()
        self.is_stopped = not self._world.agree(goes_on)
        if self.is_stopped:
            self._keep_last()
            raise StopTrial
        self._state.go_on()

    def _changes_note(self, unit: int) -> str:
        if self._num_reports and unit != self.budget:
            return ""
        changed = ", ".join(self._process.changed())
        return f"the training function changed {changed}: put back after the trial" * bool(changed)

    def _keep_last(self) -> None:
        # Where it cannot be written, the trial goes on from an older one.
        with contextlib.suppress(OSError):
            self._state.keep()

    # What follows is the session's side, called from another thread.

    def call(self) -> None:
        """Call the function, and say how it ended."""
        trial = self._assignment.trial
        assert isinstance(trial.task, OwnTask)
        assert not isinstance(trial.task.train, Command)
        error: BaseException | None = None
        try:
            trial.task.train(Point(trial.point), self)
        except BaseException as raised:
            error = raised
        if os.getpid() != self._pid:
            os._exit(0)  # a fork of the function's own has come to the function's end
        error = self._refused or error
        if error is None and not self.is_stopped:
            # Another rank may be waiting at a report; one that raised is told of by its process.
            try:
                check_ranks(self._world, _ENDED, self._state.unit)
            except UserError as other:
                error = other
        self._events.put(_End(error))

    def next_event(self) -> Report | _End:
        """Wait for what comes next."""
        return self._events.get()

    def answer(self, *, goes_on: bool) -> None:
        """Let the function go on after its report, or end there."""
        self._answers.put(goes_on)

    def abandon(self) -> None:
        """Let no report return any more."""
        self._is_abandoned = True

    def remove_restored(self) -> None:
        shutil.rmtree(self._restored, ignore_errors=True)


def check_ranks(world: World, unit: Any, before: int) -> None:
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
    try:
        number = operator.index(unit)
    except TypeError:
        number = before  # the state refuses it, in the rank that gave it
    units = world.gather(number)
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

    In a rank above 0 there is nothing to tell a driver but how it ended: its first events are asked
    for once, and it goes on at each report as rank 0 does.

    Args:
        assignment: the trial, and where its checkpoints lie.
        world: this process among those of the trial.
    """

    def __init__(self, assignment: Assignment, world: World = ALONE) -> None:
        import torch

        # Workers are reused between trials, so whatever a trial sets it sets for itself.
        torch.set_num_threads(assignment.resources.num_threads)
        self.assignment = assignment
        self._world = world
        # Other ranks wait to hear that this one begins.
        self._is_awaited = world.rank == 0
        self._device = torch.device("cuda" if assignment.resources.gpus else "cpu")
        self._process = ProcessState()
        self._unsent: deque[Report] = deque()
        self._thread: threading.Thread | None = None
        self._leftovers: Leftovers | None = None
        self._run: FunctionRun | None = None
        self._last: Report | None = None
        self._failure: StorageFailure | None = None
        self._is_over = self._is_waiting = False
        measure_peak(self._device)
        try:
            self._state = OwnState(assignment)
            self._state.restore()
        except StorageError as error:
            self._failure = StorageFailure(str(error))
            return
        if world.rank == 0:
            self._unsent.extend(self._state.unrecorded())

    def next_events(self) -> Sequence[TrialEvent]:
        """Train up to the next report; nothing after the last.

        Raises:
            BaseException: what the function raised, or why what it did cannot be.
        """
        event = self._next_event()
        return [] if event is None else [(self.assignment, event)]

    def _next_event(self) -> Event | None:
        if self._failure is not None:
            failure, self._failure, self._is_over = self._failure, None, True
            return failure
        if self._unsent:
            return self._unsent.popleft()
        if self._is_over:
            return None
        if self._run is None:
            try:
                self._run = self._begun()
            except OSError as error:
                self._is_over = True
                return StorageFailure(f"the trial's folder cannot be used: {error}")
            if self._run is None:
                self._is_over = True
                return None
            self._leftovers = Leftovers()
            self._is_waiting = True
            self._thread = threading.Thread(target=self._run.call, name=_THREAD_NAME, daemon=True)
            self._thread.start()
        elif self._last is not None and self._last.diverged_at is not None:
            self._end_function()
            return None
        else:
            self._is_waiting = True
            self._run.answer(goes_on=True)
        event = self._run.next_event()
        self._is_waiting = False
        if isinstance(event, Report):
            self._last = replace(event, peak_memory_bytes=held_at_most(self._device))
            return self._last
        self._is_over = True
        if self._world.rank and self._run.is_stopped:
            return None
        return self._failure_of(event.error)

    def _begun(self) -> FunctionRun | None:
        """Return what the function is given, None where rank 0 does not begin.

        Ranks wait here until every one has read the checkpoint and rank 0 has made the folder
        ready: only then may a newer checkpoint be written.

        Raises:
            OSError: the folder cannot be written to.
            UserError: the ranks have read different checkpoints.
        """
        units: list[int] = []
        if self._world.rank:
            units = self._world.gather(self._state.unit)
            if units[0] == _ENDED:
                return None
        run = FunctionRun(self.assignment, self._state, self._process, self._world)
        if not self._world.rank:
            self._is_awaited = False
            units = self._world.gather(self._state.unit)
        if len(set(units)) > 1:
            raise UserError(
                f"the processes of a trial found checkpoints of different units ({units}, by "
                "rank); its storage must be a folder or URI that every node reaches"
            )
        return run

    def drop(self, key: str) -> None:
        """End the trial, which is the only one."""
        assert key == self.assignment.trial.key
        self.close()

    def close(self) -> None:
        """End the function, and all processes that it has started.

        After its last report it may take its time. Before, the report that it waits in raises
        ``StopTrial`` there, and so does each after it. A function that does not end has
        ``StopTrial`` raised wherever it is, which foreign code does not notice; if it goes on all
        the same, none of its reports returns any more.

        Raises:
            FunctionGoesOnError: it has not ended.
        """
        try:
            if self._is_awaited:
                self._is_awaited = False
                self._world.gather(_ENDED)
            self._end_function()
        finally:
            self._end_leftovers()
            if self._run is not None:
                self._run.remove_restored()
            self._process.restore()
            if self._device.type == "cuda":
                release(self._device)

    def _end_function(self) -> None:
        run, thread, self._thread = self._run, self._thread, None
        if run is None or thread is None:
            return
        if self._is_waiting:
            # This process was interrupted while the function trains, and has no time to wait.
            run.abandon()
            return
        is_done = self._last is not None and self._last.is_last
        if not self._is_over:
            run.answer(goes_on=is_done)
            self._is_over = True
        # After the last report the function may still tidy up.
        thread.join(None if is_done else ENDING_SECONDS)
        if thread.is_alive():
            run.abandon()
            self._end_leftovers()  # it may wait for one
            _raise_in(thread, StopTrial)
            thread.join(_FORCED_SECONDS)
        if thread.is_alive():
            raise FunctionGoesOnError(
                f"the training function has not ended {ENDING_SECONDS + _FORCED_SECONDS:g} s after "
                "its trial was ended: let the StopTrial that a report raises pass through it"
            )

    def _end_leftovers(self) -> None:
        leftovers, self._leftovers = self._leftovers, None
        if leftovers is not None:
            leftovers.end()

    def _failure_of(self, error: BaseException | None) -> Event | None:
        """Return what the trial ends by, where the function's end is its end; raise why it is
        none."""
        state, budget = self._state, self.assignment.trial.budget
        if isinstance(error, StorageError):
            return StorageFailure(str(error))
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            return StorageFailure(
                f"the training function cannot write ({error}); free space there, then resume"
            )
        if error is not None and is_out_of_memory(error):
            return self._out_of_memory(error)
        if isinstance(error, SystemExit):
            raise UserError(
                f"the training function called sys.exit({error.code!r}) after unit "
                f"{state.unit}; let it return, or raise an error"
            ).with_traceback(error.__traceback__) from error
        if isinstance(error, StopTrial) and not state.is_over:
            raise UserError(
                f"the training function raised StopTrial after unit {state.unit}, and the trial "
                "was not to end there; only a report raises it"
            ).with_traceback(error.__traceback__) from error
        if isinstance(error, Exception):
            raise error
        if error is not None and not isinstance(error, StopTrial):
            # Not to be taken for an interrupt of this process.
            raise UserError(f"the training function raised {told(error)}").with_traceback(
                error.__traceback__
            ) from error
        if not state.is_over:
            done = f"after unit {state.unit}" if self._last is not None else "without a report"
            raise UserError(
                f"the training function returned {done}, and its budget is {budget.amount} "
                f"{budget.unit}: it has to report unit {budget.amount} last"
            )
        return None

    def _out_of_memory(self, error: BaseException) -> OutOfMemory:
        where, what = user_frame(error), " ".join(told(error).split())
        error.__traceback__ = None  # it holds what was computed
        if self.assignment.is_exclusive:
            advice = "it was alone on the device: make the shape or the batch smaller"
        else:
            advice = "it may fit alone"
        at = f" at {where}" if where else ""
        return OutOfMemory(
            f"memory did not suffice after unit {self._state.unit}: {what}{at}; {advice}"
        )


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise an exception in a thread, before the next line of Python that it executes."""
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(error)
    )
