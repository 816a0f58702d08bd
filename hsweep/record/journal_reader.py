"""Reading a study's record, from its index."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from hsweep.design.trial_status import TrialStatus
from hsweep.errors import UserError
from hsweep.paths import index_file
from hsweep.record.index import (
    NOTED,
    SELECT_TRIALS,
    by_column,
    catch_up,
    is_damage,
    is_of_log,
    open_index,
    remove_index,
    rows_from,
)
from hsweep.record.log import Log, inaccessible
from hsweep.record.manifest import Manifest
from hsweep.record.rows import REPORTED_COUNTS, LogRow, RawReport, TrialRow

ORIGIN_META: Final = "origin:"
"""Prefix of the metas that hold origins: the code and versions that train trials."""
TRAINED_WITH: Final = "trained_with"
"""Column of a status entry: digests of the origins of a trial that begins or is adopted."""

LEFT_OUT: Final = "left_out"
"""Name of the meta that holds which nodes got no trials in the last run, a line each."""
OFFSET: Final = "offset"
"""Name of the meta that holds what is added to the counts of the study's script, where its rows
have told."""
RUNS: Final = "runs"
"""Name of the meta that holds how many trials a complete study will have started."""
MOST: Final = "most"
"""Name of the meta that holds how many that is in the longest search in rounds of many."""
ROUND: Final = "round"
"""Name of the meta that holds the present round of a search, in words."""
LACKING: Final = "lacking"
"""Name of the meta that holds, for the runs that the answer lacked when the study last ended, how
many trials they come to."""

_LAST_CHARACTER: Final = "\U0010ffff"
"""Sorts behind every other character, so that names with a prefix are a range of the index."""
_ROWS_AT_ONCE: Final = 20_000
_ENTRIES: Final = "SELECT seq, time, key, attempt, kind, unit, payload FROM log"
_REPORTS: Final = "SELECT key, time, attempt, unit, payload FROM log"
_OF_KEYS: Final = "key IN (SELECT value FROM json_each(?))"
_ERRORS: Final = (
    "kind = 'status' AND (json_extract(payload, '$.status') = 'failed'"
    " OR instr(trim(json_extract(payload, '$.reason'), char(9, 10, 13, 32)), char(10)))"
)
_LOST: Final = (TrialStatus.DIVERGED, TrialStatus.FAILED, TrialStatus.TOO_LARGE)


class JournalReader:
    """The record of a study, read from the index of its log, also beside a running driver.

    Every method reads up to the present end of the log, except within a `snapshot`.

    Raises:
        UserError: the log is missing, or the record cannot be read here.
    """

    def __init__(self, folder: Path) -> None:
        self._attach(Log(folder))
        try:
            with self._readable():
                pass
        except UserError:
            self.close()
            raise

    def _attach(self, log: Log) -> None:
        self._log, self._index_path = log, index_file(log.folder)
        self._index: sqlite3.Connection | None = None
        self._indexed = -1

    def close(self) -> None:
        index, self._index = self._index, None
        if index is not None:
            index.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _readable(self) -> Iterator[sqlite3.Connection]:
        """Yield the index, up to date; an error in reading it becomes a UserError."""
        path, log = self._index_path, self._log
        try:
            index = self._index
            if index is None or not (index.in_transaction or log.size == self._indexed):
                if index is not None and not is_of_log(index, log):
                    index.close()
                    self._index = index = None
                self._index = index = index or open_index(path, log)
                self._indexed = catch_up(index, log)
            yield index
        except (OSError, sqlite3.DatabaseError, ValueError, TypeError) as error:
            if isinstance(error, UserError):
                raise
            if isinstance(error, OSError) or not is_damage(error):
                raise inaccessible(log.folder, "read", error, path.parent) from error
            with suppress(OSError):
                remove_index(path)
            raise UserError(
                f"the index {path} was damaged ({error}) and is removed; give the command "
                "again: it is built from the study's log then, and nothing is lost"
            ) from error

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._readable() as index:
            return index.execute(query, values).fetchall()

    def _batches(self, query: str, *values: object) -> Iterator[list[tuple[Any, ...]]]:
        with self._readable() as index:
            rows = index.execute(query, values)
            while batch := rows.fetchmany(_ROWS_AT_ONCE):
                yield batch

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read the record as of one instant within this context, whatever is recorded meanwhile."""
        with self._readable() as index:
            index.execute("BEGIN")
            # SQLite takes the instant at the first reading.
            index.execute("SELECT 1 FROM position").fetchone()
        try:
            yield
        finally:
            if index.in_transaction:
                index.execute("ROLLBACK")

    def meta(self, name: str) -> str | None:
        """Return a value of the study as a whole, None if it was never set."""
        rows = self._rows("SELECT value FROM meta WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    def metas(self, prefix: str) -> dict[str, str]:
        """Return the values whose names begin with ``prefix``, by the rest of the name."""
        query = "SELECT substr(name, ?), value FROM meta WHERE name >= ? AND name < ?"
        rows = self._rows(query, len(prefix) + 1, prefix, prefix + _LAST_CHARACTER)
        return {str(name): str(value) for name, value in rows}

    def totals(self) -> dict[str, Any]:
        """Return the study's numbers as a whole, without reading single trials.

        Orphaned trials count only under ``orphaned`` and in the share of the training time that
        was waiting for data (None if none was measured), reused ones not in ``wall_seconds``;
        ``tried_again`` are the trials of which an attempt failed, ``budget`` is the largest.
        """
        counts = self.status_counts()
        [(*sums, trained, waited)] = self._rows(
            "SELECT COALESCE(SUM(reused_from != '' AND here), 0),"
            " COALESCE(SUM(failures > 0 AND here), 0),"
            " COALESCE(SUM(orphaned != ''), 0),"
            " COALESCE(SUM(unit * here), 0),"
            " COALESCE(MAX(budget * here), 0),"
            " TOTAL(wall_seconds * (reused_from = '' AND here)),"
            " TOTAL(train_seconds), TOTAL(data_seconds)"
            " FROM (SELECT *, orphaned = '' AS here FROM trials)"
        )
        names = (
            *("reused", "tried_again", "orphaned"),
            *("units_done", "budget", "wall_seconds"),
        )
        return {
            "trials": sum(counts.values()),
            **{str(status): number for status, number in counts.items()},
            **dict(zip(names, sums, strict=True)),
            "data_wait_share": waited / trained if trained else None,
        }

    def num_runs(self) -> int:
        """Return how many trials will have been started when the study is complete, as far as the
        run that trained it last knew."""
        counts = self.status_counts()
        runs = sum(counts.values()) - counts[TrialStatus.NOT_NEEDED]
        expected = self.meta(RUNS)
        return runs if expected is None else max(int(expected), runs - counts[TrialStatus.PLANNED])

    def lacking(self) -> dict[str, int]:
        """Return how many trials each of the runs comes to that the answer lacked when the study
        last ended, by their names (see ``Missing``)."""
        return dict(json.loads(self.meta(LACKING) or "{}"))

    def status_counts(self) -> dict[TrialStatus, int]:
        rows = self._rows("SELECT status, COUNT(*) FROM trials WHERE orphaned = '' GROUP BY 1")
        counts = {TrialStatus(name): number for name, number in rows}
        return {status: counts.get(status, 0) for status in TrialStatus}

    def trials(self, *, orphaned: bool = False) -> list[TrialRow]:
        """Return the study's trials in the order of the plan; ``orphaned`` adds trials that are no
        longer part of it."""
        return self._trial_rows(self.trial_columns(orphaned=orphaned))

    def trial_columns(self, *, orphaned: bool = False) -> dict[str, list[Any]]:
        """Return the columns of `trials` as they are stored: ``point``, ``counts``, ``parts`` and
        ``last`` as JSON texts."""
        where = "" if orphaned else "WHERE orphaned = ''"
        return self._columns(f"{where} ORDER BY ordinal, rowid")

    def trials_of(self, keys: Iterable[str]) -> dict[str, TrialRow]:
        """Return the trials with these keys, orphaned ones included, by key."""
        columns = self._columns(f"WHERE {_OF_KEYS} ORDER BY ordinal, rowid", json.dumps([*keys]))
        return {row.key: row for row in self._trial_rows(columns)}

    def best_trials(self, number: int, manifest: Manifest) -> list[TrialRow]:
        """Return the best finished trials by the study's metric, the best first; of trials with
        equal values the first in the plan comes first."""
        metric, order = manifest.metric, "DESC" if manifest.goal == "max" else "ASC"
        value = "(SELECT value FROM json_each(last, '$.metrics') WHERE key = ?)"
        where = (
            f"WHERE status = ? AND {value} IS NOT NULL AND orphaned = ''"
            f" ORDER BY {value} {order}, ordinal LIMIT ?"
        )
        return self._trial_rows(self._columns(where, TrialStatus.FINISHED, metric, metric, number))

    def _trial_rows(self, columns: dict[str, list[Any]]) -> list[TrialRow]:
        with self._readable():
            return rows_from(columns)

    def _columns(self, where: str, *values: object) -> dict[str, list[Any]]:
        return by_column(self._rows(f"{SELECT_TRIALS} {where}", *values))

    def losses(self) -> dict[TrialStatus, dict[str, int]]:
        losses = {
            lost: self._counted("reason", f"status = '{lost}' AND orphaned = ''") for lost in _LOST
        }
        return {lost: reasons for lost, reasons in losses.items() if reasons}

    def reused_from(self) -> dict[str, int]:
        return self._counted("reused_from", "reused_from != '' AND orphaned = ''")

    def orphaned_counts(self) -> dict[str, int]:
        return self._counted("orphaned", "orphaned != ''")

    def _counted(self, column: str, where: str) -> dict[str, int]:
        query = f"SELECT {column}, COUNT(*) FROM trials WHERE {where} GROUP BY 1"
        return {
            str(value): number for value, number in self._rows(f"{query} ORDER BY MIN(ordinal)")
        }

    def origins(self, key: str | None = None) -> dict[str, list[str]]:
        """Return the origins (code and versions, see ``Trial.origin``) that trained all trials, or
        one, by key, in the order of the record; trials whose origin is not known are left out."""
        texts = self.metas(ORIGIN_META)
        if not texts:
            return {}
        rows = self._rows(
            f"SELECT key, json_extract(payload, '$.{TRAINED_WITH}') FROM log WHERE"
            f" {'key = ? AND' if key is not None else ''} kind = 'status'"
            f" AND instr(payload, '\"{TRAINED_WITH}\"') ORDER BY seq",
            *(() if key is None else (key,)),
        )
        origins: dict[str, dict[str, None]] = {}
        for trained_key, digests in rows:
            for digest in json.loads(digests or "[]"):
                if digest in texts:
                    origins.setdefault(str(trained_key), {})[texts[digest]] = None
        return {trained_key: list(by_text) for trained_key, by_text in origins.items()}

    def reported_keys(self) -> frozenset[str]:
        rows = self._rows("SELECT DISTINCT key FROM log WHERE kind = 'report'")
        return frozenset(key for (key,) in rows)

    def points(self, most: int = -1) -> list[Mapping[str, Any]]:
        """Return the distinct points (axis values) of the study's trials, at most ``most``."""
        query = "SELECT DISTINCT point FROM trials WHERE orphaned = '' ORDER BY ordinal LIMIT ?"
        return [json.loads(point) for (point,) in self._rows(query, most)]

    def report_batches(self, keys: Iterable[str] | None = None) -> Iterator[list[RawReport]]:
        """Yield the reports of all trials in the order they were recorded, or of some, trial by
        trial: many at once, as they are stored."""
        where, values = _of_reports(keys)
        return self._batches(f"{_REPORTS} WHERE {where}", *values)

    def further_metrics(self, known: Collection[str]) -> list[str]:
        """Return the names of metrics in reports that are not ``known``, sorted; costs are none."""
        query = (
            "SELECT DISTINCT metric.key FROM log, json_each(log.payload, '$.metrics') AS metric"
            " WHERE log.kind = 'report'"
        )
        names = {name for batch in self._batches(query) for (name,) in batch}
        return sorted(names - {*known, *REPORTED_COUNTS})

    def _select(self, where: str, *values: object) -> Iterator[LogRow]:
        for batch in self._batches(f"{_ENTRIES} WHERE {where}", *values):
            with self._readable():
                rows = [LogRow(*(*entry, json.loads(text))) for *entry, text in batch]
            yield from rows

    def reports(self, keys: Iterable[str] | None = None) -> Iterator[LogRow]:
        """Yield the reports of all trials in the order they were recorded, or of the trials with
        these keys, trial by trial."""
        where, values = _of_reports(keys)
        return self._select(where, *values)

    def last_ends(self, number: int) -> list[LogRow]:
        """Return the newest entries by which trials ended, the newest first, without trials that
        were planned again since or were not needed."""
        ends = (status for status in TrialStatus if status is not TrialStatus.NOT_NEEDED)
        final = json.dumps([status for status in ends if status.is_final])
        where = (
            "kind = 'status' AND json_extract(payload, '$.status') IN (SELECT value FROM"
            " json_each(?)) AND seq = (SELECT MAX(seq) FROM log AS other WHERE"
            " other.key = log.key AND other.kind = 'status') ORDER BY seq DESC LIMIT ?"
        )
        return list(self._select(where, final, number))

    def status_times(self, keys: Iterable[str]) -> dict[str, float]:
        """Return the time at which the last status of each trial was recorded, by key: for a trial
        in training, the beginning of its attempt."""
        query = f"SELECT key, MAX(time) FROM log WHERE kind = 'status' AND {_OF_KEYS} GROUP BY key"
        return {str(key): float(time) for key, time in self._rows(query, json.dumps([*keys]))}

    def last_time(self) -> float | None:
        """Return when the newest report or status was recorded; None where there is none."""
        rows = self._rows("SELECT time FROM log ORDER BY seq DESC LIMIT 1")
        return float(rows[0][0]) if rows else None

    def last_report(self, key: str, *, before: int) -> LogRow | None:
        """Return the newest report of a trial among the entries before entry ``before``."""
        where = "kind = 'report' AND key = ? AND seq < ? ORDER BY seq DESC LIMIT 1"
        return next(self._select(where, key, before), None)

    def noted_reports(self) -> list[LogRow]:
        """Return the reports with a note."""
        return list(self._select(f"{NOTED} ORDER BY seq"))

    def errors(self) -> Iterator[LogRow]:
        """Return the status entries of failed trials, and those with a reason of several lines,
        such as a traceback, in the order they were recorded."""
        return self._select(f"{_ERRORS} ORDER BY seq")

    def log_after(self, seq: int, limit: int) -> list[LogRow]:
        return list(self._select("seq > ? ORDER BY seq LIMIT ?", seq, limit))

    def last_seq(self) -> int:
        return int(self._rows("SELECT COALESCE(MAX(seq), 0) FROM log")[0][0])

    def count_after(self, seq: int) -> int:
        """Return how many entries follow entry ``seq``; the numbers may have gaps."""
        return int(self._rows("SELECT COUNT(*) FROM log WHERE seq > ?", seq)[0][0])


def _of_reports(keys: Iterable[str] | None) -> tuple[str, tuple[str, ...]]:
    """Return the condition for reports, of all trials or of some, and its values."""
    if keys is None:
        return "kind = 'report' ORDER BY seq", ()
    return f"kind = 'report' AND {_OF_KEYS} ORDER BY key, seq", (json.dumps([*keys]),)
