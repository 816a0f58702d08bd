"""Nearest neighbour: which point of the sequence is closest to the opposite of this one?

From "Quality over Quantity in Attention Layers: When Adding More Heads Hurts" (Amsel, Yehudai,
Bruna, ICLR 2025), transformer experiments. One full-rank head represents the target; heads of low
rank do not, however many there are, unless there are exponentially many or further layers.

Shapes: B sequences, N points in a sequence, d numbers in a point.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.fields import at_least, settle
from tasks.base import Metric
from tasks.division import own_slices, sum_over_processes
from tasks.metrics import error
from tasks.sampling import first_step, generator, of_shape, to_device, whole_batches
from tasks.sources.digest import definition_digest
from tasks.sources.memory import keep_last

_VERSION: Final = "1"
_CONSTANT: Final = 1.0
"""Squared error of the prediction 0, the mean of the targets, which lie on the unit sphere."""
_MEASURED: Final = "squared distance to the target a token"
_HELD_OUT: Final = error("squared_error", f"{_MEASURED}, held-out sequences", _CONSTANT)
_REPLAYED: Final = error("train_squared_error", f"{_MEASURED}, replayed ones", _CONSTANT)

_CHUNK_NUMBERS: Final = 1 << 18
"""Numbers of x handled at once."""
_MOST_STEPS: Final = 16
"""Steps whose batches are drawn together, at most. Both are part of what a seed means."""
_MOST_NUMBERS_ON_DEVICE: Final = 1 << 27
"""Numbers of replayed sequences, inputs and targets, that stay there; more are drawn again."""
_TRAIN, _VALIDATION, _REPLAY = range(3)
"""Independent streams of the data seed."""


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
        settle(self, seq_len=at_least(2))
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
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: torch.device
    ) -> "NearestNeighborData":
        """Generate the held-out sequences; training sequences are made as they are needed."""
        return NearestNeighborData(self, data_seed, sampling_seed, batch_size, device)


class Sequences(NamedTuple):
    """Inputs and targets, each (B, N, d), float32."""

    x: Tensor
    y: Tensor


def farthest_points(x: Tensor) -> Tensor:
    """Return for every point of (B, N, d) the one whose scalar product with it is smallest, the
    first of equals: the label of the transformer experiments of Amsel et al., the nearest point to
    -x_i."""
    farthest = torch.bmm(x, x.mT).argmin(dim=2)
    first = torch.arange(len(x))[:, None] * x.shape[1]
    return x.flatten(0, 1).index_select(0, (farthest + first).flatten()).view_as(x)


def draw(task: NearestNeighbor, count: int, random: torch.Generator) -> Sequences:
    """Return ``count`` sequences of ``task``, drawn from ``random``, on the CPU."""
    gaussian = torch.randn(count, task.num_drawn, task.dim, generator=random)
    if task.points == "iid":
        points = functional.normalize(gaussian, dim=2, eps=0.0)
    else:
        # Q of a Gaussian matrix is uniform over orthonormal frames once R's diagonal is positive.
        q, r = torch.linalg.qr(gaussian.mT)
        points = (q * r.diagonal(dim1=1, dim2=2).sign()[:, None]).mT.contiguous()
    if task.doubled:
        return Sequences(torch.cat((points, -points), 1), torch.cat((-points, points), 1))
    if task.points == "orthonormal":
        # Rounding alone would make one of the others the farthest.
        first = torch.zeros(task.seq_len, dtype=torch.long)
        first[0] = 1
        return Sequences(points, points[:, first])
    return Sequences(points, farthest_points(points))


@keep_last(4)
def held_out(task: NearestNeighbor, data_seed: int, device: torch.device) -> Sequences:
    """Return the held-out sequences on ``device``."""
    sequences = draw(task, task.num_validation, generator(data_seed, _VALIDATION))
    return Sequences(sequences.x.to(device), sequences.y.to(device))


@keep_last(2)
def replayed(
    task: NearestNeighbor, data_seed: int, batch_size: int, device: torch.device
) -> tuple[Sequences, ...]:
    """Return the batches that are replayed, on ``device``."""
    assert task.replay_batches is not None
    batches = (
        draw(task, batch_size, generator(data_seed, _REPLAY, number))
        for number in range(task.replay_batches)
    )
    return tuple(Sequences(x.to(device), y.to(device)) for x, y in batches)


class NearestNeighborData:
    """Sequences opened for one trial: a stream of batches, and squared errors."""

    def __init__(
        self,
        task: NearestNeighbor,
        data_seed: int,
        sampling_seed: int,
        batch_size: int,
        device: torch.device,
    ) -> None:
        # A stream has as many sequences as are asked for.
        self._batch_size, _ = whole_batches(max(1, batch_size), batch_size)
        self._task = task
        self._device = device
        self._block_steps = 1
        self._on_device: tuple[Sequences, ...] = ()
        if task.replay_batches is None:
            self._stream = functools.partial(generator, data_seed, _TRAIN, sampling_seed)
            self._replay = None
            # Small batches are drawn several at a time, which costs little more than one.
            numbers = self._batch_size * task.seq_len * task.dim
            self._block_steps = min(_MOST_STEPS, max(1, _CHUNK_NUMBERS // numbers))
        else:
            # What is replayed is a data set, which the sampling seed puts in order once.
            self._stream = functools.partial(generator, data_seed, _REPLAY)
            self._replay = torch.randperm(task.replay_batches, generator=generator(sampling_seed))
            numbers = 2 * task.replay_batches * self._batch_size * task.seq_len * task.dim
            if numbers <= _MOST_NUMBERS_ON_DEVICE:
                self._on_device = replayed(task, data_seed, self._batch_size, device)
        self._held_out = held_out(task, data_seed, device)
        self.steps_per_epoch = task.steps_per_epoch
        self.eval_size = len(self._held_out.x)

    def batches(self, start_step: int) -> Iterator[Sequences]:
        """Yield (x, y) without end, each (batch, N, d), beginning with that of ``start_step``.

        While an accelerator works on one batch, the next one is made beside it.
        """
        first_block, offset = divmod(first_step(start_step), self._block_steps)
        blocks: Iterator[Sequences]
        if self._on_device or self._device.type == "cpu":
            blocks = map(self._block, itertools.count(first_block))
        else:
            blocks = made_ahead(self._block, first_block)
        return itertools.islice(self._split(blocks), offset, None)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the squared error a token, the mean over the batch."""
        x, y = batch
        return _squared_errors(model, x, y).mean()

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return the mean squared error a token; sums are kept in float64."""
        return {"squared_error": self._mean_error(model, [self._held_out])}

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        """Return the mean squared error on the replayed batches; empty without any."""
        if self._task.replay_batches is None:
            return {}
        batches = (self._sequences(index) for index in range(self._task.replay_batches))
        return {"train_squared_error": self._mean_error(model, batches)}

    def warm_start(self, model: nn.Module) -> None:
        """Do nothing: targets have mean 0."""

    def _split(self, blocks: Iterator[Sequences]) -> Iterator[Sequences]:
        for block in blocks:
            parts = (torch.split(tensor, self._batch_size) for tensor in block)
            yield from itertools.starmap(Sequences, zip(*parts, strict=True))

    def _block(self, number: int) -> Sequences:
        order = self._replay
        return self._sequences(number if order is None else int(order[number % len(order)]))

    def _sequences(self, index: int) -> Sequences:
        if self._on_device:
            return self._on_device[index]
        x, y = draw(self._task, self._batch_size * self._block_steps, self._stream(index))
        return Sequences(to_device(x, self._device), to_device(y, self._device))

    def _mean_error(self, model: nn.Module, sequences: Iterable[Sequences]) -> float:
        chunk = max(1, _CHUNK_NUMBERS // (self._task.seq_len * self._task.dim))
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        count = 0
        for x, y in sequences:
            for rows in own_slices(len(x), chunk):
                total += _squared_errors(model, x[rows], y[rows]).double().sum()
            count += len(x) * self._task.seq_len
        return (sum_over_processes(total) / count).item()


def made_ahead(make: Callable[[int], Sequences], start_step: int) -> Iterator[Sequences]:
    """Yield the block of every step without end, each made while the one before it is used."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        next_block = executor.submit(make, start_step)
        for step in itertools.count(start_step + 1):
            block = next_block.result()
            next_block = executor.submit(make, step)
            yield block


def _squared_errors(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return ||y_hat - y||^2 of every token, (B, N), float32."""
    shape = tuple(y.shape)
    prediction = of_shape(model(x), shape, f"shape {shape} for sequences of that shape")
    return (prediction.float() - y).square().sum(dim=2)
