"""Texts as sequences of tokens: the settings that their tasks share, and how they are trained on.

Shapes: B sequences in a batch, T tokens a sequence.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.fields import Rule
from tasks.base import DataError, Metric, not_in_key
from tasks.division import own_slices
from tasks.language.subwords import Kind, Role, Subwords, evenly_spaced, subwords, token_line
from tasks.language.text_data import PARTS, Corpus, Part
from tasks.sampling import EpochData, first_step
from tasks.sources.digest import definition_digest
from tasks.sources.hub import resolved

TOKEN_COUNTS: Final = (
    Metric("tokens_seen", "max", "count", "tokens trained on so far, repetitions counted"),
    Metric("tokens_available", "max", "count", "tokens of the training text"),
)
"""How much text there is and was trained on."""

BatchT = TypeVar("BatchT")

_LOGITS_AT_ONCE: Final = 1 << 25
"""Outside training; 128 MiB of them in float32."""


@dataclass(frozen=True, slots=True)
class TextTask(Corpus):
    """A text, and how it is cut into sequences of tokens.

    Texts are tokenised once; the tokens are kept as one file under HSWEEP_CACHE
    (``~/.cache/hsweep``) and memory-mapped, shared by all trials of a node. The fields are those of
    ``Corpus`` and these.

    Attributes:
        seq_len: tokens that a model sees at once.
        tokenizer: a file or folder with a tokenizer, or a hub name; None for one trained on the
            training text.
        vocab_size: logits, and the most tokens that a trained tokenizer may have.
        max_validation: validate on this many sequences only, evenly spaced over the text.
        max_train_eval: compute the training loss on this many training sequences only, evenly
            spaced; None for as many as there are to validate on.

    Raises:
        ValueError: a setting out of its range.
    """

    seq_len: int = 128
    tokenizer: str | None = not_in_key(None)
    vocab_size: int = 4096
    max_validation: int | None = None
    max_train_eval: int | None = None

    version: ClassVar[str] = "1"
    """To be changed with the code that makes batches or metrics out of the fields."""

    trained: ClassVar[Kind]
    """Of the tokenizer that is trained where none is given."""

    def settle(self, **rules: Rule) -> None:
        """Check the settings."""
        Corpus.settle(self, tokenizer=lambda _, tokenizer: resolved(tokenizer), **rules)

    @property
    def roles(self) -> tuple[Role, ...]:
        """Of the special tokens that the tokenizer must have."""
        raise NotImplementedError

    @property
    def predicted(self) -> int:
        """Tokens of a sequence that are predicted."""
        raise NotImplementedError

    def subwords(self) -> Subwords:
        """Return the tokenizer, trained if need be.

        Raises:
            DataError: it, or the text to train it on, is missing or unusable, or it lacks a
                special token.
        """
        tokenizer = subwords(self.tokenizer, self.trained, self.vocab_size, self)
        for role in self.roles:
            tokenizer.special(role)
        return tokenizer

    def fingerprint(self) -> str:
        """Return a hash of the settings, of the data's contents and of the tokenizer's.

        Where they lie does not matter.
        """
        self.check_texts()
        content = [self.corpus_digest()]
        if self.tokenizer is not None:
            content.append(self.subwords().digest)
        return definition_digest(self, self.version, *content)


class SequenceData(EpochData, ABC, Generic[BatchT]):
    """Both parts of a text, how they are evaluated, and how much was trained on.

    Args:
        task: the settings.
        beyond: tokens after a sequence that its loss needs.
        end: the role of a token that follows each document; None for none.
        ending: text that follows each document.
        sampling_seed: decides the order of sequences.
        batch_size: sequences in a batch.
        device: of the batches.

    Raises:
        DataError: a part is shorter than a sequence.
        ValueError: a batch size below 1.
    """

    def __init__(
        self,
        task: TextTask,
        *,
        beyond: int,
        end: Role | None,
        ending: str = "",
        sampling_seed: int,
        batch_size: int,
        device: torch.device,
    ) -> None:
        self._subwords = task.subwords()
        token = None if end is None else self._subwords.special(end)
        self._lines = {
            part: token_line(task, part, self._subwords, end=token, ending=ending) for part in PARTS
        }
        for part, line in self._lines.items():
            if len(line) < task.seq_len + beyond:
                raise DataError(
                    f"a sequence of {task.seq_len} tokens needs {task.seq_len + beyond}, and "
                    f"{task.data!r} has {len(line)} for {part}; make seq_len smaller or take more "
                    "text"
                )
        self._sequences = {
            part: (len(line) - beyond) // task.seq_len for part, line in self._lines.items()
        }
        self._seq_len = task.seq_len
        self._predicted = task.predicted
        self._limits: dict[Part, int | None] = {
            "validation": task.max_validation,
            "train": task.max_train_eval,
        }
        self._vocab_size = task.vocab_size
        self._at_once = max(1, _LOGITS_AT_ONCE // (task.seq_len * task.vocab_size))
        self._device = device
        # Tokens that are predicted to validate.
        eval_size = len(self._to_evaluate("validation")) * self._predicted
        super().__init__(self._sequences["train"], eval_size, sampling_seed, batch_size)
        self._tokens_seen = 0
        self._last_seen: Tensor | None = None

    def batches(self, start_step: int) -> Iterator[BatchT]:
        """Yield batches without end, beginning with that of ``start_step``."""
        self._tokens_seen = first_step(start_step) * self._batch_size * self._seq_len
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
        """Leave the weights alone: how frequent each token is, is soon learned."""
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

    def _at(self, part: Part, first: NDArray[np.int64], length: int) -> Tensor:
        """Return the ``length`` tokens that begin at positions ``first``, (B,): (B, length) of
        int64, on the CPU."""
        tokens = self._lines[part][first[:, None] + np.arange(length)]
        return torch.from_numpy(tokens.astype(np.int64))

    def _to_evaluate(self, part: Part) -> NDArray[np.int64]:
        """Return the numbers of the sequences that a part is evaluated on, (n,)."""
        limit = self._limits[part]
        if part == "train" and limit is None:
            limit = len(self._to_evaluate("validation"))
        return evenly_spaced(self._sequences[part], limit)

    def _evaluated_at_once(self, part: Part) -> Iterator[NDArray[np.int64]]:
        """Yield this process's of the numbers of ``_to_evaluate``, as many at a time as memory
        allows."""
        rows = self._to_evaluate(part)
        for chunk in own_slices(len(rows), self._at_once):
            yield rows[chunk]
