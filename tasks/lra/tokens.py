"""Tasks of the Long Range Arena: sequences of tokens on the training device, to be classified.

Shapes: B examples in a batch, K texts in an example, T tokens in a text, C classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.fields import Rule, settle, share
from tasks.base import Metric
from tasks.division import own_slices, sum_over_processes
from tasks.lra.texts import PADDING, Examples, Texts
from tasks.metrics import accuracy, constant_scores, loss
from tasks.sampling import EpochData, chosen_rows, of_shape
from tasks.sources.memory import keep_last

BYTE_VOCABULARY: Final = 257
"""Padding, and each byte plus one."""
PIXEL_VOCABULARY: Final = 256
"""The levels of grey."""

USES: Final = ("max_train_eval", "steps_per_epoch", "label_smoothing")
"""Settings that say how a set is used, not what is in it."""

_EVAL_TOKENS: Final = 1 << 17
"""Tokens handled at once in evaluation."""
_TRAIN_EVAL: Final = 7
"""Keeps the choice of training examples that are scored apart from other draws of the data seed."""


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

    def settle(self, **rules: Rule) -> None:
        """Check the settings."""
        settle(self, label_smoothing=share, **rules)

    @property
    def vocab_size(self) -> int:
        """Ids that occur, padding included."""
        return self.spec().vocab_size

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return a hash of the data and the settings."""
        raise NotImplementedError

    def examples(self, data_seed: int) -> tuple[Texts, Mapping[str, Examples]]:
        """Return all texts, and the examples by role: train, validation and perhaps test."""
        raise NotImplementedError

    def open(
        self, *, data_seed: int, sampling_seed: int, batch_size: int, device: torch.device
    ) -> "TokenData":
        """Return the examples, whole on ``device``; kept for the next trial of this process."""
        tensors = load(self, self.fingerprint(), data_seed, device)
        return TokenData(self, tensors, sampling_seed, batch_size)


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
        seq_len: tokens of a text that a model reads.
        max_bytes: longer texts are cut; None for ``seq_len``. The published recipe cuts at 4,000
            and pads to 4,096.
    """

    seq_len: int = 4096
    max_bytes: int | None = None

    def settle(self, **rules: Rule) -> None:
        """Check the settings."""
        ReadTask.settle(self, **rules)
        if self.bytes_read > self.seq_len:
            raise ValueError(
                f"max_bytes must be at most seq_len={self.seq_len}, not {self.max_bytes}"
            )

    @property
    def bytes_read(self) -> int:
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


class LabelledTexts(NamedTuple):
    """Examples on the training device: numbers of the texts of each, (n, K), and classes, (n,),
    both int64."""

    texts: Tensor
    labels: Tensor


class TokenTensors:
    """The texts and examples of a task on the training device, whole.

    On the CPU they stay where they were read, in memory that processes share.

    Args:
        task: whose they are.
        data_seed: decides which are generated, held out or left out.
        device: of the batches.

    Raises:
        DataError: the data are missing or unusable, or the cache cannot be written.
    """

    def __init__(self, task: TokenTask, data_seed: int, device: torch.device) -> None:
        texts, roles = task.examples(data_seed)
        self.spec = task.spec()
        self._first_id = task.first_id
        self._symbols = torch.from_numpy(texts.symbols).to(device)
        self._offsets = torch.from_numpy(texts.offsets).to(device)
        self._positions = torch.arange(self.spec.seq_len, device=device)

        def some(role: str, count: int | None, stream: int) -> LabelledTexts:
            examples = roles[role]
            if count is not None:
                rows = chosen_rows(len(examples.labels), count, data_seed, stream)
                examples = examples.rows(rows.numpy())
            return LabelledTexts(*(torch.from_numpy(array).to(device) for array in examples))

        limits = [getattr(task, f"max_{role}", None) for role in ("train", "validation", "test")]
        self.train = some("train", limits[0], 0)
        self.validation = some("validation", limits[1], 1)
        self.test = some("test", limits[2], 2) if "test" in roles else None
        scored = chosen_rows(len(self.train.labels), task.max_train_eval, data_seed, _TRAIN_EVAL)
        self.train_eval = LabelledTexts(*(tensor[scored.to(device)] for tensor in self.train))

    def tokens(self, texts: Tensor) -> Tensor:
        """Return the tokens of the texts numbered by ``texts``, (B, K) of int64: (B, T), or
        (B, K, T) for K > 1. Texts longer than T are cut, shorter ones are followed by padding."""
        start = self._offsets[texts]
        length = self._offsets[texts + 1] - start
        inside = self._positions < length[..., None]
        place = (start[..., None] + self._positions).clamp_max(len(self._symbols) - 1)
        ids = self._symbols[place].long() + self._first_id
        return torch.where(inside, ids, PADDING).squeeze(1)


@keep_last(2)
def load(
    task: TokenTask,
    fingerprint: str,  # noqa: ARG001  data that change are read again
    data_seed: int,
    device: torch.device,
) -> TokenTensors:
    """Return the texts and examples of ``task`` on ``device``."""
    return TokenTensors(task, data_seed, device)


class TokenData(EpochData):
    """Token sequences opened for one trial: batches, cross-entropy, and accuracies.

    Raises:
        ValueError: a batch size below 1.
    """

    def __init__(
        self, task: TokenTask, tensors: TokenTensors, sampling_seed: int, batch_size: int
    ) -> None:
        num_train, eval_size = len(tensors.train.labels), len(tensors.validation.labels)
        super().__init__(num_train, eval_size, sampling_seed, batch_size)
        self.steps_per_epoch = task.steps_per_epoch or self.steps_per_epoch
        self._tensors = tensors
        self._label_smoothing = task.label_smoothing

    def batches(self, start_step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) without end: x (B, T) or (B, K, T), y (B,), both int64."""
        train = self._tensors.train
        for _, rows in self.rows_from(start_step, train.labels.device):
            yield self._tensors.tokens(train.texts[rows]), train.labels[rows]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the mean cross-entropy of the batch, in nats, with label smoothing."""
        tokens, labels = batch
        logits = self._logits(model, tokens)
        return functional.cross_entropy(logits, labels, label_smoothing=self._label_smoothing)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return accuracies on validation and test examples, and the loss on validation ones."""
        tensors = self._tensors
        accuracy, loss = self._score(model, tensors.validation)
        scores = {"accuracy": accuracy, "validation_loss": loss}
        if tensors.test is not None:
            scores["test_accuracy"], _ = self._score(model, tensors.test)
        return scores

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        """Return accuracy and loss on training examples."""
        accuracy, loss = self._score(model, self._tensors.train_eval)
        return {"train_accuracy": accuracy, "train_loss": loss}

    def _logits(self, model: nn.Module, tokens: Tensor) -> Tensor:
        shape = (len(tokens), self._tensors.spec.num_classes)
        expected = f"logits of shape {shape} for {len(tokens)} examples"
        return of_shape(model(tokens), shape, expected).float()

    def _score(self, model: nn.Module, examples: LabelledTexts) -> tuple[float, float]:
        """Return accuracy and mean cross-entropy; sums stay on the device until the end."""
        spec = self._tensors.spec
        chunk = max(1, _EVAL_TOKENS // (spec.num_texts * spec.seq_len))
        total = torch.zeros(2, dtype=torch.float64, device=examples.labels.device)
        for rows in own_slices(len(examples.labels), chunk):
            labels = examples.labels[rows]
            logits = self._logits(model, self._tensors.tokens(examples.texts[rows]))
            right = (logits.argmax(1) == labels).sum().double()
            loss = functional.cross_entropy(logits, labels, reduction="none").double().sum()
            total += torch.stack((right, loss))
        accuracy, mean_loss = (sum_over_processes(total) / len(examples.labels)).tolist()
        return accuracy, mean_loss
