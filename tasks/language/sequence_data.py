"""Sequences of tokens opened for one trial: what the tasks on texts share.

Shapes: B sequences in a batch, T tokens a sequence.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.base import DataError
from tasks.division import own_slices
from tasks.language.token_files import Tokens, evenly_spaced
from tasks.sampling import EpochData

if TYPE_CHECKING:
    from tasks.language.text_data import Part
    from tasks.language.text_task import TextTask

BatchT = TypeVar("BatchT")

_LOGITS_AT_ONCE = 1 << 25
"""Outside training; 128 MiB of them in float32."""


class SequenceData(EpochData, ABC, Generic[BatchT]):
    """Both parts of a text, how they are evaluated, and how much was trained on.

    Args:
        task: the settings.
        lines: the parts' tokens.
        beyond: tokens after a sequence that its loss needs.
        sampling_seed: decides the order of sequences.
        batch_size: sequences in a batch.
        device: where batches are wanted.

    Raises:
        DataError: a part is shorter than a sequence.
        ValueError: a batch size below 1.
    """

    def __init__(
        self,
        task: "TextTask",
        lines: "Mapping[Part, Tokens]",
        *,
        beyond: int,
        sampling_seed: int,
        batch_size: int,
        device: torch.device,
    ) -> None:
        for part, line in lines.items():
            if len(line) < task.seq_len + beyond:
                raise DataError(
                    f"a sequence of {task.seq_len} tokens needs {task.seq_len + beyond}, and "
                    f"{task.data!r} has {len(line)} for {part}; make seq_len smaller or take more "
                    "text"
                )
        self._lines = dict(lines)
        self._sequences = {
            part: (len(line) - beyond) // task.seq_len for part, line in lines.items()
        }
        self._seq_len = task.seq_len
        self._predicted = task.predicted
        self._most: dict[Part, int | None] = {
            "validation": task.max_validation,
            "train": task.max_train_eval,
        }
        self._at_once = max(1, _LOGITS_AT_ONCE // (task.seq_len * task.vocab_size))
        self._device = device
        # Tokens that are predicted to validate.
        eval_size = len(self._to_evaluate("validation")) * self._predicted
        super().__init__(self._sequences["train"], eval_size, sampling_seed, batch_size)
        self._tokens_seen = 0
        self._last_seen: Tensor | None = None

    def batches(self, start_step: int) -> Iterator[BatchT]:
        """Yield batches without end, beginning with that of ``start_step``."""
        if start_step < 0:
            raise ValueError(f"start_step must be at least 0, not {start_step}")
        self._tokens_seen = start_step * self._batch_size * self._seq_len
        self._last_seen = None
        return self._batches_from(start_step)

    def loss(self, model: nn.Module, batch: BatchT) -> Tensor:
        """Return the mean cross-entropy of the predicted tokens, in nats.

        Where gradients are on, the batch counts as seen: once, in however many parts and however
        often it is asked for in a row. One that was made ahead does not.
        """
        if torch.is_grad_enabled():
            self._see(self._tokens_of(batch))
        return self._mean_loss(model, batch)

    def _see(self, tokens: Tensor) -> None:
        # Parts of a batch lie in its storage, which no other batch has while it is held here.
        storage = tokens.untyped_storage().data_ptr()
        if self._last_seen is None or storage != self._last_seen.untyped_storage().data_ptr():
            self._tokens_seen += self._batch_size * self._seq_len
        self._last_seen = tokens

    def warm_start(self, model: nn.Module) -> None:
        """Leave the weights alone: how frequent each token is, is soon learned.

        Raises:
            ValueError: a model that does not take the sequences or return their logits, before
                any time is spent on it.
        """
        was_training = model.training
        model.eval()
        with torch.no_grad():
            self._mean_loss(model, self._blank())
        model.train(was_training)

    @abstractmethod
    def _batches_from(self, start_step: int) -> Iterator[BatchT]:
        """Yield training batches without end, beginning with that of ``start_step``, at least 0."""

    @abstractmethod
    def _blank(self) -> BatchT:
        """Return a batch of one sequence, of the token 0 alone."""

    @abstractmethod
    def _tokens_of(self, batch: BatchT) -> Tensor:
        """Return the tokens of a batch, (B, T) or (B, T + 1)."""

    @abstractmethod
    def _mean_loss(self, model: nn.Module, batch: BatchT) -> Tensor:
        """Return the mean cross-entropy of a batch, a scalar."""

    def _token_counts(self) -> dict[str, float]:
        return {
            "tokens_seen": float(self._tokens_seen),
            "tokens_available": float(len(self._lines["train"])),
        }

    def _at(self, part: "Part", first: NDArray[np.int64], length: int) -> Tensor:
        """Return the ``length`` tokens that begin at positions ``first``, (B,): (B, length) of
        int64, on the CPU."""
        tokens = self._lines[part][first[:, None] + np.arange(length)]
        return torch.from_numpy(tokens.astype(np.int64))

    def _to_evaluate(self, part: "Part") -> NDArray[np.int64]:
        """Return the numbers of the sequences that a part is evaluated on, (n,)."""
        most = self._most[part]
        if part == "train" and most is None:
            most = len(self._to_evaluate("validation"))
        return evenly_spaced(self._sequences[part], most)

    def _evaluated_at_once(self, part: "Part") -> Iterator[NDArray[np.int64]]:
        """Yield this process's of the numbers of ``_to_evaluate``, as many at a time as memory
        allows."""
        rows = self._to_evaluate(part)
        for own in own_slices(len(rows), self._at_once):
            yield rows[own]
