"""Documents to train and to validate on: of data sets, or the docstrings that come with Python."""

import hashlib
from dataclasses import dataclass, fields
from typing import Final, Literal, NamedTuple

from tasks.base import DataError
from tasks.language.text_columns import Batches, TextColumn, TextTable, text_table
from tasks.settings import one_of, share, whole_number
from tasks.sources.docstrings import DOCSTRINGS, docstrings, docstrings_digest
from tasks.sources.hub import content_digest, resolved

Part = Literal["train", "validation"]
PARTS: Final[tuple[Part, ...]] = ("train", "validation")
HoldOut = Literal["spread", "tail"]

_VALIDATION_SPLITS: Final = ("validation", "valid", "val", "dev", "test")
_TEXT_COLUMNS: Final = ("text", "content", "sentence", "story")
_HELD_OUT: Final = 0.1


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents to train and to validate on, read from disk when asked for.

    Attributes:
        data: ``docstrings`` (the distinct docstrings of the top-level modules of the running
            Python's standard library, which every installation has), a folder in a hub layout, or,
            when the environment variable HSWEEP_HUB is 1, a name on the Hugging Face hub.
        config: configuration (subset) name of the data set.
        text_column: column of texts; None for ``text``, ``content``, ``sentence`` or ``story``.
        validation: the split to validate on, None for ``validation`` and, without one, ``test``;
            or the share, in (0, 1), of the training split's documents to hold out. Docstrings have
            no splits: a tenth of them is held out by default.
        max_documents: use the first so many documents of the training split only.
        hold_out: which documents are held out where a share of them is: some evenly spread over
            the split (``spread``), or the last ones, by characters (``tail``).

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = DOCSTRINGS
    config: str | None = None
    text_column: str | None = None
    validation: str | float | None = None
    max_documents: int | None = None
    hold_out: HoldOut = "spread"

    def __post_init__(self) -> None:
        if not self.data:
            raise ValueError(f"data must be {DOCSTRINGS!r}, a folder or a hub name, not empty")
        if self.data != DOCSTRINGS:
            object.__setattr__(self, "data", resolved(self.data))
        if self.validation is not None and not isinstance(self.validation, str):
            held_out = share("validation", self.validation)
            if not held_out:
                raise ValueError("validation must be a split or a share in (0, 1), not 0")
            object.__setattr__(self, "validation", held_out)
        if self.data == DOCSTRINGS and isinstance(self.validation, str):
            raise ValueError(
                f"{DOCSTRINGS} have no splits: validation must be the share in (0, 1) to hold out, "
                f"not {self.validation!r}"
            )
        if self.max_documents is not None:
            number = whole_number("max_documents", self.max_documents)
            object.__setattr__(self, "max_documents", number)
        one_of("hold_out", self.hold_out, ("spread", "tail"))

    @property
    def held_out(self) -> float | None:
        """The share of the training split held out for validation; None where a split is used."""
        if isinstance(self.validation, float):
            return self.validation
        alone = self.data == DOCSTRINGS or self.hold_out == "tail"
        return _HELD_OUT if alone and self.validation is None else None

    def digest(self) -> str:
        """Return a hash of the texts and of these settings, wherever the texts lie.

        Raises:
            DataError: the data are missing or cannot be read.
        """
        content = (
            docstrings_digest()
            if self.data == DOCSTRINGS
            else content_digest(self.data, self.config)
        )
        settings = [
            (each.name, getattr(self, each.name)) for each in fields(self) if each.name != "data"
        ]
        return hashlib.sha256(repr((settings, content)).encode()).hexdigest()

    def check(self) -> None:
        """See to it that there are texts for both parts, all of them UTF-8; the docstrings are.

        Raises:
            DataError: the data are missing, or lack a split, a column or rows, a text is missing
                or not UTF-8, or a part has no text; the message names split and row.
        """
        source = self._source()
        if source is None:
            return
        source.train.check(self.max_documents)
        if source.validation is not None:
            source.validation.check()
        for part in PARTS:
            if self.num_documents(part) == 0:
                raise self._nothing_for(part)

    def num_documents(self, part: Part) -> int:
        """Return how many documents a part has; where it is a tail by characters, about so many.

        Raises:
            DataError: the data are missing, or lack a split, a column or rows.
        """
        source = self._source()
        if source is not None and source.validation is not None and part == "validation":
            return len(source.validation)
        count = len(docstrings()) if source is None else len(source.train)
        count = min(count, self.max_documents or count)
        held_out = int(count * (self.held_out or 0))
        if self.hold_out == "tail":
            held_out = max(1, held_out)
        return held_out if part == "validation" else count - held_out

    def documents(self, part: Part) -> Batches:
        """Yield the documents to train or to validate on, some hundreds at a time, in order.

        Raises:
            DataError: the data are missing or unusable, a text is missing or not UTF-8, or there
                is no document.
        """
        source = self._source()
        if source is not None and source.validation is not None and part == "validation":
            chosen = source.validation.read()
        else:
            chosen = self._undivided(source)
            if self.held_out is not None:
                chosen = self._divided(chosen, part, self.held_out)
        found = False
        for batch in chosen:
            if batch:
                found = True
                yield batch
        if not found:
            raise self._nothing_for(part)

    def _undivided(self, source: "_Source | None") -> Batches:
        if source is not None:
            return source.train.read(self.max_documents)
        return iter([list(docstrings()[: self.max_documents])])

    def _divided(self, batches: Batches, part: Part, held_out: float) -> Batches:
        if self.hold_out == "spread":
            number = 0
            for batch in batches:
                rows = range(number, number + len(batch))
                number += len(batch)
                yield [
                    text
                    for text, row in zip(batch, rows, strict=True)
                    if (int((row + 1) * held_out) > int(row * held_out)) == (part == "validation")
                ]
            return
        every = self._undivided(self._source())
        kept = (1 - held_out) * sum(len(text) for batch in every for text in batch)
        passed = 0
        for batch in batches:
            chosen = []
            for text in batch:
                passed += len(text)
                if (passed > kept) == (part == "validation"):
                    chosen.append(text)
            yield chosen

    def _nothing_for(self, part: Part) -> DataError:
        return DataError(
            f"{self.data!r} has no text left for {part} when {self.held_out} of its documents "
            "is held out; change validation or max_documents"
        )

    def _source(self) -> "_Source | None":
        """Return where documents come from; None for docstrings.

        Raises:
            DataError: the data are missing, or lack a split, a column or rows.
        """
        if self.data == DOCSTRINGS:
            return None
        table = text_table(self.data, self.config)
        validation = None
        if isinstance(self.validation, str) or not self.held_out:
            wanted = _VALIDATION_SPLITS if self.validation is None else (str(self.validation),)
            split = next((name for name in wanted if name in table.splits), None)
            if split is None:
                raise DataError(
                    f"{self.data!r} must have a split {' or '.join(map(repr, wanted))} to validate "
                    f"on; it has {', '.join(map(repr, table.splits))}. Name another one, or give a "
                    "number such as validation=0.1 to hold out that share of the training split"
                )
            validation = self._column(table, split)
        return _Source(self._column(table, "train"), validation)

    def _column(self, table: TextTable, split: str) -> TextColumn:
        if self.text_column is not None:
            return table.column(split, self.text_column)
        return table.column(split, *_TEXT_COLUMNS, hint="; name it with text_column")


class _Source(NamedTuple):
    """Where documents come from.

    Attributes:
        train: texts of the training split.
        validation: those of the split to validate on; None where a share of the training split is.
    """

    train: TextColumn
    validation: TextColumn | None
