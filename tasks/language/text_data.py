"""Documents to train and to validate on: of data sets, or the docstrings that come with Python."""

import hashlib
from dataclasses import dataclass, fields
from typing import Final, Literal, NamedTuple

from models.fields import settle
from tasks.base import DataError
from tasks.language.text_columns import Batches, TextColumn
from tasks.sources.docstrings import DOCSTRINGS, docstrings, text_digest
from tasks.sources.hub import place
from tasks.sources.tables import Table, read_table, split_or_share

Part = Literal["train", "validation"]
PARTS: Final[tuple[Part, ...]] = ("train", "validation")
HoldOut = Literal["spread", "tail"]

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
        validation = split_or_share(self.data, DOCSTRINGS)
        settle(self, data=place(DOCSTRINGS), validation=validation)

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
        content = text_digest(self.data, self.config)
        settings = [
            (field.name, getattr(self, field.name))
            for field in fields(self)
            if field.name != "data"
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
        table = read_table(self.data, self.config)
        validation = None
        if isinstance(self.validation, str) or not self.held_out:
            split = table.validation_split(
                None if self.validation is None else str(self.validation)
            )
            validation = self._column(table, split)
        return _Source(self._column(table, "train"), validation)

    def _column(self, table: Table, split: str) -> TextColumn:
        if self.text_column is not None:
            return TextColumn.find(table, split, [self.text_column])
        return TextColumn.find(table, split, _TEXT_COLUMNS, "text_column")


class _Source(NamedTuple):
    """Where documents come from.

    Attributes:
        train: texts of the training split.
        validation: those of the split to validate on; None where a share of the training split is.
    """

    train: TextColumn
    validation: TextColumn | None
