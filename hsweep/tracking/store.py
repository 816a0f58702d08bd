"""How an MLflow store is opened, and which of its answers are final."""

import contextlib
import functools
import shutil
import sqlite3
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from filelock import FileLock

from hsweep.files import replacing
from hsweep.paths import cache_folder
from hsweep.redaction import redact
from hsweep.tracking.target import TrackingTarget

if TYPE_CHECKING:
    from hsweep.tracking.mlflow_api import MlflowClient

_BAD_REQUEST: Final = (400, 413, 422)


def connect(target: TrackingTarget) -> "MlflowClient":
    from hsweep.tracking.mlflow_api import MlflowClient

    if target.sqlite_file is not None:
        _wait_less_for_disks()
    return MlflowClient(tracking_uri=target.uri, registry_uri=target.uri)


def initialise_database(target: TrackingTarget) -> None:
    """Create the tables of a SQLite store that is not there yet; other stores stay as they are."""
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
            with contextlib.closing(sqlite3.connect(draft)) as connection, connection:
                connection.execute(
                    "UPDATE experiments SET artifact_location = ? || '/' || experiment_id",
                    [artifacts.rstrip("/")],
                )
            with contextlib.closing(sqlite3.connect(draft)) as connection:
                # Kept in the file: commits wait less for the disk, readers for no writer.
                connection.execute("PRAGMA journal_mode=WAL")


def _copy_empty(to: Path) -> None:
    """Copy an empty database of this MLflow, which takes seconds to make: it is kept in the cache,
    where that can be written."""
    kept = cache_folder() / f"mlflow-{version('mlflow')}.db"
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{kept}.lock"):
            if not kept.exists():
                with replacing(kept) as draft:
                    _make_empty(draft)
        shutil.copyfile(kept, to)
    except OSError:
        _make_empty(to)


def _make_empty(file: Path) -> None:
    from hsweep.tracking.mlflow_sql import SqlAlchemyStore

    store = SqlAlchemyStore(f"sqlite:///{file}", "artifacts")  # type: ignore[no-untyped-call]
    store.engine.dispose()


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


def is_refusal(error: BaseException) -> bool:
    """Whether sending the same again is of no use, while any other failure may pass."""
    from hsweep.tracking.mlflow_api import MlflowException

    return (
        isinstance(error, MlflowException) and error.get_http_status_code() in _BAD_REQUEST  # type: ignore[no-untyped-call]
    )


def is_missing(error: BaseException) -> bool:
    return getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST"


def described(error: BaseException) -> str:
    """Return an error in one line, without secrets."""
    text = " ".join(str(error).split())
    return redact(f"{type(error).__name__}: {text}")[:500]


def milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
