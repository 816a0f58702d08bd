"""The settings of the task of nearest neighbours, and what follows from them alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tasks.settings import one_of, whole_number, yes_or_no

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class NearestNeighborConfig:
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

    def __post_init__(self) -> None:
        least = {"seq_len": 2, "dim": 1, "steps_per_epoch": 1, "num_validation": 1}
        if self.replay_batches is not None:
            least["replay_batches"] = 1
        for field, minimum in least.items():
            value = whole_number(field, getattr(self, field), minimum=minimum)
            object.__setattr__(self, field, value)
        one_of("points", self.points, ("iid", "orthonormal"))
        object.__setattr__(self, "doubled", yes_or_no("doubled", self.doubled))
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
