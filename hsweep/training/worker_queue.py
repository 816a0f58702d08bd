"""The trials that one worker process trains one after another, without waiting for its driver.

A thread trains what the queue holds. Events wait here until the driver takes them, so training goes
on while the driver writes the record and decides; a trial waits for the driver only where the
driver may stop it, at the rungs (``Assignment.waits_at``).
"""

import faulthandler
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from hsweep.design.trial import Assignment, Ended, Event, Report
from hsweep.errors import FinalError, failure_text
from hsweep.secrets import redact
from hsweep.training.run import Channel

MESSAGE_SECONDS: Final = 0.2
"""The least time between two deliveries of messages from a worker that has more to do."""

TURN_SECONDS: Final = 5.0
"""How long a worker waits for reports before its driver may speak to it."""

ENDING_SECONDS: Final = 30.0
"""How long a trial may take to end, before its process is ended. A script has its own time
beside."""

_MAX_UNSENT: Final = 256
"""How many messages may wait until training waits as well."""

START_SECONDS: Final = 300.0
"""The least time for starting a process and for ending a trial, where reports have a timeout."""

Train = Callable[[Assignment, Channel], object]
"""Trains a trial, whose events go to a channel."""


@dataclass(frozen=True, slots=True)
class TrialError:
    """The trial raised.

    Attributes:
        text: the traceback, headed by a line that says what happened.
        is_final: another attempt would end in the same way.
    """

    text: str
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class EndedProcess:
    """A process that ended before its trial did: a worker, or one beside it, which reports that.

    Attributes:
        error: what the runner noticed, as far as known.
        place: where it ran, in the runner's terms, as far as known.
        folder: where a worker that hangs leaves its traceback; None for none.
        rank: above 0 for a process beside the worker.
        was_silenced: the driver ended it because it was silent for too long.
    """

    error: BaseException | None
    place: Any = None
    folder: str | None = None
    rank: int = 0
    was_silenced: bool = False


Failure = TrialError | Event | EndedProcess
"""Why a process cannot train its part of a trial."""


@dataclass(frozen=True, slots=True)
class Message:
    """What happened to one trial of a worker, in one of its attempts.

    Attributes:
        event: a report, an end or an error; None when the worker begins the trial, which can from
            then on crash the process.
    """

    key: str
    attempt: int
    event: Failure | None


class BrokenWorkerError(RuntimeError):
    """A trial raised an error in this process, which ends because its state is unknown."""


def hang_file(folder: str | Path, assignment: Assignment) -> Path:
    """Return the path of the file for the traceback of a worker that hangs."""
    return Path(folder) / f"hang-{assignment.trial.key}-{assignment.attempt}.txt"


class HangWatch:
    """Ends this process if work for a trial takes longer than a report may, or than beginning or
    ending a trial may; leaves in a file where the work was.

    A thread keeps watch that needs no interpreter lock: it notices foreign code that never returns.

    Attributes:
        folder: for the file; None lets work take any time.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self._file: TextIO | None = None

    def begin(self, assignment: Assignment, *, is_turn: bool) -> None:
        """Work for a trial begins: up to its next report or, at a turn from one trial to the next,
        until the trial has begun or ended."""
        timeout = assignment.patience_seconds
        if timeout is None or self.folder is None:
            return
        seconds = max(timeout, START_SECONDS) if is_turn else timeout
        file = self._open(hang_file(self.folder, assignment))
        faulthandler.dump_traceback_later(seconds, exit=True, file=file)

    def end(self) -> None:
        """No work is under way."""
        faulthandler.cancel_dump_traceback_later()

    def _open(self, path: Path) -> TextIO:
        """Return a file that is open for writing, or standard error where it cannot be."""
        if self._file is None or self._file.name != str(path):
            if self._file is not None:
                self._file.close()
            self._file = None
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("w", encoding="utf-8")
            except OSError:
                return sys.stderr
        return self._file


class WorkerQueue(Channel):
    """Trains trials in a thread, and is the channel of the one in training.

    It begins when it is first asked for messages: until then Tune may end the process, and its
    trials train elsewhere. One other thread may call the methods.

    Args:
        train: called for one trial after another.
        watch: watches over all work that could hang.
    """

    def __init__(self, train: Train, watch: HangWatch | None = None) -> None:
        self._train, self._watch = train, watch or HangWatch()
        self._changed = threading.Condition()
        self._queue: deque[Assignment] = deque()
        self._messages: list[Message] = []
        self._training: Assignment | None = None
        self._has_to_stop = self._waits_for_driver = self._is_broken = self._retires = False
        self._delivered = 0.0
        self._thread: threading.Thread | None = None

    def give(self, assignments: Sequence[Assignment]) -> None:
        with self._changed:
            self._queue.extend(assignments)
            self._changed.notify_all()

    def next_messages(self) -> list[Message]:
        """Return the messages since the last call; wait until there is one.

        Another call means that the driver has judged all messages so far: a trial that waits at a
        rung and was not dropped goes on. The list is empty where nothing is left to train.

        Raises:
            BrokenWorkerError: a trial has raised, and its message was returned.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="worker-queue", daemon=True)
            self._thread.start()
        with self._changed:
            if self._waits_for_driver and not self._messages:
                self._waits_for_driver = False
                self._changed.notify_all()
            while not self._changed.wait_for(lambda: self._messages or self._is_idle, TURN_SECONDS):
                # A driver that has to end a trial must come to its turn.
                if self._training is not None:
                    return [_message(self._training, None)]
            if (self._is_broken or self._retires) and not self._messages:
                raise BrokenWorkerError("a trial failed in this process, or it was told to end")
            # Many quick reports travel at once; a worker that waits or is idle does not.
            pause = self._delivered + MESSAGE_SECONDS - time.monotonic()
            if pause > 0:
                self._changed.wait_for(lambda: self._is_urgent or self._is_idle, timeout=pause)
            messages, self._messages = self._messages, []
            self._delivered = time.monotonic()
            self._changed.notify_all()
            return messages

    def drop(self, key: str) -> None:
        """End a trial at its next report; return when its checkpoint is on disk."""
        with self._changed:
            self._queue = deque(
                assignment for assignment in self._queue if assignment.trial.key != key
            )
            self._has_to_stop = self._has_to_stop or self._is_training(key)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_training(key))

    def halt(self) -> None:
        """End all trials at their next reports without waiting; ``next_messages`` still returns the
        reports until then."""
        with self._changed:
            self._queue.clear()
            self._has_to_stop = self._training is not None
            self._changed.notify_all()

    def retire(self) -> None:
        """End all trials as ``halt`` does, and then this worker: its machine goes away. A handler
        of signals may call this, since nothing is locked."""
        self._retires = True

    def stop(self) -> None:
        """End all trials; return when their checkpoints are on disk, or a trial does not end in
        time."""
        with self._changed:
            self.halt()
            training = self._training
            seconds = 0.0 if training is None else ENDING_SECONDS + training.trial.ending_seconds
            if not self._changed.wait_for(lambda: self._training is None, seconds):
                self._is_broken = True
            self._messages.clear()

    def interrupt(self, assignment: Assignment, failure: Failure | None) -> None:
        """Give up the trial in training because of ``failure``; any thread may call this.

        Nothing waits for the training itself, which may hang on a process that is gone, and its
        later events are ignored. The worker is broken then.
        """
        with self._changed:
            if self._is_broken or not self._is_training(assignment.trial.key):
                return
            if failure is not None:
                self._messages.append(_message(assignment, failure))
            self._training, self._waits_for_driver = None, False
            self._is_broken = True
            self._changed.notify_all()

    def _is_training(self, key: str) -> bool:
        return self._training is not None and self._training.trial.key == key

    @property
    def _is_urgent(self) -> bool:
        """Whether a trial waits for its driver or for room, or the last one there is has started,
        which the driver should know before the trial can do anything to the process."""
        has_started = any(message.event is None for message in self._messages)
        return self._has_to_wait or (has_started and not self._queue)

    @property
    def _is_idle(self) -> bool:
        return self._is_broken or not (self._training or (self._queue and not self._retires))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._queue and not (self._is_broken or self._retires)
                )
                assignment = self._queue.popleft()
                self._training, self._has_to_stop = assignment, False
                self._messages.append(_message(assignment, None))
                self._changed.notify_all()
            error = self._error_of(assignment)
            with self._changed:
                if error is not None and not self._is_broken:
                    self._messages.append(_message(assignment, error))
                    self._is_broken = True
                self._training, self._waits_for_driver = None, False
                self._changed.notify_all()

    def _error_of(self, assignment: Assignment) -> TrialError | None:
        """Train a trial; return the error that it raised, else None."""
        self._watch.begin(assignment, is_turn=True)
        try:
            self._train(assignment, self)
        except BaseException as error:
            # Even what would end a process: this thread must live to report it.
            return TrialError(redact(failure_text(error)), isinstance(error, FinalError))
        finally:
            self._watch.end()
        return None

    # The channel of the trial in training: what its own thread calls.

    def begins(self) -> None:
        """The training of the trial itself begins, all being there that it needs."""
        if self._training is not None:
            self._watch.begin(self._training, is_turn=False)

    def put(self, event: Event, /) -> bool:
        """Take an event of the trial in training; return whether it goes on."""
        self._watch.end()
        with self._changed:
            assignment = self._training
            if self._is_broken or assignment is None:
                return False
            self._messages.append(_message(assignment, event))
            if isinstance(event, Report) and event.unit in assignment.waits_at:
                self._waits_for_driver = True
            self._changed.notify_all()
            # The driver may stop the trial here, and may have fallen behind.
            self._changed.wait_for(lambda: self.is_stopped or not self._has_to_wait)
            goes_on = not self.is_stopped
        is_done = isinstance(event, Ended) or (isinstance(event, Report) and event.is_last)
        self._watch.begin(assignment, is_turn=is_done or not goes_on)
        return goes_on

    @property
    def is_stopped(self) -> bool:
        """Whether the trial in training has to end."""
        return self._has_to_stop or self._is_broken or self._retires

    @property
    def _has_to_wait(self) -> bool:
        return self._waits_for_driver or len(self._messages) >= _MAX_UNSENT


def _message(assignment: Assignment, event: Failure | None) -> Message:
    return Message(assignment.trial.key, assignment.attempt, event)
