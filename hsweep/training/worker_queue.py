"""The trials that one worker process trains one after another, without waiting for its driver.

A thread trains what the queue holds. What trials report is kept until it is asked for, so training
goes on while the driver writes the record and decides; a trial waits for the driver only where the
driver may stop it, at the rungs (``Assignment.waits_at``).
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hsweep.design.trial import Assignment, Event, Report
from hsweep.errors import RefusedReportError, failure_text
from hsweep.redaction import redact
from hsweep.training.session import Session, WaitingSession

MESSAGE_SECONDS: Final = 0.2
"""The least time between two deliveries of messages from a worker that has more to do."""

TURN_SECONDS: Final = 5.0
"""How long a worker waits for the reports of a script before its driver may speak to it."""

_MAX_UNSENT: Final = 256
"""How many messages may wait until training waits as well."""

Watch = Callable[[Assignment, bool], contextlib.AbstractContextManager[None]]
"""Watches over a piece of work for a trial; the flag says that it starts or ends the trial."""


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
    trials be trained elsewhere. Methods may be called from one other thread. ``watch`` is put
    around every piece of work that could hang.
    """

    def __init__(
        self,
        open_trial: Callable[[Assignment], Session],
        watch: Watch = lambda _assignment, _is_turn: contextlib.nullcontext(),
    ) -> None:
        self._watch = watch
        self._open_trial = open_trial
        self._changed = threading.Condition()
        self._queue: deque[Assignment] = deque()
        self._messages: list[Message] = []
        self._training: dict[str, Assignment] = {}
        self._to_drop: set[str] = set()
        self._waits_for_driver = False
        self._is_broken = False
        self._delivered = 0.0
        self._thread: threading.Thread | None = None
        self._session: Session | None = None

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
                # A driver that has to end the wait must come to its turn.
                if isinstance(self._session, WaitingSession):
                    return [_message(each, Started()) for each in self._training.values()]
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
        """End a trial; return when what it has to keep is on disk."""
        with self._changed:
            self._queue = deque(each for each in self._queue if each.trial.key != key)
            self._to_drop.update(self._training.keys() & {key})
            self._stop_waiting()
            self._changed.notify_all()
            self._changed.wait_for(lambda: key not in self._training)

    def halt(self) -> None:
        """End all trials at their next reports, without waiting for that; what they report until
        then can still be asked for."""
        with self._changed:
            self._queue.clear()
            self._to_drop.update(self._training)
            self._stop_waiting()
            self._changed.notify_all()

    def stop(self) -> None:
        """End all trials; return when what they have to keep is on disk."""
        with self._changed:
            self.halt()
            self._changed.wait_for(lambda: not self._training)
            self._messages.clear()

    def _stop_waiting(self) -> None:
        """Let a session wait no longer if all its trials are to be dropped."""
        is_all = self._training and self._to_drop >= self._training.keys()
        if is_all and isinstance(self._session, WaitingSession):
            self._session.stop_waiting()

    def interrupt(
        self, assignment: Assignment, event: Event | TrialError | ProcessDied | None
    ) -> None:
        """Give the trials up that are in training, from any thread, with what happened to one.

        Training itself may hang, waiting for a process that is gone: it is not waited for, and what
        it still comes to is not told. The worker is broken then.
        """
        with self._changed:
            if self._is_broken or assignment.trial.key not in self._training:
                return
            if event is not None:
                self._messages.append(_message(assignment, event))
            self._training, self._waits_for_driver = {}, False
            self._is_broken = True
            self._changed.notify_all()

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
                self._training = {assignment.trial.key: assignment}
                self._messages.append(_message(assignment, Started()))
                self._changed.notify_all()
            error = self._train(assignment)
            with self._changed:
                if error is not None and not self._is_broken:
                    self._messages.append(error)
                    self._is_broken = True
                self._to_drop.clear()
                self._training, self._waits_for_driver = {}, False
                self._changed.notify_all()

    def _train(self, assignment: Assignment) -> Message | None:
        """Train a trial; return its error, if it raised one."""
        session: Session | None = None
        try:
            try:
                with self._watch(assignment, True):
                    session = self._open_trial(assignment)
                with self._changed:
                    self._session = session
                    self._stop_waiting()
                while self._advances(session, assignment):
                    pass
            finally:
                self._session = None
                if session is not None:
                    with self._watch(assignment, True):
                        session.close()
        except BaseException as error:
            # Even what would end a process: this thread must live to report it.
            is_final = isinstance(error, RefusedReportError)
            raised = TrialError(redact(failure_text(error)), is_final)
            return _message(assignment, raised)
        return None

    def _advances(self, session: Session, first: Assignment) -> bool:
        """Train up to the next reports, and return whether there can be more."""
        with self._watch(first, False):
            events = session.next_events()
        if not events:
            return False
        with self._changed:
            if self._is_broken:
                return False
            for assignment, event in events:
                self._messages.append(_message(assignment, event))
                if isinstance(event, Report) and event.unit in assignment.waits_at:
                    self._waits_for_driver = True
            self._changed.notify_all()
            while True:
                # The driver may stop a trial here, and may have fallen behind.
                self._changed.wait_for(
                    lambda: (
                        self._to_drop
                        or self._is_broken
                        or not (self._waits_for_driver or len(self._messages) >= _MAX_UNSENT)
                    )
                )
                dropped = set(self._to_drop)
                if not dropped or self._is_broken:
                    return not self._is_broken
                if dropped >= self._training.keys():
                    return False
                with self._watch(first, True):
                    for key in dropped:
                        session.drop(key)
                self._to_drop -= dropped
                for key in dropped:
                    del self._training[key]
                self._changed.notify_all()


def _message(assignment: Assignment, event: Event | TrialError | ProcessDied | Started) -> Message:
    return Message(assignment.trial.key, assignment.attempt, event)
