"""One connection from a study's journal to an MLflow store: the only module that imports mlflow.

A batch of log entries is delivered, then the journal's cursor moves. A crash in between delivers
the batch again, which changes nothing: metrics carry the time, step and value of the log entry, and
MLflow keeps one row for each such triple; run ids are written down in the journal and, on every new
connection, looked up by tag.
"""

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from filelock import FileLock

from hsweep.journal import Journal, LogRow, TrialRow
from hsweep.paths import StudyPaths
from hsweep.quiet import no_telemetry
from hsweep.tracking_names import run_name, run_params, safe_names
from hsweep.tracking_target import TrackingTarget
from hsweep.trial import TrialStatus

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

PARENT: Final = "parent"
"""Stands for the study's own run where runs are listed by trial key."""

_ROWS_AT_ONCE: Final = 1000
_LOCK_SECONDS: Final = 60.0
# Lets MLflow's pages open on training runs rather than on traces of language models.
_EXPERIMENT_TAGS: Final = {"mlflow.experimentKind": "custom_model_development"}
_MISSING: Final = "RESOURCE_DOES_NOT_EXIST"

_ENVIRONMENT: Final = {
    # The tracker tries again by itself; the defaults block for minutes when a server is down.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}

_RUN_STATUS: Final = {
    TrialStatus.PLANNED: "SCHEDULED",
    TrialStatus.RUNNING: "RUNNING",
    TrialStatus.FINISHED: "FINISHED",
    TrialStatus.STOPPED_EARLY: "KILLED",
    TrialStatus.DIVERGED: "FAILED",
    TrialStatus.FAILED: "FAILED",
    TrialStatus.TOO_LARGE: "FAILED",
}


def initialise_database(target: TrackingTarget) -> None:
    """Create the tables of a SQLite store that is not there yet; other stores are left alone.

    MLflow's own first opening is neither safe against a second process nor against a kill, so the
    file is made under a lock and a temporary name.
    """
    file = target.sqlite_file
    if file is None:
        return
    prepare_environment()
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock"):
        if file.exists():
            return
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        draft = file.with_name(f".{file.name}.draft")
        draft.unlink(missing_ok=True)
        artifacts = target.artifact_location or (file.parent / "artifacts").as_uri()
        store = SqlAlchemyStore(f"sqlite:///{draft}", artifacts)  # type: ignore[no-untyped-call]
        store.engine.dispose()
        draft.replace(file)


@dataclass(frozen=True, slots=True)
class Source:
    """What is delivered, and where to."""

    journal_path: Path
    target: TrackingTarget
    study: str
    tags: Mapping[str, str]
    metric: str


@dataclass(slots=True)
class _RunRows:
    """What one batch says about one trial."""

    first_time: float
    reports: list[LogRow] = field(default_factory=list)
    status: LogRow | None = None


class Delivery:
    """One connection from a journal to a store. Every method raises what the store raises."""

    def __init__(self, source: Source, *, reopen: bool) -> None:
        self._source = source
        self._target = source.target
        self._lock = FileLock(StudyPaths(source.journal_path.parent).tracking_lock)
        self._journal = Journal(source.journal_path)
        self._trials: dict[str, TrialRow] = {}
        self._run_ids: dict[str, str] = {}
        try:
            initialise_database(source.target)
            self._client = _client(source.target)
            with self._lock.acquire(timeout=_LOCK_SECONDS):
                self._experiment_id = self._find_experiment()
                self._study_id = self._find_study_id()
                self._find_runs()
                self._parent_id = self._find_parent(reopen=reopen)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()

    def deliver_rows(self) -> int:
        """Deliver one batch and move the cursor; return how many entries it had."""
        # One process at a time: two would both create a trial's run.
        with self._lock.acquire(timeout=_LOCK_SECONDS):
            cursor = self._target.cursor_name
            rows = self._journal.log_after(self._journal.cursor(cursor), _ROWS_AT_ONCE)
            if not rows:
                return 0
            for key, run_rows in _by_trial(rows).items():
                self._deliver_run(key, run_rows)
            self._journal.set_cursor(cursor, rows[-1].seq)
        return len(rows)

    def attach(self, path: Path) -> None:
        """Upload a file to the study's own run, unless it is missing."""
        if path.exists():
            self._unless_deleted(
                self._parent_id,
                lambda: self._client.log_artifact(self._parent_id, str(path)),
            )

    def end_study(self) -> None:
        """Mark the study's own run as finished, or as interrupted if trials are left."""
        counts = self._journal.status_counts()
        is_done = all(status.is_final for status, count in counts.items() if count)
        status = "FINISHED" if is_done else "KILLED"
        last = self._journal.log_after(self._journal.last_seq() - 1, 1)
        ended = _milliseconds(last[0].time if last else time.time())
        self._unless_deleted(
            self._parent_id, lambda: self._client.set_terminated(self._parent_id, status, ended)
        )

    def _find_experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        target = self._target
        found = self._client.get_experiment_by_name(target.experiment)
        if found is None:
            try:
                experiment_id = str(
                    self._client.create_experiment(
                        target.experiment,
                        artifact_location=target.artifact_location,
                        tags=_EXPERIMENT_TAGS,
                    )
                )
            except MlflowException as error:
                found = self._client.get_experiment_by_name(target.experiment)
                if error.error_code != "RESOURCE_ALREADY_EXISTS" or found is None:
                    raise
        if found is not None:
            if found.lifecycle_stage == "deleted":
                raise RuntimeError(
                    f"the MLflow experiment {target.experiment!r} was deleted; restore it, or "
                    "remove it for good with `mlflow gc`"
                )
            experiment_id = str(found.experiment_id)
        self._journal.set_meta(target.experiment_name, experiment_id)
        return experiment_id

    def _find_study_id(self) -> str:
        """Return what tells this study from one of the same name in another home."""
        study_id = self._journal.meta("study_id")
        if study_id is None:
            study_id = uuid.uuid4().hex
            self._journal.set_meta("study_id", study_id)
        return study_id

    def _find_runs(self) -> None:
        prefix = self._target.run_prefix
        known = self._journal.metas(prefix)
        if PARENT in known and not self._exists(known[PARENT]):
            # The store was emptied or replaced: all of the study is new to it.
            self._journal.clear_metas(prefix)
            self._journal.set_cursor(self._target.cursor_name, 0)
            known = {}
        page = None
        while page is None or page.token:
            page = self._client.search_runs(
                [self._experiment_id],
                f"tags.`hsweep.study_id` = '{self._study_id}'",
                order_by=["attributes.start_time ASC"],
                page_token=page.token if page is not None else None,
            )
            for run in page:
                key = run.data.tags.get("hsweep.trial", PARENT)
                if key not in known:
                    known[key] = run.info.run_id
                    self._journal.set_meta(prefix + key, run.info.run_id)
        self._run_ids = known

    def _exists(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code == _MISSING:
                return False
            raise
        return True

    def _find_parent(self, *, reopen: bool) -> str:
        run_id = self._run_ids.get(PARENT)
        if run_id is None:
            tags = self._common_tags() | {"hsweep.metric": self._source.metric}
            first = self._journal.log_after(0, 1)
            started = first[0].time if first else time.time()
            return self._create_run(PARENT, self._source.study, tags, started)
        if reopen:
            self._unless_deleted(run_id, lambda: self._client.update_run(run_id, "RUNNING"))
        return run_id

    def _common_tags(self) -> dict[str, str]:
        return dict(self._source.tags) | {
            "mlflow.source.name": "hsweep",
            "hsweep.study": self._source.study,
            "hsweep.study_id": self._study_id,
            "hsweep.sweep": self._target.experiment,
        }

    def _create_run(self, key: str, name: str, tags: Mapping[str, str], started: float) -> str:
        run = self._client.create_run(
            self._experiment_id, start_time=_milliseconds(started), tags=dict(tags), run_name=name
        )
        run_id = str(run.info.run_id)
        self._journal.set_meta(self._target.run_prefix + key, run_id)
        self._run_ids[key] = run_id
        return run_id

    def _deliver_run(self, key: str, rows: _RunRows) -> None:
        from mlflow.entities import Param, RunTag

        trial = self._trial(key)
        run_id, is_new = self._run_of(trial, rows.first_time)
        metrics = [metric for report in rows.reports for metric in _metrics(report)]
        params: dict[str, str] = {}
        tags: dict[str, str] = {}
        change = rows.status
        status = TrialStatus(change.payload["status"]) if change is not None else None
        if change is not None and status is not None:
            # Every status repeats the parameters: a crash may have hit between run and parameters.
            params = run_params(trial)
            tags = {"hsweep.status": status.value, "hsweep.reason": change.payload["reason"]}
            if status is TrialStatus.FINISHED:
                metrics += self._final_metrics(key, before=change.seq)

        def deliver() -> None:
            self._client.log_batch(
                run_id,
                metrics=metrics,
                params=[Param(name, value) for name, value in params.items()],
                tags=[RunTag(name, value) for name, value in tags.items()],
            )
            if change is not None and status is not None:
                self._set_run_status(run_id, status, change.time, is_new=is_new)

        self._unless_deleted(run_id, deliver)

    def _run_of(self, trial: TrialRow, first_time: float) -> tuple[str, bool]:
        """Return the trial's run, and whether it was created just now."""
        run_id = self._run_ids.get(trial.key)
        if run_id is None:
            # Another process may have created it since this connection was opened.
            run_id = self._journal.meta(self._target.run_prefix + trial.key)
        if run_id is not None:
            self._run_ids[trial.key] = run_id
            return run_id, False
        tags = self._common_tags() | {
            "mlflow.parentRunId": self._parent_id,
            "hsweep.trial": trial.key,
            "hsweep.stratum": trial.stratum,
            "hsweep.status": TrialStatus.RUNNING.value,
        }
        return self._create_run(trial.key, run_name(trial), tags, first_time), True

    def _set_run_status(self, run_id: str, status: TrialStatus, at: float, *, is_new: bool) -> None:
        if status.is_final:
            self._client.set_terminated(run_id, _RUN_STATUS[status], _milliseconds(at))
        elif status is not TrialStatus.RUNNING or not is_new:
            self._client.update_run(run_id, _RUN_STATUS[status])

    def _final_metrics(self, key: str, *, before: int) -> list["Metric"]:
        reports = [report for report in self._journal.reports(key) if report.seq < before]
        return _metrics(reports[-1], prefix="final/") if reports else []

    def _trial(self, key: str) -> TrialRow:
        if key not in self._trials:
            self._trials = {trial.key: trial for trial in self._journal.trials()}
        return self._trials[key]

    def _unless_deleted(self, run_id: str, action: Callable[[], object]) -> None:
        """Do it, but let a run that the user deleted in the store stay deleted."""
        from mlflow.exceptions import MlflowException

        try:
            action()
        except MlflowException:
            if not self._is_deleted(run_id):
                raise

    def _is_deleted(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "deleted")
        except MlflowException as error:
            # Gone for good, unless the whole store is: then delivery starts over.
            return error.error_code == _MISSING and self._exists(self._run_ids[PARENT])


def _by_trial(rows: Iterable[LogRow]) -> dict[str, _RunRows]:
    found: dict[str, _RunRows] = {}
    for row in rows:
        run = found.setdefault(row.key, _RunRows(row.time))
        if row.kind == "report":
            run.reports.append(row)
        else:
            run.status = row
    return found


def _metrics(report: LogRow, prefix: str = "") -> list["Metric"]:
    from mlflow.entities import Metric

    values = report.payload["metrics"]
    names = safe_names(values)
    return [
        Metric(f"{prefix}{names[name]}", float(value), _milliseconds(report.time), report.unit or 0)
        for name, value in values.items()
        if value is not None
    ]


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def prepare_environment() -> None:
    """Set what MLflow reads from the environment, where the user has not."""
    no_telemetry()
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def _client(target: TrackingTarget) -> "MlflowClient":
    prepare_environment()
    from mlflow import MlflowClient

    # A server that is down would have every attempt announced on the terminal.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    return MlflowClient(tracking_uri=target.uri, registry_uri=target.uri)
