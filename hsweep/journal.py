"""The study's record: an append-only log in SQLite, written by the driver alone.

The log is the only truth. A report and the status it leads to are one transaction, so a kill at
any instant leaves either both or neither. Write-ahead logging lets other processes read while a
study runs. The ``trials`` table holds what was planned and, for quick answers, where each stands.
"""

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from hsweep.errors import UserError
from hsweep.trial import Report, TrialStatus

_SCHEMA_VERSION: Final = 2
_SCHEMA: Final = """
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
    parts TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS log (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    time REAL NOT NULL,
    key TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL,
    unit INTEGER,
    payload TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one_report_a_unit ON log (key, unit) WHERE kind = 'report';
CREATE INDEX IF NOT EXISTS log_by_key ON log (key, seq);
CREATE TABLE IF NOT EXISTS cursors (name TEXT PRIMARY KEY, seq INTEGER NOT NULL);
"""
_ADDED_IN_2: Final = {
    "failures": "INTEGER NOT NULL DEFAULT 0",
    "alone": "INTEGER NOT NULL DEFAULT 0",
    "orphaned": "TEXT NOT NULL DEFAULT ''",
    "reused_from": "TEXT NOT NULL DEFAULT ''",
    "continues": "TEXT NOT NULL DEFAULT ''",
    "parts": "TEXT NOT NULL DEFAULT '{}'",
}
"""Columns of ``trials`` that journals of version 1 lack, and how they are added."""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A planned trial and where it stands.

    Attributes:
        counts: ``num_params``, ``flops_per_example``, ``train_memory_bytes``.
        attempt: how often it was started.
        unit: budget units of the last recorded report.
        value: the study's metric at that report, None if there is none or it was not finite.
        reason: why it failed, diverged or was stopped.
        failures: attempts that failed, all runs of the study together.
        alone: whether it must train with nothing beside it.
        orphaned: why it is no longer part of the study; empty while it is.
        reused_from: the study that trained it, if this one did not.
        continues: key of the trial with a shorter budget that it goes on from; empty for none.
        parts: what the key is made of, part by part; empty in records of before there were any.
    """

    key: str
    ordinal: int
    point: Mapping[str, Any]
    replicate: int
    stratum: str
    budget: int
    counts: Mapping[str, int]
    status: TrialStatus = TrialStatus.PLANNED
    reason: str = ""
    attempt: int = 0
    unit: int = 0
    value: float | None = None
    wall_seconds: float = 0.0
    failures: int = 0
    alone: bool = False
    orphaned: str = ""
    reused_from: str = ""
    continues: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogRow:
    """One entry of the log.

    Attributes:
        kind: ``report`` (payload: step, metrics, wall_seconds) or ``status`` (payload: status,
            reason).
        unit: budget units, for reports.
    """

    seq: int
    time: float
    key: str
    attempt: int
    kind: Literal["report", "status"]
    unit: int | None
    payload: Mapping[str, Any]


class Journal:
    """The record of one study.

    Args:
        path: the SQLite file.
        create: make it if it is missing.
        read_only: open for reading beside a running driver.

    Raises:
        UserError: the file is missing, is no journal, or is of a later version.
    """

    def __init__(self, path: Path, *, create: bool = False, read_only: bool = False) -> None:
        if not create and not path.exists():
            raise UserError(f"{path.parent} holds no study: its journal {path.name} is missing")
        uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc' if create else 'rw'}"
        self._path = path
        with self._readable():
            self._connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=30, check_same_thread=False
            )
            # Asked before anything is written: an empty file is no journal.
            version = None if create else self.meta("schema_version")
            if not read_only:
                self._connection.execute("PRAGMA journal_mode=WAL")
                self._connection.execute("PRAGMA synchronous=NORMAL")
                self._connection.executescript(_SCHEMA)
                version = self.meta("schema_version")
                is_whole = version == str(_SCHEMA_VERSION) and self._columns() >= set(_ADDED_IN_2)
                if not is_whole and int(version or 0) <= _SCHEMA_VERSION:
                    self._upgrade()
                    version = str(_SCHEMA_VERSION)
        if version is not None and int(version) > _SCHEMA_VERSION:
            raise UserError(
                f"{path} was written by a later version of hsweep (schema {version}, this one "
                f"reads up to {_SCHEMA_VERSION}); use that version"
            )

    def _upgrade(self) -> None:
        with self._transaction():
            present = self._columns()
            for name, kind in _ADDED_IN_2.items():
                if name not in present:
                    self._connection.execute(f"ALTER TABLE trials ADD COLUMN {name} {kind}")
            self.set_meta("schema_version", str(_SCHEMA_VERSION))

    def _columns(self) -> set[str]:
        return {str(row[1]) for row in self._connection.execute("PRAGMA table_info(trials)")}

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise UserError(f"the journal {self._path} cannot be read ({error})") from error

    def close(self) -> None:
        """Close the file; what was recorded is already on disk."""
        self._connection.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def meta(self, name: str) -> str | None:
        """Return a value of the study as a whole, None if it was never set."""
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, name: str, value: str) -> None:
        """Set a value of the study as a whole."""
        self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def metas(self, prefix: str) -> dict[str, str]:
        """Return the values whose names begin with ``prefix``, by the rest of the name."""
        rows = self._connection.execute(
            "SELECT substr(name, ?), value FROM meta WHERE substr(name, 1, ?) = ?",
            (len(prefix) + 1, len(prefix), prefix),
        )
        return {str(name): str(value) for name, value in rows}

    def clear_metas(self, prefix: str) -> None:
        """Forget the values whose names begin with ``prefix``."""
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
                self._connection.execute("UPDATE trials SET failures = 0 WHERE key = ?", (key,))
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
            added = [name if name in present else f"'' AS {name}" for name in _ADDED_IN_2]
            where = "" if orphaned or "orphaned" not in present else "WHERE orphaned = ''"
            rows = self._connection.execute(
                "SELECT key, ordinal, point, replicate, stratum, budget, counts, status, reason,"
                f" attempt, unit, value, wall_seconds, {', '.join(added)} FROM trials {where}"
                " ORDER BY ordinal, rowid"
            ).fetchall()
        return [
            TrialRow(
                row[0], row[1], json.loads(row[2]), row[3], row[4], row[5], json.loads(row[6]),
                TrialStatus(row[7]), row[8], row[9], row[10], row[11], row[12],
                failures=int(row[13] or 0), alone=bool(row[14]), orphaned=row[15],
                reused_from=row[16], continues=row[17], parts=json.loads(row[18] or "{}"),
            )
            for row in rows
        ]  # fmt: skip

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
        with self._readable():
            where = "WHERE orphaned = ''" if "orphaned" in self._columns() else ""
            found = dict(
                self._connection.execute(
                    f"SELECT status, COUNT(*) FROM trials {where} GROUP BY status"
                )
            )
        return {status: int(found.get(status, 0)) for status in TrialStatus}

    def reports(self, key: str | None = None) -> Iterator[LogRow]:
        """Yield the reports of one trial, or of all, in the order they were recorded."""
        where, values = ("", ()) if key is None else (" AND key = ?", (key,))
        yield from self._select(f"kind = 'report'{where}", values)

    def log_after(self, seq: int, limit: int) -> list[LogRow]:
        """Return at most ``limit`` entries that follow entry ``seq``."""
        return list(self._select("seq > ?", (seq,), limit))

    def _select(self, where: str, values: tuple[object, ...], limit: int = -1) -> Iterator[LogRow]:
        with self._readable():
            rows = self._connection.execute(
                f"SELECT seq, time, key, attempt, kind, unit, payload FROM log WHERE {where}"
                " ORDER BY seq LIMIT ?",
                (*values, limit),
            )
        while True:
            with self._readable():
                row = rows.fetchone()
            if row is None:
                return
            seq, time_, key, attempt, kind, unit, payload = row
            yield LogRow(seq, time_, key, attempt, kind, unit, json.loads(payload))

    def last_seq(self) -> int:
        """Return the number of the newest log entry, 0 if there is none."""
        return int(self._connection.execute("SELECT COALESCE(MAX(seq), 0) FROM log").fetchone()[0])

    def count_after(self, seq: int) -> int:
        """Return how many entries follow entry ``seq``; the numbers may have gaps."""
        return int(
            self._connection.execute("SELECT COUNT(*) FROM log WHERE seq > ?", (seq,)).fetchone()[0]
        )

    def cursor(self, name: str) -> int:
        """Return how far the reader called ``name`` has come in the log (0: nowhere yet)."""
        row = self._connection.execute("SELECT seq FROM cursors WHERE name = ?", (name,)).fetchone()
        return 0 if row is None else int(row[0])

    def set_cursor(self, name: str, seq: int) -> None:
        """Remember how far the reader called ``name`` has come."""
        self._connection.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?)", (name, seq))
