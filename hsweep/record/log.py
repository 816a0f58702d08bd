"""The log of a study: all that is on record, appended to and never changed.

It is a file of JSON lines, one a transaction, each with a checksum of its entries::

    {"crc32":"0a1b2c3d","entries":[{"report":...},{"status":...}]}

Entries are objects whose first name says what they are:

- ``trial``: a key; with ``ordinal``, ``point``, ``replicate``, ``stratum``, ``budget``, ``counts``
  and ``parts``: a trial as planned. The last such entry of a key counts.
- ``report``: a key; with ``time``, ``attempt``, ``unit``, ``value`` and ``payload``.
- ``status``: a key; with ``time``, ``attempt`` and ``payload``: the status and its reason, and what
  else about the trial's state changes with it.
- ``meta``: the name of a value of the study as a whole; with ``value``, null to remove it.

A last line without its end is not on record: a kill or a full disk tore it.
"""

import contextlib
import errno
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hsweep.errors import UserError

Entry = Mapping[str, Any]

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_HEAD: Final = b'{"crc32":"'
_MIDDLE: Final = b'","entries":'
_BODY_AT: Final = len(_HEAD) + 8 + len(_MIDDLE)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log.

    Attributes:
        start, end: position of its first byte in the file, and of the first byte after it.
        checksum: the checksum of its entries, as written in the file.
        entries: the entries that it holds; None if it is damaged.
        content: its bytes.
    """

    start: int
    end: int
    checksum: str
    entries: Sequence[Entry] | None
    content: bytes


class Log:
    """A log's file.

    Raises:
        UserError: it is missing or empty, or cannot be opened.
    """

    def __init__(self, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        self.path = path
        self._is_torn = False
        flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_APPEND
        try:
            self._file = os.open(path, flags | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o666)
            is_empty = not create and self.size == 0
        except FileNotFoundError:
            raise unreadable(path, "it is missing") from None
        except OSError as error:
            access = "read" if read_only else "written"
            raise UserError(
                f"the record {path} cannot be {access} ({error.strerror}); make it accessible or "
                "free some space and try again"
            ) from error
        if is_empty:
            self.close()
            raise unreadable(path, "it is empty")

    @property
    def size(self) -> int:
        return os.fstat(self._file).st_size

    def close(self) -> None:
        """Close the file; a second time is no error."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def append(self, entries: Sequence[Entry], end: int) -> LogLine:
        """Write a line behind byte ``end``, where the log ends, and return it.

        Raises:
            OSError: it cannot be written; what was written of it is taken back, if it can be.
        """
        if self._is_torn:
            self.cut(end)
        if self.size != end:
            raise OSError(errno.EIO, "its end is not what was written last", str(self.path))
        line = _encoded(_encode(entries).encode())
        rest = line
        try:
            while rest:
                num_written = os.write(self._file, rest)
                if not num_written:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                rest = rest[num_written:]
        except OSError as error:
            self._is_torn = True
            self.cut(end)
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self._is_torn = False
        return LogLine(end, end + len(line), _checksum(line), entries, line)

    def cut(self, end: int) -> None:
        """Remove an incomplete line after byte ``end``; a failure is ignored."""
        with contextlib.suppress(OSError):
            if self.size > end:
                os.ftruncate(self._file, end)

    def checksum_at(self, start: int, end: int) -> str:
        """Return the checksum of the line between two bytes; empty if no line stands there."""
        head = os.pread(self._file, _BODY_AT, start)
        if head[: len(_HEAD)] != _HEAD or os.pread(self._file, 1, end - 1) != b"\n":
            return ""
        return _checksum(head)

    def lines(self, start: int = 0) -> Iterator[LogLine]:
        """Yield the whole lines from byte ``start`` on, damaged ones without entries."""
        with self.path.open("rb") as file:
            file.seek(start)
            for content in file:
                if not content.endswith(b"\n"):
                    return
                end = start + len(content)
                yield _line(start, end, content)
                start = end


def _line(start: int, end: int, content: bytes) -> LogLine:
    body = content[_BODY_AT:-2]
    is_whole = content == _encoded(body)
    return LogLine(start, end, _checksum(content), json.loads(body) if is_whole else None, content)


def _checksum(content: bytes) -> str:
    return content[len(_HEAD) : len(_HEAD) + 8].decode(errors="replace")


def _encoded(body: bytes) -> bytes:
    return b"%b%08x%b%b}\n" % (_HEAD, zlib.crc32(body), _MIDDLE, body)


def unreadable(path: Path, why: str) -> UserError:
    return UserError(f"the record {path} cannot be read ({why}; restore it from a backup)")
