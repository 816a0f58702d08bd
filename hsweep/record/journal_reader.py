"""Reading a study's record; every row is held against its checksum."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError
from hsweep.record.changes import TRIAL_COLUMNS
from hsweep.record.journal_file import (
    ADDED_IN_2,
    REMARKED,
    JournalFile,
    columns,
    damaged,
    unreadable,
)
from hsweep.record.journal_rows import LogRow, TrialRow
from hsweep.record.text_copy import LOG_COLUMNS, log_checksum, row_checksum

LAST_CHARACTER: Final = "\U0010ffff"
"""Sorts behind every other, so that what begins with a prefix is a range of the index."""

_KEYS_AT_ONCE: Final = 500
"""SQLite takes a limited number of values in one statement."""


class JournalReader:
    """What an open journal says.

    Args:
        path: of the journal, for messages.
        file: the open file.
    """

    def __init__(self, path: Path, file: JournalFile) -> None:
        self._path = path
        self._file = file
        self._connection = file.connection

    def _columns(self, table: str = "trials") -> set[str]:
        return columns(self._connection, table)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            if isinstance(error, UserError):
                raise
            raise unreadable(self._path, error) from error

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all that is read within be of one instant, whatever is recorded meanwhile."""
        with self._readable():
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def meta(self, name: str) -> str | None:
        """Return a value of the study as a whole, None if it was never set."""
        with self._readable():
            row = self._connection.execute(
                "SELECT value FROM meta WHERE name = ?", (name,)
            ).fetchone()
        return None if row is None else str(row[0])

    def metas(self, prefix: str) -> dict[str, str]:
        """Return the values whose names begin with ``prefix``, by the rest of the name."""
        with self._readable():
            rows = self._connection.execute(
                "SELECT substr(name, ?), value FROM meta WHERE name >= ? AND name < ?",
                (len(prefix) + 1, prefix, prefix + LAST_CHARACTER),
            ).fetchall()
        return {str(name): str(value) for name, value in rows}

    def data_wait_share(self) -> float | None:
        """Return the share of all training time that trials waited for data.

        None before the first report, or if no time was measured.
        """
        with self._readable():
            row = self._connection.execute(
                "SELECT SUM(json_extract(payload, '$.data_seconds')),"
                " SUM(json_extract(payload, '$.train_seconds'))"
                " FROM log JOIN trials ON log.key = trials.key AND log.unit = trials.unit"
                " WHERE log.kind = 'report'"
            ).fetchone()
        waited, trained = row
        return waited / trained if trained else None

    def trials(self, *, orphaned: bool = False) -> list[TrialRow]:
        """Return the study's trials in the order of the plan.

        Args:
            orphaned: also those that are no longer part of it.
        """
        with self._readable():
            is_known = "orphaned" in self._columns()
            where = "" if orphaned or not is_known else "WHERE orphaned = ''"
            return self._trials(where, ())

    def trials_of(self, keys: Iterable[str]) -> dict[str, TrialRow]:
        """Return the trials with these keys, orphaned ones included, by key."""
        wanted = list(dict.fromkeys(keys))
        found: dict[str, TrialRow] = {}
        for first in range(0, len(wanted), _KEYS_AT_ONCE):
            some = wanted[first : first + _KEYS_AT_ONCE]
            with self._readable():
                rows = self._trials(f"WHERE key IN ({', '.join('?' * len(some))})", some)
            found.update((row.key, row) for row in rows)
        return found

    def _trials(self, where: str, values: Sequence[str]) -> list[TrialRow]:
        present = self._columns()
        chosen = [
            name if name in present or name not in ADDED_IN_2 else f"'' AS {name}"
            for name in (*TRIAL_COLUMNS, "crc")
        ]
        rows = self._connection.execute(
            f"SELECT {', '.join(chosen)} FROM trials {where} ORDER BY ordinal, rowid", values
        ).fetchall()
        return [self._trial_row(row) for row in rows]

    def _trial_row(self, row: tuple[Any, ...]) -> TrialRow:
        *plain, checksum = row
        if checksum not in (None, "") and checksum != row_checksum(plain):
            raise damaged(self._path, f"the row of trial {plain[0]!r} has another checksum")
        key, ordinal, point, replicate, stratum, budget, counts, parts, status, *state = plain
        reason, attempt, unit, value, seconds, failures, alone, orphaned, reused, continues = state
        return TrialRow(
            key, ordinal, json.loads(point), replicate, stratum, budget, json.loads(counts),
            TrialStatus(status), reason, attempt, unit, value, seconds, int(failures or 0),
            bool(alone), orphaned, reused, continues, json.loads(parts or "{}"),
        )  # fmt: skip

    def finished_keys(self) -> dict[str, str]:
        """Return the keys of all trials that ran to their end, orphaned ones included, each with
        the study that trained it (empty: this one)."""
        with self._readable():
            trained_by = "reused_from" if "reused_from" in self._columns() else "''"
            rows = self._connection.execute(
                f"SELECT key, {trained_by} FROM trials WHERE status = ?", (TrialStatus.FINISHED,)
            ).fetchall()
        return {str(key): str(study) for key, study in rows}

    def status_counts(self) -> dict[TrialStatus, int]:
        """Return how many of the study's trials stand where; every status has an entry."""
        counts = Counter(row.status for row in self.trials())
        return {status: counts[status] for status in TrialStatus}

    def reports(self, key: str | None = None) -> Iterator[LogRow]:
        """Yield the reports of one trial, or of all, in the order they were recorded."""
        where, values = ("", ()) if key is None else (" AND key = ?", (key,))
        yield from self._select(f"kind = 'report'{where}", values)

    def last_report(self, key: str, *, before: int) -> LogRow | None:
        """Return the newest report of a trial among the entries before entry ``before``."""
        where = "kind = 'report' AND key = ? AND seq < ?"
        return next(self._select(where, (key, before), 1, newest_first=True), None)

    def remarked_reports(self) -> Iterator[LogRow]:
        """Yield the reports that hold more than numbers: a note, or a batch computed in parts."""
        yield from self._select(REMARKED, ())

    def log(self) -> Iterator[LogRow]:
        """Yield every entry in the order it was recorded."""
        yield from self._select("seq > ?", (0,))

    def log_after(self, seq: int, limit: int) -> list[LogRow]:
        """Return at most ``limit`` entries that follow entry ``seq``."""
        return list(self._select("seq > ?", (seq,), limit))

    def log_checksums(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the checksum of every entry in the order it was recorded."""
        for row in self._rows("seq > ?", (0,)):
            key, *entry, checksum = row
            if checksum is None:
                checksum = log_checksum(key, self._log_row(row).columns())
            elif checksum != log_checksum(key, tuple(entry)):
                self._log_row(row)
            yield entry[0], checksum

    def _select(
        self,
        where: str,
        values: tuple[object, ...],
        limit: int = -1,
        *,
        newest_first: bool = False,
    ) -> Iterator[LogRow]:
        for row in self._rows(where, values, limit, newest_first=newest_first):
            yield self._log_row(row)

    def _rows(
        self,
        where: str,
        values: tuple[object, ...],
        limit: int = -1,
        *,
        newest_first: bool = False,
    ) -> Iterator[tuple[Any, ...]]:
        with self._readable():
            checksum = "crc" if "crc" in self._columns("log") else "NULL"
            rows = self._connection.execute(
                f"SELECT key, {', '.join(LOG_COLUMNS)}, {checksum} FROM log WHERE {where}"
                f" ORDER BY seq {'DESC' if newest_first else 'ASC'} LIMIT ?",
                (*values, limit),
            )
        while True:
            with self._readable():
                row = rows.fetchone()
            if row is None:
                return
            yield row

    def _log_row(self, row: tuple[Any, ...]) -> LogRow:
        key, *entry, checksum = row
        seq, time_, attempt, kind, unit, payload = entry
        if checksum is not None and checksum != log_checksum(key, tuple(entry)):
            raise damaged(self._path, f"entry {seq} of the log has another checksum")
        with self._readable():
            return LogRow(seq, time_, key, attempt, kind, unit, json.loads(payload))

    def check(self) -> str:
        """Return what is wrong with the file as a whole; empty if nothing is."""
        with self._readable():
            found = self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        return "" if found == "ok" else str(found)

    def last_seq(self) -> int:
        """Return the number of the newest log entry, 0 if there is none."""
        return self._number("SELECT COALESCE(MAX(seq), 0) FROM log")

    def count_after(self, seq: int) -> int:
        """Return how many entries follow entry ``seq``; the numbers may have gaps."""
        return self._number("SELECT COUNT(*) FROM log WHERE seq > ?", seq)

    def cursor(self, name: str) -> int:
        """Return how far the reader called ``name`` has come in the log (0: nowhere yet)."""
        return self._number("SELECT COALESCE(MAX(seq), 0) FROM cursors WHERE name = ?", name)

    def _number(self, query: str, *values: object) -> int:
        with self._readable():
            return int(self._connection.execute(query, values).fetchone()[0])
