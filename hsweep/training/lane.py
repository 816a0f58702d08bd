"""A lane: trials that one process trains one after another, without waiting for its driver.

A thread trains what the lane was given. What trials say is kept until it is asked for, so training
goes on while the driver writes the record and decides; a trial waits for the driver's word only
where the driver may have one, at the rungs (``Assignment.waits_at``).
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hsweep.design.trial import Assignment, Report, Setback
from hsweep.errors import failure_text
from hsweep.redaction import redact
from hsweep.training.stacked.door import open_session
from hsweep.training.worker import Session

PARCEL_SECONDS: Final = 0.2
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
class Begun:
    """What is said of a trial that the lane has come to: from here on it may end the process."""


@dataclass(frozen=True, slots=True)
class Word:
    """What one trial of a lane says.

    Attributes:
        key: the trial.
        attempt: as in its assignment.
    """

    key: str
    attempt: int
    said: Report | Setback | Failure | Begun


class BrokenLaneError(RuntimeError):
    """A trial raised here: what it left behind in the process is not known, so it ends."""


def unwatched(_assignment: Assignment, _is_turn: bool) -> contextlib.AbstractContextManager[None]:
    """Watch over nothing."""
    return contextlib.nullcontext()


class Lane:
    """Trains trials in a thread of its own.

    It begins when it is first asked for words: until then a process may be given up, and its trials
    be trained elsewhere. Trials that follow one another and are of one bundle are begun together.
    Methods may be called from one other thread.

    Args:
        watch: put around every piece of work that could hang.
        opening: begins trials.
    """

    def __init__(
        self,
        watch: Watch = unwatched,
        opening: Callable[[Sequence[Assignment]], Session] = open_session,
    ) -> None:
        self._watch = watch
        self._opening = opening
        self._changed = threading.Condition()
        self._queue: deque[Assignment] = deque()
        self._words: list[Word] = []
        self._training: dict[str, Assignment] = {}
        self._to_drop: set[str] = set()
        self._is_awaiting = False
        self._is_broken = False
        self._delivered = 0.0
        self._thread: threading.Thread | None = None

    def give(self, assignments: Sequence[Assignment]) -> None:
        """Add trials to be trained after those that are there."""
        with self._changed:
            self._queue.extend(assignments)
            self._changed.notify_all()

    def next_words(self) -> list[Word]:
        """Return what trials said since the last time, as soon as there is something.

        Asking again means that everything returned before was judged: a trial that waits at a
        rung and was not dropped goes on. Nothing is returned where nothing is left to train.

        Raises:
            BrokenLaneError: a trial has raised, and that was returned already.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="lane", daemon=True)
            self._thread.start()
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
                self._changed.wait_for(lambda: self._is_urgent or self._is_idle, timeout=pause)
            words, self._words = self._words, []
            self._delivered = time.monotonic()
            self._changed.notify_all()
            return words

    def drop(self, key: str) -> None:
        """End a trial; return when what it has to keep is on disk."""
        with self._changed:
            for waiting in [each for each in self._queue if each.trial.key == key]:
                self._queue.remove(waiting)
            self._await_end([key])

    def halt(self) -> None:
        """End all trials at their next reports, without waiting for that; what they have said by
        then can still be asked for."""
        with self._changed:
            self._queue.clear()
            self._to_drop.update(self._training)
            self._changed.notify_all()

    def stop(self) -> None:
        """End all trials; return when what they have to keep is on disk."""
        with self._changed:
            self._queue.clear()
            self._await_end(list(self._training))
            self._words.clear()

    def _await_end(self, keys: Sequence[str]) -> None:
        self._to_drop.update(self._training.keys() & set(keys))
        self._changed.notify_all()
        self._changed.wait_for(lambda: not self._training.keys() & set(keys))

    @property
    def _is_urgent(self) -> bool:
        """Whether a trial waits for its driver, or the last one there is has begun, which the
        driver should know before it does anything to the process."""
        has_begun = any(isinstance(word.said, Begun) for word in self._words)
        return self._is_awaiting or (has_begun and not self._queue)

    @property
    def _is_idle(self) -> bool:
        return self._is_broken or not (self._training or self._queue)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue and not self._is_broken)
                group = [self._queue.popleft()]
                while self._queue and group[0].bundle and self._queue[0].bundle == group[0].bundle:
                    group.append(self._queue.popleft())
                self._training = {each.trial.key: each for each in group}
                self._words += [_word(each, Begun()) for each in group]
                self._changed.notify_all()
            failed = self._failed(group)
            with self._changed:
                if failed is not None:
                    self._words.append(failed)
                    self._is_broken = True
                self._to_drop.clear()
                self._training, self._is_awaiting = {}, False
                self._changed.notify_all()

    def _failed(self, group: Sequence[Assignment]) -> Word | None:
        """Train some trials; return the last word of the one that raised, if one did."""
        session: Session | None = None
        try:
            try:
                with self._watch(group[0], True):
                    session = self._opening(group)
                while self._advances(session, group[0]):
                    pass
            finally:
                if session is not None:
                    with self._watch(group[0], True):
                        session.close()
        except BaseException as error:
            # Even what would end a process: this thread must live to say so.
            current = session.current if session is not None else None
            return _word(current or group[0], Failure(redact(failure_text(error))))
        return None

    def _advances(self, session: Session, first: Assignment) -> bool:
        """Train up to the next words, and return whether there can be more."""
        with self._watch(first, False):
            words = session.next_words()
        if not words:
            return False
        with self._changed:
            for assignment, said in words:
                self._words.append(_word(assignment, said))
                if isinstance(said, Report) and said.unit in assignment.waits_at:
                    self._is_awaiting = True
            self._changed.notify_all()
            while True:
                # The driver may have a word here, and may have fallen behind.
                self._changed.wait_for(
                    lambda: self._to_drop or not (self._is_awaiting or len(self._words) >= _BACKLOG)
                )
                dropped = set(self._to_drop)
                if not dropped:
                    return True
                if dropped >= self._training.keys():
                    return False
                with self._watch(first, True):
                    for key in dropped:
                        session.drop(key)
                self._to_drop -= dropped
                for key in dropped:
                    del self._training[key]
                self._changed.notify_all()


def _word(assignment: Assignment, said: Report | Setback | Failure | Begun) -> Word:
    return Word(assignment.trial.key, assignment.attempt, said)
