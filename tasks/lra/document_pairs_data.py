"""Files of document pairs."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import numpy as np

from tasks.base import DataError
from tasks.lra.texts import Examples, Texts, joined, read_texts
from tasks.sources.cache import Arrays, cached_arrays, content_key
from tasks.sources.hub import ROOT_VARIABLE

if TYPE_CHECKING:
    from tasks.lra.document_pairs import DocumentPairs

_READING: Final = "document-pairs-1"
"""To be changed with the code that reads, so that arrays read before are not used again."""

_ENDINGS: Final = {"train": ".train.tsv", "validation": ".eval.tsv", "test": ".test.tsv"}
_COLUMNS: Final = ("label", "id1", "id2", "text1", "text2")


class Pair(NamedTuple):
    """One line of a file.

    Attributes:
        label: whether the documents are related, 0 or 1.
        first: UTF-8.
        second: UTF-8.
    """

    label: int
    first: bytes
    second: bytes


def pair_files(data: str) -> dict[str, Path]:
    """Return the file of each role; the first line of each has been looked at.

    Raises:
        DataError: a file is missing, there are several, or its first line is missing or unusable.
    """
    folder = Path(data)
    if not folder.is_dir():
        raise DataError(
            f"data must be the folder with the files of pairs, and {data!r} is none; give its "
            f"path, or put it under the folder that {ROOT_VARIABLE} names"
        )
    found = {}
    for role, ending in _ENDINGS.items():
        paths = sorted(folder.glob(f"*{ending}"))
        if len(paths) != 1:
            listed = ", ".join(path.name for path in paths) or "none"
            raise DataError(f"{folder} must have one file that ends in {ending}; it has {listed}")
        found[role] = paths[0]
        with _opened(paths[0]) as file:
            if next(_pairs(file, paths[0]), None) is None:
                raise DataError(f"{paths[0]} has no lines; it needs at least one")
    return found


def examples(task: "DocumentPairs") -> tuple[Texts, dict[str, Examples]]:
    """Return all documents, each once, and the pairs of each role.

    Raises:
        DataError: a file is missing, or a line is unusable.
    """
    files = pair_files(task.data)
    # A file's time tells it from another one of the same size.
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files.values()]
    key = content_key(_READING, stats, task.bytes_kept)
    held = cached_arrays(key, lambda: read_pairs(files, task.bytes_kept))
    return read_texts(held), {
        role: Examples(held[role], held[f"{role}_labels"])  # type: ignore[arg-type]
        for role in files
    }


def read_pairs(files: dict[str, Path], bytes_kept: int) -> Arrays:
    """Return all documents, each once, and the pairs of each role.

    Args:
        files: by role.
        bytes_kept: of a document; the rest is cut off.

    Returns:
        ``symbols`` and ``offsets`` as in ``tasks.lra.texts.Texts``; and for each role ``ROLE``, the
        numbers of the two documents, (n, 2), int64, and ``ROLE_labels``, (n,), int64.

    Raises:
        DataError: a line is unusable; the message names file and line.
    """
    numbers: dict[bytes, int] = {}

    def number(text: bytes) -> int:
        return numbers.setdefault(text[:bytes_kept], len(numbers))

    arrays: Arrays = {}
    for role, path in files.items():
        with _opened(path) as file:
            rows = [
                (pair.label, number(pair.first), number(pair.second)) for pair in _pairs(file, path)
            ]
        table = np.array(rows, dtype=np.int64)
        arrays[role], arrays[f"{role}_labels"] = table[:, 1:], table[:, 0]
    symbols, offsets = joined(numbers)
    return {**arrays, "symbols": symbols, "offsets": offsets}


def _pairs(file: BinaryIO, path: Path) -> Iterator[Pair]:
    for line, content in enumerate(file, start=1):
        fields = content.rstrip(b"\r\n").split(b"\t")
        where = f"{path}, line {line}"
        if len(fields) != len(_COLUMNS):
            raise DataError(
                f"{where}: a line must have {len(_COLUMNS)} fields between tabs "
                f"({', '.join(_COLUMNS)}), not {len(fields)}"
            )
        label = fields[0].decode(errors="replace")
        if label not in ("0", "1", "0.0", "1.0"):
            raise DataError(f"{where}: the label must be 0 or 1, not {label!r}")
        yield Pair(int(label[0]), _usable(fields[3], where), _usable(fields[4], where))


def _usable(text: bytes, where: str) -> bytes:
    """Return ``text``.

    Raises:
        DataError: it is empty or not valid UTF-8; the message begins with ``where``.
    """
    if not text:
        raise DataError(f"{where}: the text is empty; remove the line")
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: the text is not valid UTF-8 ({error}); convert or remove it"
        ) from error
    return text


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}; check the file and its rights") from error
