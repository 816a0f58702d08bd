"""Telling whether two documents read byte by byte are related: citations in the ACL Anthology."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from tasks.base import DataError, not_in_key
from tasks.lra.texts import Examples, Texts, join_texts, texts_in
from tasks.lra.tokens import BYTE_VOCABULARY, BytesTask, TokenSpec, token_metrics
from tasks.metrics import even_shares
from tasks.sources.cache import Arrays, cached_arrays, content_key
from tasks.sources.digest import definition_digest, sampled_digest
from tasks.sources.hub import ROOT_VARIABLE, resolved

_VERSION: Final = "1"
_READING: Final = "document-pairs-1"
"""To be changed with the code that reads, so that arrays read before are not used again."""
_ENDINGS: Final = {"train": ".train.tsv", "validation": ".eval.tsv", "test": ".test.tsv"}
_COLUMNS: Final = ("label", "id1", "id2", "text1", "text2")


@dataclass(frozen=True, slots=True)
class DocumentPairs(BytesTask):
    """Tell whether one of two papers cites the other, from the bytes of both.

    The document retrieval of the Long Range Arena (arXiv 2011.04006) on the ACL Anthology Network.
    Its files come with the benchmark's release and may not be passed on. Their folder holds one
    file each that ends in ``.train.tsv``, ``.eval.tsv`` and ``.test.tsv``
    (``new_aan_pairs.train.tsv`` and so on). A line is label (0 or 1), the papers' numbers and their
    texts, between tabs, without header or quotes.

    The files are read once. What a model can see of each document is kept under HSWEEP_CACHE, every
    document once, however many pairs it is part of.

    Batches are pairs (x, y): x of shape (batch, 2, seq_len), int64, each byte plus one and 0 for
    padding, and labels y of shape (batch,), int64. A model maps x to logits (batch, 2).

    Attributes:
        data: the folder with the files.

    Raises:
        ValueError: a setting out of its range.
    """

    data: str = not_in_key("aan")

    name = "document_pairs"
    metrics = token_metrics(even_shares(2))

    def __post_init__(self) -> None:
        self.settle(data=_folder)

    def spec(self) -> TokenSpec:
        """Return what a model has to know, from the settings alone."""
        return TokenSpec(self.seq_len, BYTE_VOCABULARY, num_classes=2, num_texts=2)

    def fingerprint(self) -> str:
        """Return a hash of the settings, of the files' names and sizes, and of samples of their
        contents.

        Not all is read, as it is gigabytes; a change between the samples that leaves the size as
        it was goes unnoticed.
        """
        files = {path.name: path for path in _files(self.data).values()}
        return definition_digest(self, _VERSION, sampled_digest(files))

    def examples(self, data_seed: int) -> tuple[Texts, Mapping[str, Examples]]:
        """Return all documents, each once, and the pairs of each role."""
        del data_seed  # the data come with their splits
        files = _files(self.data)
        # A file's time tells it from another one of the same size.
        stats = [
            (file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files.values()
        ]
        key = content_key(_READING, stats, self.bytes_read)
        arrays = cached_arrays(key, lambda: _read(files, self.bytes_read))
        pairs: dict[str, Any] = {role: (arrays[role], arrays[f"{role}_labels"]) for role in files}
        return texts_in(arrays), {role: Examples(*pair) for role, pair in pairs.items()}


def _folder(name: str, data: Any) -> str:
    if not data:
        raise ValueError(f"{name} must be the folder with the files of pairs, not empty")
    return resolved(data)


def _files(data: str) -> dict[str, Path]:
    """Return the file of each role, whose first line is usable."""
    folder = Path(data)
    if not folder.is_dir():
        raise DataError(
            f"data must be the folder with the files of pairs, and {data!r} is none; give its "
            f"path, or put it under the folder that {ROOT_VARIABLE} names"
        )
    files = {}
    for role, ending in _ENDINGS.items():
        paths = sorted(folder.glob(f"*{ending}"))
        if len(paths) != 1:
            listed = ", ".join(path.name for path in paths) or "none"
            raise DataError(f"{folder} must have one file that ends in {ending}; it has {listed}")
        files[role] = paths[0]
        with _opened(paths[0]) as file:
            if next(_pairs(file, paths[0]), None) is None:
                raise DataError(f"{paths[0]} has no lines; it needs at least one")
    return files


def _read(files: dict[str, Path], bytes_read: int) -> Arrays:
    """Return ``symbols`` and ``offsets`` of all documents as in ``tasks.lra.texts.Texts``, each
    document once; and for each role ``ROLE``, the numbers of the two documents, (n, 2), int64, and
    ``ROLE_labels``, (n,), int64."""
    numbers: dict[bytes, int] = {}

    def number(text: bytes) -> int:
        return numbers.setdefault(text[:bytes_read], len(numbers))

    arrays: Arrays = {}
    for role, path in files.items():
        with _opened(path) as file:
            rows = [
                (label, number(first), number(second))
                for label, first, second in _pairs(file, path)
            ]
        table = np.array(rows, dtype=np.int64)
        arrays[role], arrays[f"{role}_labels"] = table[:, 1:], table[:, 0]
    return {**arrays, **join_texts(numbers)._asdict()}


def _pairs(file: BinaryIO, path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the label, 0 or 1, and the UTF-8 of both documents of every line of a file."""
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
        for text in fields[3:]:
            if not text:
                raise DataError(f"{where}: the text is empty; remove the line")
            try:
                text.decode()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{where}: the text is not valid UTF-8 ({error}); convert or remove it"
                ) from error
        yield int(label[0]), fields[3], fields[4]


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}; check the file and its rights") from error
