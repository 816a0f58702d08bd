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

Of several processes that train one trial each computes its part of the batch in that way, and where
memory does not suffice in one, all cut theirs. A model whose passes all processes make at the same
time (one with batch norm or with sharded weights) is not cut: the trial then ends as one that does
not fit.
"""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from hsweep.errors import UserError
from hsweep.training.batch_norm import SharedStatistics, has_batch_statistics
from hsweep.training.batches import Parts, num_examples
from hsweep.training.compiled import forget_replays
from hsweep.training.division import Division, most, own_seed, sum_gradients
from hsweep.training.memory import DoesNotFitError, fitting, release
from hsweep.training.precision import Autocast
from tasks.base import Batch, Divisible, TaskData


class Gradients:
    """Computes the gradients of one trial, and remembers how much fits at once.

    Where a recipe asks for parts of batches (``Recipe.accumulate``), they are there from the start.

    Args:
        division: cuts batches, and has the data and their loss.
        model: on the device, in training mode when asked for gradients.
        autocast: under which the loss is computed.
        seed: of the random numbers of updates that are repeated in smaller parts.
        asked: examples of all processes that the recipe has computed at once; None for whole
            batches.
        fitting: examples at once of a process that were found to fit; None where what was asked
            for does.
        scaler: of the loss; gradients are then as many times too large.
        is_sharded: whether the model's weights are spread over the processes.

    Attributes:
        at_once: examples that a process computes at once; None for all that it has of a batch.
        reduced: the same where memory did not suffice for what was asked for; None where it does.

    Raises:
        UserError: the model has batch norm, and what is asked for cannot be divided equally.
    """

    def __init__(
        self,
        division: Division,
        model: nn.Module,
        autocast: Autocast,
        *,
        seed: int,
        asked: int | None = None,
        fitting: int | None = None,
        scaler: torch.amp.GradScaler | None = None,
        is_sharded: bool = False,
    ) -> None:
        own = None if asked is None else -(-asked // division.world.size)
        self.at_once = fitting or own
        self.reduced = fitting
        self._division = division
        self._model = model
        self._parameters = list(model.parameters())
        self._autocast = autocast
        self._seed = seed
        self._scaler = scaler
        self._note = ""
        self._world = division.world
        self._is_sharded = is_sharded
        self._has_statistics = has_batch_statistics(model)
        self._shares_statistics = self._has_statistics and self._world.size > 1
        if self._shares_statistics and asked is not None and asked % self._world.size:
            raise UserError(
                f"the {asked} examples at once that accumulate asks for are not equally many in "
                f"each of {self._world.size} processes, which batch norm needs for its statistics; "
                "make batch_size / accumulate a multiple of the number of processes"
            )

    def of(self, batch: Any, step: int) -> Tensor:
        """Leave the gradient of an update's batch in the parameters, and return the batch's loss.

        Args:
            batch: as the division yields it.
            step: updates before this one.

        Raises:
            DoesNotFitError: not even one example at once fits, or the batch cannot be cut.
            ValueError: the batch cannot be cut, and the recipe asks for its parts.
            UserError: the model has batch norm, and a process has fewer parts than others.
        """
        if self.at_once is not None:
            check_divisible(self._division.data, batch)
        parts = self._parts(batch)
        while True:
            self.clear()
            loss, asked = self._tried(parts)
            if loss is not None and self._world.size == 1:
                return loss
            # A process that lacks memory, or has no gradient for a parameter, may be the only one.
            has_gradient = [p.grad is not None for p in self._parameters]
            lacks, *is_used = most(self._world, [loss is None, *has_gradient])
            if loss is not None and not lacks:
                if self._is_sharded:  # the gradients are summed already
                    return sum_gradients((), (), loss)
                return sum_gradients(self._parameters, is_used, loss)
            # Here and not above, where the error's traceback still holds every activation.
            self.clear()
            parts, self.at_once = self._more_parts(batch, parts, asked)
            self.reduced = self.at_once
            # Graphs of what did not fit hold its memory; parts of another size are compiled anew.
            forget_replays(self._model)
            release(self._parameters[0].device)
            torch.manual_seed(own_seed(self._world, self._seed, step, self.at_once))
            self._note = (
                f"out of memory at update {step + 1}: from there on {self.at_once} of "
                f"{self._division.batch_size} examples at once, gradients accumulated"
            )
            if self._has_statistics:
                self._note += f"; batch norm takes its statistics over those {self.at_once}"

    def clear(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def take_note(self) -> str:
        """Return what is new to tell since the last call; empty for nothing."""
        note, self._note = self._note, ""
        return note

    def _parts(self, batch: Any) -> Parts:
        """Return this process's parts: as many as the others have, where passes of the model are
        made by all at the same time."""
        parts = self._division.parts(batch, self.at_once)
        if self._is_sharded or self._shares_statistics:
            count, is_short = most(self._world, [len(parts), parts[-1][1] == 0])
            short_of = count - len(parts)
            if self._shares_statistics and (is_short or any(most(self._world, [short_of]))):
                raise UserError(
                    f"a batch of {self._division.batch_size} examples does not give each of "
                    f"{self._world.size} processes as many parts, which batch norm needs for its "
                    "statistics; make batch_size a multiple of the number of processes"
                )
            parts = [*parts, *[(parts[0][0], 0.0)] * short_of]
        return parts

    def _tried(self, parts: Parts) -> tuple[Tensor | None, int | None]:
        """Return the loss, None where memory does not suffice, and what was asked for in vain."""
        try:
            with fitting("a batch"):
                return self._accumulated(parts), None
        except DoesNotFitError as error:
            if self._is_sharded or self._shares_statistics:
                # The other processes wait within their passes, and cannot be told.
                raise
            return None, error.asked_bytes

    def _accumulated(self, parts: Parts) -> Tensor:
        total: Tensor | None = None
        statistics = SharedStatistics() if self._shares_statistics else nullcontext()
        for part, share in parts:
            with self._autocast, statistics:
                loss = self._division.data.loss(self._model, part)
            if share != 1:
                loss = loss * share
            # Of sharded weights gradients are averaged over the processes.
            whole = loss * self._world.size if self._is_sharded else loss
            if self._scaler is not None:
                whole = self._scaler.scale(whole)
            whole.backward()  # type: ignore[no-untyped-call]
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None, "a batch has at least one part"
        return total

    def _more_parts(self, batch: Any, parts: Parts, asked: int | None) -> tuple[Parts, int]:
        batch_size = self._division.batch_size
        at_once = self.at_once or batch_size
        while at_once > 1:
            at_once = (at_once + 1) // 2
            smaller = self._division.parts(batch, at_once)
            # A training set smaller than a batch is one batch, of fewer examples than that.
            if any(most(self._world, [len(smaller) > len(parts)])):
                return smaller, at_once
        if len(parts) > 1 or batch_size == 1:
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
