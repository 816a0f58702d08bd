"""Nearest neighbour: which point of the sequence is closest to the opposite of this one?

From "Quality over Quantity in Attention Layers: When Adding More Heads Hurts" (Amsel, Yehudai,
Bruna, ICLR 2025), transformer experiments. One full-rank head represents the target; heads of low
rank do not, however many there are, unless there are exponentially many or further layers.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tasks.base import Metric, TaskData
from tasks.metrics import error
from tasks.settings import at_least, choice, settle, yes_or_no
from tasks.sources.digest import definition_digest

if TYPE_CHECKING:
    import torch

_VERSION = "1"
_CONSTANT = 1.0
"""Squared error of the prediction 0, the mean of the targets, which lie on the unit sphere."""
_MEASURED = "squared distance to the target a token"
_HELD_OUT = error("squared_error", f"{_MEASURED}, held-out sequences", _CONSTANT)
_REPLAYED = error("train_squared_error", f"{_MEASURED}, replayed ones", _CONSTANT)


@dataclass(frozen=True, slots=True)
class NearestNeighbor:
    """Learn y_i = x_j with j = argmin_j <x_j, x_i> from sequences of N points on the unit sphere.

    The farthest point is the nearest to -x_i, and unlike the nearest to x_i it is not x_i itself.
    The error is E ||y_hat_i - y_i||^2, the mean over tokens and sequences: 1 for the prediction 0.

    Every step trains on sequences never seen before, a function of the seeds and the step. The
    published experiments instead meet the same 100 batches again in every epoch
    (``replay_batches=100``), and report the error on these; the main metric here is always that on
    held-out sequences.

    Batches are pairs (x, y), both of shape (batch, seq_len, dim), float32. A model maps x to the
    shape of y.

    Attributes:
        seq_len: N, points in a sequence, their opposites included.
        dim: d, numbers in a point.
        points: ``iid``, uniform on the sphere, or ``orthonormal``, columns of a random rotation.
            Orthonormal points are all equally far from one another: without ``doubled``, the first
            of the others is the target, which only two points make a matter of geometry.
        doubled: whether the second half of a sequence holds the opposites of the first. The target
            is then the opposite.
        replay_batches: train on this many batches over and over, in the same order; None for a
            fresh stream.
        steps_per_epoch: batches that count as an epoch.
        num_validation: held-out sequences.

    Raises:
        ValueError: a number below its least value, an odd length of doubled points, or more
            orthonormal points than dimensions.
    """

    seq_len: int
    dim: int = 64
    points: Literal["iid", "orthonormal"] = "iid"
    doubled: bool = False
    replay_batches: int | None = None
    steps_per_epoch: int = 100
    num_validation: int = 4096

    name = "nearest_neighbor"

    def __post_init__(self) -> None:
        counts = ("dim", "steps_per_epoch", "num_validation", "replay_batches")
        settle(
            self,
            {
                "seq_len": at_least(2),
                **dict.fromkeys(counts, at_least(1)),
                "points": choice("iid", "orthonormal"),
                "doubled": yes_or_no,
            },
        )
        if self.doubled and self.seq_len % 2:
            raise ValueError(
                f"doubled points come in pairs: seq_len must be even, not {self.seq_len}"
            )
        if self.points == "orthonormal" and self.num_drawn > self.dim:
            raise ValueError(
                f"at most dim points can be orthonormal: {self.num_drawn} are drawn for "
                f"seq_len={self.seq_len}, more than dim={self.dim}"
            )

    @property
    def num_drawn(self) -> int:
        """Points of a sequence that are drawn, leaving out opposites."""
        return self.seq_len // 2 if self.doubled else self.seq_len

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
        """Generate the held-out sequences; training sequences are made as they are needed."""
        from tasks.synthetic.nearest_neighbor_data import NearestNeighborData

        return NearestNeighborData(self, data_seed, sampling_seed, batch_size, device)
