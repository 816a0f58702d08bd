"""Reading a study's record, from its index."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from hsweep.design.trial import TrialStatus
from hsweep.errors import UserError
from hsweep.record.index import Index, is_damage
from hsweep.record.rows import LogRow, Totals, TrialRow
from hsweep.record.schema import REMARKED, TRIAL_COLUMNS, RawReport, RawTrial

ORIGIN_META: Final = "origin:"
"""Begins the names under which it is kept what trials are trained with."""
TRAINED_WITH: Final = "trained_with"
"""In the log: digests of it, where a trial begins or is given reports from elsewhere."""

_LAST_CHARACTER: Final = "\U0010ffff"
"""Sorts behind every other, so that what begins with a prefix is a range of the index."""
_KEYS_AT_ONCE: Final = 500
"""SQLite takes a limited number of values in one statement."""
_ROWS_AT_ONCE: Final = 20_000
_TRIALS: Final = f"SELECT {', '.join(TRIAL_COLUMNS)} FROM trials"
_ENTRIES: Final = "SELECT seq, time, key, attempt, kind, unit, payload FROM log"
_NEWEST_REPORTS: Final = "SELECT MAX(seq) FROM log WHERE kind = 'report' GROUP BY key"
_ERRORS: Final = "kind = 'status' AND (instr(payload, '\\n') OR instr(payload, 'failed'))"
"""Status entries whose reason may have several lines, as JSON writes them."""


class JournalReader:
    """What an open record says.

    Args:
        index: of its log.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._connection = index.connection

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            if isinstance(error, UserError):
                raise
            if not is_damage(error):
                raise UserError(f"the index {self._index.path} cannot be read ({error})") from error
            self._index.remove()
            raise UserError(
                f"the index {self._index.path} was damaged ({error}) and is removed; give the "
                "command again: it is built from the study's log then, and nothing is lost"
            ) from error

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._readable():
            return self._connection.execute(query, values).fetchall()

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
        rows = self._rows("SELECT value FROM meta WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    def metas(self, prefix: str) -> dict[str, str]:
        """Return the values whose names begin with ``prefix``, by the rest of the name."""
        query = "SELECT substr(name, ?), value FROM meta WHERE name >= ? AND name < ?"
        rows = self._rows(query, len(prefix) + 1, prefix, prefix + _LAST_CHARACTER)
        return {str(name): str(value) for name, value in rows}

    def totals(self) -> Totals:
        """Return the study's numbers as a whole, without reading single trials."""
        rows = self._rows(
            "SELECT status, orphaned != '', COUNT(*), SUM(reused_from != ''), SUM(failures > 0),"
            " SUM(unit), MAX(budget), SUM(CASE WHEN reused_from = '' THEN wall_seconds ELSE 0.0"
            " END), SUM(train_seconds), SUM(data_seconds) FROM trials GROUP BY 1, 2"
        )
        found = Totals()
        with self._readable():
            for name, is_orphaned, number, *sums in rows:
                found.add(TrialStatus(name), bool(is_orphaned), number, sums)
        return found

    def trials(self, *, orphaned: bool = False) -> list[TrialRow]:
        """Return the study's trials in the order of the plan.

        Args:
            orphaned: also those that are no longer part of it.
        """
        with self._readable():
            return _trial_rows(self.raw_trials(orphaned=orphaned))

    def raw_trials(self, *, orphaned: bool = False) -> list[RawTrial]:
        """Return what `trials` returns, as it is stored."""
        where = "" if orphaned else "WHERE orphaned = ''"
        return self._rows(f"{_TRIALS} {where} ORDER BY ordinal, rowid")

    def trials_of(self, keys: Iterable[str]) -> dict[str, TrialRow]:
        """Return the trials with these keys, orphaned ones included, by key."""
        wanted = list(dict.fromkeys(keys))
        found: dict[str, TrialRow] = {}
        for first in range(0, len(wanted), _KEYS_AT_ONCE):
            some = wanted[first : first + _KEYS_AT_ONCE]
            with self._readable():
                among = f"WHERE key IN ({', '.join('?' * len(some))}) ORDER BY ordinal, rowid"
                rows = _trial_rows(self._rows(f"{_TRIALS} {among}", *some))
            found.update((row.key, row) for row in rows)
        return found

    def best_trials(self, number: int, *, highest: bool) -> list[TrialRow]:
        """Return the finished trials with the best values, the best one first."""
        query = (
            f"{_TRIALS} WHERE status = ? AND value IS NOT NULL AND orphaned = ''"
            f" ORDER BY value {'DESC' if highest else 'ASC'}, ordinal LIMIT ?"
        )
        with self._readable():
            return _trial_rows(self._rows(query, TrialStatus.FINISHED, number))

    def losses(self) -> dict[TrialStatus, dict[str, int]]:
        """Return why trials of the study gave no number: how many for each status and reason."""
        lost = (TrialStatus.DIVERGED, TrialStatus.FAILED, TrialStatus.TOO_LARGE)
        rows = self._rows(
            "SELECT status, reason, COUNT(*) FROM trials WHERE status IN (?, ?, ?)"
            " AND orphaned = '' GROUP BY 1, 2 ORDER BY 3 DESC, 2",
            *lost,
        )
        found: dict[TrialStatus, dict[str, int]] = {}
        for status, reason, number in rows:
            found.setdefault(TrialStatus(status), {})[str(reason)] = int(number)
        return {status: found[status] for status in lost if status in found}

    def reused_from(self) -> dict[str, int]:
        """Return how many trials of the study each other study trained."""
        rows = self._rows(
            "SELECT reused_from, COUNT(*) FROM trials"
            " WHERE reused_from != '' AND orphaned = '' GROUP BY 1 ORDER BY MIN(ordinal)"
        )
        return {str(study): int(number) for study, number in rows}

    def finished_trials(self) -> list[tuple[str, str, Mapping[str, str]]]:
        """Return all trials that ran to their end, orphaned ones included: their keys, the studies
        that trained them (empty: this one), and their parts."""
        query = "SELECT key, reused_from, parts FROM trials WHERE status = ?"
        rows = self._rows(query, TrialStatus.FINISHED)
        with self._readable():
            return [(str(key), str(study), json.loads(text)) for key, study, text in rows]

    def origins(self, key: str | None = None) -> dict[str, list[str]]:
        """Return what trials were trained with, as texts, in the order of the record.

        Args:
            key: of the one trial to look at; None for all. A trial of which nothing was trained,
                or of which it is not known, is not among them.
        """
        texts = self.metas(ORIGIN_META)
        rows = self._rows(
            f"SELECT key, json_extract(payload, '$.{TRAINED_WITH}') FROM log WHERE"
            f" {'key = ? AND' if key is not None else ''} kind = 'status'"
            f" AND instr(payload, '\"{TRAINED_WITH}\"') ORDER BY seq",
            *(() if key is None else (key,)),
        )
        found: dict[str, dict[str, None]] = {}
        for of, digests in rows:
            for digest in json.loads(digests or "[]"):
                if digest in texts:
                    found.setdefault(str(of), {})[texts[digest]] = None
        return {of: list(each) for of, each in found.items()}

    def reported_keys(self) -> frozenset[str]:
        """Return the keys of the trials that have a report."""
        rows = self._rows("SELECT DISTINCT key FROM log WHERE kind = 'report'")
        return frozenset(key for (key,) in rows)

    def orphaned_counts(self) -> dict[str, int]:
        """Return how many trials are no longer part of the study, by the reason."""
        rows = self._rows(
            "SELECT orphaned, COUNT(*) FROM trials WHERE orphaned != '' GROUP BY orphaned"
            " ORDER BY MIN(ordinal)"
        )
        return {str(why): int(number) for why, number in rows}

    def points(self, most: int = -1) -> list[Mapping[str, Any]]:
        """Return the axis values of the study's trials, each combination once; ``most`` of them."""
        query = "SELECT DISTINCT point FROM trials WHERE orphaned = '' ORDER BY ordinal LIMIT ?"
        rows = self._rows(query, most)
        with self._readable():
            return [json.loads(point) for (point,) in rows]

    def status_counts(self) -> dict[TrialStatus, int]:
        """Return how many of the study's trials stand where; every status has an entry."""
        return self.totals().counts

    def reports(self, key: str | None = None) -> Iterator[LogRow]:
        """Yield the reports of one trial, or of all, in the order they were recorded."""
        where, values = ("", ()) if key is None else (" AND key = ?", (key,))
        yield from self._select(f"kind = 'report'{where}", values)

    def report_batches(self, keys: Iterable[str] | None = None) -> Iterator[list[RawReport]]:
        """Yield the reports of all trials in the order they were recorded, or of some, trial by
        trial: many at once, as they are stored."""
        if keys is None:
            yield from self._raw_reports("kind = 'report' ORDER BY seq", ())
            return
        wanted = list(dict.fromkeys(keys))
        for first in range(0, len(wanted), _KEYS_AT_ONCE):
            some = wanted[first : first + _KEYS_AT_ONCE]
            among = f"kind = 'report' AND key IN ({', '.join('?' * len(some))}) ORDER BY key, seq"
            yield from self._raw_reports(among, some)

    def last_reports(self) -> Iterator[list[RawReport]]:
        """Yield the newest report of each trial that has one: many at once, as they are stored."""
        yield from self._raw_reports(f"seq IN ({_NEWEST_REPORTS}) ORDER BY seq", ())

    def _raw_reports(self, where: str, values: Sequence[str]) -> Iterator[list[RawReport]]:
        with self._readable():
            query = f"SELECT key, time, attempt, unit, payload FROM log WHERE {where}"
            rows = self._connection.execute(query, values)
        while True:
            with self._readable():
                some: list[RawReport] = rows.fetchmany(_ROWS_AT_ONCE)
            if not some:
                return
            yield some

    def last_report(self, key: str, *, before: int) -> LogRow | None:
        """Return the newest report of a trial among the entries before entry ``before``."""
        where = "kind = 'report' AND key = ? AND seq < ?"
        return next(self._select(where, (key, before), 1, newest_first=True), None)

    def remarked_reports(self) -> Iterator[LogRow]:
        """Yield the reports that hold more than numbers: a note, or a batch computed in parts."""
        yield from self._select(REMARKED, ())

    def errors(self) -> Iterator[LogRow]:
        """Yield the changes of status whose reason has more to say than its first line, such as a
        traceback, and those to failed, in the order they were recorded."""
        for entry in self._select(_ERRORS, ()):
            text = str(entry.payload["reason"]).strip()
            if "\n" in text or entry.payload["status"] == TrialStatus.FAILED:
                yield entry

    def log(self) -> Iterator[LogRow]:
        """Yield every entry in the order it was recorded."""
        yield from self._select("seq > ?", (0,))

    def log_after(self, seq: int, limit: int) -> list[LogRow]:
        """Return at most ``limit`` entries that follow entry ``seq``."""
        return list(self._select("seq > ?", (seq,), limit))

    def _select(
        self,
        where: str,
        values: tuple[object, ...],
        limit: int = -1,
        *,
        newest_first: bool = False,
    ) -> Iterator[LogRow]:
        order = "DESC" if newest_first else "ASC"
        with self._readable():
            query = f"{_ENTRIES} WHERE {where} ORDER BY seq {order} LIMIT ?"
            rows = self._connection.execute(query, (*values, limit))
        while True:
            with self._readable():
                row = rows.fetchone()
                if row is None:
                    return
                seq, moment, key, attempt, kind, unit, payload = row
                entry = LogRow(seq, moment, key, attempt, kind, unit, json.loads(payload))
            yield entry

    def last_seq(self) -> int:
        """Return the number of the newest log entry, 0 if there is none."""
        return self._number("SELECT COALESCE(MAX(seq), 0) FROM log")

    def count_after(self, seq: int) -> int:
        """Return how many entries follow entry ``seq``; the numbers may have gaps."""
        return self._number("SELECT COUNT(*) FROM log WHERE seq > ?", seq)

    def _number(self, query: str, *values: object) -> int:
        return int(self._rows(query, *values)[0][0])


def _trial_rows(rows: Iterable[RawTrial]) -> list[TrialRow]:
    parsed: dict[str, Any] = {}
    found = []
    for row in rows:
        key, ordinal, point, replicate, stratum, budget, counts, parts, status, *state = row
        reason, attempt, unit, value, seconds, failures, exclusive, *others = state
        orphaned, reused_from, continues = others
        # The replicates of a shape hold the same texts.
        for text in (point, counts, parts):
            if text not in parsed:
                parsed[text] = json.loads(text)
        found.append(
            TrialRow(
                key, ordinal, parsed[point], replicate, stratum, budget, parsed[counts],
                TrialStatus(status), reason, attempt, unit, value, seconds, failures,
                bool(exclusive), orphaned, reused_from, continues, parsed[parts],
            )
        )  # fmt: skip
    return found
