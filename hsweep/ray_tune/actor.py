"""What runs in Ray's worker processes; imports no more than training needs."""

import contextlib
import faulthandler
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from ray import tune
from ray.tune.execution.placement_groups import PlacementGroupFactory

from hsweep.design.trial import Assignment
from hsweep.ray_tune.messages import (
    MESSAGES,
    PLACE,
    START,
    START_SECONDS,
    WorkerStart,
    hang_file,
)
from hsweep.ray_tune.peers import Peers, own_place
from hsweep.training.run import Channel
from hsweep.training.train import train
from hsweep.training.worker_queue import WorkerQueue
from hsweep.workspace import set_up_worker

_NODE_LABEL: Final = "ray.io/node-id"


class TrialActor(tune.Trainable):
    """The process that trains trials: a worker that gets more of them while it is at work."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        start: WorkerStart = config[START]
        trial, resources = start.assignments[0].trial, start.assignments[0].resources
        # One bundle for each process that is placed here; a command's all run where it does.
        number = trial.num_ranks
        amounts = {"CPU": resources.all_cpus / number, "GPU": resources.gpus / number}
        bundles = [{name: n for name, n in amounts.items() if n > 0}] * number
        strategy = "PACK" if resources.spread else "STRICT_PACK"
        if not start.avoided:
            return PlacementGroupFactory(bundles, strategy)
        elsewhere = {_NODE_LABEL: f"!in({','.join(sorted(start.avoided))})"}
        return PlacementGroupFactory(bundles, strategy, bundle_label_selector=[elsewhere] * number)

    def setup(self, config: dict[str, Any]) -> None:
        """Get ready for the first trials, which begin when they are asked for.

        While a process starts, Tune may give its trials to one that has become free and end this
        one: had they started here, they would be trained twice, over one another's checkpoints.
        """
        set_up_worker()  # done already, unless that failed: then it says why
        self._place = own_place()
        first = config[START].assignments[0]
        is_several = first.trial.num_ranks > 1
        self._peers = Peers(first.resources, train) if is_several else None
        self._queue = WorkerQueue(self._train, HangWatch(self.logdir))
        self._take(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        # What went wrong with keeping the trials before is no failure of these.
        with contextlib.suppress(Exception):
            self.cleanup()
        self._take(new_config)
        return True

    def _take(self, config: dict[str, Any]) -> None:
        self._queue.give(config[START].assignments)
        # Tune adds it to everything this process returns, with each assignment in it.
        self.config: dict[str, Any] = {}

    def step(self) -> dict[str, Any]:
        """Return what happened to the trials since the last time, as soon as there is something,
        and where that was. A BrokenWorkerError ends the process in which a trial failed."""
        return {MESSAGES: self._queue.next_messages(), PLACE: self._place}

    def give(self, assignments: Sequence[Assignment]) -> None:
        self._queue.give(assignments)

    def drop(self, key: str) -> None:
        """End a trial now; return when what it has to keep is on disk."""
        self._queue.drop(key)

    def halt(self) -> None:
        """End all trials at their next reports; what they report until then is still asked for."""
        self._queue.halt()

    def cleanup(self) -> None:
        """End all trials, writing a checkpoint where work is not yet on disk."""
        self._queue.stop()

    def _train(self, assignment: Assignment, channel: Channel) -> None:
        if self._peers is None:
            train(assignment, channel)
        else:
            self._peers.train(assignment, channel, self._queue.interrupt)

    def __repr__(self) -> str:
        # Shown in Ray's dashboard. An actor outlives its trials, so it is named as what it is.
        return "hsweep-worker"


class HangWatch:
    """Ends this process if work for a trial takes longer than a report may, or than beginning or
    ending a trial may; leaves in a file where the work was.

    A thread keeps watch that needs no interpreter lock: it notices foreign code that never returns.

    Args:
        folder: for the file.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: TextIO | None = None
        self._path: Path | None = None

    def begin(self, assignment: Assignment, *, is_turn: bool) -> None:
        timeout = assignment.patience_seconds
        if timeout is None:
            return
        seconds = max(timeout, START_SECONDS) if is_turn else timeout
        file = self._opened(hang_file(self._folder, assignment))
        faulthandler.dump_traceback_later(seconds, exit=True, file=file)

    def end(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    def _opened(self, path: Path) -> TextIO:
        """Return a file that is open for writing, or standard error where it cannot be."""
        if self._file is None or path != self._path:
            if self._file is not None:
                self._file.close()
            self._file, self._path = None, path
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("w")
            except OSError:
                return sys.stderr
        return self._file
