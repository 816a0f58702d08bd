"""Columns of texts in data sets with the layouts of the Hugging Face hub."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tasks.base import DataError
from tasks.sources.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE: Final = 1000

Batches = Iterator[list[str]]


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

    def check(self, most: int | None = None) -> None:
        """See to it that the first ``most`` rows, or all, hold UTF-8 texts.

        Raises:
            DataError: a text is missing or not UTF-8; the message names its row.
        """
        import pyarrow as pa

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
        import pyarrow as pa

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

    def _values(self, most: int | None) -> "pa.ChunkedArray":
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


def _is_text(kind: "pa.DataType") -> bool:
    return str(kind) in ("string", "large_string")


def _is_bytes(kind: "pa.DataType") -> bool:
    return str(kind) in ("binary", "large_binary")
