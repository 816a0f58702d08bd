"""Points on the sphere and their farthest neighbours, and learning from them.

Shapes: B sequences, N points in a sequence, d numbers in a point.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.division import own_slices, summed
from tasks.sampling import generator, of_shape, whole_batches
from tasks.sources.kept import kept
from tasks.transfer import to_device

if TYPE_CHECKING:
    from tasks.synthetic.nearest_neighbor import NearestNeighbor

_CHUNK_NUMBERS = 1 << 18
"""Numbers of x handled at once."""

_MOST_STEPS = 16
"""Steps whose batches are drawn together, at most. Both are part of what a seed means."""

_MOST_NUMBERS_KEPT = 1 << 27
"""Numbers of replayed sequences, inputs and targets, kept on the device; more are drawn again."""

_TRAIN, _VALIDATION, _REPLAYED = range(3)
"""Independent streams of the data seed."""


class Sequences(NamedTuple):
    """Inputs and targets.

    Attributes:
        x: (B, N, d), float32.
        y: (B, N, d), float32.
    """

    x: Tensor
    y: Tensor


def farthest_points(x: Tensor) -> Tensor:
    """Return for every point the one whose scalar product with it is smallest, the first of equals.

    That is the label of the transformer experiments of Amsel et al., the nearest point to -x_i.

    Args:
        x: (B, N, d).

    Returns:
        (B, N, d).
    """
    farthest = torch.bmm(x, x.mT).argmin(dim=2)
    first = torch.arange(len(x))[:, None] * x.shape[1]
    return x.flatten(0, 1).index_select(0, (farthest + first).flatten()).view_as(x)


def draw(task: "NearestNeighbor", count: int, random: torch.Generator) -> Sequences:
    """Return ``count`` sequences of ``task``, drawn from ``random``, on the CPU."""
    gaussian = torch.randn(count, task.num_drawn, task.dim, generator=random)
    if task.points == "iid":
        drawn = functional.normalize(gaussian, dim=2, eps=0.0)
    else:
        # Q of a Gaussian matrix is uniform over orthonormal frames once R's diagonal is positive.
        q, r = torch.linalg.qr(gaussian.mT)
        drawn = (q * r.diagonal(dim1=1, dim2=2).sign()[:, None]).mT.contiguous()
    if task.doubled:
        return Sequences(torch.cat((drawn, -drawn), 1), torch.cat((-drawn, drawn), 1))
    if task.points == "orthonormal":
        # Rounding alone would make one of the others the farthest.
        first = torch.zeros(task.seq_len, dtype=torch.long)
        first[0] = 1
        return Sequences(drawn, drawn[:, first])
    return Sequences(drawn, farthest_points(drawn))


@kept(most=4)
def held_out(task: "NearestNeighbor", data_seed: int, device: torch.device) -> Sequences:
    """Return the held-out sequences on ``device``; the last few are kept for reuse."""
    sequences = draw(task, task.num_validation, generator(data_seed, _VALIDATION))
    return Sequences(sequences.x.to(device), sequences.y.to(device))


@kept(most=2)
def replayed(
    task: "NearestNeighbor", data_seed: int, batch_size: int, device: torch.device
) -> tuple[Sequences, ...]:
    """Return the batches that are replayed, on ``device``; the last two sets are kept for reuse."""
    assert task.replay_batches is not None
    drawn = (
        draw(task, batch_size, generator(data_seed, _REPLAYED, number))
        for number in range(task.replay_batches)
    )
    return tuple(Sequences(x.to(device), y.to(device)) for x, y in drawn)


class NearestNeighborData:
    """Sequences opened for one trial: a stream of batches, and squared errors."""

    def __init__(
        self,
        task: "NearestNeighbor",
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
        self._kept: tuple[Sequences, ...] = ()
        if task.replay_batches is None:
            self._stream = functools.partial(generator, data_seed, _TRAIN, sampling_seed)
            self._replay = None
            # Small batches are drawn several at a time, which costs little more than one.
            numbers = self._batch_size * task.seq_len * task.dim
            self._block_steps = min(_MOST_STEPS, max(1, _CHUNK_NUMBERS // numbers))
        else:
            # What is replayed is a data set, which the sampling seed puts in order once.
            self._stream = functools.partial(generator, data_seed, _REPLAYED)
            self._replay = torch.randperm(task.replay_batches, generator=generator(sampling_seed))
            numbers = 2 * task.replay_batches * self._batch_size * task.seq_len * task.dim
            if numbers <= _MOST_NUMBERS_KEPT:
                self._kept = replayed(task, data_seed, self._batch_size, device)
        self._held_out = held_out(task, data_seed, device)
        self.steps_per_epoch = task.steps_per_epoch
        self.eval_size = len(self._held_out.x)

    def batches(self, start_step: int) -> Iterator[Sequences]:
        """Yield (x, y) without end, each (batch, N, d), beginning with that of ``start_step``.

        While an accelerator works on one batch, the next one is made beside it.
        """
        if start_step < 0:
            raise ValueError(f"start_step must be at least 0, not {start_step}")
        first_block, done = divmod(start_step, self._block_steps)
        blocks: Iterator[Sequences]
        if self._kept or self._device.type == "cpu":
            blocks = map(self._block, itertools.count(first_block))
        else:
            blocks = made_ahead(self._block, first_block)
        return itertools.islice(self._split(blocks), done, None)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the squared error a token, the mean over the batch."""
        x, y = batch
        return _squared_errors(model, x, y).mean()

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return the mean squared error a token; sums are kept in float64."""
        return {"squared_error": self._mean_error(model, [self._held_out])}

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        """Return the same of the batches that come again and again, where there are any."""
        if self._task.replay_batches is None:
            return {}
        replayed = (self._drawn(index) for index in range(self._task.replay_batches))
        return {"train_squared_error": self._mean_error(model, replayed)}

    def warm_start(self, model: nn.Module) -> None:
        """Do nothing: targets have mean 0."""

    def _split(self, blocks: Iterator[Sequences]) -> Iterator[Sequences]:
        for x, y in blocks:
            pairs = zip(
                torch.split(x, self._batch_size), torch.split(y, self._batch_size), strict=True
            )
            yield from itertools.starmap(Sequences, pairs)

    def _block(self, number: int) -> Sequences:
        order = self._replay
        return self._drawn(number if order is None else int(order[number % len(order)]))

    def _drawn(self, index: int) -> Sequences:
        if self._kept:
            return self._kept[index]
        x, y = draw(self._task, self._batch_size * self._block_steps, self._stream(index))
        return Sequences(to_device(x, self._device), to_device(y, self._device))

    def _mean_error(self, model: nn.Module, sequences: Iterable[Sequences]) -> float:
        rows = max(1, _CHUNK_NUMBERS // (self._task.seq_len * self._task.dim))
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        count = 0
        for x, y in sequences:
            for own in own_slices(len(x), rows):
                total += _squared_errors(model, x[own], y[own]).double().sum()
            count += len(x) * self._task.seq_len
        return (summed(total) / count).item()


def made_ahead(make: Callable[[int], Sequences], start_step: int) -> Iterator[Sequences]:
    """Yield what ``make`` returns for every step without end, made while the one before is used."""
    with ThreadPoolExecutor(max_workers=1) as beside:
        following = beside.submit(make, start_step)
        for step in itertools.count(start_step + 1):
            made = following.result()
            following = beside.submit(make, step)
            yield made


def _squared_errors(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return ||y_hat - y||^2 of every token, (B, N), float32."""
    shape = tuple(y.shape)
    prediction = of_shape(model(x), shape, f"shape {shape} for sequences of that shape")
    return (prediction.float() - y).square().sum(dim=2)
