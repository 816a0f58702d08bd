"""Texts in the layouts of the Hugging Face hub, and the docstrings that come with every Python."""

import ast
import functools
import hashlib
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import pyarrow as pa

from tasks.base import DataError
from tasks.settings import one_of, share, whole_number
from tasks.sources.digest import files_digest
from tasks.sources.hub import content_digest, load_splits, local_folder, resolved

if TYPE_CHECKING:
    from datasets import DatasetDict

DOCSTRINGS: Final = "docstrings"
Part = Literal["train", "validation"]
Batches = Iterator[list[str]]

_VALIDATION_SPLITS: Final = ("validation", "valid", "val", "dev", "test")
_TEXT_COLUMNS: Final = ("text", "content", "sentence", "story")
_HELD_OUT: Final = 0.1
_ROWS_AT_ONCE: Final = 1000
_LINES_OF_TEXT: Final = (".txt", ".csv", ".tsv", ".json", ".jsonl")


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
    hold_out: Literal["spread", "tail"] = "spread"

    def __post_init__(self) -> None:
        if not self.data:
            raise ValueError(f"data must be {DOCSTRINGS!r}, a folder or a hub name, not empty")
        if self.data != DOCSTRINGS:
            object.__setattr__(self, "data", resolved(self.data))
        if isinstance(self.validation, int | float) and not share("validation", self.validation):
            raise ValueError("validation must be a split or a share in (0, 1), not 0")
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
            DataError: the data are missing, or lack a split, a column or rows.
        """
        self._source()
        content = (
            files_digest(_library(), _library_files())
            if self.data == DOCSTRINGS
            else content_digest(self.data, self.config)
        )
        settings = [
            (each.name, getattr(self, each.name)) for each in fields(self) if each.name != "data"
        ]
        return hashlib.sha256(repr((settings, content)).encode()).hexdigest()

    def documents(self, part: Part) -> Batches:
        """Yield the documents to train or to validate on, some hundreds at a time, in order.

        Raises:
            DataError: the data are missing or unusable, a text is missing or not UTF-8, or there
                is no document.
        """
        source = self._source()
        if self.held_out is None and part == "validation":
            assert source.validation is not None
            chosen = source.validation()
        else:
            chosen = _first(source.train(), self.max_documents)
            if self.held_out is not None:
                chosen = self._divided(chosen, part, self.held_out)
        found = False
        for batch in chosen:
            if batch:
                found = True
                yield batch
        if not found:
            raise DataError(
                f"{self.data!r} has no text left for {part} when {self.held_out} of its documents "
                "is held out; change validation or max_documents"
            )

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
        every = _first(self._source().train(), self.max_documents)
        kept = (1 - held_out) * sum(len(text) for batch in every for text in batch)
        passed = 0
        for batch in batches:
            chosen = []
            for text in batch:
                passed += len(text)
                if (passed > kept) == (part == "validation"):
                    chosen.append(text)
            yield chosen

    def _source(self) -> "_Source":
        if self.data == DOCSTRINGS:
            return _Source(lambda: iter([list(_docstrings())]), None)
        wanted: tuple[str, ...] = () if self.held_out else _VALIDATION_SPLITS
        if isinstance(self.validation, str):
            wanted = (self.validation,)
        return _hub_source(self.data, self.config, self.text_column, wanted)


class _Source(NamedTuple):
    train: Callable[[], Batches]
    validation: Callable[[], Batches] | None


def _first(batches: Batches, most: int | None) -> Batches:
    left = most
    for batch in batches:
        yield batch if left is None else batch[:left]
        if left is not None:
            left -= len(batch)
            if left <= 0:
                return


def _hub_source(
    data: str, config: str | None, column: str | None, validation: tuple[str, ...]
) -> _Source:
    splits = loaded_texts(data, config)
    split_to_validate = None
    if validation:
        split_to_validate = next((name for name in validation if name in splits), None)
        if split_to_validate is None:
            raise DataError(
                f"{data!r} must have a split {' or '.join(map(repr, validation))} to validate on; "
                f"it has {_listed(splits)}. Name another one, or give a number such as "
                "validation=0.1 to hold out that share of the training split"
            )

    def reader(split: str) -> Callable[[], Batches]:
        named = text_column(splits, data, split, column, _TEXT_COLUMNS)
        return lambda: texts(splits, data, split, named)

    validate = None if split_to_validate is None else reader(split_to_validate)
    return _Source(reader("train"), validate)


def loaded_texts(data: str, config: str | None = None) -> "DatasetDict":
    """Return the splits of a data set; a file that keeps it from being read is named.

    Raises:
        DataError: it is missing, downloads are not turned on, or it cannot be read.
    """
    try:
        return load_splits(data, config)
    except DataError as error:
        folder = local_folder(data)
        fault = None if folder is None else _fault(folder)
        if fault is None:
            raise
        raise DataError(fault) from error


def text_column(
    splits: "DatasetDict", data: str, split: str, given: str | None, usual: tuple[str, ...]
) -> str:
    """Return the column of ``split`` called ``given``, or the first of the ``usual`` names.

    Raises:
        DataError: there is no such split or column, the split has no rows, a text is missing, or
            the column holds something else than texts.
    """
    if split not in splits:
        raise DataError(f"{data!r} must have a split {split!r}; it has {_listed(splits)}")
    dataset = splits[split]
    if len(dataset) == 0:
        raise DataError(f"split {split!r} of {data!r} has no rows; it needs at least one")
    wanted = usual if given is None else (given,)
    found = next((name for name in wanted if name in dataset.column_names), None)
    if found is None:
        hint = "; name it with text_column" if given is None else ""
        raise DataError(
            f"split {split!r} of {data!r} must have the text column "
            f"{' or '.join(map(repr, wanted))}; it has {_listed(dataset.column_names)}{hint}"
        )
    values = dataset.data.column(found)
    kind = values.type
    if not any(
        is_text(kind)
        for is_text in (
            *(pa.types.is_string, pa.types.is_large_string),
            *(pa.types.is_binary, pa.types.is_large_binary),
        )
    ):
        raise DataError(f"column {found!r} of {data!r} must hold texts, not {kind}")
    if values.null_count:
        row = values.is_null().index(True).as_py()
        raise DataError(f"{data}, split {split!r}, row {row}: the text is missing; remove the row")
    return found


def texts(splits: "DatasetDict", data: str, split: str, column: str) -> Batches:
    """Yield the texts of a column, some hundreds at a time, in order.

    Raises:
        DataError: a text is not UTF-8; the message names split and row.
    """
    row = 0
    for chunk in splits[split].data.column(column).chunks:
        for start in range(0, len(chunk), _ROWS_AT_ONCE):
            part = chunk.slice(start, _ROWS_AT_ONCE)
            where = f"{data}, split {split!r}"
            try:
                values = part.to_pylist()
            except UnicodeDecodeError:
                values = part.cast(pa.large_binary()).to_pylist()
            yield [_text(value, where, row + i) for i, value in enumerate(values)]
            row += len(part)


def _text(value: Any, where: str, row: int) -> str:
    if isinstance(value, str):
        return value
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}, row {row}: texts must be UTF-8, and byte {error.start} is "
            f"0x{value[error.start]:02x}; convert or remove it"
        ) from error


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


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _library_files() -> list[Path]:
    files = sorted(_library().glob("*.py"))
    if not files:
        raise DataError(
            f"{DOCSTRINGS} need the standard library's sources, and {_library()} has none; give "
            "data another text"
        )
    return files


@functools.cache
def _docstrings() -> tuple[str, ...]:
    found: dict[str, None] = {}
    for path in _library_files():
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found[ast.get_docstring(node) or ""] = None
    found.pop("", None)
    return tuple(found)


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "none"
