"""Which examples make up the batch of a step, and batches on their way to the training device.

What is drawn is a function of seeds and step number alone, from generators made here and never from
a global one; timm's and torchvision's transforms, which know no other, run in ``seeded_globals``.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

_MASK_63_BITS = (1 << 63) - 1

_HELD_OUT = 0
"""Keeps the choice of examples to hold out apart from other draws of a seed."""


class EpochPart(NamedTuple):
    """The steps of one epoch that are still to be taken.

    Attributes:
        epoch: passes over the training set before this one.
        first_batch: batch within the epoch to begin with.
        order: example indices in this epoch's order, on the CPU, whole batches only; shape
            (batches in an epoch * batch size,), int64.
    """

    epoch: int
    first_batch: int
    order: Tensor


def stream_seed(*parts: int) -> int:
    """Return a 63-bit seed that depends on every part and on their order."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0]) & _MASK_63_BITS


def generator(*parts: int) -> torch.Generator:
    """Return a new CPU generator seeded by ``parts``. The CPU is used whatever the training device
    is, so that the same seeds mean the same data everywhere."""
    return torch.Generator().manual_seed(stream_seed(*parts))


@contextmanager
def seeded_globals(seed: int) -> Iterator[None]:
    """Seed the generators of random, numpy and torch (CPU); put them back as they were at the end.

    Not for use while another thread draws from the same generators.

    Args:
        seed: a whole number from 0 to 2**63 - 1.
    """
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    # torch.manual_seed would seed the accelerators too, which are not put back.
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on the device.

    From the CPU to a device it is copied out of pinned memory while both go on: from other memory
    the caller would wait until the device has done all that it was asked for before.
    """
    if tensor.device.type == "cpu" and device.type not in ("cpu", "meta"):
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def first_step(start_step: int) -> int:
    """Return a step that batches may begin with.

    Raises:
        ValueError: one below 0.
    """
    if start_step < 0:
        raise ValueError(f"start_step must be at least 0, not {start_step}")
    return start_step


def whole_batches(num_examples: int, batch_size: int) -> tuple[int, int]:
    """Return the batch size in use and the number of batches in an epoch.

    The last partial batch is dropped, unless the training set is smaller than one batch: then it
    is the batch.

    Raises:
        ValueError: a batch size below 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    size = min(batch_size, num_examples)
    return size, num_examples // size


def epochs_from(
    start_step: int, num_examples: int, batch_size: int, sampling_seed: int
) -> Iterator[EpochPart]:
    """Yield epochs without end, the first one beginning at ``start_step``.

    Each epoch's order is a permutation drawn from (sampling_seed, epoch), so any step can be
    reached without going through the steps before it.

    Raises:
        ValueError: a start step below 0.
    """
    size, num_batches = whole_batches(num_examples, batch_size)
    epoch, first_batch = divmod(first_step(start_step), num_batches)
    while True:
        order = torch.randperm(num_examples, generator=generator(sampling_seed, epoch))
        yield EpochPart(epoch, first_batch, order[: size * num_batches])
        epoch, first_batch = epoch + 1, 0


def chosen_rows(count: int, size: int | None, *seed: int) -> Tensor:
    """Return ``size`` of ``count`` row numbers, ascending, as ``seed`` decides; None for all."""
    if size is None or size >= count:
        return torch.arange(count)
    return torch.randperm(count, generator=generator(*seed))[:size].sort().values


def held_out_rows(labels: Tensor, share: float, seed: int) -> Tensor:
    """Return which rows are held out, (n,), bool: a share of each class, rounded to whole examples.

    Args:
        labels: the classes, (n,), int64.
        share: in (0, 1).
        seed: decides which rows.
    """
    mask = torch.zeros(len(labels), dtype=torch.bool)
    for label in torch.unique(labels).tolist():
        rows = (labels == label).nonzero().flatten()
        order = torch.randperm(len(rows), generator=generator(seed, _HELD_OUT, label))
        mask[rows[order[: round(share * len(rows))]]] = True
    return mask


class EpochData:
    """What task data with a training set have in common; a task adds batches, loss and evaluation.

    Args:
        num_train: training examples.
        eval_size: examples that the main metric is computed on.
        sampling_seed: decides each epoch's order.
        batch_size: examples a batch.

    Raises:
        ValueError: a batch size below 1.
    """

    def __init__(self, num_train: int, eval_size: int, sampling_seed: int, batch_size: int) -> None:
        self.eval_size = eval_size
        self._num_train, self._sampling_seed = num_train, sampling_seed
        self._batch_size, self.steps_per_epoch = whole_batches(num_train, batch_size)

    def warm_start(self, model: nn.Module) -> None:
        """Do nothing: what a read-out bias would say of these data is learned at once."""

    def rows_from(
        self, start_step: int, device: torch.device | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield each step's number and the rows of its batch, without end.

        Args:
            start_step: the first step.
            device: the device of the rows; None for the CPU.

        Raises:
            ValueError: a start step below 0.
        """
        step = start_step
        epochs = epochs_from(start_step, self._num_train, self._batch_size, self._sampling_seed)
        for part in epochs:
            order = to_device(part.order, device or part.order.device)
            for rows in torch.split(order, self._batch_size)[part.first_batch :]:
                yield step, rows
                step += 1


def of_shape(outputs: Tensor, shape: tuple[int, ...], expected: str) -> Tensor:
    """Return a model's outputs.

    Raises:
        ValueError: they have another shape than ``shape``; ``expected`` is the right one in words.
    """
    if outputs.shape != shape:
        raise ValueError(f"the model must return {expected}, not {tuple(outputs.shape)}")
    return outputs
