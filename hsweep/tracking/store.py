"""An MLflow store: imported here alone, opened and searched, and its errors told apart.

Two threads that import parts of one package at once can wait for each other, and Python then lets
one of them see modules that are only half imported. Everything that needs MLflow imports this
module, so the import system makes a second thread wait until the first is done.
"""

import contextlib
import functools
import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from filelock import FileLock

from hsweep.files import replacing
from hsweep.paths import cache_folder, sqlite_uri
from hsweep.telemetry import disable_telemetry
from hsweep.tracking.contents import NOTE, STUDY_ID, tag_value
from hsweep.tracking.target import TrackingTarget

_ENVIRONMENT: Final = {
    # The tracker tries again by itself. MLflow's client would also send again what creates a run,
    # and a server that had only been slow would then hold it twice.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    # Far above the slowest answer worth waiting for: only a background thread waits.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "120",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
# Before the import: MLflow reads its settings there.
disable_telemetry()
for _name, _value in _ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)

from mlflow import MlflowClient, entities  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402

__all__ = ["MlflowClient", "connect", "entities"]

# After the import, which sets levels of its own. These would tell the terminal of each attempt,
# while the tracker keeps the last error.
for _name in ("urllib3.connectionpool", "mlflow.store.db.utils"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

_BAD_REQUEST: Final = (400, 413, 422)
# Lets MLflow's pages open on training runs rather than on traces of language models.
_EXPERIMENT_TAGS: Final = {"mlflow.experimentKind": "custom_model_development"}


def connect(target: TrackingTarget) -> MlflowClient:
    """Return a client of a store; the tables of a new SQLite file are made first."""
    initialise_database(target)
    if target.sqlite_file is not None:
        _wait_less_for_disks()
    return MlflowClient(tracking_uri=target.client_uri, registry_uri=target.client_uri)


def is_refusal(error: BaseException) -> bool:
    return (
        isinstance(error, MlflowException) and error.get_http_status_code() in _BAD_REQUEST  # type: ignore[no-untyped-call]
    )


def find_experiment(client: MlflowClient, target: TrackingTarget, description: str) -> str:
    """Return the id of the target's experiment, which is made if need be.

    Raises:
        RuntimeError: it was deleted.
    """
    name = target.experiment
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        tags = _EXPERIMENT_TAGS | {NOTE: tag_value(description)}
        try:
            client.create_experiment(name, target.artifact_location, tags)
        except MlflowException as error:
            # Another process may be quicker.
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        experiment = client.get_experiment_by_name(name)
    if experiment is None or experiment.lifecycle_stage == "deleted":
        raise RuntimeError(
            f"the MLflow experiment {name!r} was deleted; restore it, or remove it for good "
            "with `mlflow gc`"
        )
    return str(experiment.experiment_id)


def find_runs(client: MlflowClient, experiment: str, study_id: str) -> Iterator[entities.Run]:
    """Yield the runs of a study, deleted ones included, the oldest first."""
    page_token = None
    while page_token != "":
        page = client.search_runs(
            [experiment],
            f"tags.`{STUDY_ID}` = '{study_id}'",
            entities.ViewType.ALL,
            order_by=["attributes.start_time ASC"],
            page_token=page_token,
        )
        yield from page
        page_token = page.token or ""


def initialise_database(target: TrackingTarget) -> None:
    """Create the file of a SQLite store with its tables, unless it is there; other stores stay as
    they are."""
    file = target.sqlite_file
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    # MLflow's own first opening is neither safe against a second process nor against a kill.
    with FileLock(f"{file}.lock"):
        if file.exists():
            return
        for left_by_a_kill in file.parent.glob(f".{file.name}.*"):
            left_by_a_kill.unlink()
        artifacts = target.artifact_location or (file.parent / "artifacts").as_uri()
        with replacing(file) as draft:
            _copy_empty(draft)
            with contextlib.closing(sqlite3.connect(draft)) as connection:
                # Kept in the file: commits wait less for the disk, readers for no writer.
                connection.execute("PRAGMA journal_mode=WAL")
                with connection:
                    connection.execute(
                        "UPDATE experiments SET artifact_location = ? || '/' || experiment_id",
                        [artifacts.rstrip("/")],
                    )


def _copy_empty(to: Path) -> None:
    """Copy an empty database of this MLflow, which takes seconds to make: one is kept in the cache,
    where that can be written."""
    cached = cache_folder() / f"mlflow-{version('mlflow')}.db"
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{cached}.lock"):
            if not cached.exists():
                with replacing(cached) as draft:
                    _make_empty(draft)
        shutil.copyfile(cached, to)
    except OSError:
        _make_empty(to)


def _make_empty(file: Path) -> None:
    # Another half second of imports, for SQLite stores alone.
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    uri = TrackingTarget(sqlite_uri(file), None, "").client_uri
    store = SqlAlchemyStore(uri, "artifacts")  # type: ignore[no-untyped-call]
    store.engine.dispose()


@functools.cache
def _wait_less_for_disks() -> None:
    """Let SQLite force commits to the disk at checkpoints only, where it writes ahead.

    A run takes a dozen commits, and half the time with this. As with the study's own record, the
    file stays whole, a killed process loses nothing, and a power cut may take the last moments.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    @event.listens_for(Engine, "connect")
    def relax(connection: Any, _record: Any) -> None:
        if not isinstance(connection, sqlite3.Connection):
            return
        if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
            connection.execute("PRAGMA synchronous=NORMAL")
