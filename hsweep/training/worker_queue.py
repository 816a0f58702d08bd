"""The trials that one worker process trains one after another, without waiting for its driver.

A thread trains what the queue holds. What trials report is kept until it is asked for, so training
goes on while the driver writes the record and decides; a trial waits for the driver only where the
driver may stop it, at the rungs (``Assignment.waits_at``).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hsweep.design.trial import Assignment, Event, Report
from hsweep.errors import RefusedReportError, failure_text
from hsweep.secrets import redact
from hsweep.training.run import Channel

MESSAGE_SECONDS: Final = 0.2
"""The least time between two deliveries of messages from a worker that has more to do."""

TURN_SECONDS: Final = 5.0
"""How long a worker waits for the reports of a script before its driver may speak to it."""

_MAX_UNSENT: Final = 256
"""How many messages may wait until training waits as well."""

ENDING_SECONDS: Final = 30.0
"""How long a trial may take to end once it was told to; its process is ended then. A script has its
own time beside."""

Train = Callable[[Assignment, Channel], object]
"""Trains a trial, whose events go to a channel."""


class Watch(Protocol):
    """Watches over the work for trials, any of which could hang."""

    def begin(self, assignment: Assignment, *, is_turn: bool) -> None:
        """Work for a trial begins, up to its next report, or to the end of its training.

        ``is_turn`` says that it is none of the trial's own: training begins or has ended.
        """

    def end(self) -> None:
        """No work is under way."""


class Unwatched:
    """Lets work take any time."""

    def begin(self, assignment: Assignment, *, is_turn: bool) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Started:
    """The worker has come to this trial: from here on it may end the process."""


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
class ProcessDied:
    """One of a trial's processes died, other than the worker that tells this.

    Attributes:
        rank: of that process.
        place: where it ran, as the runner describes that; None where it is not known.
        error: what the runner noticed.
    """

    rank: int
    place: Any
    error: BaseException


@dataclass(frozen=True, slots=True)
class Message:
    """What happened to one trial of a worker, in one of its attempts."""

    key: str
    attempt: int
    event: Event | TrialError | ProcessDied | Started


class BrokenWorkerError(RuntimeError):
    """A trial raised here: what it left behind in the process is not known, so it ends."""


class WorkerQueue:
    """Trains trials in a thread of its own.

    It begins when it is first asked for messages: until then a process may be given up, and its
    trials be trained elsewhere. Methods may be called from one other thread.

    Args:
        train: called for one trial after another.
        watch: is told of all work that could hang.
    """

    def __init__(self, train: Train, watch: Watch | None = None) -> None:
        self._train = train
        self._watch = watch or Unwatched()
        self._changed = threading.Condition()
        self._queue: deque[Assignment] = deque()
        self._messages: list[Message] = []
        self._training: Assignment | None = None
        self._is_stopped = False
        self._waits_for_driver = False
        self._is_broken = False
        self._delivered = 0.0
        self._thread: threading.Thread | None = None

    def give(self, assignments: Sequence[Assignment]) -> None:
        with self._changed:
            self._queue.extend(assignments)
            self._changed.notify_all()

    def next_messages(self) -> list[Message]:
        """Return what happened since the last time, as soon as there is something.

        Asking again means that everything returned before was judged: a trial that waits at a
        rung and was not dropped goes on. Nothing is returned where nothing is left to train. Once a
        trial has raised, and that was returned, a BrokenWorkerError is raised.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="worker-queue", daemon=True)
            self._thread.start()
        with self._changed:
            if self._waits_for_driver and not self._messages:
                self._waits_for_driver = False
                self._changed.notify_all()
            while not self._changed.wait_for(lambda: self._messages or self._is_idle, TURN_SECONDS):
                # A driver that has to end a script must come to its turn; the script is watched
                # over by the thread that reads it.
                if self._training is not None and self._training.trial.is_command:
                    return [_message(self._training, Started())]
            if self._is_broken and not self._messages:
                raise BrokenWorkerError("a trial failed in this process")
            # Many quick reports travel at once; a worker that waits or is idle is not kept.
            pause = self._delivered + MESSAGE_SECONDS - time.monotonic()
            if pause > 0:
                self._changed.wait_for(lambda: self._is_urgent or self._is_idle, timeout=pause)
            messages, self._messages = self._messages, []
            self._delivered = time.monotonic()
            self._changed.notify_all()
            return messages

    def drop(self, key: str) -> None:
        """End a trial at its next report; return when what it has to keep is on disk."""
        with self._changed:
            self._queue = deque(each for each in self._queue if each.trial.key != key)
            self._is_stopped = self._is_stopped or self._is_training(key)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_training(key))

    def halt(self) -> None:
        """End all trials at their next reports, without waiting for that; what they report until
        then can still be asked for."""
        with self._changed:
            self._queue.clear()
            self._is_stopped = self._training is not None
            self._changed.notify_all()

    def stop(self) -> None:
        """End all trials; return when what they have to keep is on disk, or one does not end."""
        with self._changed:
            self.halt()
            training = self._training
            seconds = 0.0 if training is None else ENDING_SECONDS + training.trial.ending_seconds
            if not self._changed.wait_for(lambda: self._training is None, seconds):
                self._is_broken = True
            self._messages.clear()

    def interrupt(
        self, assignment: Assignment, event: Event | TrialError | ProcessDied | None
    ) -> None:
        """Give the trial up that is in training, from any thread, with what happened to it.

        Training itself may hang, waiting for a process that is gone: it is not waited for, and what
        it still comes to is not told. The worker is broken then.
        """
        with self._changed:
            if self._is_broken or not self._is_training(assignment.trial.key):
                return
            if event is not None:
                self._messages.append(_message(assignment, event))
            self._training, self._waits_for_driver = None, False
            self._is_broken = True
            self._changed.notify_all()

    def _is_training(self, key: str) -> bool:
        return self._training is not None and self._training.trial.key == key

    @property
    def _is_urgent(self) -> bool:
        """Whether a trial waits for its driver or for messages to be taken, or the last one there
        is has started, which the driver should know before it does anything to the process."""
        has_started = any(isinstance(message.event, Started) for message in self._messages)
        is_full = len(self._messages) >= _MAX_UNSENT
        return self._waits_for_driver or is_full or (has_started and not self._queue)

    @property
    def _is_idle(self) -> bool:
        return self._is_broken or not (self._training or self._queue)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue and not self._is_broken)
                assignment = self._queue.popleft()
                self._training, self._is_stopped = assignment, False
                self._messages.append(_message(assignment, Started()))
                self._changed.notify_all()
            error = self._error_of(assignment)
            with self._changed:
                if error is not None and not self._is_broken:
                    self._messages.append(_message(assignment, error))
                    self._is_broken = True
                self._training, self._waits_for_driver = None, False
                self._changed.notify_all()

    def _error_of(self, assignment: Assignment) -> TrialError | None:
        """Train a trial; return its error, if it raised one."""
        self._watch.begin(assignment, is_turn=True)
        try:
            self._train(assignment, self)
        except BaseException as error:
            # Even what would end a process: this thread must live to report it.
            return TrialError(redact(failure_text(error)), isinstance(error, RefusedReportError))
        finally:
            self._watch.end()
        return None

    # The channel of the trial in training: what its own thread calls.

    def begins(self) -> None:
        """The training of the trial itself begins, all being there that it needs."""
        if self._training is not None:
            self._watch.begin(self._training, is_turn=False)

    def put(self, event: Event, /) -> bool:
        """Take what the trial in training reports; return whether it goes on."""
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
            self._changed.wait_for(lambda: self.is_stopped or not self._is_kept_waiting)
            goes_on = not self.is_stopped
        is_done = isinstance(event, Report) and event.is_last
        self._watch.begin(assignment, is_turn=is_done or not goes_on)
        return goes_on

    @property
    def is_stopped(self) -> bool:
        """Whether the trial in training has to end."""
        return self._is_stopped or self._is_broken

    @property
    def _is_kept_waiting(self) -> bool:
        return self._waits_for_driver or len(self._messages) >= _MAX_UNSENT


def _message(assignment: Assignment, event: Event | TrialError | ProcessDied | Started) -> Message:
    return Message(assignment.trial.key, assignment.attempt, event)
