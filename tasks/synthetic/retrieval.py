"""Sum of maxima: the synthetic retrieval task of the head-count paper.

y = sum_{i=1..D} max_{t=1..T} a_i . x_t with x_t ~ N(0, I): each of D features has to be found at
its own position of the sequence ("The Effect of Attention Head Count on Transformer
Approximation", arXiv 2510.06662, synthetic experiment; the paper uses D = 4 in 4 dimensions,
8,000 sequences for training and 2,000 for validation). Its theory is about the larger class
y = F_0(z_1, ..., z_D) with z_i = max_{t in S_i} a_i . x_t, of which ``outer`` and ``sets`` choose.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from tasks.base import TaskData
from tasks.metrics import error
from tasks.settings import at_least, choice, settle
from tasks.sources.digest import definition_digest

if TYPE_CHECKING:
    import torch

Outer = Literal["sum", "squares", "product", "sine"]
Sets = Literal["all", "blocks", "random"]

_VERSION = "1"
_MEASURED = "mean squared error over the variance of the target"


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Learn y = F_0(z_1, ..., z_D), z_i = max_{t in S_i} a_i . x_t, from sequences of T standard
    normal vectors; as published, F_0 is the sum and every S_i all positions.

    With orthonormal a_i the D maxima are independent, and the variance of their sum is D times that
    of the largest of T standard normal numbers: 1.492, 1.180, 0.967, 0.814, 0.701 for D = 4 and
    T = 8, 16, 32, 64, 128.

    Batches are pairs (x, y): x of shape (batch, seq_len, token_dim) and y of shape (batch,), both
    float32. A model maps x to (batch,) or (batch, 1).

    Attributes:
        seq_len: T, vectors in a sequence.
        dim: D, the number of maxima that are summed.
        input_dim: numbers in a vector x_t; None for as many as ``dim``.
        directions: ``orthonormal`` rows a_i of a random rotation, or ``iid`` unit vectors. They
            are drawn, like the sequences, from the data seed.
        outer: F_0: the ``sum`` of the maxima, of their ``squares``, their ``product``, or the
            ``sine`` of their sum. The scale of y differs, which NMSE divides out.
        sets: S_i: ``all`` positions; the i-th of D consecutive ``blocks`` of about T / D positions;
            or half of the positions, a ``random`` one for each i, drawn from the data seed. Other
            than with ``all``, where a vector stands matters, so each has one number more: its
            position, evenly spaced with mean 0 and a variance of about 1.
        samples: ``fixed`` training sequences, or a ``stream`` that never repeats, in which an epoch
            is as many new ones. The first epoch of the stream is the fixed set; the training error
            is that on these in either case.
        num_train: training sequences, or those of an epoch of the stream.
        num_validation: validation sequences.

    Raises:
        ValueError: a number below its least value, an unknown choice, more orthonormal directions
            than dimensions, or more blocks than positions.
    """

    seq_len: int
    dim: int = 4
    input_dim: int | None = None
    directions: Literal["orthonormal", "iid"] = "orthonormal"
    outer: Outer = "sum"
    sets: Sets = "all"
    samples: Literal["fixed", "stream"] = "fixed"
    num_train: int = 8000
    num_validation: int = 2000

    name = "retrieval"
    metrics = (
        error("nmse", f"{_MEASURED}, validation sequences", 1.0),
        error("train_nmse", f"{_MEASURED}, training sequences", 1.0),
    )

    def __post_init__(self) -> None:
        settle(
            self,
            {
                **dict.fromkeys(("seq_len", "dim", "input_dim"), at_least(1)),
                # A variance needs two sequences.
                **dict.fromkeys(("num_train", "num_validation"), at_least(2)),
                "directions": choice("orthonormal", "iid"),
                "outer": choice(*get_args(Outer)),
                "sets": choice(*get_args(Sets)),
                "samples": choice("fixed", "stream"),
            },
        )
        if self.directions == "orthonormal" and self.dim > self.vector_dim:
            raise ValueError(
                f"at most input_dim directions can be orthonormal: dim={self.dim} is more than "
                f"input_dim={self.vector_dim}; raise input_dim or use directions='iid'"
            )
        if self.sets == "blocks" and self.dim > self.seq_len:
            raise ValueError(
                f"each of dim={self.dim} blocks needs a position: seq_len={self.seq_len} is less"
            )

    @property
    def vector_dim(self) -> int:
        """Numbers in a vector x_t."""
        return self.dim if self.input_dim is None else self.input_dim

    @property
    def token_dim(self) -> int:
        """The model's input width: the numbers of a vector and, where it matters, its position."""
        return self.vector_dim + (self.sets != "all")

    def fingerprint(self) -> str:
        """Return a hash of the definition; the data follow from it and the data seed."""
        return definition_digest(self, _VERSION)

    def example_input(self) -> "torch.Tensor":
        """Return a sequence of zeros as a batch of one, (1, seq_len, token_dim)."""
        import torch

        return torch.zeros(1, self.seq_len, self.token_dim)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Generate the sequences, whole on ``device``; kept for the next trial of this process."""
        from tasks.synthetic.retrieval_data import RetrievalData, generate

        data = generate(self, data_seed, device)
        return RetrievalData(self, data, data_seed, sampling_seed, batch_size)
