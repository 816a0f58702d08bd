"""One connection from a study's journal to an MLflow store.

The journal's log is the outbox, and a cursor says how far of it the store has got. A batch of
entries is delivered, then the cursor moves. A crash in between delivers the batch again, which
changes nothing: metrics carry the time, step and value of the log entry, and MLflow keeps one row
for each such triple.

A run of which the store refuses something is left, with the reason, and the others go on; the next
connection sends it again as a whole.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from hsweep.design.trial import TrialStatus
from hsweep.paths import StudyPaths
from hsweep.record.composition import never_began
from hsweep.record.journal import Journal, LogRow, TrialRow
from hsweep.tracking.runs import Runs
from hsweep.tracking.state import PARENT, Refusal, StoreState
from hsweep.tracking.store import (
    connect,
    described,
    initialise_database,
    is_missing,
    is_refusal,
    milliseconds,
)
from hsweep.tracking.target import TrackingTarget
from hsweep.tracking.updates import RUN_STATUS, RunRows, by_trial

_ROWS_AT_ONCE: Final = 1000
_LOCK_SECONDS: Final = 60.0


class Delivery:
    """One connection from a journal to a store. Every method raises what the store raises.

    Args:
        tags: of every run.
        metric: the study's main metric.
        reopen: show the study as running.
        should_stop: asked before each run; what is not delivered then stays pending.
    """

    def __init__(
        self,
        journal_path: Path,
        target: TrackingTarget,
        state: StoreState,
        *,
        study: str,
        tags: Mapping[str, str],
        metric: str,
        reopen: bool,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._state = state
        self._should_stop = should_stop
        self._lock = FileLock(StudyPaths(journal_path.parent).tracking_lock(target.scope))
        self._journal = Journal(journal_path, read_only=True)
        try:
            initialise_database(target)
            self._client = connect(target)
            with self._exclusive():
                self._runs = Runs(self._client, state, target, study, tags)
                first = self._journal.log_after(0, 1)
                started = first[0].time if first else time.time()
                self._runs.open_study(started, metric=metric, reopen=reopen)
                self._check_cursor()
                state.save()
                self._retry_refused()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._journal.close()

    def deliver_rows(self) -> bool:
        """Deliver one batch; return whether more may be left."""
        with self._exclusive():
            rows = self._journal.log_after(self._state.cursor, _ROWS_AT_ONCE)
            if rows:
                self._send_all(rows)
        return len(rows) == _ROWS_AT_ONCE

    def attach(self, path: Path, key: str = PARENT) -> None:
        """Upload a file to the study's own run, or to a trial's, unless it is missing or there
        already, or the trial has no run."""
        if not path.exists() or key not in self._state.runs:
            return
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        with self._exclusive():
            if self._state.files.get(path.name) != digest:
                run_id = self._state.runs[key]
                self._unless_deleted(run_id, lambda: self._client.log_artifact(run_id, str(path)))
                self._state.files[path.name] = digest
                self._state.save()

    def end_study(self) -> None:
        """Mark the study's own run as finished, or as interrupted if trials are left."""
        counts = self._journal.status_counts()
        is_done = all(status.is_final for status, count in counts.items() if count)
        status = "FINISHED" if is_done else "KILLED"
        last = self._journal.log_after(self._journal.last_seq() - 1, 1)
        ended = milliseconds(last[0].time if last else time.time())
        parent = self._runs.parent_id
        self._unless_deleted(parent, lambda: self._client.set_terminated(parent, status, ended))

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        # One process at a time: two would both create a trial's run.
        try:
            self._lock.acquire(timeout=_LOCK_SECONDS)
        except Timeout:
            raise RuntimeError(
                "another process delivers the records of this study, and has not been done for "
                f"{_LOCK_SECONDS:g} s"
            ) from None
        try:
            self._state.refresh()
            yield
        finally:
            self._lock.release()

    def _check_cursor(self) -> None:
        """Deliver everything again if the log is not the one along which the cursor was moved: a
        power cut may take its end, and what is recorded then has the same numbers."""
        state = self._state
        at_cursor = self._journal.log_after(state.cursor - 1, 1)
        if [(row.seq, row.time) for row in at_cursor] != [(state.cursor, state.cursor_time)]:
            state.cursor, state.cursor_time = 0, 0.0

    def _retry_refused(self) -> None:
        """Send the runs again of which the store refused something, each as a whole."""
        state = self._state
        if state.refused:
            entries = self._journal.log()
            rows = [row for row in entries if row.key in state.refused and row.seq <= state.cursor]
            try:
                self._send(rows, set())
            finally:
                state.save()

    def _send_all(self, rows: list[LogRow]) -> None:
        """Deliver entries, and move the cursor up to the first one of a run that is not done."""
        state = self._state
        # What follows a refused entry waits with it.
        done = set(state.refused)
        try:
            self._send([row for row in rows if row.key not in done], done)
        finally:
            passed = list(takewhile(lambda row: row.key in done, rows))
            if passed:
                state.cursor, state.cursor_time = passed[-1].seq, passed[-1].time
                state.delivered += len(passed)
            state.save()

    def _send(self, rows: list[LogRow], done: set[str]) -> None:
        """Deliver entries, run by run; note what the store refuses, and in ``done`` what is
        done."""
        runs = by_trial(rows)
        trials = self._journal.trials_of(runs)
        for key, run_rows in runs.items():
            if self._should_stop():
                return
            if never_began(trials[key]) and key not in self._state.runs:
                done.add(key)  # it has a run once it is asked for and begins
                continue
            try:
                self._send_run(trials[key], run_rows)
                self._state.refused.pop(key, None)
            except Exception as error:
                if not is_refusal(error):
                    raise
                self._state.refused[key] = Refusal(
                    key, self._runs.name_of(trials[key]), described(error)
                )
            done.add(key)

    def _send_run(self, trial: TrialRow, rows: RunRows) -> None:
        run_id, is_new = self._runs.of_trial(trial, rows.first.time)
        self._unless_deleted(run_id, lambda: self._log(run_id, trial, rows, is_new=is_new))

    def _log(self, run_id: str, trial: TrialRow, rows: RunRows, *, is_new: bool) -> None:
        status, last_report = rows.new_status, None
        if rows.status is not None and status is TrialStatus.FINISHED:
            last_report = self._journal.last_report(trial.key, before=rows.status.seq)
        metrics, params, tags = rows.metrics(last_report), rows.params(trial), rows.tags(trial)
        self._client.log_batch(run_id, metrics, params, tags)
        if rows.status is None or status is None:
            return
        if status.is_final:
            ended = last_report if trial.reused_from and last_report else rows.status
            self._client.set_terminated(run_id, RUN_STATUS[status], milliseconds(ended.time))
        elif status is not TrialStatus.RUNNING or not is_new:
            self._client.update_run(run_id, RUN_STATUS[status])

    def _unless_deleted(self, run_id: str, action: Callable[[], object]) -> None:
        """Do it, but let a run that the user deleted in the store stay deleted."""
        try:
            action()
        except Exception as error:
            # A store that did not answer is not asked again.
            may_be_deleted = is_refusal(error) or is_missing(error)
            if not may_be_deleted or not self._runs.is_deleted(run_id):
                raise
