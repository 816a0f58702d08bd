"""Which of the trials that wait for a worker is next."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from hsweep.coordination.speeds import Speeds
from hsweep.coordination.trial_table import ScheduledTrial


@dataclass(slots=True)
class TrialQueue:
    """The trials that could be handed out, those that need everything for themselves apart."""

    _shared: deque[ScheduledTrial] = field(default_factory=deque)
    _exclusive: deque[ScheduledTrial] = field(default_factory=deque)

    def add(self, row: ScheduledTrial, *, first: bool = False) -> None:
        """Let a trial wait, behind all others unless it shall be ``first``."""
        queue = self._exclusive if row.is_exclusive else self._shared
        if first:
            queue.appendleft(row)
        else:
            queue.append(row)

    def next(
        self,
        running: Collection[ScheduledTrial],
        is_ready: Callable[[ScheduledTrial], bool],
    ) -> ScheduledTrial | None:
        """Return the trial that would be handed out next, None if there is none that is ready.

        While an exclusive trial is running nothing starts beside it, and none starts before the
        last of the others has ended.
        """
        if any(row.is_exclusive for row in running):
            return None
        shared = next((row for row in self._shared if is_ready(row)), None)
        if shared is not None or self._shared or running:
            return shared
        return next((row for row in self._exclusive if is_ready(row)), None)

    def remove(self, row: ScheduledTrial, *others: ScheduledTrial) -> None:
        """Take trials out of the queue, several only of those that may train beside others."""
        queue = self._exclusive if row.is_exclusive else self._shared
        if queue[0] is row:
            queue.popleft()
        else:
            queue.remove(row)
        if others:
            keys = {other.trial.key for other in others}
            self._shared = deque(each for each in self._shared if each.trial.key not in keys)

    def put_in_order(self, key: Callable[[ScheduledTrial], Any]) -> None:
        """Let the trials that have never begun change places, the least by this key first."""
        fresh = iter(sorted((row for row in self._shared if not row.attempt), key=key))
        self._shared = deque(row if row.attempt else next(fresh) for row in self._shared)

    @property
    def shared(self) -> Collection[ScheduledTrial]:
        """The trials that may train beside others, in the order in which they are handed out."""
        return self._shared

    @property
    def is_empty(self) -> bool:
        return not (self._shared or self._exclusive)


def priority(row: ScheduledTrial, speeds: Speeds) -> tuple[int, int, int, float, int]:
    """Order of handing out: interrupted trials first, then shorter budgets of a ladder before
    longer ones, every point once before any point twice, long trials first so that none is the
    only one left at the end."""
    trial = row.trial
    return (
        0 if row.unit else 1,
        trial.budget.amount,
        trial.replicate,
        -speeds.expected(trial),
        trial.ordinal,
    )
