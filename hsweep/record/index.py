"""The index of a study's log: an SQLite file built from the log, for quick answers.

Readers of a study build it and add the new lines of the log; the writer of the log does not need
it. It remembers up to which byte it holds the log. Where it is missing, damaged, of another log or
has other tables, it is built again.

It lies on the machine's own disk, whatever file system holds the study. Write-ahead logging lets
several processes of the machine read while one of them adds.
"""

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Final

from filelock import FileLock

from hsweep.design.trial_status import TrialStatus
from hsweep.files import replacing, set_aside
from hsweep.record.log import Log, LogLine
from hsweep.record.rows import TRIAL_COLUMNS, StudyState, TrialRow, damage_text, key_of_entry
from hsweep.terminal import print_step, warn

JSON_COLUMNS: Final = ("point", "counts", "parts", "last")
NOTED: Final = "kind = 'report' AND instr(payload, '\"note\"')"
"""Which rows of ``log`` are reports with a note, as SQL."""

_NUMBERS: Final = ("ordinal", "replicate", "budget", "attempt", "unit", "failures", "exclusive")
_TIMES: Final = ("wall_seconds", "train_seconds", "data_seconds")
"""Of the last report, to be added up."""
_TABLES: Final = (
    "CREATE TABLE position (segment INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,"
    " checksum TEXT NOT NULL)",
    "INSERT INTO position VALUES (1, 0, 0, '')",
    "CREATE TABLE indexed (log TEXT NOT NULL)",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE trials (key TEXT PRIMARY KEY, "
    + ", ".join(
        f"{name} {'INTEGER' if name in _NUMBERS else 'TEXT'} NOT NULL" for name in TRIAL_COLUMNS[1:]
    )
    + f", {', '.join(f'{name} REAL' for name in _TIMES)})",
    "CREATE TABLE log (seq INTEGER PRIMARY KEY, time REAL NOT NULL, key TEXT NOT NULL,"
    " attempt INTEGER NOT NULL, kind TEXT NOT NULL, unit INTEGER, payload TEXT NOT NULL)",
    "CREATE INDEX log_by_key ON log (key, seq)",
    "CREATE INDEX trials_in_order ON trials (ordinal)",
    f"CREATE INDEX noted ON log (seq) WHERE {NOTED}",
)
_VERSION: Final = zlib.crc32("".join(_TABLES).encode()) & 0x7FFFFFFF
"""An index with other tables has another number."""

_PUT_TRIAL: Final = (
    f"INSERT INTO trials VALUES ({', '.join('?' * len((*TRIAL_COLUMNS, *_TIMES)))})"
    " ON CONFLICT (key) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in (*TRIAL_COLUMNS[1:], *_TIMES))
)
SELECT_TRIALS: Final = f"SELECT {', '.join(TRIAL_COLUMNS)} FROM trials"
_PUT_ENTRY: Final = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)"
_BUSY_SECONDS: Final = 30
_LINES_AT_ONCE: Final = 5_000
_CHECKED_BYTES: Final = 4_000_000
"""A file up to this size is checked when it is opened; a larger one would take too long."""
_AHEAD: Final = "holds more than the log does"
_MISSING: Final = "is missing"
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


def open_index(path: Path, log: Log) -> sqlite3.Connection:
    """Open the index at a path, which is built where it cannot be used.

    Raises:
        UserError: the log has no whole line.
        OSError, sqlite3.Error: the index cannot be read or built.
    """
    with _alone_at(path):
        if fault := _fault(path, log):
            log.refuse_lost()
            # What the log has lost nothing else holds.
            aside = f", kept as {set_aside(path, 'old')}" if fault == _AHEAD else ""
            if fault != _MISSING:
                print_step(f"the index {path} {fault}{aside}: building it from {log.folder}")
            _build(path, log)
        connection = _connect(path, "mode=rw")
        connection.execute("PRAGMA synchronous=NORMAL")
        _position(connection)  # all its files are open from here on, whoever removes their names
    return connection


def catch_up(connection: sqlite3.Connection, log: Log) -> int:
    """Add the new lines of a log to its index, which several processes may do at once; return how
    many bytes of the log the index holds."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        return _add_lines(connection, log)


def is_of_log(connection: sqlite3.Connection, log: Log) -> bool:
    """Whether an index holds nothing but what counts in a log: not what that has lost, or what a
    process wrote from which another took the study over."""
    position = _position(connection)
    return not position[-1] or log.has_line(*position)


def remove_index(path: Path) -> None:
    """Remove an index, which may be damaged: the next to read the study builds it again."""
    with _alone_at(path):
        _remove_files(path)


def is_damage(error: Exception) -> bool:
    """Whether an error in reading an index means that the file is damaged."""
    code = int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT))
    return not isinstance(error, sqlite3.Error) or code & 0xFF in _DAMAGED


def rows_from(columns: dict[str, list[Any]]) -> list[TrialRow]:
    """Return trials from their stored columns."""
    columns = {**columns, **{name: parsed(columns[name]) for name in JSON_COLUMNS}}
    rows = [TrialRow(*row) for row in zip(*columns.values(), strict=True)]
    for row in rows:
        row.status, row.exclusive = TrialStatus(row.status), bool(row.exclusive)
    return rows


def parsed(texts: Iterable[str]) -> list[Any]:
    """Return the values of JSON texts; equal texts, such as those of replicates, share one."""
    texts = list(texts)
    values = {text: json.loads(text) for text in set(texts)}
    return [values[text] for text in texts]


def _build(path: Path, log: Log) -> None:
    """Build an index from all of a log, in a file that takes the place of any other."""
    with replacing(path) as draft:
        connection = _connect(draft, "mode=rwc")
        try:
            connection.execute("PRAGMA journal_mode=MEMORY")
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA cache_size=-200000")
            with connection:
                connection.execute("BEGIN")
                for statement in _TABLES:
                    connection.execute(statement)
                connection.execute("INSERT INTO indexed VALUES (?)", (log.id,))
                _add_lines(connection, log)
                connection.execute(f"PRAGMA user_version={_VERSION}")
            connection.execute("PRAGMA journal_mode=WAL")
        finally:
            connection.close()
        _remove_files(path)


def _alone_at(path: Path) -> FileLock:
    """Return the lock of those who look for an index, build it or remove it: one thread of one
    process at a time."""
    return FileLock(path.with_suffix(".lock"))


def _remove_files(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _add_lines(connection: sqlite3.Connection, log: Log) -> int:
    """Add the lines of a log that an index lacks; return where the last one ends."""
    *_, end, _ = _position(connection)
    state, last = StudyState(), None
    damaged: list[LogLine] = []
    lines = log.lines(end)
    while batch := list(islice(lines, _LINES_AT_ONCE)):
        numbered = [
            (line.start + 1 + number, entry)
            for line in batch
            for number, entry in enumerate(line.entries or ())
        ]
        unknown = {key_of_entry(entry) for _, entry in numbered} - state.rows.keys()
        state.rows |= {row.key: row for row in _stored(connection, unknown)}
        added = []
        for seq, entry in numbered:
            if "meta" in entry:
                _set_meta(connection, entry["meta"], entry["value"])
            elif state.apply(entry) and "payload" in entry:
                kind = "report" if "report" in entry else "status"
                payload = json.dumps(entry["payload"])
                columns = (entry["time"], entry[kind], entry["attempt"], kind, entry.get("unit"))
                added.append((seq, *columns, payload))
        connection.executemany(_PUT_ENTRY, added)
        damaged += [line for line in batch if line.entries is None]
        last = batch[-1]
    if last is None:
        return end
    connection.executemany(_PUT_TRIAL, map(_to_store, state.rows.values()))
    connection.execute(
        "UPDATE position SET segment = ?, start = ?, end = ?, checksum = ?",
        (last.segment, last.start, last.end, last.checksum),
    )
    if damaged:
        keys = [key for (key,) in connection.execute("SELECT key FROM trials")]
        for line in damaged:
            warn(damage_text(log.folder, line, keys))
    return last.end


def _stored(connection: sqlite3.Connection, keys: Iterable[str]) -> list[TrialRow]:
    query = f"{SELECT_TRIALS} WHERE key IN (SELECT value FROM json_each(?))"
    return rows_from(by_column(connection.execute(query, (json.dumps([*keys]),)).fetchall()))


def by_column(rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Return stored trials column by column."""
    return {name: [row[at] for row in rows] for at, name in enumerate(TRIAL_COLUMNS)}


def _to_store(row: TrialRow) -> tuple[Any, ...]:
    values = ((name, getattr(row, name)) for name in TRIAL_COLUMNS)
    stored = (json.dumps(value) if name in JSON_COLUMNS else value for name, value in values)
    return *stored, *map(row.last.get, _TIMES)


def _set_meta(connection: sqlite3.Connection, name: str, value: str | None) -> None:
    if value is None:
        connection.execute("DELETE FROM meta WHERE name = ?", (name,))
    else:
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def _position(connection: sqlite3.Connection) -> tuple[int, int, int, str]:
    """Return segment, first byte, end and checksum of the last line of the log that an index
    holds."""
    query = "SELECT segment, start, end, checksum FROM position"
    segment, start, end, checksum = connection.execute(query).fetchone()
    return segment, start, end, checksum


def _fault(path: Path, log: Log) -> str:
    """Return why the index at a path cannot be used, empty if it can; sqlite3.Error if the file
    cannot be read here."""
    if not path.exists():
        return _MISSING
    with contextlib.closing(_connect(path, "mode=rw")) as connection:
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                return "is of another version of hsweep"
            if path.stat().st_size <= _CHECKED_BYTES:
                result = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
                if result != "ok":
                    return f"is damaged ({result})"
            if connection.execute("SELECT log FROM indexed").fetchone() != (log.id,):
                return "is of another log"
            return "" if is_of_log(connection, log) else _AHEAD
        except (sqlite3.DatabaseError, TypeError, ValueError) as error:
            if not is_damage(error):
                raise
            return f"is damaged ({error})"


def _connect(path: Path, options: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        isolation_level=None,
        timeout=_BUSY_SECONDS,
        check_same_thread=False,
    )
