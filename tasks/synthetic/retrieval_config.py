"""The settings of the task of sums of maxima, and what follows from them alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from tasks.settings import one_of, whole_number

if TYPE_CHECKING:
    pass

Outer = Literal["sum", "squares", "product", "sine"]
Sets = Literal["all", "blocks", "random"]


@dataclass(frozen=True, slots=True)
class RetrievalConfig:
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

    def __post_init__(self) -> None:
        # A variance needs two sequences.
        least = {"seq_len": 1, "dim": 1, "num_train": 2, "num_validation": 2}
        if self.input_dim is not None:
            least["input_dim"] = 1
        for field, minimum in least.items():
            value = whole_number(field, getattr(self, field), minimum=minimum)
            object.__setattr__(self, field, value)
        one_of("directions", self.directions, ("orthonormal", "iid"))
        one_of("outer", self.outer, get_args(Outer))
        one_of("sets", self.sets, get_args(Sets))
        one_of("samples", self.samples, ("fixed", "stream"))
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
