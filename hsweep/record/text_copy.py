"""The record's second copy: a text file beside the journal, one JSON line with a checksum a change.

A line is written right after the change it tells of was committed, so the file is never ahead of
the database; what a kill or a full disk kept from it is added the next time the study is opened
for writing (see ``hsweep.record.repair``). Three kinds of line:

- ``{"trial": [key, ordinal, ...]}``: a trial as planned (``PLANNED_COLUMNS``); the last one counts.
- ``{"key": ..., "after": ..., "log": [...], "state": [...]}``: what one change added to the log of
  one trial, the number of the entry before (0: none), and where the trial stands then
  (``STATE_COLUMNS``). The chain of numbers shows whether a line of the trial is lost.
- ``{"meta": {name: value}}``: values of the study as a whole; null is one that was forgotten.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path
from typing import Any, Final

PLANNED_COLUMNS: Final = (
    "key", "ordinal", "point", "replicate", "stratum", "budget", "counts", "parts",
)  # fmt: skip
STATE_COLUMNS: Final = (
    "status", "reason", "attempt", "unit", "value", "wall_seconds", "failures", "alone",
    "orphaned", "reused_from", "continues",
)  # fmt: skip
LOG_COLUMNS: Final = ("seq", "time", "attempt", "kind", "unit", "payload")
NOT_BEGUN: Final = ("planned", "", 0, 0, None, 0.0, 0, 0, "", "", "")
"""``STATE_COLUMNS`` of a trial of which the log says nothing."""

_HEAD: Final = '{"crc32":"'
_MIDDLE: Final = '","is":'
_BODY_AT: Final = len(_HEAD) + 8 + len(_MIDDLE)

Row = Sequence[Any]
"""Columns of the database; the text in those that hold JSON."""


def copy_of(journal: Path) -> Path:
    """Return where the second copy of a journal lies."""
    return journal.with_suffix(".jsonl")


def row_checksum(row: Row) -> int:
    """Return the checksum that the database keeps of one of its rows."""
    return zlib.crc32(json.dumps(list(row)).encode())


def log_checksum(key: str, entry: Row) -> int:
    """Return the checksum of a log entry, given in the order of ``LOG_COLUMNS``.

    It is ``row_checksum`` of the key and the entry without its number, put together by hand: every
    reader of a study works it out for every report.
    """
    _, time, attempt, kind, unit, payload = entry
    try:
        text = (
            f"[{_quoted(key)}, {time!r}, {attempt}, {_quoted(kind)}, "
            f"{'null' if unit is None else unit}, {_quoted(payload)}]"
        )
    except TypeError:  # of a damaged row, where a text is none
        return row_checksum((key, *entry[1:]))
    return zlib.crc32(text.encode())


def report_checksum(key: str, time: float, attempt: int, unit: int, payload: str) -> int | None:
    """Return the checksum of a report's log entry, None if it is not as reports are written.

    It is `log_checksum` where nothing needs an escape but quotation marks.
    """
    try:
        has_escapes = "\\" in payload
        payload = _quoted(payload)[1:-1] if has_escapes else payload.replace('"', '\\"')
        text = f'["{key}", {time!r}, {attempt}, "report", {unit}, "{payload}"]'
        return zlib.crc32(text.encode())
    except (TypeError, AttributeError, UnicodeEncodeError):
        return None


def trial_checksum(row: Row, quoted: dict[str, str]) -> int | None:
    """Return the checksum of a trial's row, None if it is not as rows are written.

    It is `row_checksum` of the columns of ``PLANNED_COLUMNS`` and ``STATE_COLUMNS``, finite numbers
    among them; ``quoted`` keeps the texts that many rows share.
    """
    (key, ordinal, point, replicate, stratum, budget, counts, parts, status, reason, attempt, unit,
     value, seconds, failures, alone, orphaned, reused_from, continues, *_) = row  # fmt: skip
    try:
        for text in (
            point, stratum, counts, parts, status, reason, orphaned, reused_from, continues,
        ):  # fmt: skip
            if text not in quoted:
                quoted[text] = _quoted(text)
        text = (
            f"[{_quoted(key)}, {ordinal}, {quoted[point]}, {replicate}, {quoted[stratum]},"
            f" {budget}, {quoted[counts]}, {quoted[parts]}, {quoted[status]}, {quoted[reason]},"
            f" {attempt}, {unit}, {'null' if value is None else repr(value)}, {seconds!r},"
            f" {failures}, {alone}, {quoted[orphaned]}, {quoted[reused_from]},"
            f" {quoted[continues]}]"
        )
    except TypeError:
        return None
    return zlib.crc32(text.encode())


@dataclass(frozen=True, slots=True)
class TrialLine:
    """A trial as planned, in the order of ``PLANNED_COLUMNS``."""

    row: tuple[Any, ...]

    def text(self) -> str:
        """Return the line's content."""
        return json.dumps({"trial": list(self.row)})


@dataclass(frozen=True, slots=True)
class LogLine:
    """What one change added to a trial's log.

    Attributes:
        after: number of the trial's entry before these; 0 for none.
        log: the entries, each in the order of ``LOG_COLUMNS``.
        state: where the trial stands after them, in the order of ``STATE_COLUMNS``.
    """

    key: str
    after: int
    log: tuple[tuple[Any, ...], ...]
    state: tuple[Any, ...]

    def text(self) -> str:
        """Return the line's content."""
        # Payloads are JSON already; they are put in as they are.
        entries = ", ".join(f"{json.dumps(row[:-1])[:-1]}, {row[-1]}]" for row in self.log)
        return log_line(self.key, self.after, entries, json.dumps(self.state))


def log_line(key: str, after: int, entries: str, state: str) -> str:
    """Return the content of a `LogLine`; ``entries`` and ``state`` are JSON."""
    return f'{{"key": {_quoted(key)}, "after": {after}, "log": [{entries}], "state": {state}}}'


@dataclass(frozen=True, slots=True)
class MetaLine:
    """Values of the study as a whole; None is one that was forgotten."""

    values: Mapping[str, str | None]

    def text(self) -> str:
        """Return the line's content."""
        return json.dumps({"meta": dict(self.values)})


@dataclass(frozen=True, slots=True)
class ToldLine:
    """A line whose content has been put together by who wrote the change; read back it is one of
    the others."""

    content: str

    def text(self) -> str:
        """Return the line's content."""
        return self.content


Line = TrialLine | LogLine | MetaLine


def encode(line: Line | ToldLine) -> bytes:
    """Return a line with its checksum, as it stands in the file."""
    body = line.text()
    return f"{_HEAD}{zlib.crc32(body.encode()):08x}{_MIDDLE}{body}}}\n".encode()


def decode(raw: bytes) -> Line | None:
    """Return what a line of the file says, None for one that is torn or garbled."""
    try:
        text = raw.decode()
        checksum, body = text[len(_HEAD) : len(_HEAD) + 8], text[_BODY_AT:-1]
        if text != f"{_HEAD}{checksum}{_MIDDLE}{body}}}":
            return None
        if f"{zlib.crc32(body.encode()):08x}" != checksum:
            return None
        content = json.loads(body)
        if "trial" in content:
            return TrialLine(tuple(content["trial"]))
        if "meta" in content:
            return MetaLine(content["meta"])
        entries = tuple((*row[:-1], json.dumps(row[-1])) for row in content["log"])
        return LogLine(content["key"], content["after"], entries, tuple(content["state"]))
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def read_lines(path: Path) -> Iterator[Line | None]:
    """Yield what each line of a copy says, None for each that is torn or garbled.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        for raw in file:
            if raw.strip():
                whole = raw.endswith(b"\n")
                yield decode(raw[:-1]) if whole else None


class RecordCopy:
    """The copy of a journal that is open for writing.

    Nothing here raises: the database has what the copy lacks, and whatever could not be written is
    written before the next line, or when the study is opened again.

    Args:
        path: the text file; made at the first line.

    Attributes:
        problem: why the last line could not be written; empty if it was.
    """

    def __init__(self, path: Path) -> None:
        self.problem = ""
        self._path = path
        self._file: int | None = None
        self._unwritten = b""

    def append(self, lines: Iterable[Line | ToldLine]) -> None:
        """Write lines at the end."""
        self._unwritten += b"".join(map(encode, lines))
        if not self._unwritten:
            return
        try:
            if self._file is None:
                self._file = _open_to_append(self._path)
            written = os.write(self._file, self._unwritten)
            # A full disk takes a part; the rest follows when it has room again.
            self._unwritten = self._unwritten[written:]
            self.problem = "no space left" if self._unwritten else ""
        except OSError as error:
            self.problem = error.strerror or str(error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self.append(())
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    """Write a copy anew, under a temporary name first.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines(map(encode, lines))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _open_to_append(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            # A kill tore the last line; what it said is in the database.
            os.write(file, b"\n")
    except BaseException:
        os.close(file)
        raise
    return file
