"""Token sequences on the training device, and learning to classify them.

Shapes: B examples in a batch, K texts in an example, T tokens in a text, C classes.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.division import own_slices, summed
from tasks.lra.texts import PADDING, Examples, Texts
from tasks.sampling import EpochData, chosen_rows, of_shape
from tasks.sources.kept import kept

if TYPE_CHECKING:
    from tasks.lra.spec import TokenSpec, TokenTask

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
        spec: "TokenSpec",
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
        scored = chosen_rows(len(train.labels), max_train_eval, data_seed, _TRAIN_EVAL).numpy()
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


@kept(most=2)
def load(
    task: "TokenTask",
    fingerprint: str,  # noqa: ARG001
    data_seed: int,
    device: torch.device,
) -> TokenTensors:
    """Return the examples of ``task`` on ``device``; the last two sets are kept for reuse.

    Args:
        task: what to read or generate.
        fingerprint: of the task's data, so that data that change are read again.
        data_seed: decides what is generated, held out or left out.
        device: where the examples are wanted.

    Raises:
        DataError: the data are missing or unusable, or the cache cannot be written.
    """
    texts, examples = task.examples(data_seed)
    for stream, role in enumerate(("train", "validation", "test")):
        most = getattr(task, f"max_{role}", None)
        if most is not None and role in examples:
            rows = chosen_rows(len(examples[role].labels), most, data_seed, stream)
            examples[role] = examples[role].rows(rows.numpy())
    return TokenTensors(
        texts,
        examples,
        spec=task.spec(),
        first_id=task.first_id,
        max_train_eval=task.max_train_eval,
        data_seed=data_seed,
        device=device,
    )


class TokenData(EpochData):
    """Token sequences opened for one trial: batches, cross-entropy, and accuracies.

    Args:
        tensors: the examples.
        sampling_seed: decides the order of examples.
        batch_size: examples a batch.
        steps_per_epoch: batches that count as an epoch; None for one pass.
        label_smoothing: share of the target spread evenly over the classes, in training.

    Raises:
        ValueError: a batch size below 1.
    """

    def __init__(
        self,
        tensors: TokenTensors,
        sampling_seed: int,
        batch_size: int,
        steps_per_epoch: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        num_train, eval_size = len(tensors.train.labels), len(tensors.validation.labels)
        super().__init__(num_train, eval_size, sampling_seed, batch_size)
        self.steps_per_epoch = steps_per_epoch or self.steps_per_epoch
        self._tensors = tensors
        self._label_smoothing = label_smoothing

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
        what = f"logits of shape {shape} for {len(tokens)} examples"
        return of_shape(model(tokens), shape, what).float()

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
