"""A second process that trains what this one trains: ranks 1 and 0 of a trial."""

import multiprocessing
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from stepped_trial import to_the_end, train_stepwise
from torch import distributed

from hsweep.design.trial import Assignment, Event
from hsweep.training.run import Channel
from hsweep.training.train import train
from hsweep.training.world import World

CPU = torch.device("cpu")
_PATIENCE = timedelta(seconds=120)
_ANSWER_SECONDS = 400


class SecondProcess:
    """Trains as rank 1 what the caller trains as rank 0.

    Attributes:
        world: the caller's.
        events: what rank 1 returned of the last trial.
    """

    def __init__(self, world: World, pipe: Connection) -> None:
        self.world = world
        self.events: list[Event] = []
        self._pipe = pipe

    def train(self, assignment: Assignment) -> Iterator[Event]:
        """Yield what rank 0 reports of a trial; to close this ends it in both processes."""
        self._pipe.send(assignment)
        yield from train_stepwise(assignment, self.world)
        self.answer()

    def train_through(self, assignment: Assignment, channel: Channel) -> None:
        """Train a trial whose rank 0 has this channel, in both processes."""
        self._pipe.send(assignment)
        train(assignment, channel, self.world)
        self.answer()

    def answer(self) -> None:
        """Wait until rank 1 is done with its trial."""
        assert self._pipe.poll(_ANSWER_SECONDS), "rank 1 does not come to an end"
        found = self._pipe.recv()
        assert isinstance(found, list), f"rank 1 failed:\n{found}"
        self.events = found


@contextmanager
def second_process(folder: Path) -> Iterator[SecondProcess]:
    """Start a process for any number of trials, one after another."""
    context = multiprocessing.get_context("spawn")
    pipe, its_pipe = context.Pipe()
    process = context.Process(target=_serve, args=(str(folder), its_pipe), daemon=True)
    process.start()
    try:
        with _world(folder, 0) as world:
            yield SecondProcess(world, pipe)
            pipe.send(None)
            process.join(_ANSWER_SECONDS)
    finally:
        process.kill()


@contextmanager
def _world(folder: Path, rank: int) -> Iterator[World]:
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=_PATIENCE
    )
    try:
        yield World(rank, 2, distributed.new_group(backend="gloo", timeout=_PATIENCE))
    finally:
        distributed.destroy_process_group()


def _serve(folder: str, pipe: Connection) -> None:
    torch.set_num_threads(1)
    with _world(Path(folder), 1) as world:
        while (assignment := pipe.recv()) is not None:
            try:
                pipe.send(to_the_end(assignment, world))
            except BaseException:
                pipe.send(traceback.format_exc())
