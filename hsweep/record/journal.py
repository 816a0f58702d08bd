"""The study's record: a log (``hsweep.record.log``), and an index of it that answers quickly.

The log is the only truth. Whatever belongs together, such as a report and the status it leads to,
is one line of it, so a kill at any instant leaves all of it or nothing. The driver alone writes;
other processes read the index while it does.
"""

import hashlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hsweep.design.trial import Report, TrialStatus
from hsweep.errors import UserError
from hsweep.files import cause
from hsweep.record.index import DAMAGED_META, Index
from hsweep.record.journal_reader import GPUS, ORIGIN_META, TRAINED_WITH, JournalReader
from hsweep.record.log import Entry, Log
from hsweep.record.rows import LogRow, TrialRow
from hsweep.record.schema import FIGURES, apply
from hsweep.terminal import note

__all__ = ["Journal", "LogRow", "TrialRow"]

_ALWAYS_TOLD: Final = (
    *("step", "metrics", "wall_seconds"),
    *("train_seconds", "data_seconds", "latency_seconds"),
)
_TOLD_IF_ANY: Final = ("micro_batch", "note", "peak_memory_bytes", *FIGURES)


class Journal(JournalReader):
    """The record of one study.

    Args:
        path: of the log or of the index, which lie beside each other.
        create: make it if it is missing.
        read_only: open it for reading, also beside a running driver.
        rebuild: build the index again, also if it looks sound.

    Raises:
        UserError: the log is missing, or the record cannot be read or written here.
    """

    def __init__(
        self,
        path: Path,
        *,
        create: bool = False,
        read_only: bool = False,
        rebuild: bool = False,
    ) -> None:
        log = Log(path.with_suffix(".jsonl"), create=create, read_only=read_only)
        try:
            index = Index(path.with_suffix(".db"), log, read_only=read_only, rebuild=rebuild)
        except (OSError, sqlite3.Error, UserError) as error:
            log.close()
            if isinstance(error, UserError):
                raise
            raise UserError(
                f"the record {log.path} cannot be {'read' if read_only else 'written'} "
                f"({cause(error)}); make its folder accessible or free some space and try again"
            ) from error
        super().__init__(index)
        self._log = log
        self._entries: list[Entry] | None = None
        self._end = 0
        self._is_spoiled = False
        for what in index.lost.values():
            note(what)
        if not read_only:
            self.set_metas({f"{DAMAGED_META}{at}": what for at, what in index.lost.items()})

    def close(self) -> None:
        self._index.close()
        self._log.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def transaction(self, *, line_each: bool = False) -> Iterator[None]:
        """Let all that is recorded within be one transaction: one line of the log.

        All of it is on record when the block ends, or none of it is. Whatever fails within takes
        back the whole, also where the failure is caught. A transaction within another is part of
        it.

        Args:
            line_each: write each entry as a line of its own: a damaged line costs one of them.

        Raises:
            OSError, sqlite3.Error: it cannot be written; nothing of it is then.
        """
        if self._entries is not None:
            try:
                yield
            except BaseException:
                self._is_spoiled = True
                raise
            return
        self._end = end = self._index.begin()
        self._entries, self._is_spoiled = [], False
        try:
            yield
            if self._is_spoiled:
                raise sqlite3.OperationalError("a part of the transaction was not recorded")
            lines = [[entry] for entry in self._entries] if line_each else [self._entries]
            self._index.commit(self._log.append(lines, end) if self._entries else None)
        except BaseException:
            self._index.rollback(end)
            raise
        finally:
            self._entries = None

    def _enter(self, entry: Entry) -> bool:
        """Add an entry; return whether it is of any consequence, and so on record."""
        assert self._entries is not None
        # A line is longer than it has entries, so no number is given twice.
        if not apply(self._connection, entry, self._end + 1 + len(self._entries)):
            return False
        self._entries.append(entry)
        return True

    def set_meta(self, name: str, value: str) -> None:
        self.set_metas({name: value})

    def set_metas(self, values: Mapping[str, str | None]) -> None:
        """Set values of the study as a whole, in one transaction; None forgets one."""
        changed = {name: value for name, value in values.items() if self.meta(name) != value}
        if not changed:
            return
        with self.transaction():
            for name, value in changed.items():
                self._enter({"meta": name, "value": value})

    def add_trials(self, rows: Iterable[TrialRow]) -> None:
        """Add planned trials, each as a line of its own unless within a transaction; those already
        there are left as they are."""
        with self.transaction(line_each=True):
            for row in rows:
                if not self._rows("SELECT 1 FROM trials WHERE key = ?", row.key):
                    self._enter(row.entry())

    def place_trials(self, rows: Iterable[TrialRow]) -> None:
        """Give recorded trials the place they have in another plan; what became of them stays."""
        with self.transaction():
            for row in rows:
                self._enter(row.entry())

    def begin_attempt(
        self, key: str, origin: str = "", continues: str = "", gpus: float = 0
    ) -> int:
        """Mark a trial as running under a new attempt number, and return that number.

        Args:
            origin: what it is trained with (``Trial.origin``); empty where that is not known.
            continues: key of the shorter training that it goes on from.
            gpus: devices that it holds, or its share of one.
        """
        with self.transaction():
            origins = [origin] if origin else []
            more: dict[str, Any] = {GPUS: gpus} if gpus else {}
            if continues:
                origins += self.origins(continues).get(continues, [])
                more["continues"] = continues
            more |= self._trained_with(origins)
            attempt: int = self._state(key, "attempt") + 1
            self._enter_status(key, attempt, TrialStatus.RUNNING, "", **more)
        return attempt

    def _trained_with(self, texts: Iterable[str]) -> dict[str, Any]:
        named = {hashlib.sha256(text.encode()).hexdigest()[:20]: text for text in texts}
        self.set_metas({f"{ORIGIN_META}{digest}": text for digest, text in named.items()})
        return {TRAINED_WITH: list(named)} if named else {}

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
        the same training again. Return whether the report was new.
        """
        payload = {name: getattr(report, name) for name in _ALWAYS_TOLD}
        payload |= {name: told for name in _TOLD_IF_ANY if (told := getattr(report, name))}
        with self.transaction():
            self._state(key, "status")
            is_new = self._enter_report(key, time.time(), attempt, report.unit, value, payload)
            if status is not TrialStatus.RUNNING:
                self._enter_status(key, attempt, status, reason)
        return is_new

    def set_status(
        self, key: str, attempt: int, status: TrialStatus, reason: str = "", **changed: Any
    ) -> None:
        """Record a change of status that no report led to, and what else ``changed`` with it."""
        with self.transaction():
            self._state(key, "status")
            self._enter_status(key, attempt, status, reason, **changed)

    def note_failure(self, key: str, attempt: int, max_failures: int, reason: str) -> int:
        """Record that an attempt failed: the trial is planned again, or failed beyond the limit;
        return how many of its attempts have failed."""
        with self.transaction():
            failures: int = self._state(key, "failures") + 1
            status = TrialStatus.PLANNED if failures <= max_failures else TrialStatus.FAILED
            self._enter_status(key, attempt, status, reason, failures=failures)
        return failures

    def set_exclusive(self, key: str, attempt: int, reason: str) -> None:
        self.set_status(key, attempt, TrialStatus.PLANNED, reason, exclusive=1)

    def set_orphaned(self, keys: Iterable[str], why: str) -> None:
        """Take trials out of the study (or back into it, with an empty ``why``); their status and
        what they reported stay."""
        with self.transaction():
            for key in keys:
                attempt, status, reason = (
                    self._state(key, name) for name in ("attempt", "status", "reason")
                )
                self._enter_status(key, attempt, status, reason, orphaned=why)

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
            reports: of the other trial, in their order; they keep their times.
            value: the study's metric in the last of them.
            reused_from: the study that holds the other trial; empty for this one.
            continues: the other trial's key, if its budget is shorter.
            origins: what the other trial was trained with.
        """
        with self.transaction():
            self._state(key, "status")
            trained_with = self._trained_with(origins)
            for report in reports:
                assert report.unit is not None
                self._enter_report(key, report.time, 0, report.unit, value, report.payload)
            more = {"reused_from": reused_from, "continues": continues, **trained_with}
            self._enter_status(key, 0, status, reason, **more)

    def take_over(
        self,
        key: str,
        source: str,
        *,
        through: int,
        metric: str,
        status: TrialStatus,
        reason: str,
        continues: str = "",
    ) -> None:
        """Give a planned trial what a shorter one of this record has reported ``through`` a unit.

        ``continues`` is the key of the trial whose checkpoints it goes on from.
        """
        reports = [
            each for each in self.reports(source) if each.unit is not None and each.unit <= through
        ]
        value = reports[-1].payload["metrics"].get(metric)
        origins = self.origins(source).get(source, [])
        self.adopt(
            key,
            reports,
            status=status,
            reason=reason,
            value=value,
            continues=continues,
            origins=origins,
        )

    def reopen(self, keys: Iterable[str], reason: str) -> None:
        """Plan trials again that had ended; what they reported stays, and failures are forgiven."""
        with self.transaction():
            for key in keys:
                attempt = self._state(key, "attempt")
                self._enter_status(
                    key, attempt, TrialStatus.PLANNED, reason, failures=0, exclusive=0
                )

    def _enter_report(
        self,
        key: str,
        moment: float,
        attempt: int,
        unit: int,
        value: float | None,
        payload: Mapping[str, Any],
    ) -> bool:
        entry = {"report": key, "time": moment, "attempt": attempt, "unit": unit}
        return self._enter({**entry, "value": value, "payload": payload})

    def _enter_status(
        self, key: str, attempt: int, status: str, reason: str, **changed: Any
    ) -> None:
        payload = {"status": status, "reason": reason, **changed}
        self._enter({"status": key, "time": time.time(), "attempt": attempt, "payload": payload})

    def _state(self, key: str, column: str) -> Any:
        """Return a column of a trial's state; its key must be on record."""
        query = f"SELECT {column} FROM trials WHERE key = ?"
        row = self._connection.execute(query, (key,)).fetchone()
        if row is None:
            raise KeyError(f"the record has no trial {key!r}")
        return row[0]
