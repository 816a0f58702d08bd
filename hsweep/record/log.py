"""The log of a study: all that is on record, appended to and never changed.

It is a folder of segments, ``000001.jsonl``, ``000002.jsonl``, and so on: files of JSON lines, one
a transaction, each with a checksum of its entries::

    {"crc32":"0a1b2c3d","entries":[{"report":...},{"status":...}]}

Entries are objects whose first name says what they are:

- ``trial``: a key; with ``ordinal``, ``point``, ``replicate``, ``stratum``, ``budget``, ``counts``
  and ``parts``: a trial as planned. The last such entry of a key counts.
- ``report``: a key; with ``time``, ``attempt``, ``unit``, ``value`` and ``payload``.
- ``status``: a key; with ``time``, ``attempt`` and ``payload``: the status and its reason, and what
  else about the trial's state changes with it.
- ``meta``: the name of a value of the study as a whole; with ``value``, null to remove it.
- ``segment``: a number; with ``owner`` and ``after``: the only entry of a segment's first line.

One process writes a segment, its ``owner``, and the next owner begins the next segment. What the
segment before holds beyond byte ``after`` does not count: its owner wrote it when it was no longer
the study's. So two processes never append to one file, and no lock is needed that a network file
system may not keep. A position in the log counts the bytes of all segments that count.

A last line without its end is not on record: a kill or a full disk tore it.
"""

import contextlib
import errno
import json
import os
import re
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hsweep.errors import UserError
from hsweep.files import cause

Entry = Mapping[str, Any]

_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_HEAD: Final = b'{"crc32":"'
_MIDDLE: Final = b'","entries":'
_BODY_AT: Final = len(_HEAD) + 8 + len(_MIDDLE)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SEGMENT: Final = re.compile(r"\d{6,}\.jsonl")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log.

    Attributes:
        segment: number of its segment.
        start, end: position of its first byte in the log, and of the first byte after it.
        checksum: the checksum of its entries, as written in the file.
        entries: the entries that it holds; None if it is damaged.
        content: its bytes.
    """

    segment: int
    start: int
    end: int
    checksum: str
    entries: Sequence[Entry] | None
    content: bytes

    @property
    def is_head(self) -> bool:
        """Whether it is the first line of a segment."""
        return bool(self.entries) and "segment" in (self.entries or ())[0]


@dataclass(slots=True)
class _Segment:
    """A segment: its number and file, and where it begins and ends in the log; the last one grows,
    and its end is None."""

    number: int
    path: Path
    start: int
    end: int | None = None

    def lines(self, start: int = 0) -> Iterator[LogLine]:
        """Yield its whole lines from a position of the log on, damaged ones without entries."""
        start = max(start, self.start)
        with self.path.open("rb") as file:
            file.seek(start - self.start)
            for content in file:
                end = start + len(content)
                if not content.endswith(b"\n") or (self.end is not None and end > self.end):
                    break
                yield _line(self.number, start, end, content)
                start = end
        if self.end is not None and start < self.end:
            yield _line(self.number, start, self.end, b"")  # it has lost its end


class Log:
    """The segments of a log.

    Args:
        folder: of the segments.
        writes: number of the segment to append to, behind which nothing is read; 0 for the last;
            None to read only.

    Raises:
        UserError: it has no segment, lacks one, or cannot be opened.
    """

    def __init__(self, folder: Path, *, writes: int | None = None) -> None:
        self.folder = folder
        self._is_torn = False
        self._file = -1
        self._most = writes or None
        self._segments: list[_Segment] = []
        try:
            if not self._refreshed():
                raise unreadable(folder, "it is missing")
            if writes is not None:
                flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
                self._file = os.open(self._segments[-1].path, flags)
        except OSError as error:
            raise inaccessible(folder, "read" if writes is None else "written", error) from error

    def _refreshed(self) -> list[_Segment]:
        """Return the segments, those that are new included."""
        if self._file >= 0:
            return self._segments
        for path in segment_files(self.folder)[len(self._segments) : self._most]:
            number = len(self._segments) + 1
            if path != segment_file(self.folder, number):
                raise unreadable(segment_file(self.folder, number), "it is missing")
            new = _Segment(number, path, 0)
            if self._segments:
                last = self._segments[-1]
                # Where that is not known, all of the segment before counts.
                after = _head(path).get("after", last.path.stat().st_size)
                last.end = new.start = last.start + after
            self._segments.append(new)
        return self._segments

    @property
    def id(self) -> str:
        """What tells it from other logs, even at the same place."""
        return next((line.checksum for line in self.lines()), "")

    @property
    def size(self) -> int:
        """The position behind its last byte."""
        last = self._refreshed()[-1]
        found = last.path.stat() if self._file < 0 else os.fstat(self._file)
        return last.start + found.st_size

    def close(self) -> None:
        """Close the file; a second time is no error."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def append(self, entries: Sequence[Entry], end: int) -> int:
        """Write a line behind position ``end``, where the log ends; return where it ends then.
        OSError if it cannot be written; what was written of it is taken back, if it can be.
        UnicodeEncodeError for text that is not ``storable``."""
        segment = self._segments[-1]
        line = _encoded(_encode(entries).encode())
        try:
            if self._is_torn:
                os.ftruncate(self._file, end - segment.start)
            self._is_torn = True
            _write(self._file, line)
            self._is_torn = False
        except OSError as error:
            self.cut(end)
            raise OSError(error.errno, error.strerror, str(segment.path)) from error
        return end + len(line)

    def cut(self, end: int) -> None:
        """Remove an incomplete line behind position ``end``; a failure is ignored."""
        with contextlib.suppress(OSError):
            if self.size > end:
                os.ftruncate(self._file, end - self._segments[-1].start)

    def has_line(self, segment: int, start: int, end: int, checksum: str) -> bool:
        """Whether a line with this checksum stands between two positions, in this segment."""
        place = next((place for place in self._refreshed() if place.number == segment), None)
        line = next(place.lines(start), None) if place is not None else None
        return line is not None and (line.start, line.end, line.checksum) == (start, end, checksum)

    def refuse_lost(self) -> None:
        """Refuse a log of which no whole line is left, with UserError."""
        kinds = {(line.is_head, line.entries is None) for line in self.lines()}
        if (False, False) not in kinds and kinds != {(True, False)}:
            raise unreadable(self.folder, "it holds no whole line")

    def lines(self, start: int = 0) -> Iterator[LogLine]:
        """Yield the whole lines from a position on, damaged ones without entries."""
        for segment in list(self._refreshed()):
            if segment.end is None or segment.end > start:
                yield from segment.lines(start)


def storable(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return entries whose text UTF-8 can hold: a lone surrogate, as Python reads a byte of a file
    name that is no UTF-8, becomes its escape."""
    text = _SURROGATE.sub(lambda found: rf"\\u{ord(found[0]):04x}", _encode(entries))
    stored: Sequence[Entry] = json.loads(text)
    return stored


def segment_files(folder: Path) -> list[Path]:
    """Return the segments of a log, in their order; none if the folder is missing."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(path for path in folder.iterdir() if _SEGMENT.fullmatch(path.name))
    return []


def segment_file(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.jsonl"


def begin_segment(folder: Path, number: int, owner: Mapping[str, Any]) -> Path:
    """Begin a segment of a log, behind the last whole line of the segment before; return its file.

    Raises:
        FileExistsError: another process has begun it.
        OSError: it cannot be written.
    """
    path, after = segment_file(folder, number), 0
    if number > 1:
        with segment_file(folder, number - 1).open("rb") as file:
            # What counts from now on must not be lost with this machine.
            os.fsync(file.fileno())
            after = file.read().rfind(b"\n") + 1
    head = {"segment": number, "after": after, "owner": owner}
    draft = folder / f".{path.name}.{uuid.uuid4().hex}.tmp"
    try:
        with draft.open("xb") as file:
            file.write(_encoded(_encode(storable([head])).encode()))
            file.flush()
            os.fsync(file.fileno())
        # Of several processes one succeeds, on network file systems, too.
        try:
            os.link(draft, path)
        except FileExistsError:
            # A server may have done it, and have been asked again since its answer was lost.
            if draft.stat().st_nlink < 2:
                raise
    finally:
        draft.unlink(missing_ok=True)
    return path


def owner_of(segment: Path) -> Mapping[str, Any]:
    """Return the owner of a segment; an empty one where its first line is damaged."""
    owner: Mapping[str, Any] = _head(segment).get("owner", {})
    return owner


def _head(segment: Path) -> Entry:
    """Return the entry of a segment's first line; an empty one where that is damaged."""
    line = next(_Segment(0, segment, 0).lines(), None)
    return line.entries[0] if line is not None and line.entries else {}


def _write(file: int, content: bytes) -> None:
    while content:
        num_written = os.write(file, content)
        if not num_written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        content = content[num_written:]


def _line(segment: int, start: int, end: int, content: bytes) -> LogLine:
    body = content[_BODY_AT:-2]
    entries = json.loads(body) if content == _encoded(body) else None
    return LogLine(segment, start, end, _checksum(content), entries, content)


def _checksum(content: bytes) -> str:
    return content[len(_HEAD) : len(_HEAD) + 8].decode(errors="replace")


def _encoded(body: bytes) -> bytes:
    return b"%b%08x%b%b}\n" % (_HEAD, zlib.crc32(body), _MIDDLE, body)


def inaccessible(folder: Path, access: str, error: Exception, *others: Path) -> UserError:
    places = " and ".join(["it", *map(str, others)])
    return UserError(
        f"the record {folder} cannot be {access} ({cause(error)}); make {places} accessible, or "
        "free some space, and try again"
    )


def unreadable(path: Path, why: str) -> UserError:
    return UserError(f"the record {path} cannot be read ({why}; restore it from a backup)")
