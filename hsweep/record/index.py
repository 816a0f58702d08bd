"""The index of a study's log: an SQLite file built from the log, for quick answers.

It remembers how far of the log it holds. What it lacks is added when it is opened; where it is
missing, damaged, of another log or of other tables it is built again. Nothing is ever read back
from it into the log.

Write-ahead logging lets other processes read while a study runs. It takes two files beside the
database, which even a reader makes; where none can be made (read-only storage, the folder of
someone else) a reader builds an index of its own in a temporary folder.
"""

import contextlib
import sqlite3
import tempfile
from pathlib import Path
from typing import Final

from hsweep.files import replacing, set_aside
from hsweep.record.log import Line, Log, unreadable
from hsweep.record.schema import LATER_INDEXES, TABLES, VERSION, apply
from hsweep.terminal import doing

DAMAGED_META: Final = "damaged:"
"""Begins the names under which it is on record that a line of the log was found damaged."""

_BUSY_SECONDS: Final = 30
_CHECKED_BYTES: Final = 4_000_000
"""A file up to this size is checked when it is opened; a larger one would take too long."""
_MOST_NAMED: Final = 5
_ENTRY_KINDS: Final = ("report", "status", "trial", "meta")
_AHEAD: Final = "holds more than the log does, which has lost its end"
_MISSING: Final = "is missing"
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NO_ACCESS: Final = (
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PERM,
)  # fmt: skip


class Index:
    """An open index that holds what its log holds.

    Args:
        read_only: open it for reading, also beside a running driver.
        rebuild: build it again, whatever is there.

    Raises:
        UserError: the log has no whole line.
        OSError, sqlite3.Error: it cannot be read or written.

    Attributes:
        lost: what damaged lines of the log held, by their first byte, if their loss is not on
            record.
    """

    def __init__(
        self, path: Path, log: Log, *, read_only: bool = False, rebuild: bool = False
    ) -> None:
        self.lost: dict[int, str] = {}
        self.path = path
        self._log = log
        self._end = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.connection = (
            self._opened_to_read() if read_only else self._opened_to_write(rebuild=rebuild)
        )

    def close(self) -> None:
        self.connection.close()
        if self._folder is not None:
            self._folder.cleanup()

    def remove(self) -> None:
        """Remove a damaged database: the next to open it builds it again."""
        with contextlib.suppress(OSError):
            _remove(self.path)

    def begin(self) -> int:
        """Begin to write, alone among all processes, and return where the log ends.

        What others have added to the log meanwhile is added here first.
        """
        self.connection.execute("BEGIN IMMEDIATE")
        end = self._log.size
        if end != self._end:
            try:
                self._catch_up()
            except BaseException:
                self._roll_back()
                raise
            end = self._log.size
        return end

    def commit(self, last: Line | None = None) -> None:
        """End what `begin` began; ``last`` is the last line of the log if one was added."""
        if last is not None:
            _hold(self.connection, last)
        self.connection.execute("COMMIT")
        if last is not None:
            self._end = last.end

    def rollback(self, end: int) -> None:
        """Take back what was done since `begin`, which said that the log ends at byte ``end``."""
        self._end = -1
        # A full disk has SQLite end the transaction by itself; or all of it is done.
        with contextlib.suppress(sqlite3.Error):
            if self.connection.in_transaction or _held(self.connection)[1] <= end:
                self._log.cut(end)
        self._roll_back()

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _opened_to_write(
        self, *, rebuild: bool = False, wait: float = _BUSY_SECONDS
    ) -> sqlite3.Connection:
        connection, fault = _opened(self.path, self._log, "mode=rw", wait)
        if connection is None or rebuild:
            if connection is not None:
                connection.close()
            elif self._log.size:
                if all(line.entries is None for line in self._log.lines()):
                    raise unreadable(self._log.path, "it holds no whole line")
                # What the log has lost nothing else holds.
                kept = f", kept as {set_aside(self.path, 'old')}" if fault == _AHEAD else ""
                doing(f"{self.path} {fault}{kept}: building it from {self._log.path.name}")
            self._build(self.path)
            connection = _connect(self.path, "mode=rw", wait)
        self.connection = connection
        try:
            connection.execute("PRAGMA synchronous=NORMAL")
            self.begin()
            self.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    def _opened_to_read(self) -> sqlite3.Connection:
        found = self._found()
        if found is not None and _held(found)[1] == self._log.size:
            return found
        try:
            connection = self._opened_to_write(wait=0.0)
            connection.execute("PRAGMA query_only=ON")
        except (OSError, sqlite3.OperationalError) as error:
            if found is not None and _code(error) == sqlite3.SQLITE_BUSY:
                # Another process is writing what it lacks.
                return found
            if isinstance(error, sqlite3.Error) and _code(error) not in _NO_ACCESS:
                raise
            connection = self._built_elsewhere()
        if found is not None:
            found.close()
        return connection

    def _built_elsewhere(self) -> sqlite3.Connection:
        self._folder = tempfile.TemporaryDirectory(prefix="hsweep-", ignore_cleanup_errors=True)
        own = Path(self._folder.name) / self.path.name
        self._build(own)
        return _connect(own, "mode=ro")

    def _found(self) -> sqlite3.Connection | None:
        """Return the index as it lies there, None if it cannot be read or is not of this log."""
        ways = ["mode=ro"]
        wal = self.path.with_name(f"{self.path.name}-wal")
        if not wal.exists() or wal.stat().st_size == 0:
            ways.append("mode=ro&immutable=1")
        for way in ways:
            with contextlib.suppress(sqlite3.Error):
                return _opened(self.path, self._log, way)[0]
        return None

    def _build(self, path: Path) -> None:
        """Build the index from all of the log, in a file that takes the place of any other."""
        with replacing(path) as draft:
            connection = _connect(draft, "mode=rwc")
            try:
                connection.execute("PRAGMA journal_mode=MEMORY")
                connection.execute("PRAGMA synchronous=OFF")
                connection.execute("PRAGMA cache_size=-200000")
                connection.execute("BEGIN")
                for statement in TABLES:
                    connection.execute(statement)
                self.connection = connection
                self._catch_up()
                for statement in LATER_INDEXES:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={VERSION}")
                connection.execute("COMMIT")
                connection.execute("PRAGMA journal_mode=WAL")
            finally:
                connection.close()
            _remove(path)

    def _catch_up(self) -> None:
        """Add what the index lacks of the log, and end a line that a kill has torn."""
        _, self._end, _ = _held(self.connection)
        last: Line | None = None
        damaged: list[Line] = []
        for last in self._log.lines(self._end):
            if last.entries is None:
                damaged.append(last)
            for number, entry in enumerate(last.entries or ()):
                apply(self.connection, entry, last.start + 1 + number)
        if last is not None:
            _hold(self.connection, last)
            self._end = last.end
        self._log.cut(self._end)
        self.lost |= self._losses(damaged)

    def _losses(self, damaged: list[Line]) -> dict[int, str]:
        if not damaged:
            return {}
        noted = {name for (name,) in self.connection.execute("SELECT name FROM meta")}
        keys = [key for (key,) in self.connection.execute("SELECT key FROM trials")]
        return {
            line.start: _loss(self._log.path, line, keys)
            for line in damaged
            if f"{DAMAGED_META}{line.start}" not in noted
        }


def _held(connection: sqlite3.Connection) -> tuple[int, int, str]:
    """Return first byte, end and checksum of the last line of the log that an index holds."""
    start, end, checksum = connection.execute("SELECT start, end, checksum FROM held").fetchone()
    return start, end, checksum


def _hold(connection: sqlite3.Connection, last: Line) -> None:
    held = (last.start, last.end, last.checksum)
    connection.execute("UPDATE held SET start = ?, end = ?, checksum = ?", held)


def _opened(
    path: Path, log: Log, options: str, wait: float = _BUSY_SECONDS
) -> tuple[sqlite3.Connection | None, str]:
    """Return a connection to an index of this log, or none and what is wrong with it; raise what
    SQLite does where it cannot be read here."""
    if not path.exists():
        return None, _MISSING
    connection = _connect(path, options, wait)
    try:
        fault = _fault(connection, log, path.stat().st_size)
        if not fault:
            return connection, ""
    except (sqlite3.DatabaseError, TypeError, ValueError) as error:
        if not is_damage(error) and _code(error) != sqlite3.SQLITE_ERROR:
            connection.close()
            raise
        fault = f"is damaged ({error})"
    connection.close()
    return None, fault


def _fault(connection: sqlite3.Connection, log: Log, size: int) -> str:
    if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
        return "is of another version of hsweep"
    if size <= _CHECKED_BYTES:
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            return f"is damaged ({found})"
    # Before the log's size: a driver may be adding to both.
    start, end, checksum = _held(connection)
    if end > log.size:
        return _AHEAD
    if end and log.checksum_at(start, end) != checksum:
        return "is of another log"
    return ""


def _loss(path: Path, line: Line, keys: list[str]) -> str:
    named = [key for key in keys if key.encode() in line.content]
    of = f" of trial {', '.join(named[:_MOST_NAMED])}" if named else ""
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    kinds = [kind for kind in _ENTRY_KINDS if kind.encode() in line.content]
    what = f" (what can be read of it: {', '.join(kinds)})" if kinds else ""
    return (
        f"{path}: the line at byte {line.start} is damaged and what it held{of}{more} is "
        f"lost{what}; the study goes on from what is left"
    )


def _connect(path: Path, options: str, wait: float = _BUSY_SECONDS) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        isolation_level=None,
        timeout=wait,
        check_same_thread=False,
    )


def _remove(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)) & 0xFF


def is_damage(error: Exception) -> bool:
    """Whether an error in reading an index means that the file is damaged."""
    return not isinstance(error, sqlite3.Error) or _code(error) in _DAMAGED
