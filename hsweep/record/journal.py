"""The study's record: an append-only log in SQLite, written by the driver alone.

The log is the only truth. A report and the status it leads to are one transaction, so a kill at
any instant leaves either both or neither. Write-ahead logging lets other processes read while a
study runs. The ``trials`` table holds what was planned and, for quick answers, where each stands.

Every row carries a checksum, and what is committed is told to a second copy in plain text (see
``hsweep.record.text_copy``), from which a damaged file is rebuilt.
"""

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hsweep.design.trial import Report, TrialStatus
from hsweep.record.changes import TRIAL_COLUMNS, Changes
from hsweep.record.journal_file import open_journal_file
from hsweep.record.journal_reader import LAST_CHARACTER, ORIGIN_META, TRAINED_WITH, JournalReader
from hsweep.record.journal_rows import LogRow, Reported, TrialRow
from hsweep.record.standings import Standing, Standings, planned_checksum
from hsweep.record.text_copy import (
    LOG_COLUMNS,
    NOT_BEGUN,
    PLANNED_COLUMNS,
    Line,
    RecordCopy,
    ToldLine,
    TrialLine,
    copy_of,
)

__all__ = ["Journal", "LogRow", "Reported", "TrialRow"]

_TRIAL_VALUES: Final = ", ".join("?" * len(TRIAL_COLUMNS))
_ADD_TRIAL: Final = (
    f"INSERT OR IGNORE INTO trials ({', '.join((*PLANNED_COLUMNS, 'status', 'crc'))})"
    f" VALUES ({', '.join('?' * (len(PLANNED_COLUMNS) + 2))})"
)
_FILL_TIMES: Final = """
UPDATE trials SET (train_seconds, data_seconds) = (
    SELECT json_extract(payload, '$.train_seconds'), json_extract(payload, '$.data_seconds')
    FROM log WHERE kind = 'report' AND log.key = trials.key AND log.unit = trials.unit
    AND json_valid(payload))
"""


def _trained_with(digests: list[str]) -> dict[str, Any]:
    return {TRAINED_WITH: digests} if digests else {}


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
        self._standings = Standings(self._connection)
        self._copy = RecordCopy(copy_of(path)) if is_copied and not read_only else None
        self._lines: list[Line | ToldLine] = []
        self._is_open = self._is_spoiled = False
        self._origins: set[str] = set()

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
    def together(self) -> Iterator[None]:
        """Let all that is recorded within be one: one transaction and one write to the copy.

        All of it is on record when the block ends, or none of it is. Whatever fails within takes
        back the whole, also where the failure is caught.

        Raises:
            sqlite3.Error: it cannot be written; nothing of it is then.
        """
        if self._is_open:
            try:
                yield
            except BaseException:
                self._is_spoiled = True
                raise
            return
        self._connection.execute("BEGIN IMMEDIATE")
        self._is_open, self._is_spoiled = True, False
        try:
            yield
            if self._is_spoiled:
                raise sqlite3.OperationalError("a part of what belongs together was not recorded")
            self._seal()
            self._connection.execute("COMMIT")
        except BaseException:
            self._standings.forget()
            self._lines.clear()
            self._origins.clear()
            if self._changes is not None:
                self._changes.forget()
            # A full disk has SQLite end the transaction by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        finally:
            self._is_open = False
        lines, self._lines = self._lines, []
        if self._copy is not None:
            self._copy.append(lines)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self.together():
            yield
            self._seal()

    def _seal(self) -> None:
        """Seal what was written without its checksum since the last time."""
        if self._changes is None or not self._changes.has_any:
            return
        if self._changes.has_trials:
            self._standings.forget()
        self._lines += self._changes.seal()

    @contextmanager
    def _changing(self, key: str) -> Iterator[Standing]:
        """Change where a trial stands and add to its log, as one."""
        with self.together():
            standing = self._standings.of(key)
            if standing is None:
                raise KeyError(f"the record has no trial {key!r}")
            yield standing
            self._lines += self._standings.save(standing)

    def set_meta(self, name: str, value: str) -> None:
        """Set a value of the study as a whole."""
        if self.meta(name) == value:
            return
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def set_metas(self, values: Mapping[str, str | None]) -> None:
        """Set values of the study as a whole, in one transaction; None forgets one."""
        if not values:
            return
        with self._transaction():
            for name, value in values.items():
                if value is None:
                    self._connection.execute("DELETE FROM meta WHERE name = ?", (name,))
                else:
                    self._connection.execute(
                        "INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value)
                    )

    def clear_metas(self, prefix: str) -> None:
        """Forget the values whose names begin with ``prefix``."""
        with self._transaction():
            self._connection.execute(
                "DELETE FROM meta WHERE name >= ? AND name < ?", (prefix, prefix + LAST_CHARACTER)
            )

    def add_trials(self, rows: Iterable[TrialRow]) -> None:
        """Add planned trials; those already there are left as they are."""
        begun = json.dumps(NOT_BEGUN)[1:].encode()
        with self.together():
            for row in rows:
                planned = row.planned_columns()
                checksum = zlib.crc32(begun, planned_checksum(planned))
                values = (*planned, TrialStatus.PLANNED, checksum)
                if self._connection.execute(_ADD_TRIAL, values).rowcount > 0:
                    self._lines.append(TrialLine(planned))

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

    def begin_attempt(self, key: str, origin: str = "") -> int:
        """Mark a trial as running under a new attempt number, and return that number.

        Args:
            key: the trial.
            origin: what it is trained with (``Trial.origin``); empty where that is not known.
        """
        with self.together():
            digests = self._known_origins([origin] if origin else [])
            with self._changing(key) as standing:
                standing.state.attempt += 1
                attempt, running = standing.state.attempt, TrialStatus.RUNNING
                standing.state.status, standing.state.reason = running, ""
                self._log_status(standing, attempt, running, "", **_trained_with(digests))
                return attempt

    def _known_origins(self, texts: Iterable[str]) -> list[str]:
        """Return digests of what trials are trained with, each text being on record by its own."""
        digests = []
        for text in texts:
            digest = hashlib.sha256(text.encode()).hexdigest()[:20]
            if digest not in self._origins:
                self.set_meta(f"{ORIGIN_META}{digest}", text)
                self._origins.add(digest)
            digests.append(digest)
        return digests

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
            **({"peak_memory_bytes": peak} if (peak := report.peak_memory_bytes) else {}),
        }
        with self._changing(key) as standing:
            is_new = standing.enter(
                self._connection, "report", attempt, report.unit, json.dumps(payload)
            )
            state = standing.state
            if state.unit < report.unit:
                state.unit, state.value = report.unit, value
                state.wall_seconds = report.wall_seconds
                standing.times = (report.train_seconds, report.data_seconds)
            if status is not TrialStatus.RUNNING:
                self._set_status(standing, attempt, status, reason)
        return is_new

    def record_many(self, entries: Iterable[Reported]) -> list[bool]:
        """Record several reports, of any trials and in this order, and the statuses they lead to:
        all of them or none, in one transaction and one write to the copy.

        Returns:
            Whether each report was new.
        """
        with self.together():
            return [
                self.record(
                    each.key, each.attempt, each.report, each.value, each.status, each.reason
                )
                for each in entries
            ]

    def set_status(self, key: str, attempt: int, status: TrialStatus, reason: str = "") -> None:
        """Record a change of status that no report led to."""
        with self._changing(key) as standing:
            self._set_status(standing, attempt, status, reason)

    def note_failure(self, key: str, attempt: int, max_failures: int, reason: str) -> int:
        """Record that an attempt failed: the trial is planned again, or failed beyond the limit.

        Returns:
            How many attempts of the trial have failed, this one included.
        """
        with self._changing(key) as standing:
            standing.state.failures = failures = standing.state.failures + 1
            again = failures <= max_failures
            status = TrialStatus.PLANNED if again else TrialStatus.FAILED
            self._set_status(standing, attempt, status, reason)
        return failures

    def set_alone(self, key: str, attempt: int, reason: str) -> None:
        """Plan a trial again, to be trained with nothing beside it."""
        with self._changing(key) as standing:
            standing.state.alone = 1
            self._set_status(standing, attempt, TrialStatus.PLANNED, reason)

    def set_orphaned(self, keys: Iterable[str], why: str) -> None:
        """Take trials out of the study (or back into it, with an empty ``why``); their status and
        what they reported stay."""
        with self.together():
            for key in keys:
                with self._changing(key) as standing:
                    state = standing.state
                    state.orphaned = why
                    # Logged, so that whoever follows the log learns of it.
                    self._log_status(
                        standing,
                        state.attempt,
                        TrialStatus(state.status),
                        state.reason,
                        orphaned=why,
                    )

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
        origins: Iterable[str] = (),
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
            origins: what the other trial was trained with.
        """
        with self.together(), self._changing(key) as standing:
            digests = self._known_origins(origins)
            state = standing.state
            last = None
            for last in reports:
                payload = json.dumps(dict(last.payload))
                standing.enter(self._connection, "report", 0, last.unit, payload, last.time)
            if last is not None:
                assert last.unit is not None
                state.unit, state.value = last.unit, value
                state.wall_seconds = last.payload["wall_seconds"]
                standing.times = (
                    last.payload.get("train_seconds"),
                    last.payload.get("data_seconds"),
                )
            state.reused_from, state.continues = reused_from, continues
            state.status, state.reason = status, reason
            self._log_status(standing, 0, status, reason, **_trained_with(digests))

    def reopen(self, keys: Iterable[str], reason: str) -> None:
        """Plan trials again that had ended; what they reported stays, and failures are forgiven."""
        with self.together():
            for key in keys:
                with self._changing(key) as standing:
                    standing.state.failures = standing.state.alone = 0
                    attempt = standing.state.attempt
                    self._set_status(standing, attempt, TrialStatus.PLANNED, reason)

    def _set_status(
        self, standing: Standing, attempt: int, status: TrialStatus, reason: str
    ) -> None:
        standing.state.status, standing.state.reason = status, reason
        self._log_status(standing, attempt, status, reason)

    def _log_status(
        self,
        standing: Standing,
        attempt: int,
        status: TrialStatus,
        reason: str,
        **more: Any,
    ) -> None:
        payload = {"status": status, "reason": reason, **more}
        standing.enter(self._connection, "status", attempt, None, json.dumps(payload))

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
            execute(_FILL_TIMES)
            many("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())
            execute("DELETE FROM sqlite_sequence WHERE name = 'log'")
            execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('log', ?)", (last_seq,))

    def set_cursor(self, name: str, seq: int) -> None:
        """Remember how far the reader called ``name`` has come."""
        self._connection.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?)", (name, seq))
