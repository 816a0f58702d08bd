"""Nearest neighbour: which point of the sequence is closest to the opposite of this one?

From "Quality over Quantity in Attention Layers: When Adding More Heads Hurts" (Amsel, Yehudai,
Bruna, ICLR 2025), transformer experiments. One full-rank head represents the target; heads of low
rank do not, however many there are, unless there are exponentially many or further layers.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric, TaskData
from tasks.sources.digest import definition_digest
from tasks.synthetic.nearest_neighbor_config import NearestNeighborConfig

if TYPE_CHECKING:
    import torch

_VERSION = "1"
_CONSTANT = 1.0
"""Squared error of the prediction 0, the mean of the targets, which lie on the unit sphere."""
_HELD_OUT = Metric(
    "squared_error",
    "min",
    "error",
    "squared distance to the target a token, held-out sequences",
    _CONSTANT,
)
_REPLAYED = Metric(
    "train_squared_error",
    "min",
    "error",
    "squared distance to the target a token, replayed ones",
    _CONSTANT,
    of_training=True,
)


@dataclass(frozen=True, slots=True)
class NearestNeighbor(NearestNeighborConfig):
    """The task that ``NearestNeighborConfig`` describes, field by field."""

    @property
    def name(self) -> str:
        """``nearest_neighbor``."""
        return "nearest_neighbor"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Squared error on held-out sequences (main) and, if there are any, on replayed ones."""
        return (_HELD_OUT,) if self.replay_batches is None else (_HELD_OUT, _REPLAYED)

    def fingerprint(self) -> str:
        """Return a hash of the definition; the data follow from it and the seeds."""
        return definition_digest(self, _VERSION)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Generate the held-out sequences; training sequences are made as they are needed.

        Raises:
            ValueError: a batch size below 1.
        """
        from tasks.synthetic.nearest_neighbor_data import NearestNeighborData

        return NearestNeighborData(self, data_seed, sampling_seed, batch_size, device)
