"""The journal's SQLite file: its schema, how it is opened where, and what is said of a damaged one.

Write-ahead logging needs two files beside the database that even a reader makes. Where none can be
made (read-only storage, a folder of someone else's) the file is read as one that nobody changes,
or, if a writer left its log behind, from a copy in a temporary folder.
"""

import contextlib
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hsweep.command_line import command
from hsweep.errors import UserError
from hsweep.record.text_copy import copy_of

SCHEMA_VERSION: Final = 2
REMARKED: Final = (
    "kind = 'report' AND (instr(payload, '\"micro_batch\"') OR instr(payload, '\"note\"'))"
)
"""Which log entries are reports that hold more than numbers, as SQL."""
_SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trials (
    key TEXT PRIMARY KEY,
    ordinal INTEGER NOT NULL,
    point TEXT NOT NULL,
    replicate INTEGER NOT NULL,
    stratum TEXT NOT NULL,
    budget INTEGER NOT NULL,
    counts TEXT NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    attempt INTEGER NOT NULL DEFAULT 0,
    unit INTEGER NOT NULL DEFAULT 0,
    value REAL,
    wall_seconds REAL NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    alone INTEGER NOT NULL DEFAULT 0,
    orphaned TEXT NOT NULL DEFAULT '',
    reused_from TEXT NOT NULL DEFAULT '',
    continues TEXT NOT NULL DEFAULT '',
    parts TEXT NOT NULL DEFAULT '{{}}',
    crc INTEGER,
    train_seconds REAL,
    data_seconds REAL
);
CREATE INDEX IF NOT EXISTS trials_in_order ON trials (ordinal);
CREATE TABLE IF NOT EXISTS log (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    time REAL NOT NULL,
    key TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL,
    unit INTEGER,
    payload TEXT NOT NULL,
    crc INTEGER
);
CREATE UNIQUE INDEX IF NOT EXISTS one_report_a_unit ON log (key, unit) WHERE kind = 'report';
CREATE INDEX IF NOT EXISTS log_by_key ON log (key, seq);
CREATE INDEX IF NOT EXISTS remarked ON log (seq) WHERE {REMARKED};
CREATE TABLE IF NOT EXISTS cursors (name TEXT PRIMARY KEY, seq INTEGER NOT NULL);
"""
ADDED_IN_2: Final = {
    "failures": "INTEGER NOT NULL DEFAULT 0",
    "alone": "INTEGER NOT NULL DEFAULT 0",
    "orphaned": "TEXT NOT NULL DEFAULT ''",
    "reused_from": "TEXT NOT NULL DEFAULT ''",
    "continues": "TEXT NOT NULL DEFAULT ''",
    "parts": "TEXT NOT NULL DEFAULT '{}'",
    "crc": "INTEGER",
}
"""Columns of ``trials`` that journals of version 1 lack, and how they are added."""
_LOG_ADDED_IN_2: Final = {"crc": "INTEGER"}
TIMES: Final = {"train_seconds": "REAL", "data_seconds": "REAL"}
"""Columns of ``trials`` for a quick sum, repeated from each trial's last report; null where they
are not known. They are derived, so they may be missing and no checksum covers them."""

_BUSY_SECONDS: Final = 30
_DAMAGED: Final = {
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_IOERR,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JournalFile:
    """An open file.

    Attributes:
        connection: to it.
        copy: the temporary folder it is read from; None for where it lies.
    """

    connection: sqlite3.Connection
    copy: Path | None = None

    def close(self) -> None:
        """Close the file; a temporary copy is removed."""
        self.connection.close()
        if self.copy is not None:
            shutil.rmtree(self.copy, ignore_errors=True)


def open_journal_file(path: Path, *, create: bool, read_only: bool) -> JournalFile:
    """Open a journal's file.

    Raises:
        UserError: the file is missing, is no journal, is of a later version, or cannot be written.
    """
    if not create and not path.exists():
        raise damaged(path, "it is missing")
    if not create and path.stat().st_size == 0:
        raise damaged(path, "it is empty")
    try:
        if not create:
            with path.open("rb"):
                pass
        file = _for_reading(path) if read_only else _for_writing(path, create=create)
    except OSError as error:
        raise UserError(f"the journal {path} cannot be read ({error.strerror})") from error
    except sqlite3.DatabaseError as error:
        if not read_only and _is_for_want_of_files(error):
            raise UserError(
                f"the journal {path} cannot be written ({error}); make its folder writable or free "
                "some space and try again"
            ) from error
        raise unreadable(path, error) from error
    return file


def _connect(path: Path, options: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        isolation_level=None,
        timeout=_BUSY_SECONDS,
        check_same_thread=False,
    )


def _for_writing(path: Path, *, create: bool) -> JournalFile:
    connection = _connect(path, f"mode={'rwc' if create else 'rw'}")
    try:
        # Asked before anything is written: another file must stay as it is.
        version = None if create else _version(connection)
        _refuse_later(path, version)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.executescript(_SCHEMA)
        _upgrade(connection)
    except BaseException:
        connection.close()
        raise
    return JournalFile(connection)


def _upgrade(connection: sqlite3.Connection) -> None:
    lacking = [
        f"ALTER TABLE {table} ADD COLUMN {name} {kind}"
        for table, added in (("trials", {**ADDED_IN_2, **TIMES}), ("log", _LOG_ADDED_IN_2))
        for name, kind in added.items()
        if name not in columns(connection, table)
    ]
    if not lacking and _version(connection) == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in lacking:
            connection.execute(statement)
        connection.execute(
            "INSERT OR REPLACE INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),)
        )
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _for_reading(path: Path) -> JournalFile:
    file: JournalFile | None = None
    for open_it in (_beside_a_writer, _where_nothing_can_be_made):
        try:
            file = open_it(path)
            _refuse_later(path, _version(file.connection))
            return file
        except BaseException as error:
            if file is not None:
                file.close()
            is_last = open_it is _where_nothing_can_be_made
            if is_last or not _is_for_want_of_files(error):
                raise
            file = None
    raise AssertionError("one of them returns or raises")


def _is_for_want_of_files(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and _code(error) in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
    )


def _beside_a_writer(path: Path) -> JournalFile:
    return JournalFile(_connect(path, "mode=ro"))


def _where_nothing_can_be_made(path: Path) -> JournalFile:
    log = path.with_name(f"{path.name}-wal")
    if not log.exists() or log.stat().st_size == 0:
        return JournalFile(_connect(path, "mode=ro&immutable=1"))
    folder = Path(tempfile.mkdtemp(prefix="hsweep-"))
    try:
        for each in (path, log):
            shutil.copyfile(each, folder / each.name)
        return JournalFile(_connect(folder / path.name, "mode=rw"), folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _version(connection: sqlite3.Connection) -> int | None:
    row = connection.execute("SELECT value FROM meta WHERE name = 'schema_version'").fetchone()
    if row is None:
        return None
    try:
        return int(row[0])
    except (TypeError, ValueError):
        raise sqlite3.DatabaseError(f"its schema version is {row[0]!r}") from None


def _refuse_later(path: Path, version: int | None) -> None:
    if version is not None and version > SCHEMA_VERSION:
        raise UserError(
            f"{path} was written by a later version of hsweep (schema {version}, this one "
            f"reads up to {SCHEMA_VERSION}); use that version"
        )


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns."""
    return {str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")}


def _code(error: sqlite3.Error) -> int:
    """Return the error's primary code; what was raised here counts as damage."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)) & 0xFF


def unreadable(path: Path, error: Exception) -> UserError:
    """Return what to say of a journal that cannot be read, and what to do about it."""
    if isinstance(error, sqlite3.Error) and _code(error) not in _DAMAGED:
        return UserError(f"the journal {path} cannot be read ({error})")
    return damaged(path, str(error))


class DamagedJournalError(UserError):
    """A journal's file is missing or not what was written.

    Attributes:
        what: what is wrong with it.
    """

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what


def damaged(path: Path, what: str) -> DamagedJournalError:
    """Return what to say of a damaged journal, and what to do about it."""
    copy = copy_of(path)
    if copy.exists():
        remedy = f"`{recover_line(path.parent)}` rebuilds it from its copy {copy.name}"
    else:
        remedy = f"it has no copy {copy.name} to rebuild it from: restore either from a backup"
    return DamagedJournalError(f"the journal {path} cannot be read ({what}); {remedy}", what)


def recover_line(study: Path) -> str:
    """Return the command that rebuilds a study, given its folder."""
    return command("recover", study.name, home=study.parent.parent)
