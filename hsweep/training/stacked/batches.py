"""Batches of several trials as one batch of tensors with a row for each."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hsweep.training.batches import leaves, with_tensors
from hsweep.training.memory import is_out_of_memory
from tasks.base import Batch


class CannotStackError(Exception):
    """Trials have to be trained separately.

    Attributes:
        reason: why, for people.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"these trials are trained separately: {reason}")
        self.reason = reason


class StackedBatch(NamedTuple):
    """Batches of one structure as one.

    Attributes:
        tensors: those of the batches, each (K, ...), or those of one batch for all.
        template: a batch of that structure.
    """

    tensors: list[Tensor]
    template: Batch

    def rebuilt(self, tensors: Sequence[Tensor]) -> Batch:
        """Return a batch of the structure with these tensors."""
        return with_tensors(self.template, tensors)

    def part(self, rows: slice) -> "StackedBatch":
        """Return the batches of some models."""
        return StackedBatch([each[rows] for each in self.tensors], self.template)


def stacked(batches: Sequence[Batch]) -> StackedBatch:
    """Return batches as one; a single one is that of all trials.

    Raises:
        CannotStackError: they differ in more than the values of their tensors.
    """
    first = batches[0]
    if len(batches) == 1:
        return StackedBatch([each for each in leaves(first) if isinstance(each, Tensor)], first)
    columns = []
    try:
        for each in zip(*(leaves(batch) for batch in batches), strict=True):
            if isinstance(each[0], Tensor):
                columns.append(torch.stack(each))
            elif any(other != each[0] for other in each):
                raise CannotStackError("their batches differ in more than tensors")
    except (RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise CannotStackError(f"their batches differ in shape ({error})") from error
    return StackedBatch(columns, first)
