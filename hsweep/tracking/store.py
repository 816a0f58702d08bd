"""How an MLflow store is opened, and which of its answers are final."""

import contextlib
import functools
import importlib
import logging
import os
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from filelock import FileLock

from hsweep.quiet import no_telemetry
from hsweep.tracking.target import TrackingTarget

if TYPE_CHECKING:
    from mlflow import MlflowClient

_ENVIRONMENT: Final = {
    # The tracker tries again by itself. MLflow's client would also send again what creates a run,
    # and a server that had only been slow would then hold it twice.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    # Far above the slowest answer worth waiting for: only a background thread waits.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "120",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
# What would be announced on the terminal at each attempt, while the tracker keeps the last error.
_LOUD: Final = ("urllib3.connectionpool", "mlflow.store.db.utils")

_BAD_REQUEST: Final = (400, 413, 422)


def prepare_environment() -> None:
    """Set what MLflow reads from the environment, where the user has not."""
    no_telemetry()
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def import_client(target: TrackingTarget) -> None:
    """Import of MLflow what delivering to the store takes; it is more than a second's work."""
    prepare_environment()
    importlib.import_module("mlflow")
    if target.sqlite_file is not None:
        importlib.import_module("mlflow.store.tracking.sqlalchemy_store")
    _quieten()


def connect(target: TrackingTarget) -> "MlflowClient":
    """Return a client of the store, whose database exists."""
    prepare_environment()
    from mlflow import MlflowClient

    _quieten()
    if target.sqlite_file is not None:
        _wait_less_for_disks()
    return MlflowClient(tracking_uri=target.uri, registry_uri=target.uri)


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

        _quieten()
        draft = file.with_name(f".{file.name}.draft")
        for ending in ("", "-wal", "-shm", "-journal"):
            draft.with_name(draft.name + ending).unlink(missing_ok=True)
        artifacts = target.artifact_location or (file.parent / "artifacts").as_uri()
        store = SqlAlchemyStore(f"sqlite:///{draft}", artifacts)  # type: ignore[no-untyped-call]
        store.engine.dispose()
        with contextlib.closing(sqlite3.connect(draft)) as connection:
            # Kept in the file: commits wait less for the disk, readers for no writer.
            connection.execute("PRAGMA journal_mode=WAL")
        draft.replace(file)


@functools.cache
def _wait_less_for_disks() -> None:
    """Let SQLite force commits to the disk at checkpoints only, where it writes ahead.

    A run takes a dozen commits. As with the study's own record, the file stays whole, a killed
    process loses nothing, and a power cut may take the last moments.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    @event.listens_for(Engine, "connect")
    def relax(connection: Any, _record: Any) -> None:
        if not isinstance(connection, sqlite3.Connection):
            return
        if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
            connection.execute("PRAGMA synchronous=NORMAL")


def _quieten() -> None:
    # After MLflow was imported, which sets levels of its own.
    for name in _LOUD:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def is_refusal(error: BaseException) -> bool:
    """Whether the store answered, and said that what it was sent is not acceptable: sending the
    same again is of no use, while anything else may be different the next time."""
    from mlflow.exceptions import MlflowException

    if not isinstance(error, MlflowException):
        return False
    status = error.get_http_status_code()  # type: ignore[no-untyped-call]
    return status in _BAD_REQUEST


def is_missing(error: BaseException) -> bool:
    """Whether the store answered that it knows no such run or experiment."""
    return getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST"


def milliseconds(seconds: float) -> int:
    """Return a time as MLflow counts it."""
    return int(seconds * 1000)
