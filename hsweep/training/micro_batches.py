"""The gradient of a batch, in as many parts as memory asks for.

A batch whose forward or backward pass does not fit the device is cut into halves, quarters and so
on, down to one example at once, and the parts' gradients are added up, each with its share of the
batch's loss. Batch size, learning rate and clipping stay what they are. The sum equals the whole
batch's gradient up to the rounding of floating-point numbers, but for what does not act on each
example alone:

* **Dropout** draws other masks, as independent and as likely. From the first part of the repeated
  update on, until the next report, random numbers follow a seed of their own: a function of the
  sampling seed, the update and the size of the parts. So the trial still repeats to the bit
  wherever memory gives out at the same update.
* **Batch norm** takes mean and variance of each part, and counts every part in its running
  statistics, that of an attempt that failed too. The note of the report says so.
"""

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from hsweep.seeding import derived_seed
from hsweep.training.batches import Parts, num_examples, parts_of
from hsweep.training.memory import DoesNotFitError, fitting, release
from tasks.base import Batch, Divisible, TaskData

Autocast = AbstractContextManager[object, bool | None]
"""What losses and evaluations are computed under; it can be entered again and again."""


class Gradients:
    """Computes the gradients of one trial, and remembers how much fits at once.

    Where a recipe asks for parts of batches (``Recipe.accumulate``), they are there from the start.

    Args:
        data: cuts batches, if it says how, and has the loss.
        model: on the device, in training mode when asked for gradients.
        autocast: under which the loss is computed.
        batch_size: examples in a batch at most.
        seed: of the random numbers of updates that are repeated in smaller parts.
        asked: examples that the recipe has computed at once; None for whole batches.
        fitting: examples at once that were found to fit; None where what was asked for does.
        scaler: of the loss; gradients are then as many times too large.

    Attributes:
        at_once: examples that are computed at once; None for whole batches.
        reduced: the same where memory did not suffice for what was asked for; None where it does.
    """

    def __init__(
        self,
        data: TaskData,
        model: nn.Module,
        autocast: Autocast,
        *,
        batch_size: int,
        seed: int,
        asked: int | None = None,
        fitting: int | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.at_once = fitting or asked
        self.reduced = fitting
        self._data = data
        self._model = model
        self._parameters = list(model.parameters())
        self._autocast = autocast
        self._batch_size = batch_size
        self._seed = seed
        self._scaler = scaler
        self._note = ""

    def of(self, batch: Batch, step: int) -> Tensor:
        """Leave the gradient of an update's batch in the parameters, and return the batch's loss.

        Raises:
            DoesNotFitError: not even one example at once fits, or the batch cannot be cut.
            ValueError: the batch cannot be cut, and the recipe asks for its parts.
        """
        parts: Parts = [(batch, 1.0)]
        if self.at_once is not None:
            check_divisible(self._data, batch)
            parts = parts_of(self._data, batch, self.at_once)
        while True:
            self.clear()
            try:
                with fitting("a batch"):
                    return self._accumulated(parts)
            except DoesNotFitError as error:
                asked = error.asked_bytes
            # Here and not above, where the error's traceback still holds every activation.
            self.clear()
            parts, self.at_once = self._more_parts(batch, parts, asked)
            self.reduced = self.at_once
            release(self._parameters[0].device)
            torch.manual_seed(derived_seed(self._seed, step, self.at_once))
            self._note = (
                f"out of memory at update {step + 1}: from there on {self.at_once} of "
                f"{self._batch_size} examples at once, gradients accumulated"
            )
            if has_batch_statistics(self._model):
                self._note += f"; batch norm takes its statistics over those {self.at_once}"

    def clear(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def take_note(self) -> str:
        """Return what is new to tell since the last call; empty for nothing."""
        note, self._note = self._note, ""
        return note

    def _accumulated(self, parts: Parts) -> Tensor:
        total: Tensor | None = None
        for part, share in parts:
            with self._autocast:
                loss = self._data.loss(self._model, part)
            if len(parts) > 1:
                loss = loss * share
            scaled = loss if self._scaler is None else self._scaler.scale(loss)
            scaled.backward()  # type: ignore[no-untyped-call]
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None, "a batch has at least one part"
        return total

    def _more_parts(self, batch: Batch, parts: Parts, asked: int | None) -> tuple[Parts, int]:
        at_once = self.at_once or self._batch_size
        while at_once > 1:
            at_once = (at_once + 1) // 2
            smaller = parts_of(self._data, batch, at_once)
            # A training set smaller than a batch is one batch, of fewer examples than that.
            if len(smaller) > len(parts):
                return smaller, at_once
        if len(parts) > 1 or self._batch_size == 1:
            raise DoesNotFitError("one example at once", asked)
        raise DoesNotFitError("a whole batch, which its task does not cut,", asked)


def check_divisible(data: TaskData, batch: Batch) -> None:
    """Refuse a batch that stays whole where its parts are asked for.

    Raises:
        ValueError: with what the task must do.
    """
    if not isinstance(data, Divisible) and num_examples(batch) is None:
        raise ValueError(
            "accumulate asks for parts of a batch, and it is not clear what an example of this "
            "one is; let the task's data cut it (tasks.base.Divisible), or set accumulate=1"
        )


def has_batch_statistics(model: nn.Module) -> bool:
    """Whether the model normalises by the statistics of a batch, and keeps running ones."""
    return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules())
