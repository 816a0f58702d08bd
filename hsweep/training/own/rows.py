"""What a script has written since the last look, as rows: a place, and values by key.

Files may be missing still, end in the middle of a line, be truncated or be written from the start
again: then they are read from the start again, and rows that come twice are the caller's business.
"""

import contextlib
import csv
import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hsweep.design.sources import TRAINER_STATE_FILE, MetricSource
from hsweep.errors import UserError, shown
from hsweep.training.own.events import EventRows
from hsweep.training.own.growing import BLOCK_BYTES, GrowingFile, Row, Rows

_LONGEST_LINE: Final = 1 << 20
"""Bytes of a line at most; progress bars write lines without an end."""


def rows_of(source: MetricSource, folder: Path) -> Rows:
    """Return the rows that a source has, or will have, in a trial's folder."""
    if source.kind == "trainer_state":
        return _StateRows(folder, source.where)
    if source.kind == "tensorboard":
        return _FileRows(
            folder, f"{source.where}/**/*.tfevents.*", lambda path: EventRows(path, source)
        )
    return _FileRows(folder, source.files, lambda path: _TextRows(path, _parser(source)))


def cut_torn_lines(source: MetricSource, folder: Path) -> None:
    """Take the unfinished last line from every file of lines that a source reads: a script that was
    killed left it, and its next attempt would go on in the middle of it.

    Raises:
        OSError: a file cannot be read or written.
    """
    if source.kind in ("trainer_state", "tensorboard"):
        return
    for path in folder.glob(source.files):
        with path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(0, size - _LONGEST_LINE))
            whole = start + file.read().rfind(b"\n") + 1
            if whole < size and (whole > start or start == 0):
                file.truncate(whole)


class _FileRows:
    """The rows of all files of a pattern, one file after another."""

    def __init__(self, folder: Path, pattern: str, reader: Callable[[Path], Rows]) -> None:
        self._folder = folder
        self._pattern = pattern
        self._reader = reader
        self._readers: dict[Path, Rows] = {}

    def new(self, *, whole: bool = False) -> Iterator[Row]:
        """Yield the rows that are new in any of them."""
        for path in sorted(self._folder.glob(self._pattern), key=_natural):
            if path not in self._readers:
                self._readers[path] = self._reader(path)
            yield from self._readers[path].new(whole=whole)


class _TextRows:
    """The rows of a text file, one or none a line."""

    def __init__(self, path: Path, parse: Callable[[int, str, str], Mapping[str, object]]) -> None:
        self._file = GrowingFile(path)
        self._parse = parse
        self._line = 0

    def new(self, *, whole: bool = False) -> Iterator[Row]:
        while lines := self._some_lines(whole):
            for number, line in lines:
                place = f"{self._file.path.name}, line {number}"
                if values := self._parse(number, line, place):
                    yield Row(place, values)

    def _some_lines(self, whole: bool) -> list[tuple[int, str]]:
        lines: list[tuple[int, str]] = []
        with contextlib.suppress(FileNotFoundError):
            if not self._file.has_news():
                return []
            position = self._file.position
            if position == 0:
                self._line = 0
            with self._file.path.open("rb") as file:
                file.seek(position)
                start = position
                while position < start + BLOCK_BYTES and (line := file.readline(_LONGEST_LINE)):
                    if not (line.endswith(b"\n") or whole or len(line) == _LONGEST_LINE):
                        break
                    position += len(line)
                    self._line += 1
                    lines.append((self._line, line.decode("utf-8", "replace").rstrip("\r\n")))
            self._file.read_to(position)
        return lines


def _parser(source: MetricSource) -> Callable[[int, str, str], Mapping[str, object]]:
    if source.kind == "stdout":
        return functools.partial(_matched, re.compile(source.where))
    return _CsvLines() if source.kind == "csv_file" else _json_object


def _matched(
    pattern: re.Pattern[str], _number: int, line: str, _place: str
) -> Mapping[str, object]:
    # Progress bars return to the start of their line; the last of what was there counts.
    found = [match for part in line.split("\r") for match in pattern.finditer(part)]
    return found[-1].groupdict() if found else {}


def _json_object(_number: int, line: str, place: str) -> Mapping[str, object]:
    if not line.strip():
        return {}
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise UserError(f"{place}: must be a JSON object, not {shown(line)}")
    return values


class _CsvLines:
    """Rows of a CSV file, whose first line has the names."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._delimiter = ","

    def __call__(self, number: int, line: str, _place: str) -> Mapping[str, object]:
        if number == 1:
            line = line.removeprefix("\ufeff")
            self._delimiter = max(",;\t", key=line.count)
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter=self._delimiter), [])]
        if number == 1:
            self._names = cells
        # A script that was started again may write the names again.
        if cells == self._names:
            return {}
        return {name: cell for name, cell in zip(self._names, cells, strict=False) if cell}


class _StateRows:
    """The rows of ``trainer_state.json``, in the output folder or its checkpoints."""

    def __init__(self, folder: Path, where: str) -> None:
        self._folder = folder / where
        self._seen: dict[Path, tuple[int, int, int]] = {}

    def new(self, *, whole: bool = False) -> Iterator[Row]:  # noqa: ARG002
        places = (TRAINER_STATE_FILE, f"checkpoint-*/{TRAINER_STATE_FILE}")
        found = [path for place in places for path in self._folder.glob(place)]
        for path in sorted(found, key=_natural):
            # A checkpoint may be removed while this looks, or be half written: it is then read
            # again when it has changed.
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                state = path.stat()
                seen = (state.st_ino, state.st_size, state.st_mtime_ns)
                if self._seen.get(path) != seen:
                    content = json.loads(path.read_text("utf-8"))
                    self._seen[path] = seen
                    yield from _log_history(content, path)


def _log_history(content: Any, path: Path) -> Iterator[Row]:
    history = content.get("log_history") if isinstance(content, dict) else None
    if not isinstance(history, list):
        raise UserError(
            f"{path.name}: must have a log_history, as Hugging Face's Trainer writes it"
        )
    for number, values in enumerate(history, 1):
        # Before training, the Trainer evaluates at step 0 if it is asked to.
        if isinstance(values, dict) and values.get("step") != 0:
            yield Row(f"{path.parent.name}/{path.name}, entry {number}", values)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort ``version_10`` after ``version_9``."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
