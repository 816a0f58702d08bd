"""Sum of maxima: the synthetic retrieval task of the head-count paper.

y = sum_{i=1..D} max_{t=1..T} a_i . x_t with x_t ~ N(0, I): each of D features has to be found at
its own position of the sequence ("The Effect of Attention Head Count on Transformer
Approximation", arXiv 2510.06662, synthetic experiment; the paper uses D = 4 in 4 dimensions,
8,000 sequences for training and 2,000 for validation). Its theory is about the larger class
y = F_0(z_1, ..., z_D) with z_i = max_{t in S_i} a_i . x_t, of which ``outer`` and ``sets`` choose.

Shapes: n sequences, T vectors in a sequence, d numbers in a vector, D directions and sets.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.fields import at_least, settle
from tasks.division import own_slices, sum_over_processes
from tasks.metrics import error
from tasks.sampling import EpochData, epochs_from, generator, to_device
from tasks.sources.digest import definition_digest
from tasks.sources.memory import keep_last

Outer = Literal["sum", "squares", "product", "sine"]

_VERSION: Final = "1"
_MEASURED: Final = "mean squared error over the variance of the target"

_CHUNK_NUMBERS: Final = 1 << 22
"""Numbers of x handled at once where memory would otherwise grow with the data set."""
_EVALUATED_NUMBERS: Final = 1 << 17
"""Numbers of x predicted at once. What a layer returns for so many is still in a core's cache when
the next layer reads it; with eight times as many, evaluation takes two to four times as long."""
_DIRECTIONS, _TRAIN, _VALIDATION, _SETS = range(4)
"""Independent streams of the data seed: more training data leaves validation data as they are."""


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
    sets: Literal["all", "blocks", "random"] = "all"
    samples: Literal["fixed", "stream"] = "fixed"
    num_train: int = 8000
    num_validation: int = 2000

    name = "retrieval"
    metrics = (
        error("nmse", f"{_MEASURED}, validation sequences", 1.0),
        error("train_nmse", f"{_MEASURED}, training sequences", 1.0),
    )

    def __post_init__(self) -> None:
        # A variance needs two sequences.
        settle(self, num_train=at_least(2), num_validation=at_least(2))
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

    def example_input(self) -> Tensor:
        """Return a sequence of zeros as a batch of one, (1, seq_len, token_dim)."""
        return torch.zeros(1, self.seq_len, self.token_dim)

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: torch.device
    ) -> "RetrievalData":
        """Generate the sequences, whole on ``device``; kept for the next trial of this process."""
        data = generate(self, data_seed, device)
        return RetrievalData(self, data, data_seed, sampling_seed, batch_size)


class Sequences(NamedTuple):
    """Inputs, (n, T, d) or with positions (n, T, d + 1), and targets, (n,), all float32."""

    x: Tensor
    y: Tensor


class Generated(NamedTuple):
    """Everything one data seed makes.

    Attributes:
        directions: a_i, shape (D, d), float32, unit rows, on the CPU, where sequences are made.
        members: whether position t belongs to S_i, shape (T, D), bool, on the CPU.
        train: training sequences, those of the first epoch where they are a stream.
        validation: validation sequences.
    """

    directions: Tensor
    members: Tensor
    train: Sequences
    validation: Sequences


@keep_last(4)
def generate(task: Retrieval, data_seed: int, device: torch.device) -> Generated:
    """Return the data of ``task`` on ``device``.

    They are made on the CPU and then moved, so every device trains on the same numbers.
    """
    directions = _directions(task, generator(data_seed, _DIRECTIONS))
    members = _members(task, generator(data_seed, _SETS))
    train, validation = (
        _sequences(task, count, directions, members, generator(data_seed, stream), device)
        for count, stream in ((task.num_train, _TRAIN), (task.num_validation, _VALIDATION))
    )
    return Generated(directions, members, train, validation)


def maxima(x: Tensor, directions: Tensor, members: Tensor) -> Tensor:
    """Return z_i = max_{t in S_i} a_i . x_t (arXiv 2510.06662, generalised retrieval).

    Args:
        x: (n, T, d).
        directions: a_i, (D, d).
        members: whether position t belongs to S_i, (T, D), at least one for each i.

    Returns:
        (n, D), of the type of ``x``.
    """
    products = x @ directions.T
    if not members.all():
        products.masked_fill_(~members, -torch.inf)
    return products.amax(dim=1)


_OUTER: Final[dict[Outer, Callable[[Tensor], Tensor]]] = {
    "sum": lambda z: z.sum(dim=1),
    "squares": lambda z: z.square().sum(dim=1),
    "product": lambda z: z.prod(dim=1),
    "sine": lambda z: z.sum(dim=1).sin(),
}
"""F_0, from (n, D) to (n,)."""


def _sequences(
    task: Retrieval,
    count: int,
    directions: Tensor,
    members: Tensor,
    random: torch.Generator,
    device: torch.device,
) -> Sequences:
    x = torch.randn(count, task.seq_len, task.vector_dim, generator=random)
    rows = max(1, _CHUNK_NUMBERS // (task.seq_len * task.vector_dim))
    outer = _OUTER[task.outer]
    y = torch.cat([outer(maxima(chunk, directions, members)) for chunk in torch.split(x, rows)])
    if task.token_dim > task.vector_dim:
        position = torch.linspace(-math.sqrt(3), math.sqrt(3), task.seq_len)
        x = torch.cat((x, position[None, :, None].expand(count, -1, 1)), dim=2)
    return Sequences(to_device(x, device), to_device(y, device))


def _members(task: Retrieval, random: torch.Generator) -> Tensor:
    """Return which positions belong to which S_i, (T, D), bool."""
    positions = torch.arange(task.seq_len)[:, None]
    if task.sets == "blocks":
        return positions * task.dim // task.seq_len == torch.arange(task.dim)
    if task.sets == "random":
        order = torch.rand(task.seq_len, task.dim, generator=random).argsort(0).argsort(0)
        return order < (task.seq_len + 1) // 2
    return torch.ones(task.seq_len, task.dim, dtype=torch.bool)


def _directions(task: Retrieval, random: torch.Generator) -> Tensor:
    gaussian = torch.randn(task.vector_dim, task.dim, generator=random, dtype=torch.float64)
    if task.directions == "iid":
        columns: Tensor = gaussian / gaussian.norm(dim=0)
    else:
        # Q of a Gaussian matrix is uniform over orthonormal frames once R's diagonal is positive.
        q, r = torch.linalg.qr(gaussian)
        columns = q * r.diagonal().sign()
    directions: Tensor = columns.T.float().contiguous()
    return directions


class RetrievalData(EpochData):
    """Sequences opened for one trial: batches, the squared error, and NMSE."""

    def __init__(
        self,
        task: Retrieval,
        data: Generated,
        data_seed: int,
        sampling_seed: int,
        batch_size: int,
    ) -> None:
        super().__init__(len(data.train.y), len(data.validation.y), sampling_seed, batch_size)
        self._task = task
        self._data = data
        self._data_seed = data_seed

    def batches(self, start_step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) without end: x (batch, T, d), y (batch,), beginning with ``start_step``.

        An epoch is gathered at once, so a step costs no more than taking a view.
        """
        epochs = epochs_from(start_step, self._num_train, self._batch_size, self._sampling_seed)
        for part in epochs:
            first = part.first_batch * self._batch_size
            if part.epoch and self._task.samples == "stream":
                # What is new is in no order that could be learned.
                x, y = (tensor[first : len(part.order)] for tensor in self._streamed(part.epoch))
            else:
                order = to_device(part.order[first:], self._data.train.y.device)
                x, y = (tensor.index_select(0, order) for tensor in self._data.train)
            yield from zip(
                torch.split(x, self._batch_size), torch.split(y, self._batch_size), strict=True
            )

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the mean squared error of the batch."""
        x, y = batch
        return functional.mse_loss(_predict(model, x), y)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return NMSE = MSE / Var(y) with the split's own sample variance.

        Sums are kept in float64, because NMSE of interest goes down to 1e-7.
        """
        return {"nmse": _nmse(model, self._data.validation)}

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        """Return the same of the training sequences."""
        return {"train_nmse": _nmse(model, self._data.train)}

    def warm_start(self, model: nn.Module) -> None:
        """Set the tensor ``model.readout_bias``, if there is one, to the mean training target."""
        bias = getattr(model, "readout_bias", None)
        if isinstance(bias, Tensor):
            with torch.no_grad():
                bias.fill_(self._data.train.y.double().mean().item())

    def _streamed(self, epoch: int) -> Sequences:
        """Return the new sequences of an epoch after the first."""
        count, device = len(self._data.train.y), self._data.train.y.device
        random = generator(self._data_seed, _TRAIN, epoch)
        return _sequences(
            self._task, count, self._data.directions, self._data.members, random, device
        )


def _predict(model: nn.Module, x: Tensor) -> Tensor:
    prediction: Tensor = model(x)
    if prediction.shape not in ((len(x),), (len(x), 1)):
        raise ValueError(
            f"the model must return shape ({len(x)},) or ({len(x)}, 1) for {len(x)} sequences, "
            f"not {tuple(prediction.shape)}"
        )
    return prediction.reshape(len(x))


def _nmse(model: nn.Module, sequences: Sequences) -> float:
    x, y = sequences
    chunk = max(1, _EVALUATED_NUMBERS // x[0].numel())
    squared_error = torch.zeros((), dtype=torch.float64, device=y.device)
    for rows in own_slices(len(y), chunk):
        squared_error += (_predict(model, x[rows]).double() - y[rows].double()).square().sum()
    variance = y.double().var(correction=0)
    return (sum_over_processes(squared_error) / len(y) / variance).item()
