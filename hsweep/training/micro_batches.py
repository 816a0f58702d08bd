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
memory does not suffice in one, all cut theirs.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from hsweep.design.trial import Trial
from hsweep.training.batches import Parts, num_examples
from hsweep.training.compiled import forget_replays
from hsweep.training.devices import DoesNotFitError, fitting, release, seed_torch
from hsweep.training.division import Division, own_seed, sum_gradients
from hsweep.training.opening import TrainingSetup, has_batch_statistics
from tasks.base import Batch, Divisible, TaskData


class Gradients:
    """Computes the gradients of one trial, and remembers how much fits at once.

    Where a recipe asks for parts of batches (``Recipe.accumulate``), they are there from the start.

    Args:
        model: the one that losses call, on the device, in training mode during ``compute``.
        trial: its sampling seed gives the random numbers of updates that are repeated in smaller
            parts.
        fitting: examples at once of a process that fitted before; None where the recipe's do.
        pause: says at each batch what this process asks for after its update.

    Attributes:
        at_once: examples that a process computes at once; None for all that it has of a batch.
        reduced: the same where memory did not suffice for the recipe's; None where it does.
        note: on parts of batches since the last report; empty without one.
        pause: the largest answer of all processes to the last batch.
    """

    def __init__(
        self,
        division: Division,
        model: nn.Module,
        setup: TrainingSetup,
        trial: Trial,
        fitting: int | None,
        pause: Callable[[], int],
    ) -> None:
        at_once = trial.recipe.at_once  # of all processes; None for whole batches
        self.at_once = fitting or (at_once and -(-at_once // division.world.size))
        self.reduced = fitting
        self._division, self._world = division, division.world
        self._model, self._parameters = model, list(model.parameters())
        self._autocast, self._scaler = setup.autocast, setup.scaler
        self._seed, self.note = trial.seeds.sampling, ""
        self._ask_pause, self.pause = pause, 0
        self._has_statistics = has_batch_statistics(model)

    def compute(self, batch: Any, step: int) -> Tensor:
        """Store the gradient of an update's batch in the parameters; return the loss of the batch.

        Args:
            batch: as the division yields it.
            step: updates before this one.

        Raises:
            DoesNotFitError: not even one example at once fits, or the batch cannot be cut.
            ValueError: the batch cannot be cut, and the recipe asks for its parts.
        """
        if self.at_once is not None:
            check_divisible(self._division.data, batch)
        parts = self._division.parts(batch, self.at_once)
        while True:
            self.clear()
            loss, reason = self._try(parts)
            self.pause = 0 if loss is None else self._ask_pause()
            if loss is not None and self._world.size == 1:
                return loss
            # A process that lacks memory, or has no gradient for a parameter, may be the only one.
            has_gradient = [p.grad is not None for p in self._parameters]
            answers = [loss is None, self.pause, *has_gradient]
            lacks, self.pause, *is_used = self._world.largest(answers)
            if loss is not None and not lacks:
                return sum_gradients(self._parameters, is_used, loss)
            # Here and not above, where the error's traceback still holds every activation.
            self.clear()
            parts, self.at_once = self._more_parts(batch, parts, reason)
            self.reduced = self.at_once
            # Graphs of what did not fit hold its memory; parts of another size are compiled anew.
            forget_replays(self._model)
            device = self._parameters[0].device
            release(device)
            seed_torch(own_seed(self._world, self._seed, step, self.at_once), device)
            self.note = (
                f"out of memory at update {step + 1}: from there on {self.at_once} of "
                f"{self._division.batch_size} examples at once, gradients accumulated"
            )
            if self._has_statistics:
                self.note += f"; batch norm takes its statistics over those {self.at_once}"

    def clear(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def _try(self, parts: Parts) -> tuple[Tensor | None, str]:
        """Return the loss, None where memory does not suffice, and the allocator's message then."""
        try:
            with fitting("a batch"):
                return self._accumulated(parts), ""
        except DoesNotFitError as error:
            return None, error.reason

    def _accumulated(self, parts: Parts) -> Tensor:
        total: Tensor | None = None
        for part, share in parts:
            with self._autocast:
                loss = self._division.data.loss(self._model, part)
            if share != 1:
                loss = loss * share
            scaled = loss if self._scaler is None else self._scaler.scale(loss)
            scaled.backward()  # type: ignore[no-untyped-call]
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None, "a batch has at least one part"
        return total

    def _more_parts(self, batch: Any, parts: Parts, reason: str) -> tuple[Parts, int]:
        batch_size = self._division.batch_size
        at_once = self.at_once or batch_size
        while at_once > 1:
            at_once = (at_once + 1) // 2
            smaller = self._division.parts(batch, at_once)
            # A training set smaller than a batch is one batch, of fewer examples than that.
            if any(self._world.largest([len(smaller) > len(parts)])):
                return smaller, at_once
        is_single = len(parts) > 1 or batch_size == 1
        subject = (
            "one example at once" if is_single else "a whole batch, which its task does not cut,"
        )
        raise DoesNotFitError(subject, reason)


def check_divisible(data: TaskData, batch: Batch) -> None:
    """Refuse a batch that cannot be divided where the recipe asks for parts.

    Raises:
        ValueError: with the method that the task lacks.
    """
    if not isinstance(data, Divisible) and num_examples(batch) is None:
        raise ValueError(
            "accumulate asks for parts of a batch, and it is not clear what an example of this "
            "one is; let the task's data cut it (tasks.base.Divisible), or set accumulate=1"
        )
