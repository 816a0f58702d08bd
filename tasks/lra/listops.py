"""ListOps: the value of a nested expression of list operations, written as a sequence."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric, TaskData
from tasks.lra.listops_config import VERSION, ListOpsConfig
from tasks.lra.spec import token_metrics
from tasks.sources.digest import definition_digest

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class ListOps(ListOpsConfig):
    """The task that ``ListOpsConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``listops``."""
        return "listops"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Accuracy on validation expressions (main), on test and training ones, and losses."""
        from tasks.lra.listops_trees import value_shares

        bounds = (self.min_length, self.max_length, self.max_depth, self.max_args)
        return token_metrics(value_shares(*bounds))

    def fingerprint(self) -> str:
        """Return a hash of the definition; the data follow from it and the data seed."""
        return definition_digest(self, VERSION)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Read the expressions onto ``device``; the first time, generate them.

        Raises:
            DataError: there are not enough different expressions, or the cache cannot be written.
            ValueError: a batch size below 1.
        """
        from tasks.lra.listops_data import load
        from tasks.lra.token_data import TokenData

        return TokenData(
            load(self, data_seed, device),
            sampling_seed,
            batch_size,
            self.steps_per_epoch,
            self.label_smoothing,
        )
