"""The study's record: an append-only log in SQLite, written by the driver alone.

The log is the only truth. A report and the status it leads to are one transaction, so a kill at
any instant leaves either both or neither. Write-ahead logging lets other processes read while a
study runs. The ``trials`` table holds what was planned and, for quick answers, where each stands.

Every row carries a checksum, and what is committed is told to a second copy in plain text (see
``hsweep.record.text_copy``), from which a damaged file is rebuilt.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hsweep.design.trial import Report, TrialStatus
from hsweep.record.changes import TRIAL_COLUMNS, Changes
from hsweep.record.journal_file import open_journal_file
from hsweep.record.journal_reader import JournalReader
from hsweep.record.journal_rows import LogRow, TrialRow
from hsweep.record.text_copy import LOG_COLUMNS, RecordCopy, copy_of

__all__ = ["Journal", "LogRow", "TrialRow"]

_TRIAL_VALUES: Final = ", ".join("?" * len(TRIAL_COLUMNS))


class Journal(JournalReader):
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
        super().__init__(path, open_journal_file(path, create=create, read_only=read_only))
        self._changes = None if read_only else Changes(self._connection)
        self._copy = RecordCopy(copy_of(path)) if is_copied and not read_only else None

    @property
    def copy_problem(self) -> str:
        """Why the second copy is behind; empty if it is not. What it lacks is added when the study
        is opened again."""
        return self._copy.problem if self._copy is not None else ""

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

    def set_meta(self, name: str, value: str) -> None:
        """Set a value of the study as a whole."""
        if self.meta(name) == value:
            return
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

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

    def set_cursor(self, name: str, seq: int) -> None:
        """Remember how far the reader called ``name`` has come."""
        self._connection.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?)", (name, seq))
