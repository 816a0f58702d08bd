"""Batches of several trials as one batch of tensors with a row for each."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hsweep.training.memory import is_out_of_memory
from tasks.base import Batch


class CannotTrainTogetherError(Exception):
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
        return _filled(self.template, iter(tensors))

    def part(self, rows: slice) -> "StackedBatch":
        """Return the batches of some models."""
        return StackedBatch([each[rows] for each in self.tensors], self.template)


def stacked(batches: Sequence[Batch]) -> StackedBatch:
    """Return batches as one; a single one is that of all trials.

    Raises:
        CannotTrainTogetherError: they differ in more than the values of their tensors.
    """
    if len(batches) == 1:
        return StackedBatch(
            [each for each in leaves(batches[0]) if isinstance(each, Tensor)], batches[0]
        )
    columns = []
    try:
        for each in zip(*(leaves(batch) for batch in batches), strict=True):
            if isinstance(each[0], Tensor):
                columns.append(torch.stack(each))
            elif any(other != each[0] for other in each):
                raise CannotTrainTogetherError("their batches differ in more than tensors")
    except (RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise CannotTrainTogetherError(f"their batches differ in shape ({error})") from error
    return StackedBatch(columns, batches[0])


def leaves(batch: Batch) -> Iterator[Any]:
    """Yield the tensors of a batch and whatever else is no collection, in a fixed order."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from leaves(value)
    elif isinstance(batch, tuple | list):
        for value in batch:
            yield from leaves(value)
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        for field in dataclasses.fields(batch):
            yield from leaves(getattr(batch, field.name))
    else:
        yield batch


def _filled(batch: Any, tensors: Iterator[Tensor]) -> Any:
    """Return ``batch`` with other tensors, in the order of ``leaves``."""
    if isinstance(batch, Tensor):
        return next(tensors)
    if isinstance(batch, dict):
        return {name: _filled(value, tensors) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        values = [_filled(value, tensors) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        changes = {
            field.name: _filled(getattr(batch, field.name), tensors)
            for field in dataclasses.fields(batch)
        }
        return dataclasses.replace(batch, **changes)
    return batch
