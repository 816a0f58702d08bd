"""Masked language modelling: the hidden tokens of a text, from those around them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.base import Metric, TaskData
from tasks.language.subwords import Subwords, subwords
from tasks.language.text_data import DOCSTRINGS, Corpus
from tasks.settings import share, whole_number
from tasks.sources.digest import definition_digest
from tasks.sources.hub import resolved

if TYPE_CHECKING:
    import torch

_VERSION = "1"


@dataclass(frozen=True, slots=True)
class MaskedText:
    """Predict masked tokens, as BERT's pre-training does (Devlin et al. 2019, section 3.1).

    The setting is that of Cramming (Geiping and Goldstein 2023), which paper L ("Leaner
    Transformers: More Heads, Less Depth", arXiv 2505.20802), table 1, uses: all documents form one
    line of tokens, each followed by a separator, which is cut into full sequences, so nothing is
    padded. Exactly ``masked_share`` of the positions of every sequence are to be predicted, others
    at each step: 80 % of them (rounded) show the mask, 10 % (rounded) a token drawn from the
    vocabulary, the rest themselves. The loss is over these positions only. Separators are chosen
    last, which means never unless a sequence hardly has anything else.

    Batches are tuples (tokens, positions, targets), int64: (batch, seq_len) with the masks in it,
    and twice (batch, predicted). A model maps tokens to logits, (batch, seq_len, vocab_size); if
    its ``forward`` takes ``read_at``, it is asked for the logits at those positions alone, (batch,
    predicted, vocab_size), which spares most of the read-out.

    Attributes:
        data: ``docstrings`` (the standard library's), a folder in a hub layout, given to
            ``datasets.load_dataset``, or, when the environment variable HSWEEP_HUB is 1, a name on
            the Hugging Face hub.
        seq_len: tokens of a sequence.
        tokenizer: a file or folder with a tokenizer that has a mask, for example BERT's, or a hub
            name; None for a lower-case WordPiece trained on the training text.
        vocab_size: logits, and the most tokens that a trained tokenizer may have.
        masked_share: share of the positions to predict, in (0, 1).
        validation: the split to validate on, None for ``validation`` and, without one, ``test``;
            or the share, in (0, 1), of the training split's documents to hold out, evenly spread
            over it. A tenth of the docstrings is held out by default.
        max_documents: use the first so many documents of the training split only.
        max_validation: validate on this many sequences only, evenly spaced over the text.
        max_train_eval: compute the training loss on this many training sequences only, evenly
            spaced; None for as many as there are to validate on.
        config: configuration (subset) name of the data set.
        text_column: column of texts; None for ``text`` and the like.

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = DOCSTRINGS
    seq_len: int = 128
    tokenizer: str | None = None
    vocab_size: int = 4096
    masked_share: float = 0.25
    validation: str | float | None = None
    max_documents: int | None = None
    max_validation: int | None = None
    max_train_eval: int | None = None
    config: str | None = None
    text_column: str | None = None

    def __post_init__(self) -> None:
        for field in ("seq_len", "vocab_size"):
            object.__setattr__(self, field, whole_number(field, getattr(self, field)))
        for field in ("max_documents", "max_validation", "max_train_eval"):
            if getattr(self, field) is not None:
                object.__setattr__(self, field, whole_number(field, getattr(self, field)))
        masked = share("masked_share", self.masked_share)
        if not masked:
            raise ValueError("masked_share must lie in (0, 1), not 0")
        object.__setattr__(self, "masked_share", masked)
        if self.tokenizer is not None:
            object.__setattr__(self, "tokenizer", resolved(self.tokenizer))
        object.__setattr__(self, "data", self.corpus.data)

    @property
    def name(self) -> str:
        """``masked_text``."""
        return "masked_text"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Validation loss over masked positions (main), accuracy there, and token counts."""
        return (
            Metric("masked_loss", "min", "loss", "cross-entropy in nats, masked positions"),
            Metric("masked_accuracy", "max", "accuracy", "top-1 accuracy, masked positions"),
            Metric("train_masked_loss", "min", "loss", "the same loss on the training text"),
            Metric("tokens_seen", "max", "count", "tokens trained on so far, repetitions counted"),
            Metric("tokens_available", "max", "count", "tokens of the training text"),
        )

    @property
    def predicted(self) -> int:
        """Positions of a sequence that are predicted, at least one."""
        return max(1, round(self.masked_share * self.seq_len))

    @property
    def corpus(self) -> Corpus:
        """The texts."""
        return Corpus(
            data=self.data,
            config=self.config,
            text_column=self.text_column,
            validation=self.validation,
            max_documents=self.max_documents,
        )

    def subwords(self) -> Subwords:
        """Return the tokenizer, trained if need be.

        Raises:
            DataError: it, or the text to train it on, is missing or unusable.
        """
        return subwords(self.tokenizer, "wordpiece", self.vocab_size, self.corpus)

    def fingerprint(self) -> str:
        """Return a hash of the settings, of the data's contents and of the tokenizer's.

        Where they lie does not matter.

        Raises:
            DataError: the data or the tokenizer are missing or unusable.
        """
        content = [self.corpus.digest()]
        if self.tokenizer is not None:
            found = self.subwords()
            found.special("mask")
            content.append(found.digest)
        return definition_digest(self, _VERSION, *content, leave_out=["data", "tokenizer"])

    def open(
        self,
        *,
        data_seed: int,  # noqa: ARG002
        sampling_seed: int,
        batch_size: int,
        device: "torch.device",
    ) -> TaskData:
        """Map the tokens into memory, after making them if no trial has before.

        The data seed decides nothing: all replicates have the same text, and validate on the same
        masks.

        Raises:
            DataError: the data or the tokenizer are missing or unusable, or a part of the text is
                shorter than a sequence.
            ValueError: a batch size below 1.
        """
        from tasks.language.masked_text_data import MaskedTextData

        return MaskedTextData(self, sampling_seed, batch_size, device)
