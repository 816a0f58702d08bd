"""One connection from a study's journal to an MLflow store.

The journal's log is the outbox, and a cursor says how far of it the store has got. A batch of
entries is delivered, then the cursor moves. A crash in between delivers the batch again, which
changes nothing: metrics carry the time, step and value of the log entry, and MLflow keeps one row
for each such triple.

A run of which the store refuses something is left, with the reason, and the others go on; the next
connection sends it again as a whole.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from hsweep.design.labels import varying_axes
from hsweep.design.trial import TrialStatus
from hsweep.paths import StudyPaths
from hsweep.record.journal import Journal, LogRow, TrialRow
from hsweep.record.kept import FinalWeights
from hsweep.record.recipes import recorded_recipe
from hsweep.record.rows import labels_of
from hsweep.tracking.datasets import datasets_of
from hsweep.tracking.models import Models
from hsweep.tracking.runs import Runs
from hsweep.tracking.state import Refusal, StoreState
from hsweep.tracking.store import (
    connect,
    described,
    initialise_database,
    is_refusal,
    milliseconds,
)
from hsweep.tracking.study import TrackedStudy
from hsweep.tracking.study_run import StudyRun
from hsweep.tracking.target import TrackingTarget
from hsweep.tracking.updates import RUN_STATUS, RunRows, by_trial, report_metrics, run_params

_ROWS_AT_ONCE: Final = 1000
_LOCK_SECONDS: Final = 60.0


class Delivery:
    """One connection from a journal to a store. Every method raises what the store raises.

    Args:
        reopen: show the study as running.
        should_stop: asked before each run; what is not delivered then stays pending.
    """

    def __init__(
        self,
        journal_path: Path,
        target: TrackingTarget,
        state: StoreState,
        study: TrackedStudy,
        *,
        reopen: bool,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._state = state
        self._study = study
        self._labels: dict[str, str] = {}
        self._should_stop = should_stop
        self._lock = FileLock(StudyPaths(journal_path.parent).tracking_lock(target.scope))
        self._journal = Journal(journal_path, read_only=True)
        try:
            initialise_database(target)
            self._client = connect(target)
            with self._exclusive():
                self._runs = Runs(self._client, state, target, study)
                self._models = Models(self._client, state, study)
                first = self._journal.log_after(0, 1)
                started = first[0].time if first else time.time()
                paths = StudyPaths(journal_path.parent)
                self._study_run = StudyRun(self._client, state, study, paths)
                self._runs.open_study(started, self._study_run.first_tags(), reopen=reopen)
                self._check_cursor()
                self._name_runs()
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

    def attach(self, path: Path) -> None:
        """Upload a file to the study's own run, unless it is missing or there already."""
        if path.exists():
            with self._exclusive():
                parent = self._runs.parent_id
                self._runs.unless_deleted(parent, lambda: self._study_run.attach(parent, path))
                self._state.save()

    def log_weights(self, weights: Sequence[FinalWeights]) -> None:
        """Make the final weights that are kept logged models, and those no longer kept none; a file
        that comes with them is uploaded. A trial without a run is left out."""
        with self._exclusive():
            trials = self._journal.trials_of(each.key for each in weights)
            if not self._labels.keys() >= trials.keys():
                self._name_runs()
            for each in weights:
                if each.key in self._state.runs and not self._should_stop():
                    log = partial(self._log_weights, each, trials[each.key])
                    self._runs.unless_deleted(self._state.runs[each.key], log)
                    self._state.save()
            self._models.forget_others({each.name for each in weights})
            self._state.save()

    def _log_weights(self, weights: FinalWeights, trial: TrialRow) -> None:
        last = self._journal.last_report(trial.key, before=self._journal.last_seq() + 1)
        measured = partial(report_metrics, [] if last is None else [last])
        self._models.log(weights, trial, self._labels[trial.key], self._params_of(trial), measured)

    def end_study(self) -> None:
        """Mark the study's own run as finished, or as interrupted if trials are left."""
        counts = self._journal.status_counts()
        is_done = all(status.is_final for status, count in counts.items() if count)
        last = self._journal.log_after(self._journal.last_seq() - 1, 1)
        ended = milliseconds(last[0].time if last else time.time())
        parent, status = self._runs.parent_id, "FINISHED" if is_done else "KILLED"
        end = self._client.set_terminated
        self._runs.unless_deleted(parent, lambda: end(parent, status, ended))

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

    def _name_runs(self) -> None:
        """Call trials by what tells them apart now, those that have a run, too."""
        trials, state = self._journal.trials(orphaned=True), self._state
        self._labels = labels_of(trials)
        for key, label in state.labels.items():
            if key in self._labels and key in state.runs and label != self._labels[key]:
                rename = partial(self._runs.rename, key, self._labels[key])
                self._runs.unless_deleted(state.runs[key], rename)
        state.labels |= {key: self._labels[key] for key in state.labels.keys() & self._labels}
        self._study_run.show_view(varying_axes(trials))

    def _params_of(self, trial: TrialRow) -> dict[str, str]:
        return run_params(trial, recorded_recipe(self._journal, trial), self._study.unit)

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
        if not self._labels.keys() >= runs.keys():
            self._name_runs()
        for key, run_rows in runs.items():
            if self._should_stop():
                return
            is_unneeded = trials[key].status is TrialStatus.NOT_NEEDED
            if is_unneeded and key not in self._state.runs:
                done.add(key)  # it has a run once it is asked for and begins
                continue
            try:
                self._send_run(trials[key], run_rows)
                self._state.refused.pop(key, None)
            except Exception as error:
                if not is_refusal(error):
                    raise
                self._state.refused[key] = Refusal(key, self._labels[key], described(error))
            done.add(key)

    def _send_run(self, trial: TrialRow, rows: RunRows) -> None:
        run_id, is_new = self._runs.of_trial(trial, self._labels[trial.key], rows.first.time)
        self._runs.unless_deleted(run_id, lambda: self._log(run_id, trial, rows, is_new=is_new))

    def _log(self, run_id: str, trial: TrialRow, rows: RunRows, *, is_new: bool) -> None:
        status = rows.new_status
        # With a status, all of the trial is known.
        params = rows.params(self._params_of(trial)) if status is not None else []
        self._client.log_batch(run_id, rows.metrics(), params, rows.tags(trial))
        if rows.status is None or status is None:
            return
        if datasets := datasets_of(self._study, trial):
            self._client.log_inputs(run_id, datasets)
        if status.is_final:
            last = self._journal.last_report(trial.key, before=rows.status.seq)
            ended = last if trial.reused_from and last is not None else rows.status
            self._client.set_terminated(run_id, RUN_STATUS[status], milliseconds(ended.time))
        elif status is not TrialStatus.RUNNING or not is_new:
            self._client.update_run(run_id, RUN_STATUS[status])
