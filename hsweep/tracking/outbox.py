"""From a study's log to an MLflow store, each entry once.

The log is the outbox, and a cursor marks the last entry that the store has. The cursor moves after
a batch is delivered. A crash in between delivers the batch again, which changes nothing: MLflow
keeps one row for each time, step and value of a metric.

MLflow chooses the ids of runs, so a request to create a run whose answer is lost may leave an empty
twin. Each connection first finds the study's runs by their tag and deletes such twins. A run that a
user has deleted stays deleted.

If the store refuses an entry, delivery to that run stops, with the reason, and other runs go on.
The next connection starts at the first refused entry.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from hsweep.design.labels import varying_axes
from hsweep.design.trial import TrialStatus
from hsweep.paths import StudyPaths
from hsweep.record.journal_reader import JournalReader
from hsweep.record.manifest import Manifest
from hsweep.record.recipes import recorded_recipe
from hsweep.record.rows import LogRow, TrialRow, labels_of
from hsweep.record.weights import FinalWeights
from hsweep.tracking.contents import (
    RUN_STATUS,
    STUDY_ID,
    WEIGHTS,
    answer_contents,
    milliseconds,
    note_tags,
    study_tags,
    tag_value,
    trial_metrics,
    trial_params,
    trial_tags,
)
from hsweep.tracking.store import connect, entities, find_experiment, find_runs, is_refusal
from hsweep.tracking.target import PARENT, Refusal, StoreState, TrackingTarget, describe
from hsweep.tracking.ui import VIEW_TAG, view_address, view_of

_ROWS_AT_ONCE: Final = 1000
_LOCK_SECONDS: Final = 60.0
_MAX_VIEW: Final = 5000
"""Characters of an experiment's tag, as MLflow allows them."""


class Outbox:
    """One connection from a study's log to a store. Every method raises what the store raises.

    Args:
        state: how far the log is delivered; kept up to date.
        reopen: show the study as running.
        should_stop: called before each run; entries that are not delivered then stay pending.
        passed: called with the number of entries that a batch delivered.
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
        self._state, self._study = state, study
        self._tags = study_tags(study)
        self._labels: dict[str, str] = {}
        self._active: set[str] = set()
        """Runs that the store has and no user had deleted when this object was made."""
        self._weights: dict[str, str] = {}
        """Where final weights are, by the key of the trial whose run says so."""
        self._should_stop, self._passed = should_stop, passed
        self._paths = StudyPaths(journal_path.parent)
        # Of this machine: one of another delivers nothing while a process here holds the study.
        self._lock = FileLock(self._paths.index.with_suffix(f".{target.scope}.lock"))
        self._journal = JournalReader(journal_path)
        try:
            self._client = connect(target)
            with self._exclusive():
                experiment = find_experiment(self._client, target, study.description)
                self._adopt(list(find_runs(self._client, experiment, self._tags[STUDY_ID])))
                state.experiment = experiment
                self._open_study(reopen=reopen)
                self._check_cursor()
                self._name_runs()
                state.save()
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
                self._send(rows)
        return len(rows) == _ROWS_AT_ONCE

    def attach(self, path: Path) -> None:
        """Upload a file to the study's own run, unless it is missing or there already; of the
        study's analysis, show the answer, too."""
        run_id, state = self._state.runs[PARENT], self._state
        if not path.exists() or run_id not in self._active:
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
        """Tag each trial's run with the location of its kept weights, remove the tag from all other
        runs, and upload the files of the weights. Trials without a run are skipped."""
        locations = {final.key: tag_value(final.location) for final in weights}
        files = {final.key: final for final in weights if final.file is not None}
        with self._exclusive():
            state, named = self._state, self._weights
            for key, run_id in state.runs.items():
                if self._should_stop() or run_id not in self._active:
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
        end_time = milliseconds(last[0].time if last else time.time())
        if (run_id := self._state.runs[PARENT]) in self._active:
            self._client.set_terminated(run_id, "FINISHED" if is_done else "KILLED", end_time)

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

    # Runs.

    def _adopt(self, stored: Sequence[entities.Run]) -> None:
        """Take over runs that the store holds and the state does not know, and delete twins."""
        runs = self._state.runs
        parents = {run.data.tags.get("mlflow.parentRunId") for run in stored}
        if runs.get(PARENT) not in {run.info.run_id for run in stored}:
            # The store is new, or was emptied or replaced.
            self._state.reset()
            runs = self._state.runs

        def is_deleted(run: entities.Run) -> bool:
            return bool(run.info.lifecycle_stage == "deleted")

        def is_empty(run: entities.Run) -> bool:
            return not (run.data.metrics or run.data.params or run.info.run_id in parents)

        for run in sorted(stored, key=lambda run: (is_deleted(run), is_empty(run))):
            key, run_id = run.data.tags.get("hsweep.trial", PARENT), str(run.info.run_id)
            known_run = runs.setdefault(key, run_id)
            if is_deleted(run):
                continue
            if known_run != run_id and is_empty(run):
                self._client.delete_run(run_id)
                continue
            self._active.add(run_id)
            if WEIGHTS in run.data.tags and known_run == run_id:
                self._weights[key] = run.data.tags[WEIGHTS]

    def _open_study(self, *, reopen: bool) -> None:
        """Create the study's own run, or show it as running again."""
        run_id = self._state.runs.get(PARENT)
        if run_id is None:
            first = self._journal.log_after(0, 1)
            tags = {"hsweep.metric": self._study.metric, "hsweep.goal": self._study.goal}
            tags |= note_tags(self._note([]), {})
            self._create(PARENT, self._study.name, tags, first[0].time if first else time.time())
        elif reopen and run_id in self._active:
            self._client.update_run(run_id, "RUNNING")

    def _create(self, key: str, name: str, tags: Mapping[str, str], started: float) -> str:
        run = self._client.create_run(
            self._state.experiment,
            start_time=milliseconds(started),
            tags={**self._tags, **tags},
            run_name=name,
        )
        self._state.runs[key] = run_id = str(run.info.run_id)
        self._active.add(run_id)
        return run_id

    def _create_trial(self, trial: TrialRow, label: str, started: float) -> str:
        tags = {
            "mlflow.parentRunId": self._state.runs[PARENT],
            "hsweep.trial": trial.key,
            "hsweep.status": TrialStatus.RUNNING.value,
        }
        if trial.stratum:
            tags["hsweep.stratum"] = trial.stratum
        if trial.replicate < self._study.scouts:
            tags["hsweep.role"] = "scout"
        return self._create(trial.key, label, tags, started)

    def _name_runs(self) -> None:
        """Name the trials by the axes that differ among them, and save a view with these axes once:
        a user may change or delete it."""
        trials, state = self._journal.trials(orphaned=True), self._state
        self._labels = labels_of(trials)
        view = view_of(self._study, varying_axes(trial.point for trial in trials))
        if view == state.view or len(view) > _MAX_VIEW:
            return
        name = f"{VIEW_TAG}{self._tags[STUDY_ID]}"
        try:
            self._client.set_experiment_tag(state.experiment, name, view)
        except Exception as error:
            # A store that knows no views has the records all the same.
            if not is_refusal(error):
                raise
        state.view = view

    # Entries.

    def _check_cursor(self) -> None:
        """Move the cursor back to the first entry that the store refused, or to the beginning where
        its entry is not in the log: a power cut may take the end of a log, and later entries then
        have the same numbers."""
        state = self._state
        at_cursor = self._journal.log_after(state.cursor - 1, 1)
        if [(row.seq, row.time) for row in at_cursor] != [(state.cursor, state.cursor_time)]:
            state.cursor, state.cursor_time = 0, 0.0
        elif state.refused:
            first = min(refusal.seq for refusal in state.refused.values())
            state.cursor, state.cursor_time = first - 1, 0.0
        state.refused = {}

    def _send(self, rows: list[LogRow]) -> None:
        """Deliver entries run by run, and move the cursor up to the first undelivered entry."""
        by_trial: dict[str, list[LogRow]] = {}
        for row in rows:
            by_trial.setdefault(row.key, []).append(row)
        state, trials = self._state, self._journal.trials_of(by_trial)
        if not self._labels.keys() >= by_trial.keys():
            self._name_runs()
        # What follows a refused entry waits with it.
        finished = set(state.refused)
        try:
            for key in [key for key in by_trial if key not in finished]:
                if self._should_stop():
                    break
                self._send_run(trials[key], by_trial[key])
                finished.add(key)
        finally:
            passed = list(takewhile(lambda row: row.key in finished, rows))
            if passed:
                state.cursor, state.cursor_time = passed[-1].seq, passed[-1].time
                self._passed(len(passed))
            state.save()

    def _send_run(self, trial: TrialRow, rows: list[LogRow]) -> None:
        """Deliver entries of one trial, or note why the store refuses them."""
        run_id = self._state.runs.get(trial.key)
        if trial.status is TrialStatus.NOT_NEEDED and run_id is None:
            return  # it gets a run once it begins
        label = self._labels[trial.key]
        try:
            is_new = run_id is None
            run_id = run_id or self._create_trial(trial, label, rows[0].time)
            if run_id in self._active:
                self._log(run_id, trial, rows, is_new=is_new)
        except Exception as error:
            if not is_refusal(error):
                raise
            refusal = Refusal(trial.key, rows[0].seq, label, describe(error))
            self._state.refused[trial.key] = refusal

    def _log(self, run_id: str, trial: TrialRow, rows: list[LogRow], *, is_new: bool) -> None:
        changes = [row for row in rows if row.kind == "status"]
        params: dict[str, str] = {}
        if changes:  # all of the trial is known by then
            recipe = recorded_recipe(self._journal, trial)
            params = trial_params(trial, recipe, str(self._study.budget.get("unit", "budget")))
        self._client.log_batch(
            run_id,
            [entities.Metric(*point) for point in trial_metrics(rows)],
            [entities.Param(*param) for param in params.items()],
            [entities.RunTag(*tag) for tag in trial_tags(trial, rows).items()],
        )
        if not changes:
            return
        change = changes[-1]
        status = TrialStatus(change.payload["status"])
        if status.is_final:
            last = self._journal.last_report(trial.key, before=change.seq)
            end = last if trial.reused_from and last is not None else change
            self._client.set_terminated(run_id, RUN_STATUS[status], milliseconds(end.time))
        elif status is not TrialStatus.RUNNING or not is_new:
            self._client.update_run(run_id, RUN_STATUS[status])

    # The answer.

    def _show_answer(self, run_id: str, path: Path) -> None:
        present = self._client.get_run(run_id).data.tags
        paragraphs, tags, numbers = answer_contents(path, present)
        tags |= note_tags(self._note(paragraphs), present)
        # Sent again it is the same row, and of two answers the one written last counts.
        moment = milliseconds(path.stat().st_mtime)
        self._client.log_batch(
            run_id,
            [entities.Metric(name, number, moment, 0) for name, number in numbers.items()],
            tags=[entities.RunTag(*tag) for tag in tags.items()],
        )

    def _note(self, answer: Sequence[str]) -> str:
        charts = view_address(self._state.experiment, self._tags[STUDY_ID])
        return "\n\n".join([*answer, f"[All trials in charts]({charts})", self._study.description])
