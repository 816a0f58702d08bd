"""Documents to train and to validate on: of data sets, or the docstrings that come with Python."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from models.fields import Rule, settle
from tasks.base import DataError, not_in_key
from tasks.sources.docstrings import DOCSTRINGS, docstrings, text_digest
from tasks.sources.hub import place
from tasks.sources.tables import Table, read_table, split_or_share

if TYPE_CHECKING:
    import pyarrow as pa

Part = Literal["train", "validation"]
PARTS: Final[tuple[Part, ...]] = ("train", "validation")
Batches = Iterator[list[str]]

_TEXT_COLUMNS: Final = ("text", "content", "sentence", "story")
_HELD_OUT: Final = 0.1
_ROWS_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of texts or of their bytes.

    Attributes:
        table: the data set.
        split: name of the split.
        name: of the column.
    """

    table: Table
    split: str
    name: str

    @classmethod
    def find(
        cls, table: Table, split: str, names: Iterable[str], setting: str | None = None
    ) -> "TextColumn":
        """Return the first column of a split that has one of the names.

        Raises:
            DataError: there is no such split or column, the split has no rows, or the column holds
                something else than texts.
        """
        name = table.find_column(split, names, "text", setting)
        kind = table.splits[split].data.column(name).type
        if not _is_text(kind) and not _is_bytes(kind):
            raise DataError(f"column {name!r} of {table.where(split)}, must hold texts, not {kind}")
        return cls(table, split, name)

    def __len__(self) -> int:
        return len(self.table.splits[self.split])

    def check(self, limit: int | None = None) -> None:
        """See to it that the first ``limit`` rows, or all, hold UTF-8 texts.

        Raises:
            DataError: a text is missing or not UTF-8; the message names its row.
        """
        import pyarrow as pa

        values = self._values(limit)
        if values.null_count:
            self._text(None, values.is_null().index(True).as_py())
        for chunk in values.chunks:
            try:
                if _is_bytes(chunk.type):
                    chunk.cast(pa.large_string())
                else:
                    chunk.validate(full=True)
            except pa.ArrowInvalid:
                for _ in self.read(limit):
                    pass  # it names the row
                raise

    def read(self, limit: int | None = None) -> Batches:
        """Yield the texts of the first ``limit`` rows, or of all, in order, hundreds at a time.

        Raises:
            DataError: a text is missing or not UTF-8; the message names its row.
        """
        import pyarrow as pa

        row = 0
        for chunk in self._values(limit).chunks:
            for start in range(0, len(chunk), _ROWS_AT_ONCE):
                part = chunk.slice(start, _ROWS_AT_ONCE)
                try:
                    values = part.to_pylist()
                except UnicodeDecodeError:
                    values = part.cast(pa.large_binary()).to_pylist()
                yield [self._text(value, row + i) for i, value in enumerate(values)]
                row += len(part)

    def _values(self, limit: int | None) -> "pa.ChunkedArray":
        return self.table.splits[self.split].data.column(self.name).slice(0, limit)

    def _text(self, value: Any, row: int) -> str:
        if isinstance(value, str):
            return value
        if value is None:
            where = self.table.row_name(self.split, row)
            raise DataError(f"{where}: the text is missing; remove the row")
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.table.row_name(self.split, row)}: texts must be UTF-8, and byte "
                f"{error.start} is 0x{value[error.start]:02x}; convert or remove it"
            ) from error


def _is_text(kind: "pa.DataType") -> bool:
    return str(kind) in ("string", "large_string")


def _is_bytes(kind: "pa.DataType") -> bool:
    return str(kind) in ("binary", "large_binary")


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

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = not_in_key(DOCSTRINGS)
    config: str | None = None
    text_column: str | None = None
    validation: str | float | None = None
    max_documents: int | None = None

    def __post_init__(self) -> None:
        self.settle()

    def settle(self, **rules: Rule) -> None:
        """Check the settings."""
        validation = split_or_share(self.data, DOCSTRINGS)
        settle(self, data=place(DOCSTRINGS), validation=validation, **rules)

    @property
    def holds_out_tail(self) -> bool:
        """Whether a share that is held out is the last documents, by characters, and not documents
        that are evenly spread over the split."""
        return False

    @property
    def held_out(self) -> float | None:
        """The share of the training split held out for validation; None where a split is used."""
        if isinstance(self.validation, float):
            return self.validation
        alone = self.data == DOCSTRINGS or self.holds_out_tail
        return _HELD_OUT if alone and self.validation is None else None

    def corpus_digest(self) -> str:
        """Return a hash of the texts and of these settings, wherever the texts lie.

        Raises:
            DataError: the data are missing or cannot be read.
        """
        content = text_digest(self.data, self.config)
        names = [field.name for field in fields(Corpus) if field.name != "data"]
        settings = [getattr(self, name) for name in (*names, "holds_out_tail")]
        return hashlib.sha256(repr((settings, content)).encode()).hexdigest()

    def check_texts(self) -> None:
        """See to it that there are texts for both parts, all of them UTF-8; the docstrings are.

        Raises:
            DataError: the data are missing, or lack a split, a column or rows, a text is missing
                or not UTF-8, or a part has no text; the message names split and row.
        """
        train, validation = self._columns()
        if train is None:
            return
        train.check(self.max_documents)
        if validation is not None:
            validation.check()
        for part in PARTS:
            if self.num_documents(part) == 0:
                raise self._nothing_for(part)

    def num_documents(self, part: Part) -> int:
        """Return how many documents a part has; where it is a tail by characters, about so many.

        Raises:
            DataError: the data are missing, or lack a split, a column or rows.
        """
        train, validation = self._columns()
        if validation is not None and part == "validation":
            return len(validation)
        count = len(docstrings()) if train is None else len(train)
        count = min(count, self.max_documents or count)
        held_out = int(count * (self.held_out or 0))
        if self.holds_out_tail:
            held_out = max(1, held_out)
        return held_out if part == "validation" else count - held_out

    def documents(self, part: Part) -> Batches:
        """Yield the documents to train or to validate on, some hundreds at a time, in order.

        Raises:
            DataError: the data are missing or unusable, a text is missing or not UTF-8, or there
                is no document.
        """
        train, validation = self._columns()
        if validation is not None and part == "validation":
            batches = validation.read()
        else:
            batches = self._undivided(train)
            if self.held_out is not None:
                batches = self._divided(batches, part, self.held_out)
        has_text = False
        for batch in batches:
            if batch:
                has_text = True
                yield batch
        if not has_text:
            raise self._nothing_for(part)

    def _undivided(self, train: TextColumn | None) -> Batches:
        if train is not None:
            return train.read(self.max_documents)
        return iter([list(docstrings()[: self.max_documents])])

    def _divided(self, batches: Batches, part: Part, held_out: float) -> Batches:
        if not self.holds_out_tail:
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
        all_batches = self._undivided(self._columns()[0])
        num_train_characters = (1 - held_out) * sum(
            len(text) for batch in all_batches for text in batch
        )
        passed = 0
        for batch in batches:
            part_texts = []
            for text in batch:
                passed += len(text)
                if (passed > num_train_characters) == (part == "validation"):
                    part_texts.append(text)
            yield part_texts

    def _nothing_for(self, part: Part) -> DataError:
        return DataError(
            f"{self.data!r} has no text left for {part} when {self.held_out} of its documents "
            "is held out; change validation or max_documents"
        )

    def _columns(self) -> tuple[TextColumn | None, TextColumn | None]:
        """Return the texts of the training split, None for docstrings, and those of the split to
        validate on, None where a share of the training split is held out."""
        if self.data == DOCSTRINGS:
            return None, None
        table = read_table(self.data, self.config)
        validation = None
        if isinstance(self.validation, str) or not self.held_out:
            split = table.validation_split(
                None if self.validation is None else str(self.validation)
            )
            validation = self._column(table, split)
        return self._column(table, "train"), validation

    def _column(self, table: Table, split: str) -> TextColumn:
        if self.text_column is not None:
            return TextColumn.find(table, split, [self.text_column])
        return TextColumn.find(table, split, _TEXT_COLUMNS, "text_column")
