"""Which trials go to which lane, and how many at once.

A lane is a Tune trial: one process that trains one trial of ours after another and is given more
while it is at work. Long trials are given out one by one, each to the lane that is free first;
short ones in handfuls, so that a lane never waits for its driver.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.packing import may_take
from hsweep.design.trial import Assignment, Resources
from hsweep.ray_tune.actor import START_SECONDS

AHEAD_SECONDS: Final = 0.5
"""How much work a lane has ahead."""

_LEAST_SECONDS: Final = 0.1
"""How much work is not divided among lanes any further, once so many trials have ended that it is
known how long they take."""

_MOST_AHEAD: Final = 64
_NEWS: Final = 0.2
_CLOSING_SECONDS: Final = 60.0
_MANY_CLOSING: Final = 64

Bundle = list[Assignment]
"""Trials that are trained as one program, or a single one."""


@dataclass(slots=True, eq=False)
class Lane:
    """What a lane's process has been given and has not ended yet.

    Attributes:
        resources: what each of its trials occupies.
        undone: by key, in the order they were given.
        begun: keys of those that the process has come to.
        has_begun: the process has said that it is there.
        actor: the process, once it is there.
        place: a reference to where it runs.
        silent: seconds since its last word, as far as this process was awake to hear one.
        was_silenced: it was ended because of that.
        is_broken: a trial failed in it, and it ends.
    """

    resources: Resources
    undone: dict[str, Assignment] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    has_begun: bool = False
    actor: Any = None
    place: Any = None
    silent: float = 0.0
    was_silenced: bool = False
    is_broken: bool = False

    def add(self, assignments: Iterable[Assignment]) -> None:
        """Note what the process is given."""
        self.undone.update((each.trial.key, each) for each in assignments)

    @property
    def patience(self) -> float | None:
        """Seconds without a word after which the process hangs; None for no matter how many.

        Starting a process takes its time, and so may ending a trial before the next one begins.
        """
        timeouts = [each.report_timeout for each in self.undone.values() if each.report_timeout]
        if not timeouts:
            return None
        is_at_work = self.has_begun and bool(self.begun)
        return max(timeouts) if is_at_work else max(*timeouts, START_SECONDS)

    def is_done_with(self, key: str) -> None:
        """Note that a trial has ended there."""
        del self.undone[key]
        self.begun.discard(key)


@dataclass(slots=True)
class _Closing:
    """A trial that ended its stay in a lane, which may still be writing its checkpoint."""

    reference: Any
    since: float
    lane: Lane


@dataclass(slots=True)
class Dispatch:
    """Takes trials from the coordinator for lanes.

    Args:
        coordinator: hands out trials.
        has_happened: whether what a reference stands for is done.
        places: lanes that there can be at once.

    Attributes:
        left: by trial, the nodes on which a process died that trained it.
    """

    coordinator: Coordinator
    has_happened: Callable[[Any], bool]
    places: int = 1
    left: dict[str, set[str]] = field(default_factory=dict)
    _suspects: set[str] = field(default_factory=set)
    _closing: dict[str, _Closing] = field(default_factory=dict)
    _held: list[Bundle] = field(default_factory=list)
    _trial_seconds: float | None = None
    _num_ended: int = 0

    def opening(self) -> Lane | None:
        """Return a new lane with its first trials, None if there are none now."""
        first = self._next(None)
        if first is None:
            return None
        lane = Lane(first[0].resources)
        lane.add(first)
        lane.add(self.more(lane, ()))
        return lane

    def more(self, lane: Lane, waiting: Iterable[Resources]) -> list[Assignment]:
        """Return what a lane gets beside what it has: enough to be busy until it is heard again.

        Nobody is overtaken for ever: a lane gets nothing while a trial waits for a place that needs
        a lane of its own, or one of another size.

        Args:
            lane: which has a process, or will have one.
            waiting: what lanes would occupy that have no process yet.
        """
        given: list[Assignment] = []
        if self._is_done_with(lane) or not may_take(lane.resources, waiting):
            return given
        ahead = self.num_ahead()
        if len(lane.undone) > ahead // 2 > 0:
            # Every hand-out has its price, however much is in it.
            return given
        while len(lane.undone) + len(given) <= ahead:
            bundle = self._next(lane)
            if bundle is None:
                break
            given += bundle
        return given

    def close(self, key: str, reference: Any, lane: Lane) -> None:
        """Note that a lane was told to end a trial, which may be handed out again.

        Args:
            key: the trial.
            reference: to that being done.
            lane: where it was.
        """
        if len(self._closing) >= _MANY_CLOSING:
            self._closing = {
                each: closing
                for each, closing in self._closing.items()
                if not self.has_happened(closing.reference)
            }
        self._closing[key] = _Closing(reference, time.monotonic(), lane)

    def suspect(self, key: str) -> None:
        """Let a trial train in a lane by itself from now on."""
        self._suspects.add(key)

    def note_duration(self, seconds: float) -> None:
        """Learn how long a trial takes."""
        before = self._trial_seconds if self._trial_seconds is not None else seconds
        self._trial_seconds = (1 - _NEWS) * before + _NEWS * seconds
        self._num_ended += 1

    def num_ahead(self) -> int:
        """Return how many trials a lane may have beside the one it trains."""
        if self._trial_seconds is None:
            return 0
        trial_seconds = max(self._trial_seconds, 1e-4)
        # What is left at the end shall not all lie in one lane, unless it is next to nothing.
        fair = self.coordinator.num_waiting // (4 * max(1, self.places))
        least = int(_LEAST_SECONDS / trial_seconds) if self._num_ended >= _MOST_AHEAD else 0
        return min(_MOST_AHEAD, int(AHEAD_SECONDS / trial_seconds), max(fair, least))

    def _next(self, lane: Lane | None) -> Bundle | None:
        """Return the next trials for a lane, or for a new one."""
        for number, held in enumerate(self._held):
            if self._have_closed(held, lane):
                if lane is not None and not self._suits(held, lane):
                    return None
                return self._held.pop(number)
        like = lane.resources if lane is not None else None
        while bundle := self.coordinator.take_bundle(like, self.places):
            have_closed = self._have_closed(bundle, lane)
            if have_closed and (lane is None or self._suits(bundle, lane)):
                return bundle
            # A new lane takes it, or its last one is still writing the checkpoint it goes on from.
            self._held.append(bundle)
            if have_closed:
                return None
        return None

    def _is_done_with(self, lane: Lane) -> bool:
        """Whether a lane shall train what it has and no more."""
        return any(key in self._suspects or each.isolate for key, each in lane.undone.items())

    def _suits(self, bundle: Bundle, lane: Lane) -> bool:
        return all(
            each.resources == lane.resources
            and not (each.is_alone or each.isolate)
            and each.trial.key not in self._suspects | self.left.keys()
            for each in bundle
        )

    def _have_closed(self, bundle: Bundle, lane: Lane | None) -> bool:
        return all(self._has_closed(each.trial.key, lane) for each in bundle)

    def _has_closed(self, key: str, lane: Lane | None) -> bool:
        closing = self._closing.get(key)
        # One process does what it is told in the order it is told.
        if closing is None or closing.lane is lane or self.has_happened(closing.reference):
            return True
        return time.monotonic() - closing.since >= _CLOSING_SECONDS
