"""The contract every task fulfils.

A *task* is a frozen value that says what is learned. Opening it gives *task data*: batches, a loss
and an evaluation. Both are deterministic functions of the seeds and the step number, so that a
trial resumed from a checkpoint sees the batches it would have seen.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

# Its isinstance evaluates no property, before Python 3.12 too: metrics may need data.
from typing_extensions import Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Batch = Any
"""Whatever a task's own loss understands; usually a tuple of tensors on the training device."""


class DataError(ValueError):
    """A data set cannot be used: missing, unreadable or not what the task needs."""


_IN_KEY: Final = "hsweep.in_key"


def not_in_key(default: Any = MISSING) -> Any:
    """Return a field of a dataclass that changes no result, so that it is in no trial's key.

    For where a data set lies, if the task's fingerprint covers its content, and for how it is
    read: ``data: str = not_in_key("digits")``, ``num_workers: int = not_in_key(4)``.

    Args:
        default: of the field; none if it is left out.
    """
    return field(default=default, metadata={_IN_KEY: False})


def is_in_key(of: "Field[Any]") -> bool:
    """Whether a field of a dataclass is part of a trial's key."""
    return bool(of.metadata.get(_IN_KEY, True))


@dataclass(frozen=True, slots=True)
class Metric:
    """One number a task reports.

    Attributes:
        name: as it appears in reports, for example ``nmse``.
        goal: whether smaller or larger is better.
        scale: ``error`` (positive, compared as log10), ``accuracy`` (in [0, 1]), ``loss`` (nats),
            or ``count`` for a number that tells how much of something there was, not how well the
            model does.
        description: what it measures and on which split.
        chance: what the best constant predictor scores: one that ignores its input, such as always
            the commonest class or the mean of the targets. A model that is not better has learned
            nothing, and nothing is concluded from it. None where it is not known.
        of_training: whether it is measured on training examples, by ``TrainingEvaluated``.

    Raises:
        ValueError: a ``chance`` that is not a finite number.
    """

    name: str
    goal: Literal["min", "max"]
    scale: Literal["error", "accuracy", "loss", "count"]
    description: str
    chance: float | None = None
    of_training: bool = False

    def __post_init__(self) -> None:
        if self.chance is not None and not (
            isinstance(self.chance, int | float) and math.isfinite(self.chance)
        ):
            raise ValueError(
                f"chance of the metric {self.name!r} must be a finite number or None, not "
                f"{self.chance!r}"
            )


@runtime_checkable
class Exemplary(Protocol):
    """A task that tells what a model is given, so that the operations of any module are counted
    when it is planned."""

    def example_input(self) -> Any:
        """Return the model's input for one example, a batch of one: a tensor, a tuple of
        positional arguments, or a dictionary of keyword arguments.

        Raises:
            DataError: the data cannot be read.
        """
        ...


class Learnable(Protocol):
    """What is learned, whoever trains it."""

    @property
    def name(self) -> str:
        """A short name, the same for every setting of it."""
        ...

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Every number that is known to be measured, the main one first."""
        ...

    def fingerprint(self) -> str:
        """Return a hash of the data's content (for generated data: of its definition).

        Raises:
            DataError: the data cannot be read.
        """
        ...


@runtime_checkable
class Task(Learnable, Protocol):
    """A frozen, picklable, hashable-by-content description of what is learned.

    Its metrics are what ``evaluate`` (with ``TrainingEvaluated`` and ``FurtherEvaluated``) returns.

    A task of tokens may also have ``vocab_size``, the number of ids that its data hold (0 to
    ``vocab_size - 1``): a model configuration whose own ``vocab_size`` is smaller is then refused
    when it is planned.
    """

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> "TaskData":
        """Load or generate the data.

        Args:
            data_seed: decides what a generated data set contains.
            sampling_seed: decides the order of examples and any augmentation.
            batch_size: examples a batch; the last partial batch of an epoch is dropped, unless
                the training set is smaller than one batch.
            device: where batches are wanted.

        Raises:
            DataError: the data cannot be read or is not what the task needs, or the cache cannot
                be written.
            ValueError: a batch size below 1, or one that the task cannot be trained with.
        """
        ...


class TaskData(Protocol):
    """A task's data, opened for one trial."""

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one pass over the training set."""
        ...

    @property
    def eval_size(self) -> int:
        """Examples the main metric is computed on."""
        ...

    def batches(self, start_step: int) -> Iterator[Batch]:
        """Yield training batches without end, beginning with the one of step ``start_step``.

        The batch of a step depends on the seeds and the step number alone.

        Raises:
            ValueError: a start step below 0.
            DataError: an example cannot be read.
        """
        ...

    def loss(self, model: "nn.Module", batch: Batch) -> "Tensor":
        """Return the scalar training loss, the mean over the batch.

        May be asked again for the same batch and for parts of it, where memory did not suffice
        for the whole (see ``Divisible``).
        """
        ...

    def evaluate(self, model: "nn.Module") -> Mapping[str, float]:
        """Return every metric of the task, but for those of the protocols below. The model is in
        eval mode and gradients are off."""
        ...

    def warm_start(self, model: "nn.Module") -> None:
        """Adapt freshly initialised weights to the data, for example a read-out bias.

        May do nothing.
        """
        ...


@runtime_checkable
class TrainingEvaluated(Protocol):
    """Task data with metrics of training examples, which cost as much as those of others.

    They are measured where somebody looks at them: at a trial's last report, and at every one where
    such a metric decides or the sweep asks for them (``Sweep.train_metrics``). What every report
    has without them is the mean loss of the updates since the last one, which costs nothing.
    """

    def evaluate_training(self, model: "nn.Module") -> Mapping[str, float]:
        """Return the metrics that are declared as ``of_training``. The model is in eval mode and
        gradients are off."""
        ...


@runtime_checkable
class FurtherEvaluated(Protocol):
    """Task data with metrics that take training of their own, such as fine-tuning."""

    def evaluate_further(self, model: "nn.Module", *, is_last: bool) -> Mapping[str, float]:
        """Return metrics beside those of ``evaluate``, which was called just before.

        Called at every report of a trial that has not diverged, in eval mode, under the trial's
        autocast and with gradients on. A metric that is left out is missing from that report. The
        model, its gradients and the global random generators must be left as they are.

        Args:
            model: the model being trained; to be copied before any training.
            is_last: whether the trial's budget is used up.
        """
        ...


@runtime_checkable
class Divisible(Protocol):
    """Task data that say how their batches are cut, where memory does not suffice for a whole one.

    Without it, a batch of tensors (in tuples, lists, dictionaries or dataclasses) that agree on
    their first dimension is cut along it, and every example counts the same. That is right for a
    loss that is a mean over examples. Say it yourself where the loss is a mean over something that
    examples have more or less of (tokens that are not padding), where tensors belong to the batch
    and not to its examples, or where examples are compared with one another.
    """

    def parts(self, batch: Batch, at_once: int) -> Sequence[tuple[Batch, float]]:
        """Return parts of a batch that ``loss`` takes, and their shares of the batch's loss.

        The sum of the parts' losses, each times its share, must be the batch's loss: so shares add
        up to 1 where ``loss`` is a mean. A batch that cannot be cut is returned as ``[(batch,
        1.0)]``: a trial that it is too large for then needs another device.

        Args:
            batch: as ``batches`` yields it.
            at_once: examples of a part at most, at least 1.
        """
        ...


@runtime_checkable
class ReadsParts(Protocol):
    """Task data of which each process of a trial reads its part of a batch alone.

    Without it every process makes the whole batch and takes its part of that (see ``Divisible``),
    which is right wherever making a batch costs little.
    """

    def batches_of(self, start_step: int, *, rank: int, size: int) -> Iterator[tuple[Batch, float]]:
        """Yield this process's part of each batch of ``batches``, and its share of the loss.

        The sum over processes of the parts' losses, each times its share, must be the batch's loss.
        A process for which a batch has no examples is given some of share 0.

        Args:
            start_step: step of the first batch.
            rank: this process, from 0.
            size: how many processes there are.
        """
        ...
