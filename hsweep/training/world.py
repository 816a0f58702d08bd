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
            not the group that gradients go through, so that neither waits for the other.
    """

    rank: int = 0
    size: int = 1
    agreements: "ProcessGroup | None" = None

    def agree(self, goes_on: bool) -> bool:
        """Return what rank 0 says, in every process: all of them call this at each report.

        Args:
            goes_on: whether the trial goes on; what other ranks give does not count.
        """
        if self.agreements is None:
            return goes_on
        import torch
        from torch import distributed

        flag = torch.tensor([goes_on])
        distributed.broadcast(flag, group_src=0, group=self.agreements)
        return bool(flag.item())


ALONE: Final = World()
