"""Which trial is next: those that wait for a worker, for a rung, or for everything else to end."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class HandingOut:
    """The trials that are neither running nor done with.

    Attributes:
        alone: keys of the trials that must train with nothing beside them.
    """

    alone: set[str] = field(default_factory=set)
    _waiting: deque[str] = field(default_factory=deque)
    _waiting_alone: deque[str] = field(default_factory=deque)
    _paused: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, key: str, *, first: bool = False) -> None:
        """Let a trial wait for a worker, behind all others unless it shall be ``first``."""
        queue = self._waiting_alone if key in self.alone else self._waiting
        if first:
            queue.appendleft(key)
        else:
            queue.append(key)

    def pause(self, key: str, stratum: str, unit: int) -> None:
        """Let a trial wait for the others of its stratum at the rung of ``unit``."""
        self._paused.setdefault(stratum, {})[key] = unit

    def paused(self, stratum: str) -> dict[str, int]:
        """Return the trials of a stratum that wait at a rung, and at which."""
        return dict(self._paused.get(stratum, {}))

    def unpause(self, key: str, stratum: str) -> None:
        """Forget that a trial waits at a rung."""
        del self._paused[stratum][key]

    @property
    def next(self) -> str | None:
        """The trial that is handed out next to a worker that shares its device, if any."""
        return self._waiting[0] if self._waiting else None

    @property
    def num_waiting(self) -> int:
        """How many trials wait for a worker that shares its device."""
        return len(self._waiting)

    def drop_next(self) -> None:
        """Forget the trial that would be handed out next."""
        self._waiting.popleft()

    def take(self, running: Mapping[str, object]) -> str | None:
        """Return the next trial, None if there is none for now.

        Args:
            running: the trials in training, by key. While one of those that must be alone is among
                them, and until the last of the others has ended, nothing starts beside it.
        """
        if self.alone & running.keys():
            return None
        if self._waiting:
            return self._waiting.popleft()
        if self._waiting_alone and not running:
            return self._waiting_alone.popleft()
        return None

    def take_more(self, is_wanted: Callable[[str], bool], most: int) -> list[str]:
        """Return some of the trials that share their device, wherever in the queue they are.

        Args:
            is_wanted: whether a trial is one of them.
            most: how many at most.
        """
        found: list[str] = []
        for key in self._waiting:
            if len(found) >= most:
                break
            if is_wanted(key):
                found.append(key)
        taken = set(found)
        if taken:
            self._waiting = deque(key for key in self._waiting if key not in taken)
        return found

    @property
    def is_empty(self) -> bool:
        """Whether no trial waits for anything."""
        return not (self._waiting or self._waiting_alone or any(self._paused.values()))
