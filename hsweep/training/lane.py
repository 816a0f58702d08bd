"""A lane: trials that one process trains one after another, without waiting for its driver.

A thread trains what the lane was given. What trials say is kept until it is asked for, so training
goes on while the driver writes the record and decides; a trial waits for the driver's word only
where the driver may have one, at the rungs (``Assignment.waits_at``).
"""

import contextlib
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hsweep.design.trial import Assignment, Report, Setback
from hsweep.redaction import redact
from hsweep.training.worker import Session, TrialSession

PARCEL_SECONDS: Final = 0.05
"""The least time between two parcels of words from a lane that has more to do."""

_BACKLOG: Final = 256
"""How many words may wait until training waits as well."""

Watch = Callable[[Assignment, bool], contextlib.AbstractContextManager[None]]
"""Watches over a piece of work for a trial; the flag says that it starts or ends the trial."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What is said of a trial that raised."""

    text: str


@dataclass(frozen=True, slots=True)
class Word:
    """What one trial of a lane says.

    Attributes:
        key: the trial.
        attempt: as in its assignment.
    """

    key: str
    attempt: int
    said: Report | Setback | Failure


class BrokenLaneError(RuntimeError):
    """A trial raised here: what it left behind in the process is not known, so it ends."""


def unwatched(_assignment: Assignment, _is_turn: bool) -> contextlib.AbstractContextManager[None]:
    """Watch over nothing."""
    return contextlib.nullcontext()


class Lane:
    """Trains trials in a thread of its own.

    Methods may be called from one other thread.

    Args:
        watch: put around every piece of work that could hang.
        open_session: begins a trial.
    """

    def __init__(
        self,
        watch: Watch = unwatched,
        open_session: Callable[[Assignment], Session] = TrialSession,
    ) -> None:
        self._watch = watch
        self._open_session = open_session
        self._changed = threading.Condition()
        self._queue: deque[Assignment] = deque()
        self._words: list[Word] = []
        self._current: Assignment | None = None
        self._dropped: set[str] = set()
        self._is_awaiting = False
        self._is_broken = False
        self._delivered = 0.0
        self._thread: threading.Thread | None = None

    def give(self, assignments: Sequence[Assignment]) -> None:
        """Add trials to be trained after those that are there."""
        with self._changed:
            self._queue.extend(assignments)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="lane", daemon=True)
            self._thread.start()

    def next_words(self) -> list[Word]:
        """Return what trials said since the last time, as soon as there is something.

        Asking again means that everything returned before was judged: a trial that waits at a
        rung and was not dropped goes on. Nothing is returned where nothing is left to train.

        Raises:
            BrokenLaneError: a trial has raised, and that was returned already.
        """
        with self._changed:
            if self._is_awaiting and not self._words:
                self._is_awaiting = False
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._words or self._is_idle)
            if self._is_broken and not self._words:
                raise BrokenLaneError("a trial failed in this process")
            # Many quick reports travel together; a lane that waits or has run dry is not kept.
            pause = self._delivered + PARCEL_SECONDS - time.monotonic()
            if pause > 0:
                self._changed.wait_for(lambda: self._is_awaiting or self._is_idle, timeout=pause)
            words, self._words = self._words, []
            self._delivered = time.monotonic()
            self._changed.notify_all()
            return words

    def drop(self, key: str) -> None:
        """End a trial; return when what it has to keep is on disk."""
        with self._changed:
            for waiting in [each for each in self._queue if each.trial.key == key]:
                self._queue.remove(waiting)
            if self._is_training(key):
                self._dropped.add(key)
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._is_training(key))

    def stop(self) -> None:
        """End all trials; return when what they have to keep is on disk."""
        with self._changed:
            self._queue.clear()
            current = self._current
        if current is not None:
            self.drop(current.trial.key)
        with self._changed:
            self._words.clear()

    @property
    def _is_idle(self) -> bool:
        return self._is_broken or (self._current is None and not self._queue)

    def _is_training(self, key: str) -> bool:
        return self._current is not None and self._current.trial.key == key

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue and not self._is_broken)
                self._current = self._queue.popleft()
            failure = self._failure_of(self._current)
            with self._changed:
                if failure is not None:
                    self._words.append(_word(self._current, failure))
                    self._is_broken = True
                self._dropped.discard(self._current.trial.key)
                self._current, self._is_awaiting = None, False
                self._changed.notify_all()

    def _failure_of(self, assignment: Assignment) -> Failure | None:
        """Train a trial; return why that failed, if it did."""
        try:
            self._train(assignment)
        except BaseException:
            # Even what would end a process: this thread must live to say so.
            return Failure(redact(traceback.format_exc()))
        return None

    def _train(self, assignment: Assignment) -> None:
        with self._watch(assignment, True):
            session = self._open_session(assignment)
        try:
            while True:
                with self._watch(assignment, False):
                    words = session.next_words()
                if not words or not self._goes_on(words):
                    return
        finally:
            with self._watch(assignment, True):
                session.close()

    def _goes_on(self, words: Sequence[tuple[Assignment, Report | Setback]]) -> bool:
        """Pass words on, wait where the driver may have one, and return whether it had none."""
        with self._changed:
            for assignment, said in words:
                self._words.append(_word(assignment, said))
                if isinstance(said, Report) and said.unit in assignment.waits_at:
                    self._is_awaiting = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._dropped or not (self._is_awaiting or len(self._words) >= _BACKLOG)
            )
            return not self._dropped


def _word(assignment: Assignment, said: Report | Setback | Failure) -> Word:
    return Word(assignment.trial.key, assignment.attempt, said)
