"""The gradient of a batch, in as many parts as memory asks for.

A batch whose forward or backward pass does not fit the device is cut into halves, quarters and so
on, down to one example at once, and the parts' gradients are added up, each with its share of the
batch's loss. Batch size, learning rate and clipping stay what they are. The sum equals the whole
batch's gradient up to the rounding of floating-point numbers, but for what does not act on each
example alone:

* **Dropout** draws other masks, as independent and as likely. From the first part of the repeated
  update on, random numbers follow a seed of their own (a function of the sampling seed, the update
  and the size of the parts), until the next report, where they are set as ever. So the trial
  still repeats to the bit wherever memory gives out at the same update.
* **Batch norm** takes the mean and variance of each part, no longer of the batch, and counts every
  part in its running statistics, that of an attempt that failed too. The note of the report says
  so.
"""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import torch
from torch import Tensor, nn

from hsweep.seeding import derived_seed
from hsweep.training.memory import DoesNotFitError, asked_bytes, is_out_of_memory, release
from tasks.base import Batch, Divisible, TaskData

Parts = Sequence[tuple[Batch, float]]
"""Parts of a batch, each with its share of the batch's loss."""

_PLAIN: Final = (bool, int, float, type(None))


class Gradients:
    """Computes the gradients of one trial, and remembers how much fits at once.

    Args:
        data: cuts batches, if it says how, and has the loss.
        model: on the device, in training mode when asked for gradients.
        autocast: under which the loss is computed.
        batch_size: examples in a batch at most.
        seed: of the random numbers of updates that are repeated in smaller parts.
        at_once: examples at once so far; None for whole batches.

    Attributes:
        at_once: examples that are computed at once; None for whole batches.
    """

    def __init__(
        self,
        data: TaskData,
        model: nn.Module,
        autocast: AbstractContextManager[object, bool | None],
        *,
        batch_size: int,
        seed: int,
        at_once: int | None = None,
    ) -> None:
        self.at_once = at_once
        self._data = data
        self._model = model
        self._parameters = list(model.parameters())
        self._autocast = autocast
        self._batch_size = batch_size
        self._seed = seed
        self._note = ""

    def of(self, batch: Batch, step: int) -> Tensor:
        """Leave the gradient of the batch's loss in the parameters, and return that loss.

        Args:
            batch: of the update.
            step: the update's number, from 0.

        Raises:
            DoesNotFitError: not even one example at once fits, or the batch cannot be cut.
        """
        parts: Parts = [(batch, 1.0)]
        if self.at_once is not None:
            parts = parts_of(self._data, batch, self.at_once)
        while True:
            self.clear()
            try:
                return self._accumulated(parts)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                asked = asked_bytes(str(error))
            # Here and not above, where the error's traceback still holds every activation.
            self.clear()
            parts = self._more_parts(batch, parts, asked)
            release(self._parameters[0].device)
            assert self.at_once is not None
            torch.manual_seed(derived_seed(self._seed, step, self.at_once))
            self._note = self._said(step)

    def clear(self) -> None:
        """Drop the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def take_note(self) -> str:
        """Return what there is to tell since it was last asked; empty for nothing."""
        note, self._note = self._note, ""
        return note

    def _accumulated(self, parts: Parts) -> Tensor:
        total: Tensor | None = None
        for part, share in parts:
            with self._autocast:
                loss = self._data.loss(self._model, part)
            if len(parts) > 1:
                loss = loss * share
            loss.backward()  # type: ignore[no-untyped-call]
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None, "a batch has at least one part"
        return total

    def _more_parts(self, batch: Batch, parts: Parts, asked: int | None) -> Parts:
        at_once = self.at_once or self._batch_size
        while at_once > 1:
            at_once = (at_once + 1) // 2
            smaller = parts_of(self._data, batch, at_once)
            # A training set smaller than a batch is one batch, of fewer examples than that.
            if len(smaller) > len(parts):
                self.at_once = at_once
                return smaller
        if len(parts) > 1 or self._batch_size == 1:
            raise DoesNotFitError("one example at once", asked)
        raise DoesNotFitError("a whole batch, which its task does not cut,", asked)

    def _said(self, step: int) -> str:
        note = (
            f"out of memory at update {step + 1}: from there on {self.at_once} of "
            f"{self._batch_size} examples at once, gradients accumulated"
        )
        if has_batch_statistics(self._model):
            note += f"; batch norm takes its statistics over those {self.at_once}"
        return note


def has_batch_statistics(model: nn.Module) -> bool:
    """Whether the model normalises by the statistics of a batch, and keeps running ones."""
    return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules())


def parts_of(data: TaskData, batch: Batch, at_once: int) -> Parts:
    """Return the parts of a batch with at most so many examples each, and their shares of the loss.

    As the task data say (``tasks.base.Divisible``); otherwise tensors are cut along their first
    dimension, where they all agree on it, and shares are the numbers of examples. A batch of other
    things stays whole.
    """
    if isinstance(data, Divisible):
        return data.parts(batch, at_once)
    size = num_examples(batch)
    if size is None:
        return [(batch, 1.0)]
    return [
        (rows_of(batch, slice(start, start + at_once)), min(at_once, size - start) / size)
        for start in range(0, size, at_once)
    ]


def num_examples(batch: Batch) -> int | None:
    """Return the common first dimension of a batch's tensors, None if there is none."""
    sizes: set[int | None] = set()
    _collect_sizes(batch, sizes)
    return sizes.pop() if len(sizes) == 1 else None


def _collect_sizes(batch: Batch, sizes: set[int | None]) -> None:
    if isinstance(batch, Tensor):
        if batch.ndim:
            sizes.add(len(batch))
    elif type(batch) is dict:
        for value in batch.values():
            _collect_sizes(value, sizes)
    elif isinstance(batch, tuple | list):
        for value in batch:
            _collect_sizes(value, sizes)
    elif dataclasses.is_dataclass(batch):
        for field in dataclasses.fields(batch):
            _collect_sizes(getattr(batch, field.name), sizes)
    elif not isinstance(batch, _PLAIN):
        # Who knows how many examples it is about.
        sizes.add(None)


def rows_of(batch: Any, rows: slice | Tensor) -> Any:
    """Return these rows (a slice, or int64 indices) of every tensor of a batch."""
    return _each_tensor(batch, lambda tensor: tensor[rows] if tensor.ndim else tensor)


def moved(batch: Any, device: torch.device) -> Any:
    """Return a batch with every tensor on a device."""
    return _each_tensor(batch, lambda tensor: tensor.to(device))


def _each_tensor(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, dict):
        return {name: _each_tensor(value, change) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        values = [_each_tensor(value, change) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        fields = {field.name for field in dataclasses.fields(batch) if field.init}
        return dataclasses.replace(
            batch, **{name: _each_tensor(getattr(batch, name), change) for name in fields}
        )
    return batch
