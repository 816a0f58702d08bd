"""Trials that were handed out together, in one process: as one program where that can be done."""

from collections import deque
from collections.abc import Sequence

from hsweep.design.trial import Assignment
from hsweep.training.session import TrialEvent, TrialSession


class BundleSession:
    """Trials in training, as one program as long as that is possible and quicker; those for which
    it is not are trained one after another.

    Args:
        assignments: the trials, and where their checkpoints lie.
        is_settled: train them as one program wherever it is possible; else where a short trial run
            shows that it is quicker.

    Attributes:
        reason: why some or all of them are trained separately; empty while none are.
    """

    def __init__(self, assignments: Sequence[Assignment], *, is_settled: bool = False) -> None:
        from hsweep.training.stacked_batches import CannotTrainTogetherError
        from hsweep.training.together import TogetherSession

        self._waiting: deque[Assignment] = deque()
        self._together: TogetherSession | None = None
        self._single: TrialSession | None = None
        self.reason = ""
        if len(assignments) > 1:
            try:
                self._together = TogetherSession(assignments, is_settled=is_settled)
            except CannotTrainTogetherError as error:
                self.reason = error.reason
        if self._together is None:
            self._waiting.extend(assignments)

    @property
    def current(self) -> Assignment | None:
        """The trial that is trained separately just now, None while several are as one program:
        what is raised then is this one's failure."""
        return self._single.assignment if self._single is not None else None

    @property
    def waiting(self) -> tuple[Assignment, ...]:
        """Trials that are not in training here yet."""
        return tuple(self._waiting)

    def next_events(self) -> Sequence[TrialEvent]:
        """Train up to the next reports, and return them; nothing after the last.

        Raises:
            Exception: whatever the trial raises that is trained separately (see ``current``).
        """
        if self._together is not None:
            if words := self._together.next_events():
                return words
            self._waiting.extend(self._together.left)
            self.reason = self._together.reason
            self._end_together()
        while True:
            if self._single is None:
                if not self._waiting:
                    return []
                self._single = TrialSession(self._waiting.popleft())
            if words := self._single.next_events():
                return words
            self._end_single()

    def drop(self, key: str) -> None:
        """End one of the trials, keeping what is not yet on disk."""
        if self._together is not None:
            self._together.drop(key)
        elif self._single is not None and self._single.assignment.trial.key == key:
            self._end_single()
        else:
            kept = [each for each in self._waiting if each.trial.key != key]
            self._waiting = deque(kept)

    def close(self) -> None:
        """End all trials, keeping what is not yet on disk, and give the device's memory back."""
        self._waiting.clear()
        self._end_together()
        self._end_single()

    def _end_together(self) -> None:
        together, self._together = self._together, None
        if together is not None:
            together.close()

    def _end_single(self) -> None:
        single, self._single = self._single, None
        if single is not None:
            single.close()
