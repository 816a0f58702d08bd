"""Sequences of tokens, and learning to predict the next one.

Shapes: B sequences in a batch, T tokens a sequence, V logits.
"""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tasks.division import summed
from tasks.language.sequence_data import SequenceData
from tasks.language.text_data import PARTS, Part
from tasks.language.token_files import token_line
from tasks.sampling import generator, of_shape
from tasks.transfer import to_device

if TYPE_CHECKING:
    from tasks.language.stories import Stories

_LARGEST_EXPONENT = 700.0
"""Of a float64, nearly."""

_WINDOWS = 1
"""Keeps a step's windows apart from an epoch's order."""


class StoryData(SequenceData[Tensor]):
    """Stories opened for one trial: batches, cross-entropy, and losses of both parts.

    A batch is tokens (B, T + 1).
    """

    def __init__(
        self, task: "Stories", sampling_seed: int, batch_size: int, device: torch.device
    ) -> None:
        self._task = task
        subwords = task.subwords()
        packed = task.layout == "packed"
        end = subwords.special("end of text") if packed else None
        ending = "" if packed else "\n"
        super().__init__(
            task,
            {
                part: token_line(task.corpus, part, subwords, end=end, ending=ending)
                for part in PARTS
            },
            beyond=1,
            sampling_seed=sampling_seed,
            batch_size=batch_size,
            device=device,
        )

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return loss and perplexity on held-out text, and how many tokens were trained on."""
        validation = self._evaluated(model, "validation")
        return {
            "validation_loss": validation,
            "perplexity": math.exp(validation) if validation < _LARGEST_EXPONENT else math.inf,
            **self._token_counts(),
        }

    def evaluate_training(self, model: nn.Module) -> Mapping[str, float]:
        """Return the loss on the training text."""
        return {"train_loss": self._evaluated(model, "train")}

    def _batches_from(self, start_step: int) -> Iterator[Tensor]:
        starts = self._packed if self._task.layout == "packed" else self._windows
        return (self._read("train", first) for first in starts(start_step))

    def _blank(self) -> Tensor:
        return torch.zeros(1, self._seq_len + 1, dtype=torch.int64, device=self._device)

    def _tokens_of(self, batch: Tensor) -> Tensor:
        return batch

    def _mean_loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        return self._cross_entropy(model, batch, "mean")

    def _packed(self, start_step: int) -> Iterator[NDArray[np.int64]]:
        for _, rows in self.rows_from(start_step):
            yield rows.numpy() * self._seq_len

    def _windows(self, start_step: int) -> Iterator[NDArray[np.int64]]:
        positions = len(self._lines["train"]) - self._seq_len
        step = start_step
        while True:
            random = generator(self._sampling_seed, step, _WINDOWS)
            yield torch.randint(positions, (self._batch_size,), generator=random).numpy()
            step += 1

    def _read(self, part: Part, first: NDArray[np.int64]) -> Tensor:
        """Return the tokens (B, T + 1) that begin at positions ``first``, (B,)."""
        return to_device(self._at(part, first, self._seq_len + 1), self._device)

    def _evaluated(self, model: nn.Module, part: Part) -> float:
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for rows in self._evaluated_at_once(part):
            tokens = self._read(part, rows * self._seq_len)
            total += self._cross_entropy(model, tokens, "sum").double()
        return float(summed(total)) / (len(self._to_evaluate(part)) * self._predicted)

    def _cross_entropy(
        self, model: nn.Module, tokens: Tensor, reduction: Literal["mean", "sum"]
    ) -> Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        shape = (*targets.shape, self._task.vocab_size)
        what = f"logits of shape {shape} for tokens of shape {tuple(inputs.shape)}"
        logits = of_shape(model(inputs), shape, what)
        return functional.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), reduction=reduction
        )
