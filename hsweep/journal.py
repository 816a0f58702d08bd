"""The study's record: an append-only log in SQLite, written by the driver alone.

The log is the only truth. A report and the status it leads to are one transaction, so a kill at
any instant leaves either both or neither. Write-ahead logging lets other processes read while a
study runs. The ``trials`` table holds what was planned and, for quick answers, where each stands.

Every row carries a checksum, and what is committed is told to a second copy in plain text (see
``hsweep.record_copy``), from which a damaged file is rebuilt.
"""

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hsweep.errors import UserError
from hsweep.journal_file import ADDED_IN_2, columns, damaged, open_journal_file, unreadable
from hsweep.journal_rows import LogRow, TrialRow
from hsweep.record_changes import TRIAL_COLUMNS, Changes, log_checksum
from hsweep.record_copy import LOG_COLUMNS, RecordCopy, copy_of, row_checksum
from hsweep.trial import Report, TrialStatus

__all__ = ["Journal", "LogRow", "TrialRow"]

_TRIAL_VALUES: Final = ", ".join("?" * len(TRIAL_COLUMNS))


class Journal:
    """The record of one study.

    Args:
        path: the SQLite file.
        create: make it if it is missing.
        read_only: open for reading beside a running driver.
        is_copied: tell the second copy of what is written.

    Raises:
        UserError: the file is missing, is no journal, or is of a later version.
    """

    def __init__(
        self, path: Path, *, create: bool = False, read_only: bool = False, is_copied: bool = True
    ) -> None:
        self._path = path
        self._file = open_journal_file(path, create=create, read_only=read_only)
        self._connection = self._file.connection
        self._changes = None if read_only else Changes(self._connection)
        self._copy = RecordCopy(copy_of(path)) if is_copied and not read_only else None

    @property
    def copy_problem(self) -> str:
        """Why the second copy is behind; empty if it is not. What it lacks is added when the study
        is opened again."""
        return self._copy.problem if self._copy is not None else ""

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

    def close(self) -> None:
        """Close the file; what was recorded is already on disk."""
        if self._copy is not None:
            self._copy.close()
        self._file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            lines = self._changes.seal() if self._changes is not None else []
            self._connection.execute("COMMIT")
        except BaseException:
            # A full disk has SQLite end the transaction by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        if self._copy is not None:
            self._copy.append(lines)

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

    def set_meta(self, name: str, value: str) -> None:
        """Set a value of the study as a whole."""
        if self.meta(name) == value:
            return
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def metas(self, prefix: str) -> dict[str, str]:
        """Return the values whose names begin with ``prefix``, by the rest of the name."""
        with self._readable():
            rows = self._connection.execute(
                "SELECT substr(name, ?), value FROM meta WHERE substr(name, 1, ?) = ?",
                (len(prefix) + 1, len(prefix), prefix),
            ).fetchall()
        return {str(name): str(value) for name, value in rows}

    def clear_metas(self, prefix: str) -> None:
        """Forget the values whose names begin with ``prefix``."""
        with self._transaction():
            self._connection.execute(
                "DELETE FROM meta WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)
            )

    def add_trials(self, rows: Iterable[TrialRow]) -> None:
        """Add planned trials; those already there are left as they are."""
        with self._transaction():
            self._connection.executemany(
                "INSERT OR IGNORE INTO trials (key, ordinal, point, replicate, stratum, budget,"
                " counts, status, parts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        row.key,
                        row.ordinal,
                        json.dumps(dict(row.point)),
                        row.replicate,
                        row.stratum,
                        row.budget,
                        json.dumps(dict(row.counts)),
                        TrialStatus.PLANNED,
                        json.dumps(dict(row.parts)),
                    )
                    for row in rows
                ),
            )

    def place_trials(self, rows: Iterable[TrialRow]) -> None:
        """Give recorded trials the place they have in another plan; what became of them stays."""
        with self._transaction():
            self._connection.executemany(
                "UPDATE trials SET ordinal = ?, point = ?, replicate = ?, stratum = ?, counts = ?,"
                " parts = ? WHERE key = ?",
                (
                    (
                        row.ordinal,
                        json.dumps(dict(row.point)),
                        row.replicate,
                        row.stratum,
                        json.dumps(dict(row.counts)),
                        json.dumps(dict(row.parts)),
                        row.key,
                    )
                    for row in rows
                ),
            )

    def begin_attempt(self, key: str) -> int:
        """Mark a trial as running under a new attempt number, and return that number."""
        with self._transaction():
            (attempt,) = self._connection.execute(
                "UPDATE trials SET attempt = attempt + 1, status = ?, reason = '' WHERE key = ?"
                " RETURNING attempt",
                (TrialStatus.RUNNING, key),
            ).fetchone()
            self._log_status(key, attempt, TrialStatus.RUNNING, "")
        return int(attempt)

    def record(
        self,
        key: str,
        attempt: int,
        report: Report,
        value: float | None,
        status: TrialStatus = TrialStatus.RUNNING,
        reason: str = "",
    ) -> bool:
        """Record a report and the status it leads to, in one transaction.

        A unit that is already recorded keeps its first report: on a resumed trial the second is
        the same training again.

        Returns:
            Whether the report was new.
        """
        payload = {
            "step": report.step,
            "metrics": dict(report.metrics),
            "wall_seconds": report.wall_seconds,
            "train_seconds": report.train_seconds,
            "data_seconds": report.data_seconds,
            "latency_seconds": report.latency_seconds,
            **({"micro_batch": report.micro_batch} if report.micro_batch is not None else {}),
            **({"note": report.note} if report.note else {}),
        }
        with self._transaction():
            cursor = self._connection.execute(
                "INSERT OR IGNORE INTO log (time, key, attempt, kind, unit, payload)"
                " VALUES (?, ?, ?, 'report', ?, ?)",
                (time.time(), key, attempt, report.unit, json.dumps(payload)),
            )
            is_new = cursor.rowcount > 0
            self._connection.execute(
                "UPDATE trials SET unit = ?, value = ?, wall_seconds = ?"
                " WHERE key = ? AND unit < ?",
                (report.unit, value, report.wall_seconds, key, report.unit),
            )
            if status is not TrialStatus.RUNNING:
                self._set_status(key, attempt, status, reason)
        return is_new

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

    def set_status(self, key: str, attempt: int, status: TrialStatus, reason: str = "") -> None:
        """Record a change of status that no report led to."""
        with self._transaction():
            self._set_status(key, attempt, status, reason)

    def note_failure(self, key: str, attempt: int, max_failures: int, reason: str) -> int:
        """Record that an attempt failed: the trial is planned again, or failed beyond the limit.

        Returns:
            How many attempts of the trial have failed, this one included.
        """
        with self._transaction():
            (failures,) = self._connection.execute(
                "UPDATE trials SET failures = failures + 1 WHERE key = ? RETURNING failures",
                (key,),
            ).fetchone()
            again = failures <= max_failures
            status = TrialStatus.PLANNED if again else TrialStatus.FAILED
            self._set_status(key, attempt, status, reason)
        return int(failures)

    def set_alone(self, key: str, attempt: int, reason: str) -> None:
        """Plan a trial again, to be trained with nothing beside it."""
        with self._transaction():
            self._connection.execute("UPDATE trials SET alone = 1 WHERE key = ?", (key,))
            self._set_status(key, attempt, TrialStatus.PLANNED, reason)

    def set_orphaned(self, keys: Iterable[str], why: str) -> None:
        """Take trials out of the study (or back into it, with an empty ``why``); their status and
        what they reported stay."""
        with self._transaction():
            for key in keys:
                attempt, status, reason = self._connection.execute(
                    "UPDATE trials SET orphaned = ? WHERE key = ?"
                    " RETURNING attempt, status, reason",
                    (why, key),
                ).fetchone()
                # Logged, so that whoever follows the log learns of it.
                self._log_status(key, attempt, TrialStatus(status), reason, orphaned=why)

    def adopt(
        self,
        key: str,
        reports: Iterable[LogRow],
        *,
        status: TrialStatus,
        reason: str = "",
        value: float | None = None,
        reused_from: str = "",
        continues: str = "",
    ) -> None:
        """Give a planned trial that has no report the reports of the same training elsewhere.

        Args:
            key: the trial.
            reports: of the other trial, in their order; they keep their times.
            status: that they lead to.
            reason: why it has that status.
            value: the study's metric in the last of them.
            reused_from: the study that holds the other trial; empty for this one.
            continues: the other trial's key, if its budget is shorter.
        """
        entries = list(reports)
        with self._transaction():
            self._connection.executemany(
                "INSERT OR IGNORE INTO log (time, key, attempt, kind, unit, payload)"
                " VALUES (?, ?, 0, 'report', ?, ?)",
                ((e.time, key, e.unit, json.dumps(dict(e.payload))) for e in entries),
            )
            if entries:
                last = entries[-1]
                self._connection.execute(
                    "UPDATE trials SET unit = ?, value = ?, wall_seconds = ? WHERE key = ?",
                    (last.unit, value, last.payload["wall_seconds"], key),
                )
            self._connection.execute(
                "UPDATE trials SET reused_from = ?, continues = ? WHERE key = ?",
                (reused_from, continues, key),
            )
            self._set_status(key, 0, status, reason)

    def reopen(self, keys: Iterable[str], reason: str) -> None:
        """Plan trials again that had ended; what they reported stays, and failures are forgiven."""
        with self._transaction():
            for key in keys:
                (attempt,) = self._connection.execute(
                    "SELECT attempt FROM trials WHERE key = ?", (key,)
                ).fetchone()
                self._connection.execute(
                    "UPDATE trials SET failures = 0, alone = 0 WHERE key = ?", (key,)
                )
                self._set_status(key, attempt, TrialStatus.PLANNED, reason)

    def _set_status(self, key: str, attempt: int, status: TrialStatus, reason: str) -> None:
        self._connection.execute(
            "UPDATE trials SET status = ?, reason = ? WHERE key = ?", (status, reason, key)
        )
        self._log_status(key, attempt, status, reason)

    def _log_status(
        self,
        key: str,
        attempt: int,
        status: TrialStatus,
        reason: str,
        orphaned: str | None = None,
    ) -> None:
        payload = {"status": status, "reason": reason}
        if orphaned is not None:
            payload["orphaned"] = orphaned
        self._connection.execute(
            "INSERT INTO log (time, key, attempt, kind, unit, payload)"
            " VALUES (?, ?, ?, 'status', NULL, ?)",
            (time.time(), key, attempt, json.dumps(payload)),
        )

    def trials(self, *, orphaned: bool = False) -> list[TrialRow]:
        """Return the study's trials in the order of the plan.

        Args:
            orphaned: also those that are no longer part of it.
        """
        with self._readable():
            present = self._columns()
            chosen = [
                name if name in present or name not in ADDED_IN_2 else f"'' AS {name}"
                for name in (*TRIAL_COLUMNS, "crc")
            ]
            where = "" if orphaned or "orphaned" not in present else "WHERE orphaned = ''"
            rows = self._connection.execute(
                f"SELECT {', '.join(chosen)} FROM trials {where} ORDER BY ordinal, rowid"
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

    def remarked_reports(self) -> Iterator[LogRow]:
        """Yield the reports that hold more than numbers: a note, or a batch computed in parts."""
        marks = "instr(payload, '\"micro_batch\"') OR instr(payload, '\"note\"')"
        yield from self._select(f"kind = 'report' AND ({marks})", ())

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

    def _select(self, where: str, values: tuple[object, ...], limit: int = -1) -> Iterator[LogRow]:
        for row in self._rows(where, values, limit):
            yield self._log_row(row)

    def _rows(
        self, where: str, values: tuple[object, ...], limit: int = -1
    ) -> Iterator[tuple[Any, ...]]:
        with self._readable():
            checksum = "crc" if "crc" in self._columns("log") else "NULL"
            rows = self._connection.execute(
                f"SELECT key, {', '.join(LOG_COLUMNS)}, {checksum} FROM log WHERE {where}"
                " ORDER BY seq LIMIT ?",
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

    def restore(
        self,
        trials: Iterable[tuple[Any, ...]],
        log: Iterable[tuple[Any, ...]],
        values: Mapping[str, str],
        last_seq: int,
    ) -> None:
        """Fill an empty journal with what another held; numbers and times stay.

        Args:
            trials: in the order of ``TRIAL_COLUMNS``.
            log: key, then the order of ``LOG_COLUMNS``.
            values: of the study as a whole.
            last_seq: a number that no later entry shall have.
        """
        with self._transaction():
            execute, many = self._connection.execute, self._connection.executemany
            many(
                f"INSERT INTO trials ({', '.join(TRIAL_COLUMNS)}) VALUES ({_TRIAL_VALUES})", trials
            )
            many(
                f"INSERT INTO log (key, {', '.join(LOG_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?)", log
            )
            many("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())
            execute("DELETE FROM sqlite_sequence WHERE name = 'log'")
            execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('log', ?)", (last_seq,))

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

    def set_cursor(self, name: str, seq: int) -> None:
        """Remember how far the reader called ``name`` has come."""
        self._connection.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?)", (name, seq))
