"""The processes that train one trial, as one of them sees the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
        if self.agreements is None:
            return [number]
        import torch

        numbers = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self.agreements.allgather([numbers], [torch.tensor([number])]).wait()
        return [int(tensor.item()) for tensor in numbers]

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
