"""Pathfinder: do two markers lie on one dashed contour? Read pixel by pixel."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric, TaskData
from tasks.lra.pathfinder_config import VERSION, PathfinderConfig
from tasks.lra.spec import even_shares, token_metrics
from tasks.sources.digest import definition_digest

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Pathfinder(PathfinderConfig):
    """The task that ``PathfinderConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``pathfinder``."""
        return "pathfinder"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Accuracy on validation images (main), on test and training ones, and losses."""
        return token_metrics(even_shares(2))

    def fingerprint(self) -> str:
        """Return a hash of the definition; the data follow from it and the data seed."""
        return definition_digest(self, VERSION)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Read the images onto ``device``; the first time, draw them.

        Raises:
            DataError: the cache cannot be written.
            ValueError: a batch size below 1.
        """
        from tasks.lra.pathfinder_data import load
        from tasks.lra.token_data import TokenData

        return TokenData(
            load(self, data_seed, device),
            sampling_seed,
            batch_size,
            self.steps_per_epoch,
            self.label_smoothing,
        )
