"""Columns of texts in data sets with the layouts of the Hugging Face hub."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tasks.base import DataError
from tasks.sources.hub import load_splits, local_folder
from tasks.sources.rows import row_name

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

_ROWS_AT_ONCE: Final = 1000
_LINES_OF_TEXT: Final = (".txt", ".csv", ".tsv", ".json", ".jsonl")

Batches = Iterator[list[str]]


@dataclass(frozen=True, slots=True)
class TextTable:
    """The splits of a data set, and what messages call it.

    Attributes:
        splits: rows by split, read from disk when asked for.
        data: a folder or a hub name.
        config: configuration (subset) name, None for the default one.
    """

    splits: "DatasetDict"
    data: str
    config: str | None = None

    @property
    def named(self) -> str:
        """What messages call it."""
        return repr(self.data) if self.config is None else f"{self.data!r}, {self.config},"

    def rows(self, split: str) -> "Dataset":
        """Return a split.

        Raises:
            DataError: there is none of that name, or it has no rows.
        """
        if split not in self.splits:
            raise DataError(f"{self.named} must have a split {split!r}; it has {_listed(self)}")
        found: Dataset = self.splits[split]
        if len(found) == 0:
            raise DataError(f"split {split!r} of {self.named} has no rows; it needs at least one")
        return found

    def row_name(self, split: str, row: int) -> str:
        """Return what messages call a row of a split: see ``tasks.sources.rows.row_name``."""
        return row_name(self.data, self.config, split, row)

    def column(self, split: str, *names: str, hint: str = "") -> "TextColumn":
        """Return the first column of a split that has one of the names.

        Args:
            split: name of the split.
            names: names of columns.
            hint: what to do where there is none.

        Raises:
            DataError: there is no such split or column, the split has no rows, or the column holds
                something else than texts.
        """
        rows = self.rows(split)
        found = next((name for name in names if name in rows.column_names), None)
        if found is None:
            raise DataError(
                f"split {split!r} of {self.named} must have the text column "
                f"{' or '.join(map(repr, names))}; it has "
                f"{', '.join(map(repr, rows.column_names))}{hint}"
            )
        kind = rows.data.column(found).type
        if not _is_text(kind) and not _is_bytes(kind):
            raise DataError(
                f"column {found!r} of {self.named}, split {split!r}, must hold texts, not {kind}"
            )
        return TextColumn(self, split, found)


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of texts or of their bytes.

    Attributes:
        table: the data set.
        split: name of the split.
        name: of the column.
    """

    table: TextTable
    split: str
    name: str

    def __len__(self) -> int:
        return len(self.table.splits[self.split])

    def check(self, most: int | None = None) -> None:
        """See to it that the first ``most`` rows, or all, hold UTF-8 texts.

        Raises:
            DataError: a text is missing or not UTF-8; the message names its row.
        """
        values = self._values(most)
        if values.null_count:
            self._text(None, values.is_null().index(True).as_py())
        for chunk in values.chunks:
            try:
                if _is_bytes(chunk.type):
                    chunk.cast(pa.large_string())
                else:
                    chunk.validate(full=True)
            except pa.ArrowInvalid:
                for _ in self.read(most):
                    pass  # it names the row
                raise

    def read(self, most: int | None = None) -> Batches:
        """Yield the texts of the first ``most`` rows, or of all, some hundreds at a time, in order.

        Raises:
            DataError: a text is missing or not UTF-8; the message names its row.
        """
        row = 0
        for chunk in self._values(most).chunks:
            for start in range(0, len(chunk), _ROWS_AT_ONCE):
                part = chunk.slice(start, _ROWS_AT_ONCE)
                try:
                    values = part.to_pylist()
                except UnicodeDecodeError:
                    values = part.cast(pa.large_binary()).to_pylist()
                yield [self._text(value, row + i) for i, value in enumerate(values)]
                row += len(part)

    def _values(self, most: int | None) -> pa.ChunkedArray:
        return self.table.splits[self.split].data.column(self.name).slice(0, most)

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


def text_table(data: str, config: str | None = None) -> TextTable:
    """Return the splits of a data set; a file that keeps it from being read is named.

    Raises:
        DataError: it is missing, downloads are not turned on, or it cannot be read.
    """
    try:
        return TextTable(load_splits(data, config), data, config)
    except DataError as error:
        folder = local_folder(data)
        fault = None if folder is None else _fault(folder)
        if fault is None:
            raise
        raise DataError(fault) from error


def _fault(folder: Path) -> str | None:
    """Return what is wrong with a folder's files that a reader of data sets would not say."""
    from pyarrow import parquet

    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.suffix in _LINES_OF_TEXT:
            for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    return (
                        f"{path}, line {number}: texts must be UTF-8, and byte {error.start} is "
                        f"0x{line[error.start]:02x}; convert or remove it"
                    )
        if path.suffix == ".parquet":
            try:
                rows = parquet.read_metadata(path).num_rows
            except (OSError, pa.ArrowException) as error:
                return f"{path} is not a readable parquet file: {error}; replace it"
            if rows == 0:
                return f"{path} has no rows; it needs at least one"
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _listed(table: TextTable) -> str:
    return ", ".join(map(repr, table.splits)) or "none"
