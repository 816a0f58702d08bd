"""The door to training: opens one trial, or several that may be trained as one program."""

from collections import deque
from collections.abc import Sequence

from hsweep.design.trial import Assignment
from hsweep.training.session import Session, TrialEvent


def open_session(assignments: Sequence[Assignment]) -> Session:
    """Begin trials: one, or several of one kind, which may be trained as one program."""
    if len(assignments) == 1:
        return _single_session(assignments[0])
    return SeveralSession(assignments, always=assignments[0].always_stacked)


class SeveralSession:
    """Trials in training, stacked as long as that is possible and quicker; those for which it is
    not are trained one after another.

    Args:
        assignments: the trials, and where their checkpoints lie.
        always: stack them wherever it is possible; else where a short trial run shows that it
            is quicker.

    Attributes:
        reason: why some or all of them are trained separately; empty while none are.
    """

    def __init__(self, assignments: Sequence[Assignment], *, always: bool = False) -> None:
        from hsweep.training.stacked.session import StackedSession
        from hsweep.training.stacked.updates import CannotStackError

        self._waiting: deque[Assignment] = deque()
        self._training: Session | None = None
        self._stack: StackedSession | None = None
        self.reason = ""
        try:
            self._training = self._stack = StackedSession(assignments, always=always)
        except CannotStackError as error:
            self.reason = error.reason
            self._waiting.extend(assignments)

    @property
    def current(self) -> Assignment | None:
        """The trial that is trained separately just now, None while several are stacked: what is
        raised then is this one's failure."""
        return self._training.current if self._training is not None else None

    def next_events(self) -> Sequence[TrialEvent]:
        """Train up to the next reports, and return them; nothing after the last.

        Raises:
            Exception: whatever the trial raises that is trained separately (see ``current``).
        """
        while self._training is not None or self._waiting:
            if self._training is None:
                self._training = _single_session(self._waiting.popleft())
            if events := self._training.next_events():
                return events
            self._end()
        return []

    def drop(self, key: str) -> None:
        """End one of the trials, keeping what is not yet on disk."""
        current = self.current
        if current is not None and current.trial.key == key:
            self._end()
        elif self._training is not None and current is None:
            self._training.drop(key)
        self._waiting = deque(each for each in self._waiting if each.trial.key != key)

    def close(self) -> None:
        """End all trials, keeping what is not yet on disk, and give the device's memory back."""
        self._end()
        self._waiting.clear()

    def _end(self) -> None:
        """End what is in training; what a stack has left is trained separately."""
        training, stack = self._training, self._stack
        self._training = self._stack = None
        if training is None:
            return
        if stack is not None:
            self._waiting.extend(stack.remaining)
            self.reason = stack.reason
        training.close()


def _single_session(assignment: Assignment) -> Session:
    """Begin one trial; torch is imported here at the earliest."""
    from hsweep.training.train import TrialSession

    return TrialSession(assignment)
