"""Language modelling: the next token of a story."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tasks.base import Metric, TaskData
from tasks.language.subwords import Subwords, subwords
from tasks.language.text_data import DOCSTRINGS, Corpus
from tasks.settings import one_of, whole_number
from tasks.sources.digest import definition_digest
from tasks.sources.hub import resolved

if TYPE_CHECKING:
    import torch

_VERSION = "1"
_PUBLISHED_STORIES = 12_000


@dataclass(frozen=True, slots=True)
class Stories:
    """Predict each token of a text from those before it, for example on TinyStories.

    ``data="docstrings"`` is the text that comes with every Python, its standard library's
    docstrings. Any other value is a folder in a hub layout, given to ``datasets.load_dataset``, or,
    when the environment variable HSWEEP_HUB is 1, a name on the Hugging Face hub. Texts are
    tokenised once; the tokens are kept as one file under HSWEEP_CACHE (``~/.cache/hsweep``) and
    memory-mapped, shared by all trials of a node.

    Batches are tokens (batch, seq_len + 1), int64: inputs and, shifted by one, targets. A model
    maps tokens (batch, seq_len) to the next ones' logits, (batch, seq_len, vocab_size).

    Attributes:
        data: ``docstrings``, a folder or a hub name.
        seq_len: tokens a model sees at once.
        tokenizer: a file or folder with a tokenizer, for example GPT-2's, or a hub name; None for
            a byte-level BPE trained on the training text.
        vocab_size: logits, and the most tokens that a trained tokenizer may have. GPT-2's has
            50,257.
        layout: ``packed`` cuts the line of all stories, each followed by an end-of-text token,
            into sequences and shows them in another order every epoch. ``windows`` is the
            published variant (see ``published_stories``): stories joined by newlines, and windows
            that begin anywhere, drawn at random; an epoch has as many tokens as the text.
        validation: the split to validate on, None for ``validation`` and, without one, ``test``;
            or the share, in (0, 1), of the training split's stories to hold out: evenly spread over
            it, with ``windows`` the last ones by characters. With ``windows``, and for docstrings,
            None holds out a tenth.
        max_documents: use the first so many stories of the training split only.
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
    layout: Literal["packed", "windows"] = "packed"
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
        one_of("layout", self.layout, ("packed", "windows"))
        if self.tokenizer is not None:
            object.__setattr__(self, "tokenizer", resolved(self.tokenizer))
        object.__setattr__(self, "data", self.corpus.data)

    @property
    def name(self) -> str:
        """``stories``."""
        return "stories"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Validation loss in nats a token (main), perplexity, training loss, and token counts."""
        return (
            Metric("validation_loss", "min", "loss", "cross-entropy in nats a token, validation"),
            Metric("perplexity", "min", "error", "exp of the validation loss"),
            Metric("train_loss", "min", "loss", "cross-entropy in nats a token, training text"),
            Metric("tokens_seen", "max", "count", "tokens trained on so far, repetitions counted"),
            Metric("tokens_available", "max", "count", "tokens of the training text"),
        )

    @property
    def corpus(self) -> Corpus:
        """The stories."""
        return Corpus(
            data=self.data,
            config=self.config,
            text_column=self.text_column,
            validation=self.validation,
            max_documents=self.max_documents,
            hold_out="spread" if self.layout == "packed" else "tail",
        )

    def subwords(self) -> Subwords:
        """Return the tokenizer, trained if need be.

        Raises:
            DataError: it, or the text to train it on, is missing or unusable.
        """
        return subwords(self.tokenizer, "bpe", self.vocab_size, self.corpus)

    def fingerprint(self) -> str:
        """Return a hash of the settings, of the data's contents and of the tokenizer's.

        Where they lie does not matter.

        Raises:
            DataError: the data or the tokenizer are missing or unusable.
        """
        content = [self.corpus.digest()]
        if self.tokenizer is not None:
            content.append(self.subwords().digest)
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

        The data seed decides nothing: all replicates have the same text.

        Raises:
            DataError: the data or the tokenizer are missing or unusable, or a part of the text is
                shorter than a sequence.
            ValueError: a batch size below 1.
        """
        from tasks.language.story_data import StoryData

        return StoryData(self, sampling_seed, batch_size, device)


def published_stories(**settings: Any) -> Stories:
    """Return the data of paper L's GPT-2 run ("Leaner Transformers: More Heads, Less Depth", arXiv
    2505.20802, table 2; the code is Tiny-Stories-GPT): the first 12,000 stories joined by newlines,
    the last tenth held out, random windows of 64 tokens.

    The published losses are means over 200 batches of random windows; here every token of the held
    out text counts once, which has the same expectation and no noise.

    Args:
        settings: fields of ``Stories``, to begin with ``data`` and ``tokenizer``.
    """
    published: dict[str, Any] = {
        "seq_len": 64,
        "vocab_size": 50257,
        "layout": "windows",
        "validation": 0.1,
        "max_documents": _PUBLISHED_STORIES,
    }
    return Stories(**{**published, **settings})
