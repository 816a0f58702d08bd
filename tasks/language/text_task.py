"""What the tasks on texts have in common: their settings, and the tokenizer of their text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from tasks.base import Metric, not_in_key
from tasks.language.subwords import Kind, Role, Subwords, subwords
from tasks.language.text_data import Corpus, HoldOut
from tasks.settings import Rule, settle, whole_number
from tasks.sources.digest import definition_digest
from tasks.sources.docstrings import DOCSTRINGS
from tasks.sources.hub import resolved

TOKEN_COUNTS: Final = (
    Metric("tokens_seen", "max", "count", "tokens trained on so far, repetitions counted"),
    Metric("tokens_available", "max", "count", "tokens of the training text"),
)
"""How much text there is and was trained on."""

_RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(("seq_len", "vocab_size", "max_validation", "max_train_eval"), whole_number),
    "tokenizer": lambda _, tokenizer: resolved(tokenizer),
}


@dataclass(frozen=True, slots=True)
class TextTask:
    """A text, and how it is cut into sequences of tokens.

    Texts are tokenised once; the tokens are kept as one file under HSWEEP_CACHE
    (``~/.cache/hsweep``) and memory-mapped, shared by all trials of a node.

    Attributes:
        data: ``docstrings``, the text that comes with every Python, its standard library's
            docstrings; a folder in a hub layout, given to ``datasets.load_dataset``; or, when the
            environment variable HSWEEP_HUB is 1, a name on the Hugging Face hub.
        seq_len: tokens that a model sees at once.
        tokenizer: a file or folder with a tokenizer, or a hub name; None for one trained on the
            training text.
        vocab_size: logits, and the most tokens that a trained tokenizer may have.
        validation: the split to validate on, None for ``validation`` and, without one, ``test``;
            or the share, in (0, 1), of the training split's documents to hold out. Of docstrings a
            tenth is held out by default.
        max_documents: use the first so many documents of the training split only.
        max_validation: validate on this many sequences only, evenly spaced over the text.
        max_train_eval: compute the training loss on this many training sequences only, evenly
            spaced; None for as many as there are to validate on.
        config: configuration (subset) name of the data set.
        text_column: column of texts; None for ``text`` and the like.

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = not_in_key(DOCSTRINGS)
    seq_len: int = 128
    tokenizer: str | None = not_in_key(None)
    vocab_size: int = 4096
    validation: str | float | None = None
    max_documents: int | None = None
    max_validation: int | None = None
    max_train_eval: int | None = None
    config: str | None = None
    text_column: str | None = None

    version: ClassVar[str] = "1"
    """To be changed with the code that makes batches or metrics out of the fields."""

    trained: ClassVar[Kind]
    """Of the tokenizer that is trained where none is given."""

    def settle(self, rules: Mapping[str, Rule]) -> None:
        """Check the settings that tasks share, and those that ``rules`` name.

        Raises:
            ValueError: a setting out of its range.
        """
        settle(self, {**_RULES, **rules})
        for field in ("data", "validation"):
            object.__setattr__(self, field, getattr(self.corpus, field))

    @property
    def roles(self) -> tuple[Role, ...]:
        """Of the special tokens that the tokenizer must have."""
        raise NotImplementedError

    @property
    def predicted(self) -> int:
        """Tokens of a sequence that are predicted."""
        raise NotImplementedError

    @property
    def hold_out(self) -> HoldOut:
        """Which documents are held out where a share of them is."""
        return "spread"

    @property
    def corpus(self) -> Corpus:
        """The texts."""
        return Corpus(
            data=self.data,
            config=self.config,
            text_column=self.text_column,
            validation=self.validation,
            max_documents=self.max_documents,
            hold_out=self.hold_out,
        )

    def subwords(self) -> Subwords:
        """Return the tokenizer, trained if need be.

        Raises:
            DataError: it, or the text to train it on, is missing or unusable, or it lacks a
                special token.
        """
        found = subwords(self.tokenizer, self.trained, self.vocab_size, self.corpus)
        for role in self.roles:
            found.special(role)
        return found

    def fingerprint(self) -> str:
        """Return a hash of the settings, of the data's contents and of the tokenizer's.

        Where they lie does not matter.

        Raises:
            DataError: the data or the tokenizer are missing or unusable; the message names split
                and row.
        """
        self.corpus.check()
        content = [self.corpus.digest()]
        if self.tokenizer is not None:
            content.append(self.subwords().digest)
        return definition_digest(self, self.version, *content)
