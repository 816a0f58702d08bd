"""Connects the processes that train one trial: the groups they talk in, and what libraries expect to
find in such a process."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from hsweep.training.world import World

if TYPE_CHECKING:
    from torch.distributed import TCPStore

_CONNECTING: Final = timedelta(minutes=10)
"""How long processes may take to find one another; where one has died, the others are ended."""
_NO_LIMIT: Final = timedelta(days=365)
"""Of an agreement: others wait while rank 0 evaluates, or waits for its driver. What hangs is ended
from outside (``report_timeout``)."""


def open_store(host: str) -> "TCPStore":
    """Return a store in this process, at a port that the system chooses, by which processes find
    one another."""
    from torch.distributed import TCPStore

    return TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=_CONNECTING)


def find_store(host: str, port: int) -> "TCPStore":
    """Return the store that another process has opened."""
    from torch.distributed import TCPStore

    return TCPStore(host, port, is_master=False, timeout=_CONNECTING)


@contextlib.contextmanager
def joined(
    rank: int, size: int, store: "TCPStore", name: str, *, uses_cuda: bool
) -> Iterator[World]:
    """Connect this process with the others of a trial, which all enter this.

    The default group of ``torch.distributed`` is this trial's own: it is made here (about 20 ms) and
    destroyed at the end, so that nothing that one trial leaves in it reaches the next. The
    environment says what torchrun says, for the libraries that look there.

    Args:
        rank: of this process, from 0.
        size: how many there are.
        store: rank 0's, seen from this process.
        name: of this attempt of the trial; no two in one store have the same.
        uses_cuda: whether the trial trains on devices, one for each process.
    """
    from torch import distributed

    own = distributed.PrefixStore(name, store)
    agreements = distributed.ProcessGroupGloo(
        distributed.PrefixStore("agreements", own), rank, size, _NO_LIMIT
    )
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if uses_cuda else "gloo",
        store=distributed.PrefixStore("default", own),
        rank=rank,
        world_size=size,
    )
    # Each process is shown its own device alone, so that is number 0 in all of them.
    variables = {
        "RANK": rank,
        "LOCAL_RANK": 0 if uses_cuda else rank,
        "WORLD_SIZE": size,
        "MASTER_ADDR": store.host,
        "MASTER_PORT": store.port,
    }
    try:
        with _environment({key: str(value) for key, value in variables.items()}):
            yield World(rank, size, agreements)
    finally:
        if distributed.is_initialized():  # the trial may have destroyed it itself
            distributed.destroy_process_group()


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
