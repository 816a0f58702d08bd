"""One connection from a study's journal to an MLflow store.

A batch of log entries is delivered, then the journal's cursor moves. A crash in between delivers
the batch again, which changes nothing: metrics carry the time, step and value of the log entry, and
MLflow keeps one row for each such triple.

What a store refuses for good is noted in the journal, with the reason, and does not hold up what
follows; ``retry_refused`` sends it again.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from hsweep.design.trial import TrialStatus
from hsweep.paths import StudyPaths
from hsweep.record.journal import Journal, LogRow, TrialRow
from hsweep.tracking.runs import PARENT, Runs
from hsweep.tracking.store import (
    connect,
    initialise_database,
    is_missing,
    is_refusal,
    milliseconds,
)
from hsweep.tracking.target import TrackingTarget
from hsweep.tracking.updates import (
    RUN_STATUS,
    RunRows,
    by_trial,
    described,
    log,
    log_what_is_accepted,
)

__all__ = ["PARENT", "Delivery", "Source", "never"]

_ROWS_AT_ONCE: Final = 1000
_LOCK_SECONDS: Final = 60.0


def never() -> bool:
    """Do not stop."""
    return False


@dataclass(frozen=True, slots=True)
class Source:
    """What is delivered, and where to."""

    journal_path: Path
    target: TrackingTarget
    study: str
    tags: Mapping[str, str]
    metric: str


class Delivery:
    """One connection from a journal to a store. Every method raises what the store raises.

    Args:
        source: what to deliver, and where to.
        reopen: show the study as running.
        should_stop: asked before each run; what is not delivered then stays pending.

    Attributes:
        delivered: log entries delivered through this connection.
    """

    def __init__(
        self, source: Source, *, reopen: bool, should_stop: Callable[[], bool] = never
    ) -> None:
        self.delivered = 0
        self._source = source
        self._target = source.target
        self._should_stop = should_stop
        self._lock = FileLock(
            StudyPaths(source.journal_path.parent).tracking_lock(self._target.scope)
        )
        self._journal = Journal(source.journal_path)
        self._trials: dict[str, TrialRow] = {}
        self._with_params: set[str] = set()
        try:
            initialise_database(source.target)
            self._client = connect(source.target)
            with self._alone():
                self._runs = Runs(
                    self._client, self._journal, source.target, source.study, source.tags
                )
                self._runs.of_study(metric=source.metric, reopen=reopen)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()

    def deliver_rows(self) -> int:
        """Deliver one batch and move the cursor; return how many entries it moved over."""
        with self._alone():
            cursor = self._journal.cursor(self._target.cursor_name)
            rows = self._journal.log_after(cursor, _ROWS_AT_ONCE)
            runs = by_trial(rows)
            # Read anew for each batch: where a trial comes from may have been noted meanwhile.
            self._trials = self._journal.trials_of(runs)
            done: set[str] = set()
            passed = 0
            for key, run_rows in runs.items():
                if self._should_stop():
                    break
                if refused := self._deliver_run(key, run_rows):
                    self._note_refused(key, run_rows.first.seq, refused)
                done.add(key)
                # After each run: with a slow store a batch can take longer than the process lives.
                passed = self._advance(rows, passed, done)
        return passed

    def retry_refused(self) -> None:
        """Send again what the store refused, from the first refused entry of each trial on."""
        with self._alone():
            noted = self._journal.metas(self._target.refused_prefix)
            refused_runs = by_trial(self._refused_rows(noted))
            self._trials = self._journal.trials_of(refused_runs)
            for key, rows in refused_runs.items():
                if self._should_stop():
                    return
                if refused := self._deliver_run(key, rows):
                    self._note_refused(key, rows.first.seq, refused)
                else:
                    self._journal.clear_metas(self._target.refused_prefix + key)

    def attach(self, path: Path) -> None:
        """Upload a file to the study's own run, unless it is missing or there already."""
        if not path.exists():
            return
        name = self._target.file_prefix + path.name
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if self._journal.meta(name) != digest:
            parent = self._runs.parent_id
            self._unless_deleted(parent, lambda: self._client.log_artifact(parent, str(path)))
            self._journal.set_meta(name, digest)

    def end_study(self) -> None:
        """Mark the study's own run as finished, or as interrupted if trials are left."""
        with self._alone():
            if self._runs.are_doubtful:
                self._runs.reconcile()
        counts = self._journal.status_counts()
        is_done = all(status.is_final for status, count in counts.items() if count)
        status = "FINISHED" if is_done else "KILLED"
        last = self._journal.log_after(self._journal.last_seq() - 1, 1)
        ended = milliseconds(last[0].time if last else time.time())
        parent = self._runs.parent_id
        self._unless_deleted(parent, lambda: self._client.set_terminated(parent, status, ended))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        # One process at a time: two would both create a trial's run.
        try:
            self._lock.acquire(timeout=_LOCK_SECONDS)
        except Timeout:
            raise RuntimeError(
                "another process delivers the records of this study, and has not been done for "
                f"{_LOCK_SECONDS:g} s"
            ) from None
        try:
            yield
        finally:
            self._lock.release()

    def _advance(self, rows: list[LogRow], passed: int, done: set[str]) -> int:
        """Move the cursor up to the first entry of a run that is not done.

        Args:
            rows: the batch.
            passed: how many of them the cursor has passed.
            done: keys of the runs that are.

        Returns:
            How many it has passed now.
        """
        before = passed
        while passed < len(rows) and rows[passed].key in done:
            passed += 1
        if passed > before:
            self._journal.set_cursor(self._target.cursor_name, rows[passed - 1].seq)
            self.delivered += passed - before
        return passed

    def _refused_rows(self, noted: Mapping[str, str]) -> Iterator[LogRow]:
        since = {key: int(json.loads(note)["seq"]) for key, note in noted.items()}
        cursor = self._journal.cursor(self._target.cursor_name)
        seq = min(since.values(), default=cursor + 1) - 1
        while rows := self._journal.log_after(seq, _ROWS_AT_ONCE):
            for row in rows:
                if row.seq > cursor:
                    return
                if row.seq >= since.get(row.key, row.seq + 1):
                    yield row
            seq = rows[-1].seq

    def _deliver_run(self, key: str, rows: RunRows) -> list[str]:
        """Tell a trial's run what is new; return what the store refuses for good, and why."""
        trial = self._trials[key]
        try:
            run_id, is_new = self._runs.of_trial(trial, rows.first.time)
        except Exception as error:
            if not is_refusal(error):
                raise
            return [f"the run: {described(error)}"]
        status = rows.new_status
        last_report: LogRow | None = None
        if rows.status is not None and status is TrialStatus.FINISHED:
            last_report = self._journal.last_report(key, before=rows.status.seq)
        # What another connection has sent is not known: a crash may have hit before that.
        entries = rows.entries(trial, last_report, has_params=run_id in self._with_params)
        refused: list[str] = []
        try:
            log(self._client, run_id, entries)
            if rows.status is not None:
                self._with_params.add(run_id)
        except Exception as error:
            if self._was_deleted(run_id, error):
                return []
            if not is_refusal(error):
                raise
            refused = log_what_is_accepted(self._client, run_id, entries, error)
        if rows.status is not None and status is not None:
            ended = rows.status.time
            if trial.reused_from and last_report is not None:
                ended = last_report.time
            try:
                self._set_run_status(run_id, status, ended, is_new=is_new)
            except Exception as error:
                if self._was_deleted(run_id, error):
                    return []
                if not is_refusal(error):
                    raise
                refused.append(f"status: {described(error)}")
        return refused

    def _note_refused(self, key: str, seq: int, what: list[str]) -> None:
        name = self._target.refused_prefix + key
        before = self._journal.meta(name)
        if before is not None:
            seq = min(seq, int(json.loads(before)["seq"]))
        self._journal.set_meta(name, json.dumps({"seq": seq, "what": what, "time": time.time()}))

    def _set_run_status(self, run_id: str, status: TrialStatus, at: float, *, is_new: bool) -> None:
        if status.is_final:
            self._client.set_terminated(run_id, RUN_STATUS[status], milliseconds(at))
        elif status is not TrialStatus.RUNNING or not is_new:
            self._client.update_run(run_id, RUN_STATUS[status])

    def _unless_deleted(self, run_id: str, action: Callable[[], object]) -> None:
        """Do it, but let a run that the user deleted in the store stay deleted."""
        try:
            action()
        except Exception as error:
            if not self._was_deleted(run_id, error):
                raise

    def _was_deleted(self, run_id: str, error: Exception) -> bool:
        # A store that did not answer is not asked again.
        return (is_refusal(error) or is_missing(error)) and self._runs.is_deleted(run_id)
