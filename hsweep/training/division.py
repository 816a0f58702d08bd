"""One trial divided among processes: the examples of each process, and the sums over processes.

The batch of a step is the same set of examples whatever the number of processes. Each process
computes the gradient of its part, weighted by the part's share of the batch's loss, and the sum
over processes is the batch's gradient up to rounding. Dropout draws other masks in each process, as
independent and as likely as those of one process.

The gradients are summed when all parts are done and not, as ``DistributedDataParallel`` does it,
while the backward pass is under way: a process whose memory does not suffice can then tell the
others, and all repeat the batch in smaller parts; a loss may call the model in any way and as often
as it likes; parameters may be left out by one process and not by another.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, distributed, nn

from hsweep.seeding import derived_seed
from hsweep.training.batches import Parts, num_examples, parts_of
from hsweep.training.storage import StorageError
from hsweep.training.world import World
from tasks.base import ReadsParts, TaskData
from tasks.division import Share

_BUCKET_BYTES: Final = 1 << 26
"""Gradients summed in one message: as many as make the message's start cheap, few enough that
their copy takes little memory."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Division:
    """Which part of each batch, of at most ``batch_size`` examples, is this process's."""

    data: TaskData
    batch_size: int
    world: World

    def batches(self, start_step: int) -> Iterator[Any]:
        """Yield batches for ``parts``, without end."""
        if self.world.size > 1 and isinstance(self.data, ReadsParts):
            rank, size = self.world.rank, self.world.size
            return self.data.batches_of(start_step, rank=rank, size=size)
        return self.data.batches(start_step)

    def parts(self, batch: Any, at_once: int | None = None) -> Parts:
        """Return this process's parts of a batch, with their shares of the batch's loss.

        A process without a part gets one of share 0, so that every process calls the model.

        Args:
            batch: as ``batches`` yields it.
            at_once: most examples of a part; None for no limit.
        """
        data, world = self.data, self.world
        if world.size == 1:
            return [(batch, 1.0)] if at_once is None else parts_of(data, batch, at_once)
        if isinstance(data, ReadsParts):
            rows, share = batch
            pieces = [(rows, 1.0)] if at_once is None else parts_of(data, rows, at_once)
            return [(part, share * weight) for part, weight in pieces]
        largest = -(-(num_examples(batch) or self.batch_size) // world.size)
        parts = parts_of(data, batch, min(at_once or largest, largest))
        return parts[world.rank :: world.size] or [(parts[0][0], 0.0)]

    def num_examples(self, batch: Any) -> int:
        """Return how many examples a batch has, in all processes."""
        reads_parts = self.world.size > 1 and isinstance(self.data, ReadsParts)
        rows, share = batch if reads_parts else (batch, 1.0)
        count = num_examples(rows)
        return round(count / share) if count and share else self.batch_size


def own_seed(world: World, *parts: int) -> int:
    """Return a seed that depends on every part and, above rank 0, on the rank."""
    seed = derived_seed(*parts)
    return derived_seed(seed, world.rank) if world.rank else seed


def evaluation_share(world: World) -> Share | None:
    """Return this process's share of an evaluation; None for a process alone."""
    group = world.agreements
    if group is None:
        return None

    def add(sums: Tensor) -> Tensor:
        # On the CPU: a process without rows has not learned on which device the sums are.
        total = sums.detach().cpu().clone()
        group.allreduce([total]).wait()
        return total

    return Share(world.rank, world.size, add)


def from_rank(world: World, rank: int, make: Callable[[], Result]) -> Result:
    """Call ``make`` in one rank alone, and return its result in every process.

    The result consists of tensors, numbers, texts and collections of them.

    Raises:
        StorageError: that rank raised it.
    """
    group = world.agreements
    if group is None:
        return make()
    content, result = io.BytesIO(), dict[str, Any]()
    if world.rank == rank:
        try:
            result = {"made": make()}
        except StorageError as error:
            result = {"error": str(error)}
        torch.save(result, content)
    size = torch.tensor([content.tell()])
    group.broadcast(size, rank).wait()
    message = torch.empty(int(size), dtype=torch.uint8)
    if world.rank == rank:
        message.copy_(torch.frombuffer(content.getbuffer(), dtype=torch.uint8))
    group.broadcast(message, rank).wait()
    if world.rank != rank:
        result = torch.load(io.BytesIO(message.numpy().tobytes()), weights_only=True)
    if "error" in result:
        raise StorageError(result["error"])
    made: Result = result["made"]
    return made


def start_equal(model: nn.Module, world: World) -> None:
    """Copy the weights of rank 0's model to every process: a model that does not draw them from the
    seeded generators has other weights in each process."""
    if world.size > 1:
        for tensor in (*model.parameters(), *model.buffers()):
            distributed.broadcast(tensor.detach(), src=0)


def sum_gradients(
    parameters: Sequence[nn.Parameter], is_used: Sequence[int], loss: Tensor
) -> Tensor:
    """Sum the gradients over all processes in place, and return the sum of their losses.

    Args:
        parameters: of the model; those without gradient in all processes are left out.
        is_used: for each parameter, whether any process has a gradient for it.
        loss: this process's share of the batch's loss.
    """
    gradients = []
    for parameter, used in zip(parameters, is_used, strict=True):
        if used:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
    total = loss.detach().clone()
    for bucket in _buckets([*gradients, total]):
        flat = torch.cat([tensor.flatten() for tensor in bucket])
        distributed.all_reduce(flat)
        pieces = torch.split(flat, [tensor.numel() for tensor in bucket])
        for tensor, piece in zip(bucket, pieces, strict=True):
            tensor.copy_(piece.view_as(tensor))
    return total


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        is_full = size + tensor.nbytes > _BUCKET_BYTES
        if bucket and (is_full or tensor.dtype is not bucket[0].dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.nbytes
    yield bucket
