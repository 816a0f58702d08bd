"""The sequences of the sum-of-maxima task, and learning from them.

Shapes: n sequences, T vectors in a sequence, d numbers in a vector, D directions.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.sampling import epochs_from, generator, whole_batches
from tasks.synthetic.retrieval import Retrieval

_CHUNK_NUMBERS = 1 << 22
"""Numbers of x handled at once where memory would otherwise grow with the data set."""

_DIRECTIONS, _TRAIN, _VALIDATION = range(3)
"""Independent streams of the data seed: more training data leaves validation data as they are."""


class Sequences(NamedTuple):
    """Inputs and targets.

    Attributes:
        x: (n, T, d), float32.
        y: (n,), float32.
    """

    x: Tensor
    y: Tensor


class Generated(NamedTuple):
    """Everything one data seed makes.

    Attributes:
        directions: a_i, shape (D, d), float32, unit rows.
        train: training sequences.
        validation: validation sequences.
    """

    directions: Tensor
    train: Sequences
    validation: Sequences


@functools.lru_cache(maxsize=4)
def generate(task: Retrieval, data_seed: int, device: torch.device) -> Generated:
    """Return the data of ``task`` on ``device``; the last few are kept for reuse.

    They are made on the CPU and then moved, so every device trains on the same numbers.
    """
    directions = _directions(task, generator(data_seed, _DIRECTIONS))
    parts = []
    for count, stream in ((task.num_train, _TRAIN), (task.num_validation, _VALIDATION)):
        x = torch.randn(count, task.seq_len, task.token_dim, generator=generator(data_seed, stream))
        rows = max(1, _CHUNK_NUMBERS // (task.seq_len * task.token_dim))
        y = torch.cat([sum_of_maxima(chunk, directions) for chunk in torch.split(x, rows)])
        parts.append(Sequences(x.to(device), y.to(device)))
    return Generated(directions.to(device), parts[0], parts[1])


def sum_of_maxima(x: Tensor, directions: Tensor) -> Tensor:
    """Return sum_i max_t a_i . x_t (arXiv 2510.06662, synthetic experiment).

    Args:
        x: (n, T, d).
        directions: a_i, (D, d).

    Returns:
        (n,), of the type of ``x``.
    """
    return (x @ directions.T).amax(dim=1).sum(dim=1)


def _directions(task: Retrieval, random: torch.Generator) -> Tensor:
    gaussian = torch.randn(task.token_dim, task.dim, generator=random, dtype=torch.float64)
    if task.directions == "iid":
        columns: Tensor = gaussian / gaussian.norm(dim=0)
    else:
        # Q of a Gaussian matrix is uniform over orthonormal frames once R's diagonal is positive.
        q, r = torch.linalg.qr(gaussian)
        columns = q * r.diagonal().sign()
    directions: Tensor = columns.T.float().contiguous()
    return directions


class RetrievalData:
    """Sequences opened for one trial: batches, the squared error, and NMSE."""

    def __init__(self, data: Generated, sampling_seed: int, batch_size: int) -> None:
        self._data = data
        self._sampling_seed = sampling_seed
        self._batch_size, self._num_batches = whole_batches(len(data.train.y), batch_size)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one pass over the training sequences."""
        return self._num_batches

    @property
    def eval_size(self) -> int:
        """Validation sequences."""
        return len(self._data.validation.y)

    def batches(self, start_step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) without end: x (batch, T, d), y (batch,), beginning with ``start_step``.

        An epoch is gathered at once, so a step costs no more than taking a view.

        Raises:
            ValueError: a start step below 0.
        """
        x, y = self._data.train
        for part in epochs_from(start_step, len(y), self._batch_size, self._sampling_seed):
            order = part.order[part.first_batch * self._batch_size :].to(y.device)
            yield from zip(
                torch.split(x.index_select(0, order), self._batch_size),
                torch.split(y.index_select(0, order), self._batch_size),
                strict=True,
            )

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the mean squared error of the batch."""
        x, y = batch
        return functional.mse_loss(_predict(model, x), y)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return NMSE = MSE / Var(y) on both splits, each with its own sample variance.

        Sums are kept in float64, because NMSE of interest goes down to 1e-7.
        """
        return {
            "nmse": _nmse(model, self._data.validation),
            "train_nmse": _nmse(model, self._data.train),
        }

    def warm_start(self, model: nn.Module) -> None:
        """Set the tensor ``model.readout_bias``, if there is one, to the mean training target."""
        bias = getattr(model, "readout_bias", None)
        if isinstance(bias, Tensor):
            with torch.no_grad():
                bias.fill_(self._data.train.y.double().mean().item())


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
    rows = max(1, _CHUNK_NUMBERS // x[0].numel() // 16)
    squared_error = torch.zeros((), dtype=torch.float64, device=y.device)
    for x_chunk, y_chunk in zip(torch.split(x, rows), torch.split(y, rows), strict=True):
        squared_error += (_predict(model, x_chunk).double() - y_chunk.double()).square().sum()
    variance = y.double().var(correction=0)
    return (squared_error / len(y) / variance).item()
