"""The processes that train one trial, and the connections between them."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True, slots=True)
class World:
    """This process among those of its trial. All of them call each method at the same points.

    Attributes:
        rank: its number, from 0. Rank 0 reports and keeps checkpoints.
        size: how many processes there are.
        agreements: the group in which they agree, on the CPU; None for one process alone. It is
            not the group that gradients go through, so that neither waits for the other, and not
            known to ``torch.distributed``: what a trial does with the groups there leaves it alone.
    """

    rank: int = 0
    size: int = 1
    agreements: "ProcessGroup | None" = None

    def of_rank_0(self, number: float) -> float:
        """Return rank 0's number, in every process."""
        if self.agreements is None:
            return number
        import torch

        numbers = torch.tensor([number], dtype=torch.float64)
        self.agreements.broadcast(numbers, 0).wait()
        return numbers.item()

    def agree(self, goes_on: bool) -> bool:
        """Return rank 0's decision, in every process."""
        return bool(self.of_rank_0(goes_on))

    def gather(self, number: int) -> list[int]:
        """Return the numbers of all ranks, in their order."""
        return self.largest([number if r == self.rank else _LEAST for r in range(self.size)])

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Return the largest over all processes of each of some numbers."""
        if self.agreements is None:
            return list(numbers)
        import torch
        from torch import distributed

        tensor = torch.tensor(numbers, dtype=torch.int64)
        self.agreements.allreduce(tensor, distributed.ReduceOp.MAX).wait()
        return [int(number) for number in tensor.tolist()]


ALONE: Final = World()

Store = Any
"""``torch.distributed.TCPStore``, for which torch has no types."""

_LEAST: Final = -(2**63)
_CONNECTING: Final = timedelta(minutes=10)
"""How long processes may take to find one another; the driver ends them where one has died."""
_NO_LIMIT: Final = timedelta(days=365)
"""The timeout of an agreement. Other ranks wait while rank 0 evaluates or waits for its driver; the
driver ends processes that hang (``report_timeout``)."""
_LAUNCHER: Final = re.compile(
    r"((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)|NODE_RANK|ROLE_NAME|MASTER_(ADDR|PORT)"
    r"|TORCHELASTIC_\w+|SLURM_(PROCID|LOCALID|NPROCS|NTASKS\w*|(STEP_)?TASKS_PER_NODE|STEP_NUM_TASKS)"
    r"|(OMPI_COMM_WORLD|MV2_COMM_WORLD|PMI|PMIX(?!_MCA)|JSM_NAMESPACE|PALS)_\w+"
    r"|MPI_LOCAL(RANKID|NRANKS)"
)
"""The variables by which torchrun, SLURM and MPI tell a process that it is one of several: torch,
Lightning, Accelerate, DeepSpeed and timm look for them. Others say which job this is, on what."""


def leave_launcher() -> None:
    """Forget the processes that this one was started with: it trains nothing with them, and a
    training that believes so waits for them for ever."""
    for name in filter(_LAUNCHER.fullmatch, list(os.environ)):
        del os.environ[name]


def find_store(host: str, port: int = 0) -> Store:
    """Return the store by which processes find one another: the one that another process has opened
    at a port, or a new one in this process, for which the system chooses a port."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore(host, port, is_master=not port, wait_for_workers=False, timeout=_CONNECTING)


def agreements_in(store: Store, name: str, rank: int, size: int) -> Any:
    """Return the group in which the processes of a trial agree (``World.agreements``)."""
    from torch.distributed import PrefixStore, ProcessGroupGloo  # type: ignore[attr-defined]

    # Not registered with torch.distributed: a trial that destroys all groups leaves it alone.
    return ProcessGroupGloo(PrefixStore(f"{name}/agreements", store), rank, size, _NO_LIMIT)


@contextlib.contextmanager
def connected(rank: int, size: int, store: Store, name: str, gpus: float) -> Iterator[World]:
    """Connect this process with the others of a trial, which all enter this.

    The default group of ``torch.distributed`` is this trial's own: it is made here (in about 20 ms)
    and destroyed at the end, so that nothing that a trial leaves in it reaches the next. The
    environment has torchrun's variables, for the libraries that look there.

    Where the trial has failed the group stays: destroying it may wait for the others, which may
    wait for this process. It trains no other trial then.

    Args:
        store: rank 0's, seen from this process.
        name: of this attempt of the trial; no two in one store have the same.
        gpus: devices of the trial: one for each process, or none.
    """
    from torch import distributed

    from hsweep.training.devices import device_of

    agreements = agreements_in(store, name, rank, size)
    device = device_of(gpus)
    backend = distributed.get_default_backend_for_device(device)
    distributed.init_process_group(
        f"cpu:gloo,{device.type}:{backend}" if gpus else backend,
        store=distributed.PrefixStore(f"{name}/default", store),  # type: ignore[attr-defined]
        rank=rank,
        world_size=size,
    )
    # Each process is shown its own device alone, so that is number 0 in all of them.
    variables = {
        "RANK": rank,
        "LOCAL_RANK": 0 if gpus else rank,
        "WORLD_SIZE": size,
        "MASTER_ADDR": store.host,
        "MASTER_PORT": store.port,
    }
    with with_variables({key: str(value) for key, value in variables.items()}):
        yield World(rank, size, agreements)
    if distributed.is_initialized():  # the trial may have destroyed it itself
        distributed.destroy_process_group()


@contextlib.contextmanager
def with_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the ``with`` block, and restore them after it."""
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
