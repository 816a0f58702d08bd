"""Which MLflow store a study reports to, and how far its record has got there. Needs no MLflow."""

import contextlib
import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import unquote, urlsplit

from hsweep.errors import UserError
from hsweep.files import write_text
from hsweep.paths import Home, StudyPaths, sqlite_uri
from hsweep.secrets import HIDDEN, redact, redact_patterns

if TYPE_CHECKING:
    from hsweep.record.study import StudyFolder

PARENT: Final = "parent"
"""Stands for the study's own run where runs are listed by trial key."""

STORE_VARIABLE: Final = "MLFLOW_TRACKING_URI"
"""Names the store of new studies, as it does for MLflow."""

_SERVERS: Final = ("http", "https")
_DATABASES: Final = ("postgresql", "mysql", "mssql")
_SQLITE: Final = "sqlite:///"
_NETWORKS: Final = ("nfs", "lustre", "gpfs", "cifs", "smb", "beegfs", "ceph", "fuse.", "afs", "9p")
"""How the names of network file systems begin."""


@dataclass(frozen=True, slots=True)
class TrackingTarget:
    """The MLflow store and the experiment that a study reports to.

    Attributes:
        uri: MLflow tracking URI, a SQLite file's path being absolute.
        artifact_location: URI under which runs keep files; None leaves it to the server.
        experiment: name of the MLflow experiment; one for each sweep, unless the user names it.
    """

    uri: str
    artifact_location: str | None
    experiment: str

    title: ClassVar[str] = "MLflow"
    sink: ClassVar[str] = "hsweep.tracking.mlflow_runs:MlflowRuns"

    @property
    def sqlite_file(self) -> Path | None:
        if not self.uri.startswith(_SQLITE):
            return None
        return Path(unquote(self.uri.removeprefix(_SQLITE).partition("?")[0]))

    @property
    def client_uri(self) -> str:
        """The URI for MLflow, which would make folders of the quoted name of a SQLite file."""
        return self.uri.replace(_SQLITE, "sqlite+pysqlite:///", 1) if "%" in self.uri else self.uri

    @property
    def is_server(self) -> bool:
        return urlsplit(self.uri).scheme in _SERVERS

    @property
    def shown_uri(self) -> str:
        return redact(self.uri)

    @property
    def page(self) -> str:
        """Where a server's pages are: its address without user, password and parameters."""
        parts = urlsplit(self.uri)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path}".rstrip("/")

    @property
    def scope(self) -> str:
        """A short hash that tells this store and experiment from others; user and password, in the
        URI or not, do not change it."""
        uri = redact_patterns(self.uri).replace(f"{HIDDEN}@", "")
        return hashlib.sha256(f"{uri}\n{self.experiment}".encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class FurtherTarget:
    """A further place that shows runs.

    Attributes:
        scope: the word for ``--track``, which tells its state in a study's folder from others.
    """

    scope: str
    title: str

    @property
    def sink(self) -> str:
        return f"hsweep.tracking.{self.scope}_runs:{self.scope.title()}Runs"

    @property
    def shown_uri(self) -> str:
        return self.title


FURTHER: Final = {
    name: FurtherTarget(name, title)
    for name, title in (("wandb", "W&B"), ("tensorboard", "TensorBoard"))
}
Target = TrackingTarget | FurtherTarget


def tracking_target(uri: str | None, home: Home, experiment: str) -> TrackingTarget:
    """Return the store at ``--tracking-uri``; None is that of ``MLFLOW_TRACKING_URI``, or else the
    home's own SQLite store.

    Raises:
        UserError: a URI of a kind that cannot be used.
    """
    named_by = "--tracking-uri"
    if uri is None and (uri := os.environ.get(STORE_VARIABLE) or None):
        named_by = f"{STORE_VARIABLE} (which --tracking-uri {home.default_tracking_uri} overrules)"
    if uri is None:
        uri = home.default_tracking_uri
    scheme, has_scheme, rest = uri.partition("://")
    kind = scheme.lower().partition("+")[0]
    if not has_scheme or kind == "file":
        file = Path(rest if has_scheme else uri).expanduser().absolute()
        suggestion = file if file.suffix in (".db", ".sqlite") else file / "mlflow.db"
        raise UserError(
            f"{named_by} needs an http(s):// server or a database; MLflow no longer keeps runs "
            f"in a folder. Got {redact(uri)!r}; for a local store give {sqlite_uri(suggestion)}"
        )
    name, has_query, query = uri.removeprefix(_SQLITE).partition("?")
    if uri.startswith(_SQLITE) and name not in ("", ":memory:") and not name.endswith("/"):
        file = Path(unquote(name)).expanduser().absolute()
        is_default = file == home.mlflow_database.expanduser().absolute()
        artifacts = _as_uri(home.mlflow_artifacts if is_default else file.parent / "artifacts")
        return TrackingTarget(f"{sqlite_uri(file)}{has_query}{query}", artifacts, experiment)
    if kind in _SERVERS and urlsplit(uri).hostname:
        return TrackingTarget(uri, None, experiment)
    if kind in _DATABASES and rest:
        return TrackingTarget(uri, _as_uri(home.mlflow_artifacts), experiment)
    raise UserError(
        f"{named_by} must be http://HOST, https://HOST, sqlite:////PATH/FILE.db, or a "
        f"{', '.join(_DATABASES)} database; got {redact(uri)!r}"
    )


def target_of(study: "StudyFolder", home: Home, uri: str | None = None) -> TrackingTarget:
    """Return the MLflow store at ``uri``, else the one that a study reports to; UserError for a URI
    of no use, or if the study's held a secret, which is not recorded."""
    manifest = study.manifest
    if not uri:
        uri = manifest.tracking_uri
        login = (os.environ.get(f"MLFLOW_TRACKING_{name}") for name in ("USERNAME", "PASSWORD"))
        if uri.startswith("http") and all(login):
            uri = uri.replace(f"://{HIDDEN}@", "://")
        if redact(named := os.environ.get(STORE_VARIABLE, "")) == uri:
            uri = named
        if HIDDEN in uri:
            raise UserError(
                f"the study {study.name!r} reports to {uri}, whose password is not kept; give it "
                "again with --tracking-uri, or a server's in MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD"
            )
    return tracking_target(uri, home, manifest.experiment)


def network_lines(target: TrackingTarget) -> list[str]:
    """Return a warning about a SQLite store on a network file system; none for other stores."""
    import psutil

    file = target.sqlite_file
    if file is None:
        return []
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    kinds = [mounts[str(place)] for place in file.resolve().parents if str(place) in mounts]
    if not kinds or not kinds[0].startswith(_NETWORKS):
        return []
    return [
        f"MLflow's store is an SQLite file on a network file system ({kinds[0]}), where it may be "
        "slow, locked or damaged; --tracking-uri names a server, or a file on a local disk"
    ]


def _as_uri(folder: Path) -> str:
    # Without an explicit location MLflow writes to ./mlruns of wherever the process happens to be.
    return folder.expanduser().absolute().as_uri()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a store refused records of a trial; ``sync`` and the next run send them again.

    Attributes:
        seq: number of the first log entry that the store did not take.
        run: name of the trial's run.
    """

    key: str
    seq: int
    run: str
    why: str


@dataclass
class StoreState:
    """How far a study's record is delivered to one store, and the ids of its runs there; saved in a
    file.

    Without the file, the runs are found by their tag and all of the record is delivered again,
    which changes nothing in the store.

    Attributes:
        cursor: number of the last log entry delivered; 0 before the first.
        cursor_time: when that entry was recorded, by which it is known again; 0 before the first.
        experiment: MLflow's id of the experiment; empty if it is not known.
        runs: MLflow run ids by trial key, that of the study's own run by ``PARENT``.
        refused: trials whose records the store refused, by key, in the order of the log.
        files: what was uploaded, by name: digests of the study's files, runs that have weights.
        view: the chart view of the study that was saved last.
    """

    file: Path
    cursor: int = 0
    cursor_time: float = 0.0
    experiment: str = ""
    runs: dict[str, str] = field(default_factory=dict)
    refused: dict[str, Refusal] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    view: str = ""

    @classmethod
    def of(cls, journal_path: Path, target: Target) -> "StoreState":
        """Return the state in a study's file for a store; a new one without a file."""
        state = cls(StudyPaths(journal_path.parent).tracking_state(target.scope))
        state.refresh()
        return state

    @property
    def trial_runs(self) -> dict[str, str]:
        """MLflow run ids of the trials that have a run, by trial key."""
        return {key: run_id for key, run_id in self.runs.items() if key != PARENT}

    def refresh(self) -> None:
        """Read the file again, which another process may have written; a damaged one changes
        nothing."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            content = json.loads(self.file.read_text("utf-8"))
            content["refused"] = {key: Refusal(**it) for key, it in content["refused"].items()}
            vars(self).update(vars(StoreState(self.file, **content)))

    def reset(self) -> None:
        """Forget the ids of runs and everything delivered."""
        vars(self).update(vars(StoreState(self.file)))

    def save(self) -> None:
        """Replace the file. Hold the store's lock meanwhile.

        Raises:
            OSError: it cannot be written; what was there before stays.
        """
        content = {name: value for name, value in asdict(self).items() if name != "file"}
        write_text(self.file, json.dumps(content) + "\n")


def describe(error: BaseException) -> str:
    """Return an error in one line, without secrets."""
    text = " ".join(str(error).split())
    return redact(f"{type(error).__name__}: {text}")[:500]
