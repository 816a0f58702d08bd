"""The worker processes of a run, their trials, and the trials that each gets next.

A worker is a trial to Tune: one process that trains one trial of ours after another and gets more
while it is at work. Long trials go out one by one, each to the worker that is free first; short
ones several at once, so that a worker never waits for its driver.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import ray

from hsweep.coordination.coordinator import Coordinator
from hsweep.design.trial import Assignment, Resources
from hsweep.ray_tune.messages import Place, WorkerStart
from hsweep.ray_tune.private import actor_of
from hsweep.ray_tune.roster import Roster
from hsweep.training.worker_queue import ENDING_SECONDS, START_SECONDS

AHEAD_SECONDS: Final = 0.5
"""Seconds of work that a worker has waiting."""

_LEAST_SECONDS: Final = 0.1
"""Work of fewer seconds is not divided among workers any further, once the duration of trials is
known."""

_MAX_AHEAD: Final = 64
_WEIGHT_OF_LAST: Final = 0.2
"""The weight of the trial that ended last in the mean duration of trials."""


@dataclass(slots=True, eq=False)
class Worker:
    """A worker process, started or about to start, with its unfinished trials.

    Attributes:
        resources: what each of its trials occupies.
        avoided: ids of nodes on which it shall not run.
        isolates: its first trial is its last.
        unfinished: assignments by key, in the order of their arrival.
        started: keys of the trials that the process has begun.
        place: where it runs; None before its first message.
        silent_seconds: since its last message, as far as this process was awake to hear one.
        was_silenced: it was ended because of that.
        is_broken: a trial failed or does not end in it, or its node goes away, and it ends.
    """

    resources: Resources
    avoided: frozenset[str] = frozenset()
    isolates: bool = False
    unfinished: dict[str, Assignment] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    tune_trial: Any = None
    place: Place | None = None
    silent_seconds: float = 0.0
    was_silenced: bool = False
    is_broken: bool = False

    @property
    def actor(self) -> Any:
        """Ray's handle of the process, None before its start and after its end."""
        return None if self.tune_trial is None else actor_of(self.tune_trial)

    @property
    def patience(self) -> float | None:
        """Seconds without a message after which the process counts as hanging; None for no limit.

        Starting a process takes its time, and so may ending a trial before the next one begins.
        """
        patience = (assignment.patience_seconds for assignment in self.unfinished.values())
        timeouts = [seconds for seconds in patience if seconds is not None]
        if not timeouts:
            return None
        return max(timeouts) if self.started else max(*timeouts, START_SECONDS)

    @property
    def task_name(self) -> str:
        """Label of the trial that the process trains or begins next."""
        at_work = [key for key in self.unfinished if key in self.started] or [*self.unfinished][:1]
        labels = [self.unfinished[key].label for key in at_work]
        others = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        return f"{labels[0]}{others}" if labels else ""

    def may_have_started(self, key: str) -> bool:
        """Whether the process may have begun a trial: with several trials its progress is
        unknown."""
        return key in self.started or (len(self.unfinished) > 1 and self.place is not None)

    def add(self, assignment: Assignment) -> None:
        self.unfinished[assignment.trial.key] = assignment

    def is_done_with(self, key: str) -> None:
        del self.unfinished[key]
        self.started.discard(key)


@dataclass(slots=True)
class Workers:
    """Takes trials from the coordinator for workers, ``max_workers`` of them at once, which may
    change at any time.

    Attributes:
        by_id: the workers, by the id that Tune gives each.
        roster: the nodes that they are on.
    """

    coordinator: Coordinator
    max_workers: int = 1
    by_id: dict[str, Worker] = field(default_factory=dict)
    roster: Roster = field(init=False)
    _closing: dict[str, tuple[Any, Any, float]] = field(default_factory=dict)
    _trial_seconds: float | None = None
    _num_ended: int = 0

    def __post_init__(self) -> None:
        self.roster = Roster(self.coordinator)
        self.roster.occupied = lambda: [
            (worker.place.node if worker.place else None, worker.resources)
            for worker in list(self.by_id.values())
        ]

    def open(self, trial_id: str) -> WorkerStart | None:
        """Return the first assignments of a new worker, None if no trial is ready, or no room."""
        first = self._next(None) if len(self.by_id) < self.max_workers else None
        if first is None:
            return None
        worker = Worker(first.resources, isolates=first.isolate)
        worker.avoided = self.roster.avoided(first.trial.key, worker.resources)
        worker.add(first)
        self.add_assignments(worker)
        self.by_id[trial_id] = worker
        return WorkerStart(tuple(worker.unfinished.values()), worker.avoided)

    def add_assignments(self, worker: Worker) -> list[Assignment]:
        """Add as many trials to a worker as keep it busy until its next message; return them.

        No trial is overtaken for ever: a worker gets nothing while another of a different size
        waits for its process, for the room it waits for would never become free.
        """
        if worker.isolates or len(self.by_id) > self.max_workers:
            return []
        if any(other.resources != worker.resources for other in self.without_process()):
            return []
        ahead = self.num_ahead()
        if len(worker.unfinished) > ahead // 2 > 0:
            # Every hand-out has its price, however much is in it.
            return []
        assignments: list[Assignment] = []
        while len(worker.unfinished) <= ahead and (
            assignment := self._next(worker.resources, worker.place)
        ):
            worker.add(assignment)
            assignments.append(assignment)
        return assignments

    def without_process(self) -> list[Worker]:
        return [worker for worker in list(self.by_id.values()) if worker.actor is None]

    def with_process(self) -> list[Worker]:
        return [worker for worker in list(self.by_id.values()) if worker.actor is not None]

    def any_fits(self, workers: Iterable[Worker]) -> bool:
        """Whether the nodes could hold one of these workers, were they empty."""
        return any(self.roster.slots(worker.resources, worker.avoided) for worker in workers)

    def close(self, assignment: Assignment, actor: Any) -> None:
        """Let a worker end a trial, and keep it from starting elsewhere until it has ended."""
        self._closing = {
            key: closing for key, closing in self._closing.items() if _is_open(closing)
        }
        seconds = ENDING_SECONDS + assignment.trial.ending_seconds
        key = assignment.trial.key
        self._closing[key] = actor, actor.drop.remote(key), time.monotonic() + seconds

    def kill_stuck(self) -> None:
        """End the processes in which a trial goes on after the time that it has for ending."""
        for key, closing in list(self._closing.items()):
            actor, _, deadline = closing
            if deadline < time.monotonic():
                del self._closing[key]
                if _is_open(closing):
                    for worker in self.with_process():
                        # Another worker may have the process by now: Tune uses it again.
                        worker.is_broken |= worker.actor == actor
                    ray.kill(actor)

    def note_duration(self, seconds: float) -> None:
        before = self._trial_seconds if self._trial_seconds is not None else seconds
        self._trial_seconds = (1 - _WEIGHT_OF_LAST) * before + _WEIGHT_OF_LAST * seconds
        self._num_ended += 1

    def num_ahead(self) -> int:
        """Return how many trials a worker may have beside the one it trains."""
        if self._trial_seconds is None:
            return 0
        trial_seconds = max(self._trial_seconds, 1e-4)
        # The last trials shall not all be one worker's, unless they take next to no time.
        fair = self.coordinator.num_waiting // (4 * max(1, self.max_workers))
        least = int(_LEAST_SECONDS / trial_seconds) if self._num_ended >= _MAX_AHEAD else 0
        return min(_MAX_AHEAD, int(AHEAD_SECONDS / trial_seconds), max(fair, least))

    def _next(self, size: Resources | None, place: Place | None = None) -> Assignment | None:
        def is_ready(key: str) -> bool:
            if key in self._closing and _is_open(self._closing[key]):
                return False
            return size is None or not place or place.node not in self.roster.avoided(key, size)

        return self.coordinator.next_assignment(size, is_ready)


def _is_open(closing: tuple[Any, Any, float]) -> bool:
    return not ray.wait([closing[1]], timeout=0)[0]
