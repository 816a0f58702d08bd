"""One connection from a study's journal to an MLflow store.

The journal's log is the outbox, and a cursor says how far of it the store has got. A batch of
entries is delivered, then the cursor moves. A crash in between delivers the batch again, which
changes nothing: metrics carry the time, step and value of the log entry, and MLflow keeps one row
for each such triple.

A run of which the store refuses something is left, with the reason, and the others go on. The next
connection moves the cursor back to the first entry that was refused.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from hsweep.design.labels import varying_axes
from hsweep.design.trial import TrialStatus
from hsweep.paths import StudyPaths
from hsweep.record.journal import JournalReader, LogRow, TrialRow
from hsweep.record.kept import FinalWeights
from hsweep.record.manifest import Manifest
from hsweep.record.recipes import recorded_recipe
from hsweep.record.rows import labels_of
from hsweep.tracking.client import connect, entities, is_refusal
from hsweep.tracking.contents import (
    RUN_STATUS,
    WEIGHTS,
    StoredAnswer,
    note_tags,
    trial_datasets,
    trial_metrics,
    trial_params,
    trial_tags,
)
from hsweep.tracking.runs import Runs
from hsweep.tracking.study import STUDY_ID, milliseconds, tag_value
from hsweep.tracking.target import Refusal, StoreState, TrackingTarget, describe
from hsweep.tracking.ui import TAG, view_address, view_of

_ROWS_AT_ONCE: Final = 1000
_LOCK_SECONDS: Final = 60.0
_LONGEST_VIEW: Final = 5000
"""Characters of an experiment's tag, as MLflow allows them."""


class Delivery:
    """One connection from a journal to a store. Every method raises what the store raises.

    Args:
        reopen: show the study as running.
        should_stop: asked before each run; what is not delivered then stays pending.
        passed: told how many entries more are delivered.
    """

    def __init__(
        self,
        journal_path: Path,
        target: TrackingTarget,
        state: StoreState,
        study: Manifest,
        *,
        reopen: bool,
        should_stop: Callable[[], bool],
        passed: Callable[[int], object],
    ) -> None:
        self._state = state
        self._study = study
        self._labels: dict[str, str] = {}
        self._should_stop = should_stop
        self._passed = passed
        self._paths = StudyPaths(journal_path.parent)
        self._lock = FileLock(self._paths.tracking_lock(target.scope))
        self._journal = JournalReader(journal_path)
        try:
            self._client = connect(target)
            with self._exclusive():
                self._runs = Runs(self._client, state, target, study)
                first = self._journal.log_after(0, 1)
                tags = {"hsweep.metric": study.metric, "hsweep.goal": study.goal}
                tags |= note_tags(self._note([]), {})
                self._runs.open_study(first[0].time if first else time.time(), tags, reopen=reopen)
                self._check_cursor()
                self._name_runs()
                state.save()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()

    def deliver_rows(self) -> bool:
        """Deliver one batch; return whether more may be left."""
        with self._exclusive():
            rows = self._journal.log_after(self._state.cursor, _ROWS_AT_ONCE)
            if rows:
                self._send(rows)
        return len(rows) == _ROWS_AT_ONCE

    def attach(self, path: Path) -> None:
        """Upload a file to the study's own run, unless it is missing or there already; of the
        study's analysis, show the answer, too."""
        run_id, state = self._runs.parent_id, self._state
        if not path.exists() or not self._runs.is_active(run_id):
            return
        folder = path.parent.name if path.parent == self._paths.figures else None
        name = f"{folder}/{path.name}" if folder else path.name
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        with self._exclusive():
            if state.files.get(name) != digest:
                if path == self._paths.analysis:
                    self._show_answer(run_id, path)
                self._client.log_artifact(run_id, str(path), folder)
                state.files[name] = digest
                state.save()

    def log_weights(self, weights: Sequence[FinalWeights]) -> None:
        """Let each trial's run name the final weights that are kept, and no other run; upload the
        files that come with them. A trial without a run is left out."""
        locations = {each.key: tag_value(each.location) for each in weights}
        files = {each.key: each for each in weights if each.file is not None}
        with self._exclusive():
            state, named = self._state, self._runs.weights
            for key, run_id in state.runs.items():
                if self._should_stop() or not self._runs.is_active(run_id):
                    continue
                location = locations.get(key)
                if location is None and named.pop(key, None) is not None:
                    self._client.delete_tag(run_id, WEIGHTS)
                elif location is not None and named.get(key) != location:
                    self._client.set_tag(run_id, WEIGHTS, location)
                    named[key] = location
                if key in files and state.files.get(files[key].name) != run_id:
                    self._client.log_artifact(run_id, str(files[key].file), "weights")
                    state.files[files[key].name] = run_id
                    state.save()

    def end_study(self) -> None:
        """Mark the study's own run as finished, or as interrupted if trials are left."""
        counts = self._journal.status_counts()
        is_done = all(status.is_final for status, count in counts.items() if count)
        last = self._journal.log_after(self._journal.last_seq() - 1, 1)
        ended = milliseconds(last[0].time if last else time.time())
        if self._runs.is_active(self._runs.parent_id):
            status = "FINISHED" if is_done else "KILLED"
            self._client.set_terminated(self._runs.parent_id, status, ended)

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
        """Move the cursor back to what a store refused, or to the beginning if the log is not the
        one along which it was moved: a power cut may take the end of a log, and what is recorded
        then has the same numbers."""
        state = self._state
        at_cursor = self._journal.log_after(state.cursor - 1, 1)
        if [(row.seq, row.time) for row in at_cursor] != [(state.cursor, state.cursor_time)]:
            state.cursor, state.cursor_time = 0, 0.0
        elif state.refused:
            first = min(refusal.seq for refusal in state.refused.values())
            state.cursor, state.cursor_time = first - 1, 0.0
        state.refused = {}

    def _name_runs(self) -> None:
        """Learn what tells trials apart, and save a view of them by that, unless it was saved: a
        user may have changed or deleted it since."""
        trials, state = self._journal.trials(orphaned=True), self._state
        self._labels = labels_of(trials)
        view = view_of(self._study, varying_axes(trials))
        if view == state.view or len(view) > _LONGEST_VIEW:
            return
        name = f"{TAG}{self._runs.tags[STUDY_ID]}"
        try:
            self._client.set_experiment_tag(state.experiment, name, view)
        except Exception as error:
            # A store that knows no views has the records all the same.
            if not is_refusal(error):
                raise
        state.view = view

    def _send(self, rows: list[LogRow]) -> None:
        """Deliver entries run by run, and move the cursor up to the first one of a run that is not
        done."""
        by_trial: dict[str, list[LogRow]] = {}
        for row in rows:
            by_trial.setdefault(row.key, []).append(row)
        state, trials = self._state, self._journal.trials_of(by_trial)
        if not self._labels.keys() >= by_trial.keys():
            self._name_runs()
        # What follows a refused entry waits with it.
        done = set(state.refused)
        try:
            for key in [key for key in by_trial if key not in done]:
                if self._should_stop():
                    break
                self._send_run(trials[key], by_trial[key])
                done.add(key)
        finally:
            passed = list(takewhile(lambda row: row.key in done, rows))
            if passed:
                state.cursor, state.cursor_time = passed[-1].seq, passed[-1].time
                self._passed(len(passed))
            state.save()

    def _send_run(self, trial: TrialRow, rows: list[LogRow]) -> None:
        """Deliver entries of one trial, or note what the store refuses of them."""
        if trial.status is TrialStatus.NOT_NEEDED and trial.key not in self._state.runs:
            return  # it has a run once it is asked for and begins
        label = self._labels[trial.key]
        try:
            run_id, is_new = self._runs.of_trial(trial, label, rows[0].time)
            if self._runs.is_active(run_id):
                self._log(run_id, trial, rows, is_new=is_new)
        except Exception as error:
            if not is_refusal(error):
                raise
            refusal = Refusal(trial.key, rows[0].seq, label, describe(error))
            self._state.refused[trial.key] = refusal

    def _log(self, run_id: str, trial: TrialRow, rows: list[LogRow], *, is_new: bool) -> None:
        changes = [row for row in rows if row.kind == "status"]
        params: list[entities.Param] = []
        if changes:  # all of the trial is known by then
            recipe = recorded_recipe(self._journal, trial)
            values = trial_params(trial, recipe, str(self._study.budget.get("unit", "budget")))
            params = [entities.Param(name, value) for name, value in values.items()]
        self._client.log_batch(run_id, trial_metrics(rows), params, trial_tags(trial, rows))
        if not changes:
            return
        if datasets := trial_datasets(self._study, self._runs.tags, trial):
            self._client.log_inputs(run_id, datasets)
        change = changes[-1]
        status = TrialStatus(change.payload["status"])
        if status.is_final:
            last = self._journal.last_report(trial.key, before=change.seq)
            ended = last if trial.reused_from and last is not None else change
            self._client.set_terminated(run_id, RUN_STATUS[status], milliseconds(ended.time))
        elif status is not TrialStatus.RUNNING or not is_new:
            self._client.update_run(run_id, RUN_STATUS[status])

    def _show_answer(self, run_id: str, path: Path) -> None:
        answer, present = StoredAnswer(path), self._client.get_run(run_id).data.tags
        tags = answer.tags(present) | note_tags(self._note(answer.note()), present)
        # Sent again it is the same row, and of two answers the one written last counts.
        metrics = answer.metrics(present, milliseconds(path.stat().st_mtime))
        run_tags = [entities.RunTag(name, value) for name, value in tags.items()]
        self._client.log_batch(run_id, metrics, tags=run_tags)

    def _note(self, answer: Sequence[str]) -> str:
        charts = view_address(self._state.experiment, self._runs.tags[STUDY_ID])
        return "\n\n".join([*answer, f"[All trials in charts]({charts})", self._study.description])
