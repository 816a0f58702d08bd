"""The actor in Ray's worker processes; imports only modules that training needs."""

import contextlib
import signal
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final

from ray import tune
from ray.tune.execution.placement_groups import PlacementGroupFactory

from hsweep.design.trial import Assignment
from hsweep.ray_tune.messages import MESSAGES, PLACE, START, WorkerStart, placement_of
from hsweep.ray_tune.peers import Peers, own_place
from hsweep.ray_tune.pickling import name_definitions
from hsweep.signals import not_in_forks
from hsweep.training.run import Channel
from hsweep.training.train import train
from hsweep.training.worker_queue import HangWatch, WorkerQueue
from hsweep.workspace import set_up_worker

_NODE_LABEL: Final = "ray.io/node-id"


class TrialActor(tune.Trainable):
    """The process that trains trials: a worker that gets more of them while it is at work."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        start: WorkerStart = config[START]
        first = start.assignments[0]
        # One bundle for each process that is placed here; a command's all run where it does.
        bundles, strategy = placement_of(first.resources, first.trial.num_ranks)
        if not start.avoided:
            return PlacementGroupFactory(bundles, strategy)
        elsewhere = {_NODE_LABEL: f"!in({','.join(sorted(start.avoided))})"}
        return PlacementGroupFactory(
            bundles, strategy, bundle_label_selector=[elsewhere] * len(bundles)
        )

    def setup(self, config: dict[str, Any]) -> None:
        """Get ready for the first trials, which begin when they are asked for.

        While a process starts, Tune may give its trials to one that has become free and end this
        one: had they started here, they would be trained twice, over one another's checkpoints.
        """
        set_up_worker()  # done already, unless that failed: then it says why
        self._place = own_place()
        first = config[START].assignments[0]
        is_several = first.trial.num_ranks > 1
        self._peers = Peers(first.resources) if is_several else None
        self._watch = HangWatch()
        self._queue = WorkerQueue(self._train, self._watch)
        self._retire_at_sigterm()
        self._take(config)

    def _retire_at_sigterm(self) -> None:
        """Let the first SIGTERM, a notice that the machine goes away, end the trials with their
        checkpoints, and the next one this process."""
        before = signal.getsignal(signal.SIGTERM)

        @not_in_forks
        def handle(number: int, _frame: FrameType | None) -> None:
            signal.signal(number, before)
            self._queue.retire()

        signal.signal(signal.SIGTERM, handle)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        # An error in ending the trials before is no failure of the new ones.
        with contextlib.suppress(Exception):
            self.cleanup()
        self._take(new_config)
        return True

    def _take(self, config: dict[str, Any]) -> None:
        # A process that is used again has another folder, and the driver looks there.
        self._watch.folder = self.logdir
        self.give(config[START].assignments)
        # Tune adds it to everything this process returns, with each assignment in it.
        self.config: dict[str, Any] = {}

    def step(self) -> dict[str, Any]:
        """Return the messages of the trials since the last call, once there are any, and the place
        of this process. A BrokenWorkerError ends the process in which a trial failed."""
        return {MESSAGES: self._queue.next_messages(), PLACE: self._place}

    def give(self, assignments: Sequence[Assignment]) -> None:
        name_definitions([assignment.trial for assignment in assignments])
        self._queue.give(assignments)

    def drop(self, key: str) -> None:
        self._queue.drop(key)

    def halt(self) -> None:
        self._queue.halt()

    def retire(self) -> None:
        """End all trials as ``halt`` does, and then this process, by an error in ``step``."""
        self._queue.retire()

    def cleanup(self) -> None:
        self._queue.stop()

    def _train(self, assignment: Assignment, channel: Channel) -> None:
        if self._peers is None:
            train(assignment, channel)
        else:
            self._peers.train(assignment, channel, self._queue.interrupt)

    def __repr__(self) -> str:
        # Shown in Ray's dashboard. An actor outlives its trials, so it has the name of its kind.
        return "hsweep-worker"
