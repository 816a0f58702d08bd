"""Connects the processes that train one trial."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from hsweep.training.world import World

Store = Any
"""``torch.distributed.TCPStore``, for which torch has no types."""

_CONNECTING: Final = timedelta(minutes=10)
"""How long processes may take to find one another; the driver ends them where one has died."""
_NO_LIMIT: Final = timedelta(days=365)
"""Of an agreement: others wait while rank 0 evaluates, or waits for its driver. Processes that hang
are ended from outside (``report_timeout``)."""


def open_store(host: str) -> Store:
    """Return a store in this process by which processes find one another; the system chooses its
    port."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=_CONNECTING)


def find_store(host: str, port: int) -> Store:
    """Return the store that another process has opened."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore(host, port, is_master=False, timeout=_CONNECTING)


def agreements_in(store: Store, name: str, rank: int, size: int) -> Any:
    """Return the group in which the processes of a trial agree (``World.agreements``)."""
    from torch.distributed import ProcessGroupGloo

    # Not registered with torch.distributed: a trial that destroys all groups leaves it alone.
    return ProcessGroupGloo(_part_of(store, f"{name}/agreements"), rank, size, _NO_LIMIT)


@contextlib.contextmanager
def connected(rank: int, size: int, store: Store, name: str, *, uses_cuda: bool) -> Iterator[World]:
    """Connect this process with the others of a trial, which all enter this.

    The default group of ``torch.distributed`` is this trial's own: it is made here (in about 20 ms)
    and destroyed at the end, so that nothing that a trial leaves in it reaches the next. The
    environment has torchrun's variables, for the libraries that look there.

    Where the trial has failed the group stays: destroying it may wait for the others, which may
    wait for this process. It trains no other trial then.

    Args:
        rank: of this process, from 0.
        size: how many there are.
        store: rank 0's, seen from this process.
        name: of this attempt of the trial; no two in one store have the same.
        uses_cuda: whether the trial trains on devices, one for each process.
    """
    from torch import distributed

    agreements = agreements_in(store, name, rank, size)
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if uses_cuda else "gloo",
        store=_part_of(store, f"{name}/default"),
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
    with with_variables({key: str(value) for key, value in variables.items()}):
        yield World(rank, size, agreements)
    if distributed.is_initialized():  # the trial may have destroyed it itself
        distributed.destroy_process_group()


def _part_of(store: Store, name: str) -> Store:
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    return PrefixStore(name, store)


@contextlib.contextmanager
def with_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment for as long as this is entered."""
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
