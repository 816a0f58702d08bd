"""Sequences of tokens, and learning to predict the next one.

Shapes: B sequences in a batch, T tokens a sequence, V logits.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tasks.base import DataError
from tasks.language.stories import Stories
from tasks.language.text_data import Part
from tasks.language.token_files import Tokens, evenly_spaced, token_line
from tasks.sampling import epochs_from, generator, whole_batches

_LOGITS_AT_ONCE = 1 << 25
"""Outside training; 128 MiB of them in float32."""

_LARGEST_EXPONENT = 700.0
"""Of a float64, nearly."""

_WINDOWS = 1
"""Keeps a step's windows apart from an epoch's order."""


class StoryData:
    """Stories opened for one trial: batches, cross-entropy, and losses of both parts."""

    def __init__(
        self, task: Stories, sampling_seed: int, batch_size: int, device: torch.device
    ) -> None:
        self._task = task
        self._sampling_seed = sampling_seed
        self._device = device
        self._lines: dict[Part, Tokens] = {}
        subwords = task.subwords()
        for part in ("train", "validation"):
            if task.layout == "packed":
                end = subwords.special("end of text")
                line = token_line(task.corpus, part, subwords, end=end)
            else:
                line = token_line(task.corpus, part, subwords, ending="\n")
            if len(line) <= task.seq_len:
                raise DataError(
                    f"a sequence of {task.seq_len} tokens and the one after it do not fit into the "
                    f"{len(line)} tokens of {task.data!r} for {part}; make seq_len smaller or take "
                    "more text"
                )
            self._lines[part] = line
        self._sequences = {part: (len(line) - 1) // task.seq_len for part, line in self._all()}
        self._batch_size, self._num_batches = whole_batches(self._sequences["train"], batch_size)
        self._step = 0

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one pass over the training text."""
        return self._num_batches

    @property
    def eval_size(self) -> int:
        """Tokens that are predicted to validate."""
        return len(self._to_evaluate("validation")) * self._task.seq_len

    def batches(self, start_step: int) -> Iterator[Tensor]:
        """Yield tokens (B, T + 1) without end, beginning with those of ``start_step``.

        Raises:
            ValueError: a start step below 0.
        """
        starts = self._packed if self._task.layout == "packed" else self._windows
        for step, first in enumerate(starts(start_step), start=start_step + 1):
            self._step = step
            yield self._read("train", first)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Return the mean cross-entropy of the next tokens, in nats."""
        return self._cross_entropy(model, batch, "mean")

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return the losses of both parts, the perplexity, and how many tokens were trained on."""
        validation = self._mean_loss(model, "validation")
        return {
            "validation_loss": validation,
            "perplexity": math.exp(validation) if validation < _LARGEST_EXPONENT else math.inf,
            "train_loss": self._mean_loss(model, "train"),
            "tokens_seen": float(self._step * self._batch_size * self._task.seq_len),
            "tokens_available": float(len(self._lines["train"])),
        }

    def warm_start(self, model: nn.Module) -> None:
        """Do nothing: how frequent each token is, is soon learned."""

    def _all(self) -> list[tuple[Part, Tokens]]:
        return list(self._lines.items())

    def _packed(self, start_step: int) -> Iterator[NDArray[np.int64]]:
        count = self._sequences["train"]
        for part in epochs_from(start_step, count, self._batch_size, self._sampling_seed):
            for rows in torch.split(part.order, self._batch_size)[part.first_batch :]:
                yield rows.numpy() * self._task.seq_len

    def _windows(self, start_step: int) -> Iterator[NDArray[np.int64]]:
        if start_step < 0:
            raise ValueError(f"start_step must be at least 0, not {start_step}")
        positions = len(self._lines["train"]) - self._task.seq_len
        step = start_step
        while True:
            random = generator(self._sampling_seed, step, _WINDOWS)
            yield torch.randint(positions, (self._batch_size,), generator=random).numpy()
            step += 1

    def _read(self, part: Part, first: NDArray[np.int64]) -> Tensor:
        """Return the tokens (B, T + 1) that begin at positions ``first``, (B,)."""
        tokens = self._lines[part][first[:, None] + np.arange(self._task.seq_len + 1)]
        return torch.from_numpy(tokens.astype(np.int64)).to(self._device)

    def _to_evaluate(self, part: Part) -> NDArray[np.int64]:
        most = self._task.max_validation
        if part == "train":
            most = self._task.max_train_eval or len(self._to_evaluate("validation"))
        return evenly_spaced(self._sequences[part], most)

    def _mean_loss(self, model: nn.Module, part: Part) -> float:
        rows = self._to_evaluate(part)
        at_once = max(1, _LOGITS_AT_ONCE // (self._task.seq_len * self._task.vocab_size))
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        for start in range(0, len(rows), at_once):
            tokens = self._read(part, rows[start : start + at_once] * self._task.seq_len)
            total += self._cross_entropy(model, tokens, "sum").double()
        return float(total) / (len(rows) * self._task.seq_len)

    def _cross_entropy(self, model: nn.Module, tokens: Tensor, reduction: str) -> Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        logits: Tensor = model(inputs)
        expected = (*targets.shape, self._task.vocab_size)
        if logits.shape != expected:
            raise ValueError(
                f"the model must return logits of shape {expected} for tokens of shape "
                f"{tuple(inputs.shape)}, not {tuple(logits.shape)}"
            )
        return functional.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), reduction=reduction
        )
