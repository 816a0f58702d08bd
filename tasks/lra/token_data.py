"""Token sequences on the training device, and learning to classify them.

Shapes: B examples in a batch, K texts in an example, T tokens in a text, C classes.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tasks.division import own_slices, summed
from tasks.lra.spec import PADDING, TokenSpec
from tasks.lra.texts import Examples, Texts, check_share
from tasks.sampling import epochs_from, generator, whole_batches
from tasks.vision.image_data import held_out_rows

_EVAL_TOKENS = 1 << 17
"""Tokens handled at once in evaluation."""

_TRAIN_EVAL = 7
"""Keeps the choice of training examples that are scored apart from other draws of the data seed."""


class LabelledTexts(NamedTuple):
    """Examples on the training device.

    Attributes:
        texts: numbers of the texts of each example, (n, K), int64.
        labels: (n,), int64.
    """

    texts: Tensor
    labels: Tensor


class TokenTensors:
    """Texts and examples on the training device, whole.

    On the CPU they stay where they were read, in memory that processes share.
    """

    def __init__(
        self,
        texts: Texts,
        examples: Mapping[str, Examples],
        *,
        spec: TokenSpec,
        first_id: int,
        max_train_eval: int | None,
        data_seed: int,
        device: torch.device,
    ) -> None:
        """Move everything to ``device``.

        Args:
            texts: those of all examples.
            examples: by role: ``train``, ``validation`` and perhaps ``test``.
            spec: what is asked of a model.
            first_id: token of symbol 0; the others follow.
            max_train_eval: score this many training examples only.
            data_seed: decides which.
            device: where batches are wanted.
        """
        self.spec = spec
        self._first_id = first_id
        self._symbols = torch.from_numpy(texts.symbols).to(device)
        self._offsets = torch.from_numpy(texts.offsets).to(device)
        self._positions = torch.arange(spec.seq_len, device=device)

        def moved(examples: Examples) -> LabelledTexts:
            return LabelledTexts(*(torch.from_numpy(array).to(device) for array in examples))

        train = examples["train"]
        scored = chosen_rows(len(train.labels), max_train_eval, data_seed, _TRAIN_EVAL)
        self.train = moved(train)
        self.validation = moved(examples["validation"])
        self.test = moved(examples["test"]) if "test" in examples else None
        self.train_eval = moved(train.rows(scored))

    def tokens(self, texts: Tensor) -> Tensor:
        """Return the tokens of the texts numbered by ``texts``: (B, T), or (B, K, T) for K > 1.

        Texts longer than T are cut, shorter ones are followed by padding.

        Args:
            texts: (B, K), int64.
        """
        start = self._offsets[texts]
        length = self._offsets[texts + 1] - start
        inside = self._positions < length[..., None]
        place = (start[..., None] + self._positions).clamp_max(len(self._symbols) - 1)
        ids = self._symbols[place].long() + self._first_id
        return torch.where(inside, ids, PADDING).squeeze(1)


def chosen_rows(count: int, size: int | None, seed: int, stream: int) -> NDArray[np.int64]:
    """Return ``size`` of ``count`` row numbers, ascending, as (seed, stream) decides."""
    if size is None or size >= count:
        return np.arange(count, dtype=np.int64)
    order = torch.randperm(count, generator=generator(seed, stream))[:size]
    rows: NDArray[np.int64] = order.sort().values.numpy()
    return rows


def held_out(
    examples: Examples, share: float, data_seed: int, where: str
) -> tuple[Examples, Examples]:
    """Return the examples without a share of each class, and that share.

    Args:
        examples: what is divided.
        share: of each class, rounded to whole examples, in (0, 1).
        data_seed: decides which.
        where: how to name the examples in a message.

    Raises:
        DataError: one of the two would be empty.
    """
    check_share(examples.labels, share, where)
    apart = held_out_rows(torch.from_numpy(examples.labels), share, data_seed).numpy()
    return examples.rows(np.flatnonzero(~apart)), examples.rows(np.flatnonzero(apart))


class Limits(Protocol):
    """A task that may use some of its examples only; None for all."""

    @property
    def max_train(self) -> int | None:
        """Most training examples."""

    @property
    def max_validation(self) -> int | None:
        """Most validation examples."""

    @property
    def max_test(self) -> int | None:
        """Most test examples."""


def limited(examples: dict[str, Examples], task: Limits, data_seed: int) -> dict[str, Examples]:
    """Return at most as many examples of each role as ``task`` says, chosen by ``data_seed``."""
    sizes = {"train": task.max_train, "validation": task.max_validation, "test": task.max_test}
    return {
        role: examples[role].rows(chosen_rows(len(examples[role].labels), size, data_seed, stream))
        for stream, (role, size) in enumerate(sizes.items())
        if role in examples
    }


class TokenData:
    """Token sequences opened for one trial: batches, cross-entropy, and accuracies."""

    def __init__(
        self,
        tensors: TokenTensors,
        sampling_seed: int,
        batch_size: int,
        steps_per_epoch: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        self._tensors = tensors
        self._label_smoothing = label_smoothing
        self._sampling_seed = sampling_seed
        self._batch_size, one_pass = whole_batches(len(tensors.train.labels), batch_size)
        self._steps_per_epoch = steps_per_epoch or one_pass

    @property
    def steps_per_epoch(self) -> int:
        """Batches that count as an epoch: one pass over the training examples, or as set."""
        return self._steps_per_epoch

    @property
    def eval_size(self) -> int:
        """Validation examples."""
        return len(self._tensors.validation.labels)

    def batches(self, start_step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) without end: x (B, T) or (B, K, T), y (B,), both int64.

        Raises:
            ValueError: a start step below 0.
        """
        train = self._tensors.train
        for part in epochs_from(
            start_step, len(train.labels), self._batch_size, self._sampling_seed
        ):
            order = part.order.to(train.labels.device)
            for rows in torch.split(order, self._batch_size)[part.first_batch :]:
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

    def warm_start(self, model: nn.Module) -> None:
        """Do nothing: a read-out bias that fits the classes' frequencies is learned at once."""

    def _logits(self, model: nn.Module, tokens: Tensor) -> Tensor:
        logits: Tensor = model(tokens)
        expected = (len(tokens), self._tensors.spec.num_classes)
        if logits.shape != expected:
            raise ValueError(
                f"the model must return logits of shape {expected} for {len(tokens)} examples, not "
                f"{tuple(logits.shape)}"
            )
        return logits.float()

    def _score(self, model: nn.Module, examples: LabelledTexts) -> tuple[float, float]:
        """Return accuracy and mean cross-entropy; sums stay on the device until the end."""
        spec = self._tensors.spec
        rows = max(1, _EVAL_TOKENS // (spec.num_texts * spec.seq_len))
        total = torch.zeros(2, dtype=torch.float64, device=examples.labels.device)
        for own in own_slices(len(examples.labels), rows):
            labels = examples.labels[own]
            logits = self._logits(model, self._tensors.tokens(examples.texts[own]))
            right = (logits.argmax(1) == labels).sum().double()
            loss = functional.cross_entropy(logits, labels, reduction="none").double().sum()
            total += torch.stack((right, loss))
        accuracy, mean_loss = (summed(total) / len(examples.labels)).tolist()
        return accuracy, mean_loss
