"""Sequences of tokens of which some are hidden, and learning to predict those.

Shapes: B sequences in a batch, T tokens a sequence, M positions to predict, V logits.
"""

import inspect
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tasks.base import DataError
from tasks.language.masked_text import MaskedText
from tasks.language.text_data import Part
from tasks.language.token_files import Tokens, evenly_spaced, token_line
from tasks.sampling import epochs_from, generator, whole_batches

_LOGITS_AT_ONCE = 1 << 25
"""Outside training; 128 MiB of them in float32."""

_SHOWN_AS_MASK, _SHOWN_AS_ANOTHER = 0.8, 0.1

_MASKS = 1
"""Keeps a step's masks apart from an epoch's order."""

_EVALUATED: dict[Part, int] = {"train": 2, "validation": 3}
"""Seeds of the masks under which a part of the text is evaluated, the same in every trial."""

_PARTS: tuple[Part, ...] = ("train", "validation")

MaskedBatch = tuple[Tensor, Tensor, Tensor]


class Masking(NamedTuple):
    """How tokens are hidden.

    Attributes:
        predicted: positions of a sequence that are predicted.
        mask: the token that stands for a hidden one.
        ordinary: (n,), int64: tokens that are not special.
        special: (V,), bool: which tokens are.
    """

    predicted: int
    mask: int
    ordinary: Tensor
    special: Tensor

    def hide(self, tokens: Tensor, random: torch.Generator) -> MaskedBatch:
        """Return the tokens with some hidden, the positions to predict and what was there.

        Args:
            tokens: (B, T), int64, on the CPU.
            random: a CPU generator.
        """
        chances = torch.rand(tokens.shape, generator=random) + self.special[tokens].float()
        positions = chances.argsort(dim=1)[:, : self.predicted]
        targets = tokens.gather(1, positions)
        masked = round(_SHOWN_AS_MASK * self.predicted)
        replaced = min(round(_SHOWN_AS_ANOTHER * self.predicted), self.predicted - masked)
        others = torch.randint(len(self.ordinary), (len(tokens), replaced), generator=random)
        shown = targets.clone()
        shown[:, :masked] = self.mask
        shown[:, masked : masked + replaced] = self.ordinary[others]
        return tokens.scatter(1, positions, shown), positions, targets


class MaskedTextData:
    """A text opened for one trial: batches, cross-entropy at hidden positions, and scores."""

    def __init__(
        self, task: MaskedText, sampling_seed: int, batch_size: int, device: torch.device
    ) -> None:
        self._task = task
        self._sampling_seed = sampling_seed
        self._device = device
        subwords = task.subwords()
        special = torch.zeros(subwords.size, dtype=torch.bool)
        special[list(subwords.tokenizer.get_added_tokens_decoder())] = True
        ordinary = (~special).nonzero().flatten()
        self._masking = Masking(task.predicted, subwords.special("mask"), ordinary, special)
        self._lines: dict[Part, Tokens] = {}
        for part in _PARTS:
            line = token_line(task.corpus, part, subwords, end=subwords.special("separator"))
            if len(line) < task.seq_len:
                raise DataError(
                    f"a sequence of {task.seq_len} tokens does not fit into the {len(line)} tokens "
                    f"of {task.data!r} for {part}; make seq_len smaller or take more text"
                )
            self._lines[part] = line
        count = len(self._lines["train"]) // task.seq_len
        self._batch_size, self._num_batches = whole_batches(count, batch_size)
        self._step = 0

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one pass over the training text."""
        return self._num_batches

    @property
    def eval_size(self) -> int:
        """Tokens that are predicted to validate."""
        return len(self._to_evaluate("validation")) * self._task.predicted

    def batches(self, start_step: int) -> Iterator[MaskedBatch]:
        """Yield (tokens, positions, targets) without end, beginning with those of ``start_step``:
        (B, T), (B, M), (B, M).

        Raises:
            ValueError: a start step below 0.
        """
        step = start_step
        count = len(self._lines["train"]) // self._task.seq_len
        for part in epochs_from(start_step, count, self._batch_size, self._sampling_seed):
            for rows in torch.split(part.order, self._batch_size)[part.first_batch :]:
                random = generator(self._sampling_seed, step, _MASKS)
                step += 1
                self._step = step
                yield self._hidden("train", rows.numpy(), random)

    def loss(self, model: nn.Module, batch: MaskedBatch) -> Tensor:
        """Return the mean cross-entropy at the positions to predict, in nats."""
        logits = self._logits(model, batch)
        return functional.cross_entropy(logits.flatten(0, 1).float(), batch[2].flatten())

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Return loss and accuracy on held-out text, the training loss, and the tokens seen.

        The masks are the same at every call and in every trial.
        """
        loss, accuracy = self._scored(model, "validation")
        train_loss, _ = self._scored(model, "train")
        return {
            "masked_loss": loss,
            "masked_accuracy": accuracy,
            "train_masked_loss": train_loss,
            "tokens_seen": float(self._step * self._batch_size * self._task.seq_len),
            "tokens_available": float(len(self._lines["train"])),
        }

    def warm_start(self, model: nn.Module) -> None:
        """Do nothing: how frequent each token is, is soon learned."""

    def _hidden(self, part: Part, rows: NDArray[np.int64], random: torch.Generator) -> MaskedBatch:
        at = rows[:, None] * self._task.seq_len + np.arange(self._task.seq_len)
        tokens = torch.from_numpy(self._lines[part][at].astype(np.int64))
        shown, positions, targets = self._masking.hide(tokens, random)
        return shown.to(self._device), positions.to(self._device), targets.to(self._device)

    def _to_evaluate(self, part: Part) -> NDArray[np.int64]:
        most = self._task.max_validation
        if part == "train":
            most = self._task.max_train_eval or len(self._to_evaluate("validation"))
        return evenly_spaced(len(self._lines[part]) // self._task.seq_len, most)

    def _scored(self, model: nn.Module, part: Part) -> tuple[float, float]:
        rows = self._to_evaluate(part)
        at_once = max(1, _LOGITS_AT_ONCE // (self._task.seq_len * self._task.vocab_size))
        total = torch.zeros(2, dtype=torch.float64, device=self._device)
        random = generator(_EVALUATED[part])
        for start in range(0, len(rows), at_once):
            batch = self._hidden(part, rows[start : start + at_once], random)
            logits, targets = self._logits(model, batch).flatten(0, 1).float(), batch[2].flatten()
            loss = functional.cross_entropy(logits, targets, reduction="sum")
            right = (logits.argmax(1) == targets).sum()
            total += torch.stack((loss.double(), right.double()))
        loss_sum, hits = total.tolist()
        predictions = len(rows) * self._task.predicted
        return loss_sum / predictions, hits / predictions

    def _logits(self, model: nn.Module, batch: MaskedBatch) -> Tensor:
        """Return the logits at the positions to predict, (B, M, V)."""
        tokens, positions, _ = batch
        logits: Tensor
        if "read_at" in inspect.signature(model.forward).parameters:
            logits = model(tokens, read_at=positions)
        else:
            logits = model(tokens)
            if logits.shape[:2] == tokens.shape:
                logits = logits.take_along_dim(positions[:, :, None], dim=1)
        expected = (*positions.shape, self._task.vocab_size)
        if logits.shape != expected:
            raise ValueError(
                f"the model must return logits of shape {expected} for the {positions.shape[1]} "
                f"positions of tokens of shape {tuple(tokens.shape)}, not {tuple(logits.shape)}"
            )
        return logits
