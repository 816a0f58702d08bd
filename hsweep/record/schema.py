"""The tables of a study's index, and how an entry of the log changes them."""

import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hsweep.record.log import Entry

_TRIALS: Final = {
    "key": "TEXT PRIMARY KEY",
    "ordinal": "INTEGER NOT NULL",
    "point": "TEXT NOT NULL",
    "replicate": "INTEGER NOT NULL",
    "stratum": "TEXT NOT NULL",
    "budget": "INTEGER NOT NULL",
    "counts": "TEXT NOT NULL",
    "parts": "TEXT NOT NULL",
    "status": "TEXT NOT NULL DEFAULT 'planned'",
    "reason": "TEXT NOT NULL DEFAULT ''",
    "attempt": "INTEGER NOT NULL DEFAULT 0",
    "unit": "INTEGER NOT NULL DEFAULT 0",
    "value": "REAL",
    "wall_seconds": "REAL NOT NULL DEFAULT 0",
    "failures": "INTEGER NOT NULL DEFAULT 0",
    "exclusive": "INTEGER NOT NULL DEFAULT 0",
    "orphaned": "TEXT NOT NULL DEFAULT ''",
    "reused_from": "TEXT NOT NULL DEFAULT ''",
    "continues": "TEXT NOT NULL DEFAULT ''",
}
"""What is read of a trial: the columns that hold it, in the order of ``TrialRow``."""
TRIAL_COLUMNS: Final = tuple(_TRIALS)
PLANNED_COLUMNS: Final = TRIAL_COLUMNS[: TRIAL_COLUMNS.index("status")]
JSON_COLUMNS: Final = ("point", "counts", "parts")

SAID_OF_COUNTS: Final = ("num_params",)
"""Costs that a report of one's own training may name where the plan does not know them."""

METRIC_META: Final = "metric"
"""Under this name the log says that another metric decides from there on, also of what is reported.
"""

FIGURES: Final = ("learning_rate", "grad_norm", "running_loss", "examples_per_second")
"""Of the updates before a report: what every table of reports and every tracker has besides
metrics, unless a metric has that name."""

RawReport = tuple[str, float, int, int, str]
"""A report as it is stored: key, time, attempt, unit, payload (JSON)."""
RawTrial = tuple[Any, ...]
"""A trial as it is stored, in the order of ``TRIAL_COLUMNS``."""

REMARKED: Final = (
    "kind = 'report' AND (instr(payload, '\"micro_batch\"') OR instr(payload, '\"note\"'))"
)
"""Which rows of ``log`` are reports that hold more than numbers, as SQL."""

TABLES: Final = (
    "CREATE TABLE held (start INTEGER NOT NULL, end INTEGER NOT NULL, checksum TEXT NOT NULL)",
    "INSERT INTO held VALUES (0, 0, '')",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    f"CREATE TABLE trials ({', '.join(map(' '.join, _TRIALS.items()))},"
    " train_seconds REAL, data_seconds REAL)",
    "CREATE TABLE log (seq INTEGER PRIMARY KEY, time REAL NOT NULL, key TEXT NOT NULL,"
    " attempt INTEGER NOT NULL, kind TEXT NOT NULL, unit INTEGER, value REAL,"
    " payload TEXT NOT NULL)",
    "CREATE UNIQUE INDEX one_report_a_unit ON log (key, unit) WHERE kind = 'report'",
    "CREATE INDEX log_by_key ON log (key, seq)",
)
LATER_INDEXES: Final = (
    "CREATE INDEX trials_in_order ON trials (ordinal)",
    f"CREATE INDEX remarked ON log (seq) WHERE {REMARKED}",
)
"""Indexes that are made once the tables are filled."""
VERSION: Final = zlib.crc32("".join(TABLES + LATER_INDEXES).encode()) & 0x7FFFFFFF
"""An index with other tables has another number."""

_PLACE: Final = (
    f"UPDATE trials SET {', '.join(f'{name} = ?' for name in PLANNED_COLUMNS[1:])} WHERE key = ?"
)
_ADD: Final = (
    f"INSERT INTO trials ({', '.join(PLANNED_COLUMNS)})"
    f" VALUES ({', '.join('?' * len(PLANNED_COLUMNS))})"
)
_ENTER: Final = "INSERT OR IGNORE INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_REACH: Final = (
    "UPDATE trials SET attempt = MAX(attempt, ?), unit = ?, value = ?, wall_seconds = ?,"
    " train_seconds = ?, data_seconds = ? WHERE key = ? AND unit < ?"
)
_CHANGED_BY_A_STATUS: Final = ("failures", "exclusive", "orphaned", "reused_from", "continues")
_CHANGE: Final = (
    "UPDATE trials SET attempt = MAX(attempt, ?), status = ?, reason = ?,"
    f" {', '.join(f'{name} = COALESCE(?, {name})' for name in _CHANGED_BY_A_STATUS)} WHERE key = ?"
)


def apply(connection: sqlite3.Connection, entry: Entry, seq: int) -> bool:
    """Change the tables as an entry of the log says; ``seq`` numbers its row in ``log``, if it is
    a report or a status. Return whether it is of any consequence: a second report of a unit is not.
    """
    if "report" in entry or "status" in entry:
        kind = "report" if "report" in entry else "status"
        key, payload = entry[kind], entry["payload"]
        moment, attempt = entry["time"], entry["attempt"]
        unit, value = entry.get("unit"), entry.get("value")
        row = (seq, moment, key, attempt, kind, unit, value, json.dumps(payload))
        if connection.execute(_ENTER, row).rowcount <= 0:
            return False
        _move(connection, key, attempt, unit, value, payload)
    elif "trial" in entry:
        _plan(connection, entry)
    elif entry["value"] is None:
        connection.execute("DELETE FROM meta WHERE name = ?", (entry["meta"],))
    else:
        named = (entry["meta"], entry["value"])
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", named)
        if entry["meta"] == METRIC_META:
            _decide_by(connection, entry["value"])
    return True


def _decide_by(connection: sqlite3.Connection, metric: str) -> None:
    metrics = "SELECT value FROM json_each(payload, '$.metrics') WHERE key = ?"
    connection.execute(f"UPDATE log SET value = ({metrics}) WHERE kind = 'report'", (metric,))
    reported = "SELECT value FROM log WHERE key = trials.key AND unit = trials.unit"
    connection.execute(f"UPDATE trials SET value = ({reported} AND kind = 'report')")


def _move(
    connection: sqlite3.Connection,
    key: str,
    attempt: int,
    unit: int | None,
    value: float | None,
    payload: Mapping[str, Any],
) -> None:
    """Change a trial's state by one of its reports (which has a ``unit``) or statuses."""
    if unit is None:
        changed = map(payload.get, ("status", "reason", *_CHANGED_BY_A_STATUS))
        connection.execute(_CHANGE, (attempt, *changed, key))
    else:
        times = map(payload.get, ("wall_seconds", "train_seconds", "data_seconds"))
        connection.execute(_REACH, (attempt, unit, value, *times, key, unit))


def _plan(connection: sqlite3.Connection, entry: Entry) -> None:
    key = entry["trial"]
    others = [
        json.dumps(entry[name]) if name in JSON_COLUMNS else entry[name]
        for name in PLANNED_COLUMNS[1:]
    ]
    if connection.execute(_PLACE, (*others, key)).rowcount > 0:
        return
    connection.execute(_ADD, (key, *others))
    # The line that planned it before may be damaged: what became of it since is there.
    query = "SELECT attempt, unit, value, payload FROM log WHERE key = ? ORDER BY seq"
    for attempt, unit, value, payload in connection.execute(query, (key,)).fetchall():
        _move(connection, key, attempt, unit, value, json.loads(payload))


def trial_columns(
    rows: Sequence[RawTrial], parsed: Sequence[str] = JSON_COLUMNS
) -> dict[str, Sequence[Any]]:
    """Return trials as they are stored column by column, those of JSON texts ``parsed``."""
    columns: dict[str, Sequence[Any]] = {
        name: [row[at] for row in rows] for at, name in enumerate(TRIAL_COLUMNS)
    }
    for name in parsed:
        # The replicates of a shape hold the same texts.
        read = {text: json.loads(text) for text in set(columns[name])}
        columns[name] = [read[text] for text in columns[name]]
    return columns
