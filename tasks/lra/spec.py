"""What the tasks of the Long Range Arena have in common, known without reading any data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tasks.base import Metric
from tasks.classification import constant_scores
from tasks.settings import share, whole_number

PADDING: Final = 0
"""The token after the last one of a text. A black pixel is 0 as well, and published models take it
for padding."""


def token_metrics(shares: Sequence[float], *, with_test: bool = True) -> tuple[Metric, ...]:
    """Return the metrics of a task, ``accuracy`` first; without a test split, those without it.

    Args:
        shares: how frequent each class is, from which follows what a constant predictor scores.
        with_test: whether there is a test split.
    """
    constant = constant_scores(shares)
    accuracies = [
        Metric(
            name,
            "max",
            "accuracy",
            f"accuracy, {split} sequences",
            constant.top1,
            of_training=split == "training",
        )
        for name, split in (
            ("accuracy", "validation"),
            ("test_accuracy", "test"),
            ("train_accuracy", "training"),
        )
        if with_test or name != "test_accuracy"
    ]
    losses = [
        Metric(
            name,
            "min",
            "loss",
            f"cross-entropy in nats, {split} sequences",
            constant.loss,
            of_training=split == "training",
        )
        for name, split in (("validation_loss", "validation"), ("train_loss", "training"))
    ]
    return (*accuracies, *losses)


def even_shares(num_classes: int) -> tuple[float, ...]:
    """Return the shares of classes that are equally frequent."""
    return (1 / num_classes,) * num_classes


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """What a model has to know about a task.

    Attributes:
        seq_len: tokens of a text, padding included.
        vocab_size: tokens that occur, padding included; ids are 0 to vocab_size - 1.
        num_classes: classes, and so logits.
        num_texts: texts of an example: 1 for inputs (batch, seq_len), 2 for (batch, 2, seq_len).
    """

    seq_len: int
    vocab_size: int
    num_classes: int
    num_texts: int = 1


_COUNTS: Final = ("max_train", "max_validation", "max_test", "max_train_eval", "steps_per_epoch")


def settle(task: object, **least: int) -> None:
    """Put the named fields of a frozen task, and those that count what is used of its data, into
    whole numbers, and its label smoothing into a share; None stays as it is.

    Args:
        task: its fields are replaced.
        least: the least value of each field; 1 for those that count what is used.

    Raises:
        ValueError: a field that is not a whole number of at least its least value, or a label
            smoothing outside [0, 1).
    """
    used = {field: 1 for field in _COUNTS if hasattr(task, field)}
    for field, minimum in {**least, **used}.items():
        value = getattr(task, field)
        if value is not None:
            object.__setattr__(task, field, whole_number(field, value, minimum=minimum))
    smoothing = share("label_smoothing", getattr(task, "label_smoothing", 0.0))
    object.__setattr__(task, "label_smoothing", smoothing)


def bytes_kept(seq_len: int, max_bytes: int | None) -> int:
    """Return how many bytes of a text a model sees at most.

    Raises:
        ValueError: ``max_bytes`` are more than ``seq_len``.
    """
    if max_bytes is not None and max_bytes > seq_len:
        raise ValueError(f"max_bytes must be at most seq_len={seq_len}, not {max_bytes}")
    return seq_len if max_bytes is None else max_bytes
