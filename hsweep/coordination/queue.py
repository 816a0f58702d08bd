"""The order in which waiting trials get a worker."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hsweep.record.rows import TrialRow

_HANDED_OUT_BETWEEN: Final = 16
"""The queue is put in order again after a sixteenth of it is handed out: towards the end, where the
order counts, each time, and with ten thousand trials for a few microseconds each."""


@dataclass(slots=True)
class TrialQueue:
    """The trials that wait for a worker; trials that must train alone wait in a second queue.

    Args:
        rows: of the record, by key.
        order: returns the sort key of a trial that has never begun; the smallest goes first.
    """

    rows: Mapping[str, TrialRow]
    order: Callable[[str], Any]
    _shared: deque[str] = field(default_factory=deque)
    _exclusive: deque[str] = field(default_factory=deque)
    _num_handed_out: int = 0

    def add(self, key: str, *, first: bool = False) -> None:
        queue = self._of(key)
        (queue.appendleft if first else queue.append)(key)

    def next(self, running: Iterable[TrialRow], is_ready: Callable[[str], bool]) -> str | None:
        """Return the next trial to hand out, None if no waiting trial is ready.

        While an exclusive trial is running nothing starts beside it, and none starts before the
        last of the others has ended.
        """
        running = list(running)
        if any(row.exclusive for row in running):
            return None
        if self._num_handed_out * _HANDED_OUT_BETWEEN >= len(self._shared):
            self._sort()
        shared = next(filter(is_ready, self._shared), None)
        if shared is not None or self._shared or running:
            return shared
        return next(filter(is_ready, self._exclusive), None)

    def take(self, key: str) -> None:
        self._num_handed_out += 1
        self._of(key).remove(key)

    @property
    def num_shared(self) -> int:
        """Number of waiting trials that may train beside others."""
        return len(self._shared)

    @property
    def is_empty(self) -> bool:
        return not (self._shared or self._exclusive)

    def _of(self, key: str) -> deque[str]:
        return self._exclusive if self.rows[key].exclusive else self._shared

    def _sort(self) -> None:
        """Sort the trials that have never begun by their present order; other trials keep their
        places."""
        self._num_handed_out, rows = 0, self.rows
        fresh = iter(sorted((key for key in self._shared if not rows[key].attempt), key=self.order))
        self._shared = deque(key if rows[key].attempt else next(fresh) for key in self._shared)
