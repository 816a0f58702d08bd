"""Which examples make up the batch of a step: a function of seeds and step number alone.

Everything is drawn from generators made here, never from a global one.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_MASK_63_BITS = (1 << 63) - 1


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
    if start_step < 0:
        raise ValueError(f"start_step must be at least 0, not {start_step}")
    size, num_batches = whole_batches(num_examples, batch_size)
    epoch, first_batch = divmod(start_step, num_batches)
    while True:
        order = torch.randperm(num_examples, generator=generator(sampling_seed, epoch))
        yield EpochPart(epoch, first_batch, order[: size * num_batches])
        epoch, first_batch = epoch + 1, 0
