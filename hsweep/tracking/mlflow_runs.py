"""A study's runs in an MLflow store.

MLflow keeps one row for each time, step and value of a metric, so what is sent again changes
nothing. It chooses the ids of runs, so a request to create a run whose answer is lost may leave an
empty twin. Each connection first finds the study's runs by their tag and deletes such twins. A run
that a user has deleted stays deleted.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hsweep.design.labels import varying_axes
from hsweep.design.trial import TrialStatus
from hsweep.record.manifest import Manifest
from hsweep.record.rows import LogRow, TrialRow
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
    trial_tags,
)
from hsweep.tracking.sink import Sink
from hsweep.tracking.store import connect, entities, find_experiment, find_runs, is_refusal
from hsweep.tracking.target import PARENT, StoreState, TrackingTarget
from hsweep.tracking.ui import VIEW_TAG, view_address, view_of

_MAX_VIEW: Final = 5000
"""Characters of an experiment's tag, as MLflow allows them."""


class MlflowRuns(Sink):
    """One run for a study, with a nested one for each trial that began."""

    def __init__(self, study: Manifest, state: StoreState, *more: Any) -> None:
        super().__init__(study, state, *more)
        target: TrackingTarget = more[-1]
        self._tags = study_tags(study)
        self._active: set[str] = set()
        """Runs that the store has and no user had deleted when this object was made."""
        self._weights: dict[str, str] = {}
        """Where final weights are, by the key of the trial whose run says so."""
        self._client = connect(target)
        experiment = find_experiment(self._client, target, study.description)
        self._adopt(list(find_runs(self._client, experiment, self._tags[STUDY_ID])))
        state.experiment = experiment

    def refuses(self, error: Exception) -> bool:
        return is_refusal(error)

    def attach(self, path: Path) -> None:
        """Upload a file to the study's own run; of the study's analysis, show the answer, too."""
        run_id, state = self._state.runs[PARENT], self._state
        if run_id not in self._active:
            return
        folder = path.parent.name if path.parent == self._paths.figures else None
        name = f"{folder}/{path.name}" if folder else path.name
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if state.files.get(name) != digest:
            if path == self._paths.analysis:
                self._show_answer(run_id, path)
            self._client.log_artifact(run_id, str(path), folder)
            state.files[name] = digest
            state.save()

    def log_weights(self, weights: Sequence[FinalWeights], should_stop: Callable[[], bool]) -> None:
        """Tag each trial's run with the location of its kept weights, remove the tag from all other
        runs, and upload the files of the weights. Trials without a run are skipped."""
        locations = {final.key: tag_value(final.location) for final in weights}
        files = {final.key: final for final in weights if final.file is not None}
        state, named = self._state, self._weights
        for key, run_id in state.runs.items():
            if should_stop() or run_id not in self._active:
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
        end_time = milliseconds(self._journal.last_time() or time.time())
        if (run_id := self._state.runs[PARENT]) in self._active:
            self._client.set_terminated(run_id, "FINISHED" if is_done else "KILLED", end_time)

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

    def open_study(self, *, reopen: bool) -> None:
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

    def name_runs(self, trials: Sequence[TrialRow]) -> None:
        """Save a view with the axes that differ among the trials once: a user may change or delete
        it."""
        state = self._state
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

    def send(self, trial: TrialRow, label: str, rows: Sequence[LogRow]) -> None:
        run_id = self._state.runs.get(trial.key)
        is_new = run_id is None
        if run_id is None:
            tags = {
                "mlflow.parentRunId": self._state.runs[PARENT],
                "hsweep.trial": trial.key,
                "hsweep.status": TrialStatus.RUNNING.value,
                **({"hsweep.stratum": trial.stratum} if trial.stratum else {}),
                **({"hsweep.role": "scout"} if trial.replicate < self._study.scouts else {}),
            }
            run_id = self._create(trial.key, label, tags, rows[0].time)
        if run_id not in self._active:
            return
        changes = [row for row in rows if row.kind == "status"]
        # All of the trial is known by then.
        params = self._values(trial) if changes else {}
        self._client.log_batch(
            run_id,
            [entities.Metric(*point) for point in trial_metrics(rows)],
            [entities.Param(name, str(value)) for name, value in params.items()],
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
