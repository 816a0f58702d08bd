"""The processes that train one trial, as one of them sees the others."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True, slots=True)
class World:
    """This process among those of its trial.

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

    def agree(self, goes_on: bool) -> bool:
        """Return what rank 0 gives, in every process: all of them call this at each report.

        Args:
            goes_on: whether the trial goes on; what other ranks give does not count.
        """
        if self.agreements is None:
            return goes_on
        import torch

        flag = torch.tensor([goes_on])
        self.agreements.broadcast(flag, 0).wait()
        return bool(flag.item())

    def gather(self, number: int) -> list[int]:
        """Return what every rank gives, in the order of ranks: all of them call this."""
        if self.agreements is None:
            return [number]
        import torch

        numbers = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self.agreements.allgather([numbers], [torch.tensor([number])]).wait()
        return [int(each.item()) for each in numbers]


ALONE: Final = World()
