"""Where the trials stand that are being recorded, as the only writer of the record knows them.

A report changes two rows, each sealed with a checksum over all its columns, and is told to the
second copy. Who knows the rows needs not read them back: a report is one insertion and one update.
"""

import json
import sqlite3
import time
import zlib
from dataclasses import dataclass, field, fields
from typing import Final

from hsweep.design.trial import TrialStatus
from hsweep.record.text_copy import (
    PLANNED_COLUMNS,
    STATE_COLUMNS,
    ToldLine,
    log_checksum,
    log_line,
)

_TIMES: Final = ("train_seconds", "data_seconds")
"""Of the last report, kept for a quick sum; no part of what is sealed."""
_LOAD: Final = (
    f"SELECT {', '.join((*PLANNED_COLUMNS, *STATE_COLUMNS, *_TIMES))}, crc,"
    " (SELECT COALESCE(MAX(seq), 0) FROM log WHERE log.key = trials.key)"
    " FROM trials WHERE key = ?"
)
_SAVE: Final = (
    f"UPDATE trials SET {', '.join(f'{name} = ?' for name in (*STATE_COLUMNS, *_TIMES, 'crc'))}"
    " WHERE key = ? AND crc IS ?"
)
_ENTER: Final = (
    "INTO log (time, key, attempt, kind, unit, payload, crc) VALUES (?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(slots=True)
class State:
    """Where a trial stands: the columns of ``STATE_COLUMNS``, in their order."""

    status: str = "planned"
    reason: str = ""
    attempt: int = 0
    unit: int = 0
    value: float | None = None
    wall_seconds: float = 0.0
    failures: int = 0
    alone: int = 0
    orphaned: str = ""
    reused_from: str = ""
    continues: str = ""

    def columns(self) -> tuple[object, ...]:
        """Return the values as the database gives them back."""
        return (
            str(self.status), self.reason, self.attempt, self.unit, _real(self.value),
            _real(self.wall_seconds), self.failures, self.alone, self.orphaned, self.reused_from,
            self.continues,
        )  # fmt: skip


assert tuple(each.name for each in fields(State)) == STATE_COLUMNS


@dataclass(slots=True)
class Standing:
    """A trial's row, and what is being added to its log.

    Attributes:
        key: of the trial.
        state: where it stands.
        times: seconds of training and of waiting for data by the last report; None if not known.
        last_seq: number of its last log entry; 0 for none.
        checksum: of the row in the database.
    """

    key: str
    state: State
    times: tuple[float | None, float | None]
    last_seq: int
    checksum: int | None
    _planned_checksum: int
    _added: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    def of(cls, connection: sqlite3.Connection, key: str) -> "Standing | None":
        """Read a trial's row; None if there is none."""
        row = connection.execute(_LOAD, (key,)).fetchone()
        if row is None:
            return None
        *columns, train_seconds, data_seconds, checksum, last_seq = row
        planned, state = columns[: len(PLANNED_COLUMNS)], columns[len(PLANNED_COLUMNS) :]
        return cls(
            key,
            State(*state),
            (train_seconds, data_seconds),
            last_seq,
            checksum,
            planned_checksum(planned),
        )

    def enter(
        self,
        connection: sqlite3.Connection,
        kind: str,
        attempt: int,
        unit: int | None,
        payload: str,
        moment: float | None = None,
    ) -> bool:
        """Add an entry to the log, at ``moment`` (now); return whether it was new, which a second
        report of a unit is not."""
        if moment is None:
            moment = time.time()
        checksum = log_checksum(self.key, (None, moment, attempt, kind, unit, payload))
        cursor = connection.execute(
            f"INSERT {'OR IGNORE ' if kind == 'report' else ''}{_ENTER}",
            (moment, self.key, attempt, kind, unit, payload, checksum),
        )
        if cursor.rowcount <= 0:
            return False
        assert cursor.lastrowid is not None
        head = json.dumps((cursor.lastrowid, moment, attempt, kind, unit))
        self._added.append((cursor.lastrowid, f"{head[:-1]}, {payload}]"))
        return True

    def save(self, connection: sqlite3.Connection) -> list[ToldLine]:
        """Write the row, and return the line that tells of what was added.

        Raises:
            sqlite3.IntegrityError: the row is not the one that was read.
        """
        columns = self.state.columns()
        state = json.dumps(columns)
        checksum = zlib.crc32(state[1:].encode(), self._planned_checksum)
        cursor = connection.execute(
            _SAVE, (*columns, *self.times, checksum, self.key, self.checksum)
        )
        if cursor.rowcount != 1:
            raise sqlite3.IntegrityError(f"the row of trial {self.key!r} was changed meanwhile")
        self.checksum = checksum
        if not self._added:
            return []
        entries = ", ".join(text for _, text in self._added)
        line = ToldLine(log_line(self.key, self.last_seq, entries, state))
        self.last_seq = self._added[-1][0]
        self._added.clear()
        return [line]


class Standings:
    """The trials that something was recorded of lately; ended ones are forgotten.

    Args:
        connection: open for writing, and the only one that writes trials.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, Standing] = {}

    def of(self, key: str) -> Standing | None:
        """Return how a trial stands; None if the record has none of that key."""
        known = self._known.get(key)
        if known is None:
            known = Standing.of(self._connection, key)
            if known is not None:
                self._known[key] = known
        return known

    def save(self, standing: Standing) -> list[ToldLine]:
        """Write a trial's row, and return the line that tells of what was added to its log."""
        lines = standing.save(self._connection)
        if TrialStatus(standing.state.status).is_final:
            self._known.pop(standing.key, None)
        return lines

    def forget(self) -> None:
        """Forget all: rows were changed in another way, or a change was taken back."""
        self._known.clear()


def planned_checksum(planned: "list[object] | tuple[object, ...]") -> int:
    """Return what the checksum of a trial's row begins with: the columns of ``PLANNED_COLUMNS``."""
    return zlib.crc32(f"{json.dumps(list(planned))[:-1]}, ".encode())


def _real(value: float | None) -> float | None:
    """Return a number as SQLite gives it back: NaN is no value, and 0 has no sign."""
    if value is None or value != value:
        return None
    return float(value) + 0.0
