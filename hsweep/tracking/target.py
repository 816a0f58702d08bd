"""Which MLflow store a study reports to, and how to look at it. Does not need mlflow itself."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.redaction import HIDDEN, redact, redact_patterns

_SERVERS: Final = ("http", "https")
_DATABASES: Final = ("postgresql", "mysql", "mssql")
_SQLITE: Final = "sqlite:///"


@dataclass(frozen=True, slots=True)
class TrackingTarget:
    """Where runs go.

    Attributes:
        uri: MLflow tracking URI, a SQLite file's path being absolute.
        artifact_location: URI under which runs keep files; None leaves it to the server.
        experiment: name of the MLflow experiment, one for each sweep.
    """

    uri: str
    artifact_location: str | None
    experiment: str

    @property
    def sqlite_file(self) -> Path | None:
        if not self.uri.startswith(_SQLITE):
            return None
        return Path(self.uri.removeprefix(_SQLITE).partition("?")[0])

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
        shown = redact_patterns(self.uri).replace(f"{HIDDEN}@", "")
        return hashlib.sha256(f"{shown}\n{self.experiment}".encode()).hexdigest()[:12]


def tracking_target(uri: str | None, home: Home, experiment: str) -> TrackingTarget:
    """Return the store that ``--tracking-uri`` names; None is the home's own SQLite store.

    Raises:
        UserError: no URI of a kind that can be used.
    """
    if uri is None:
        uri = home.default_tracking_uri
    scheme, has_scheme, rest = uri.partition("://")
    kind = scheme.lower().partition("+")[0]
    if not has_scheme or kind == "file":
        file = Path(rest if has_scheme else uri).expanduser().absolute()
        suggestion = file if file.suffix in (".db", ".sqlite") else file / "mlflow.db"
        raise UserError(
            "--tracking-uri needs an http(s):// server or a database; MLflow no longer keeps runs "
            f"in a folder. Got {redact(uri)!r}; for a local store give {_SQLITE}{suggestion}"
        )
    if uri.lower().startswith("sqlite"):
        return _sqlite_target(uri, home, experiment)
    if kind in _SERVERS and urlsplit(uri).hostname:
        return TrackingTarget(uri, None, experiment)
    if kind in _DATABASES and rest:
        return TrackingTarget(uri, _as_uri(home.mlflow_artifacts), experiment)
    raise UserError(
        "--tracking-uri must be http://HOST, https://HOST, sqlite:////PATH, or a "
        f"{', '.join(_DATABASES)} database; got {redact(uri)!r}"
    )


def has_login() -> bool:
    """Whether the environment names the user and password of tracking servers."""
    return all(os.environ.get(f"MLFLOW_TRACKING_{name}") for name in ("USERNAME", "PASSWORD"))


def _sqlite_target(uri: str, home: Home, experiment: str) -> TrackingTarget:
    name, has_query, query = uri.removeprefix(_SQLITE).partition("?")
    if not uri.startswith(_SQLITE) or name in ("", ":memory:") or name.endswith("/"):
        raise UserError(
            f"a SQLite store needs a file, as in sqlite:////absolute/path/mlflow.db; got {uri!r}"
        )
    file = Path(name).expanduser().absolute()
    is_default = file == home.mlflow_database.expanduser().absolute()
    artifacts = home.mlflow_artifacts if is_default else file.parent / "artifacts"
    return TrackingTarget(f"{_SQLITE}{file}{has_query}{query}", _as_uri(artifacts), experiment)


def _as_uri(folder: Path) -> str:
    # Without an explicit location MLflow writes to ./mlruns of wherever the process happens to be.
    return folder.expanduser().absolute().as_uri()
