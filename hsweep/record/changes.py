"""What a transaction changed in a journal without sealing it: sealed, and told to the second copy.

What is written for every trial and report carries its checksum at once (see
``hsweep.record.standings``). Triggers note every row that comes without one, so that no statement
can forget to: they are temporary, seen by this connection alone and no part of the file.
"""

import sqlite3
from typing import Final

from hsweep.record.text_copy import (
    LOG_COLUMNS,
    PLANNED_COLUMNS,
    STATE_COLUMNS,
    Line,
    LogLine,
    MetaLine,
    TrialLine,
    log_checksum,
    row_checksum,
)

TRIAL_COLUMNS: Final = (*PLANNED_COLUMNS, *STATE_COLUMNS)
_LOG: Final = ", ".join(LOG_COLUMNS)
_TRIAL: Final = ", ".join(TRIAL_COLUMNS)
_TRIGGERS: Final = f"""
CREATE TEMP TRIGGER trial_added AFTER INSERT ON main.trials WHEN NEW.crc IS NULL BEGIN
    SELECT hsweep_noted('trial', NEW.key); END;
CREATE TEMP TRIGGER trial_placed AFTER UPDATE OF {", ".join(PLANNED_COLUMNS)} ON main.trials
    WHEN NEW.crc IS OLD.crc BEGIN SELECT hsweep_noted('trial', NEW.key); END;
CREATE TEMP TRIGGER trial_changed AFTER UPDATE OF {", ".join(STATE_COLUMNS)} ON main.trials
    WHEN NEW.crc IS OLD.crc BEGIN SELECT hsweep_noted('state', NEW.key); END;
CREATE TEMP TRIGGER entry_added AFTER INSERT ON main.log WHEN NEW.crc IS NULL BEGIN
    SELECT hsweep_noted('entry', NEW.seq); END;
CREATE TEMP TRIGGER value_set AFTER INSERT ON main.meta BEGIN
    SELECT hsweep_noted('meta', NEW.name); END;
CREATE TEMP TRIGGER value_forgotten AFTER DELETE ON main.meta BEGIN
    SELECT hsweep_noted('meta', OLD.name); END;
"""


class Changes:
    """Follows what is changed through a connection that is open for writing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._noted: dict[tuple[str, object], None] = {}
        noted = self._noted  # not self: the connection holds on to what it calls

        def note(what: str, name: object) -> None:
            noted[what, name] = None

        connection.create_function("hsweep_noted", 2, note)
        connection.executescript(_TRIGGERS)

    def forget(self) -> None:
        """Forget what was noted: the transaction was rolled back, or is not to be told of."""
        self._noted.clear()

    @property
    def has_any(self) -> bool:
        """Whether anything was noted."""
        return bool(self._noted)

    @property
    def has_trials(self) -> bool:
        """Whether anything was noted of a trial or its log."""
        return any(what != "meta" for what, _ in self._noted)

    def seal(self) -> list[Line]:
        """Give every noted row its checksum, and return the lines that tell of the changes."""
        if not self._noted:
            return []
        noted: dict[str, list[object]] = {"trial": [], "state": [], "entry": [], "meta": []}
        for what, name in self._noted:
            noted[what].append(name)
        self.forget()
        entries = self._sealed_entries(noted["entry"])
        lines: list[Line] = []
        for key in dict.fromkeys((*noted["trial"], *noted["state"])):
            row = self._sealed_trial(key)
            if key in noted["trial"]:
                lines.append(TrialLine(row[: len(PLANNED_COLUMNS)]))
            if key in entries:
                lines.append(self._log_line(str(key), entries.pop(key), row))
        for key, added in entries.items():
            unchanged = self._trial(key)
            if unchanged is not None:
                lines.append(self._log_line(str(key), added, unchanged))
        if noted["meta"]:
            lines.append(MetaLine({str(name): self._meta(name) for name in noted["meta"]}))
        return lines

    def _sealed_entries(self, numbers: list[object]) -> dict[object, list[tuple[object, ...]]]:
        found: dict[object, list[tuple[object, ...]]] = {}
        for seq in numbers:
            key, *rest = self._connection.execute(
                f"SELECT key, {_LOG} FROM log WHERE seq = ?", (seq,)
            ).fetchone()
            entry = tuple(rest)
            self._connection.execute(
                "UPDATE log SET crc = ? WHERE seq = ?", (log_checksum(key, entry), seq)
            )
            found.setdefault(key, []).append(entry)
        return found

    def _sealed_trial(self, key: object) -> tuple[object, ...]:
        row = self._trial(key)
        assert row is not None
        self._connection.execute(
            "UPDATE trials SET crc = ? WHERE key = ?", (row_checksum(row), key)
        )
        return row

    def _trial(self, key: object) -> tuple[object, ...] | None:
        row: tuple[object, ...] | None = self._connection.execute(
            f"SELECT {_TRIAL} FROM trials WHERE key = ?", (key,)
        ).fetchone()
        return row

    def _log_line(
        self, key: str, added: list[tuple[object, ...]], row: tuple[object, ...]
    ) -> LogLine:
        (before,) = self._connection.execute(
            "SELECT COALESCE(MAX(seq), 0) FROM log WHERE key = ? AND seq < ?", (key, added[0][0])
        ).fetchone()
        return LogLine(key, before, tuple(added), row[len(PLANNED_COLUMNS) :])

    def _meta(self, name: object) -> str | None:
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])
