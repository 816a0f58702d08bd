"""What the tasks of the Long Range Arena have in common: their settings, metrics, and opening."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from tasks.base import Metric, TaskData
from tasks.metrics import accuracy, constant_scores, loss
from tasks.settings import Rule, settle, share, whole_number

if TYPE_CHECKING:
    import torch

    from tasks.lra.texts import Examples, Texts

BYTE_VOCABULARY: Final = 257
"""Padding, and each byte plus one."""

PIXEL_VOCABULARY: Final = 256
"""The levels of grey."""

USES: Final = ("max_train_eval", "steps_per_epoch", "label_smoothing")
"""Settings that say how a set is used, not what is in it."""

_RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(("max_train", "max_validation", "max_test"), whole_number),
    **dict.fromkeys(("max_train_eval", "steps_per_epoch", "seq_len", "max_bytes"), whole_number),
    "label_smoothing": share,
}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTask:
    """A task of sequences of tokens to be classified.

    Attributes:
        max_train_eval: compute the training metrics on this many training examples only.
        steps_per_epoch: batches that count as an epoch; None for one pass over the training set.
            Published recipes are counted in batches, differently for every task.
        label_smoothing: share of the target spread evenly over the classes, in training.
    """

    max_train_eval: int | None = 2_000
    steps_per_epoch: int | None = None
    label_smoothing: float = 0.0

    first_id: ClassVar[int] = 1
    """Token of symbol 0; the others follow."""

    def settle(self, rules: Mapping[str, Rule]) -> None:
        """Check the settings that tasks share, and those that ``rules`` name.

        Raises:
            ValueError: a setting out of its range.
        """
        settle(self, {**_RULES, **rules})
        max_bytes = getattr(self, "max_bytes", None)
        if max_bytes is not None and max_bytes > self.spec().seq_len:
            raise ValueError(
                f"max_bytes must be at most seq_len={self.spec().seq_len}, not {max_bytes}"
            )

    @property
    def vocab_size(self) -> int:
        """Ids that tokens have: 0 to ``vocab_size - 1``."""
        return self.spec().vocab_size

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return a hash of the data's content, or of their definition.

        Raises:
            DataError: the data are missing or unusable.
        """
        raise NotImplementedError

    def examples(self, data_seed: int) -> "tuple[Texts, dict[str, Examples]]":
        """Return all texts and, by role (``train``, ``validation`` and perhaps ``test``), the
        examples made of them.

        Raises:
            DataError: the data are missing or unusable, or the cache cannot be written.
        """
        raise NotImplementedError

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: "torch.device"
    ) -> TaskData:
        """Read the examples onto ``device``; kept for the next trial of this process."""
        from tasks.lra.token_data import TokenData, load

        tensors = load(self, self.fingerprint(), data_seed, device)
        return TokenData(
            tensors, sampling_seed, batch_size, self.steps_per_epoch, self.label_smoothing
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask(TokenTask):
    """A task whose examples are read and not generated.

    Attributes:
        max_train: use this many training examples only.
        max_validation: use this many validation examples only.
        max_test: use this many test examples only.
    """

    max_train: int | None = None
    max_validation: int | None = None
    max_test: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesTask(ReadTask):
    """A task whose tokens are the bytes of texts.

    Attributes:
        seq_len: tokens of a text that a model is given.
        max_bytes: longer texts are cut; None for ``seq_len``. The published recipe cuts at 4,000
            and pads to 4,096.
    """

    seq_len: int = 4096
    max_bytes: int | None = None

    @property
    def bytes_kept(self) -> int:
        """Bytes of a text that a model sees at most."""
        return self.seq_len if self.max_bytes is None else self.max_bytes


def token_metrics(shares: Sequence[float], *, with_test: bool = True) -> tuple[Metric, ...]:
    """Return the metrics of a task that classifies sequences of tokens, ``accuracy`` first.

    Args:
        shares: how frequent each class is, from which follows what a constant predictor scores.
        with_test: whether there is a test split.
    """
    constant = constant_scores(shares)
    test = accuracy("test_accuracy", "accuracy, test sequences", constant.top1)
    return (
        accuracy("accuracy", "accuracy, validation sequences", constant.top1),
        *([test] if with_test else []),
        accuracy("train_accuracy", "accuracy, training sequences", constant.top1),
        loss("validation_loss", "cross-entropy in nats, validation sequences", constant.loss),
        loss("train_loss", "cross-entropy in nats, training sequences", constant.loss),
    )
