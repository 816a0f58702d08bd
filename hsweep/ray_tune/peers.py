"""The processes of a trial beside its worker, which is rank 0: ranks 1 and above, one actor each.

They are placed with their worker (Tune's placement group has a bundle for each), live as long as it
does, and train their part of one trial after another. Ray ends them with the worker, which owns
them, within a second however it ends; when one of them ends, the worker notices and gives the trial
up, because the others may wait for it in a collective for ever.
"""

import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any, Final

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hsweep.design.trial import Assignment, Resources
from hsweep.errors import failure_text
from hsweep.ray_tune.messages import Place
from hsweep.ray_tune.pickling import name_definitions, send_whole
from hsweep.ray_tune.private import as_actor_error
from hsweep.secrets import redact
from hsweep.threads import in_thread
from hsweep.training.run import Channel
from hsweep.training.train import train
from hsweep.training.worker_queue import EndedProcess, Failure, TrialError
from hsweep.training.world import connected, find_store

_CAUSE_SECONDS: Final = 3.0
"""How long an error in rank 0 waits for the end of another process, which may have caused it."""
_ENDING_SECONDS: Final = 60.0
"""How long other processes may take to end a trial after rank 0 has ended it."""

Interrupt = Callable[[Assignment, Failure | None], None]
"""Interrupts the training of a trial."""


def own_place() -> Place:
    # Without Ray this would start one.
    node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
    return Place(node=node, host=socket.gethostname(), pid=os.getpid())


class Peer:
    """A process of a rank above 0."""

    def __init__(self, rank: int, size: int) -> None:
        import torch  # noqa: F401 - while rank 0 does the same

        self._rank, self._size = rank, size

    def place(self) -> Place:
        return own_place()

    def train(self, assignment: Assignment, host: str, port: int, name: str) -> Failure | None:
        """Train this rank's part of a trial; return why it failed, None if it has ended well."""
        try:
            name_definitions(assignment.trial)
            store = find_store(host, port)
            gpus = assignment.resources.gpus
            with contextlib.ExitStack() as stack:
                world = stack.enter_context(connected(self._rank, self._size, store, name, gpus))
                ending = train(assignment, Channel(), world)
                if ending is not None:
                    stack.pop_all()  # the group stays, as where rank 0 fails
                return ending
        except BaseException as error:
            headline, _, rest = redact(failure_text(error)).partition("\n")
            return TrialError(f"{headline} (in rank {self._rank} of {self._size})\n{rest}")


class Peers:
    """The other processes of a worker's trials, seen from it.

    Args:
        resources: of each trial that they train.
    """

    def __init__(self, resources: Resources) -> None:
        # What came here by value goes on in the same way.
        send_whole(())
        self._size = resources.processes
        group = ray.util.get_current_placement_group()
        amounts = {"num_cpus": resources.cpus, "num_gpus": resources.gpus / self._size}
        self._actors = [
            ray.remote(**amounts)(Peer)
            .options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank))
            .remote(rank, self._size)
            for rank in range(1, self._size)
        ]
        self._places = [actor.place.remote() for actor in self._actors]
        self._host = ray.util.get_node_ip_address()
        self._store = find_store(self._host)
        self._numbers = itertools.count()

    def train(self, assignment: Assignment, channel: Channel, interrupt: Interrupt) -> None:
        """Train a trial in all processes, of which this is rank 0."""
        name = f"{assignment.trial.key}-{assignment.attempt}-{next(self._numbers)}"
        parts = {
            actor.train.remote(assignment, self._host, self._store.port, name): rank
            for rank, actor in enumerate(self._actors, start=1)
        }
        is_reported = threading.Event()  # by this process

        def give_up(failure: Failure | None) -> None:
            if not is_reported.is_set():
                interrupt(assignment, failure)
            self.kill()

        def watch() -> None:
            """Notice how the other processes' parts end, whatever this process is at."""
            left = list(parts)
            while left:
                [part], left = ray.wait(left, num_returns=1)
                if failure := self._failure_of(part, parts[part]):
                    return give_up(failure)

        watching = in_thread("peers", watch)
        gpus = assignment.resources.gpus
        try:
            with connected(0, self._size, self._store, name, gpus) as world:
                ending = train(assignment, channel, world)
                # Others may not know that this one cannot go on, and wait for it.
                wait([watching], _ENDING_SECONDS if ending is None else _CAUSE_SECONDS)
                if not watching.done():
                    give_up(None)
        except BaseException:
            # Where another process has ended, its collectives fail here: that is the cause.
            wait([watching], _CAUSE_SECONDS)
            is_reported.set()
            self.kill()
            raise

    def _failure_of(self, part: Any, rank: int) -> Failure | None:
        try:
            failure: Failure | None = ray.get(part)
        except Exception as error:
            return EndedProcess(as_actor_error(error), self._place(rank), rank=rank)
        return failure

    def _place(self, rank: int) -> Place | None:
        """Return where the process of a rank ran; None where that is not known."""
        reference = self._places[rank - 1]
        ready, _ = ray.wait([reference], timeout=0)
        with contextlib.suppress(RayError):
            return ray.get(reference) if ready else None
        return None

    def kill(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
