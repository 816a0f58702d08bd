"""The study's record for the process that writes it: it appends to the log and updates its rows.

The log is the only truth. Whatever belongs together, such as a report and the status it leads to,
is one line of it, so a kill at any instant leaves all of it or nothing. One process writes, which
holds the study (``hsweep.record.lease``); others read (``hsweep.record.journal_reader``) meanwhile.
"""

import hashlib
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hsweep.design.trial import Report, TrialStatus
from hsweep.errors import UserError
from hsweep.record.journal_reader import ORIGIN_META, TRAINED_WITH, JournalReader
from hsweep.record.lease import Lease
from hsweep.record.log import Entry, Log, begin_segment, inaccessible, segment_files, storable
from hsweep.record.rows import FIGURES, LogRow, StudyState, TrialRow

__all__ = ["Journal", "JournalReader", "LogRow", "TrialRow"]

_REQUIRED_FIELDS: Final = (
    *("step", "metrics", "wall_seconds"),
    *("train_seconds", "data_seconds", "latency_seconds"),
)
_OPTIONAL_FIELDS: Final = ("micro_batch", "note", "peak_memory_bytes", *FIGURES)
"""Fields of a report that the log always holds, and fields that it holds if they have a value."""


class Journal(JournalReader):
    """The record of one study, to be written.

    Its state is what the log holds, read when it is opened; reports and what else it does not hold
    are read from the index.

    Args:
        folder: of the log.
        create: make it if it is missing.
        lease: of the study whose log it is; without one, nobody else may have the log.

    Raises:
        UserError: the log is missing, or the record cannot be written here.

    Attributes:
        rows: all trials on record by key, orphaned ones included.
    """

    def __init__(self, folder: Path, *, create: bool = False, lease: Lease | None = None) -> None:
        if create and not segment_files(folder):
            folder.mkdir(exist_ok=True)
            begin_segment(folder, 1, {"id": uuid.uuid4().hex})
        self.lease = lease
        self._attach(Log(folder, writes=lease.number if lease is not None else 0))
        self._state = StudyState()
        self.rows = self._state.rows
        try:
            self._replay()
        except (OSError, UserError) as error:
            self.close()
            if isinstance(error, UserError):
                raise
            raise inaccessible(folder, "written", error) from error

    def _replay(self) -> None:
        self._end = 0
        for line in self._log.lines():
            for entry in line.entries or ():
                self._state.apply(entry)
            self._end = line.end
        if not (self.rows or self._state.metas):
            self._log.refuse_lost()
        # A kill tears a line whose end is then missing.
        self._log.cut(self._end)

    def append(self, entries: Sequence[Entry]) -> None:
        """Record entries together: all of them or none.

        Raises:
            OSError: they cannot be written; nothing of them is on record then.
            FencedError: another process has taken the study over.
        """
        if entries:
            if self.lease is not None:
                self.lease.check()
            try:
                self._end = self._log.append(entries, self._end)
            except UnicodeEncodeError:
                entries = storable(entries)
                self._end = self._log.append(entries, self._end)
            for entry in entries:
                self._state.apply(entry)

    def meta(self, name: str) -> str | None:
        return self._state.metas.get(name)

    def metas(self, prefix: str) -> dict[str, str]:
        metas = self._state.metas.items()
        return {name[len(prefix) :]: text for name, text in metas if name.startswith(prefix)}

    def trials(self, *, orphaned: bool = False) -> list[TrialRow]:
        """Return the study's trials in the order of the plan: the rows themselves, which change
        with what is recorded."""
        rows = (row for row in self.rows.values() if orphaned or not row.orphaned)
        return sorted(rows, key=lambda row: row.ordinal)

    def set_meta(self, name: str, value: str) -> None:
        self.set_metas({name: value})

    def set_metas(self, values: Mapping[str, str | None]) -> None:
        """Set values of the study as a whole, together; None forgets one."""
        self.append(self.meta_entries(values))

    def meta_entries(self, values: Mapping[str, str | None]) -> list[Entry]:
        """Return the entries that set values of the study as a whole."""
        return [
            {"meta": name, "value": value}
            for name, value in values.items()
            if self.meta(name) != value
        ]

    def add_trials(self, rows: Iterable[TrialRow]) -> None:
        """Add planned trials, each as a line of its own, so that damage to a line costs one trial;
        trials on record stay as they are."""
        for row in rows:
            if self.is_new(row.key):
                self.append([row.plan_entry()])

    def is_new(self, key: str) -> bool:
        """Whether the trial, as planned, is not on record yet."""
        return key not in self.rows or self.rows[key].ordinal < 0

    def begin_attempt(
        self, key: str, origin: str = "", continues: str = "", reason: str = ""
    ) -> int:
        """Mark a trial as running under a new attempt number, and return that number.

        Args:
            origin: what it is trained with (``Trial.origin``); empty where that is not known.
            continues: key of the shorter training that it goes on from.
            reason: what is special about the attempt.
        """
        origins = [origin] if origin else []
        if continues:
            origins += self.origins(continues).get(continues, [])
        changed = {"continues": continues, **_trained_with(origins)}
        changed = {name: value for name, value in changed.items() if value}
        attempt = self.rows[key].attempt + 1
        status = _status(key, attempt, TrialStatus.RUNNING, reason, **changed)
        self.append([*self._origin_entries(origins), status])
        return attempt

    def record(
        self,
        key: str,
        attempt: int,
        report: Report,
        status: TrialStatus = TrialStatus.RUNNING,
        reason: str = "",
        counts: Mapping[str, float | None] | None = None,
    ) -> bool:
        """Record a report and the status it leads to, together; ``counts`` are the metrics that
        count in place of the report's where the trial has finished.

        A unit that is already on record, or behind the last, keeps its first report: on a resumed
        trial the second is the same training again. Return whether the report was new.
        """
        payload = {name: getattr(report, name) for name in _REQUIRED_FIELDS}
        payload |= {name: value for name in _OPTIONAL_FIELDS if (value := getattr(report, name))}
        is_new = report.unit > self.rows[key].unit
        entries: list[Entry] = []
        if is_new:
            entries.append(_report(key, time.time(), attempt, report.unit, payload))
        if status is not TrialStatus.RUNNING:
            last = {} if counts is None else {"last": {**payload, "metrics": counts}}
            entries.append(_status(key, attempt, status, reason, **last))
        self.append(entries)
        return is_new

    def set_status(
        self, key: str, attempt: int, status: TrialStatus, reason: str = "", **changed: Any
    ) -> None:
        """Record a status without a report, and other ``changed`` columns of the trial."""
        self.rows[key]  # which must be on record
        self.append([_status(key, attempt, status, reason, **changed)])

    def adoption_entries(
        self,
        key: str,
        reports: Iterable[LogRow],
        *,
        status: TrialStatus,
        origins: Iterable[str] = (),
        **changed: Any,
    ) -> list[Entry]:
        """Return the log entries that copy the reports of an equal training to a planned trial.

        Args:
            reports: of the other trial, in their order; they keep their times.
            status: where they leave the trial.
            origins: what the other trial was trained with.
            changed: of the trial's state: ``reason``; ``reused_from``, the study that holds the
                other trial; ``continues``, the other trial's key, if its budget is shorter.
        """
        origins = list(origins)
        adopted = [
            _report(key, report.time, 0, report.unit or 0, report.payload) for report in reports
        ]
        status_entry = _status(key, 0, status, **changed, **_trained_with(origins))
        return [*self._origin_entries(origins), *adopted, status_entry]

    def removal_entries(self, keys: Iterable[str], why: str) -> list[Entry]:
        """Return the entries that take trials out of the study (or back into it, with an empty
        ``why``); their status and what they reported stay."""
        rows = (self.rows[key] for key in keys)
        return [_status(row.key, row.attempt, row.status, row.reason, orphaned=why) for row in rows]

    def reopening_entries(self, keys: Iterable[str], reason: str) -> list[Entry]:
        """Return the entries that plan ended trials again; their reports stay, and their failures
        no longer count."""
        afresh = {"failures": 0, "exclusive": False}
        rows = (self.rows[key] for key in keys)
        return [
            _status(row.key, row.attempt, TrialStatus.PLANNED, reason, **afresh) for row in rows
        ]

    def _origin_entries(self, texts: Iterable[str]) -> list[Entry]:
        return self.meta_entries({f"{ORIGIN_META}{_digest(text)}": text for text in texts})


def _status(key: str, attempt: int, status: TrialStatus, reason: str = "", **changed: Any) -> Entry:
    payload = {"status": status, "reason": reason, **changed}
    return {"status": key, "time": time.time(), "attempt": attempt, "payload": payload}


def _trained_with(texts: Sequence[str]) -> dict[str, Any]:
    return {TRAINED_WITH: list(dict.fromkeys(map(_digest, texts)))} if texts else {}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _report(key: str, moment: float, attempt: int, unit: int, payload: Mapping[str, Any]) -> Entry:
    return {"report": key, "time": moment, "attempt": attempt, "unit": unit, "payload": payload}
