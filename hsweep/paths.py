"""Every file name the tool uses, in one place."""

import errno
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from hsweep.errors import UserError

WEIGHTS_HEADER: Final = "hsweep"
"""Name of the entry in the header of a file of weights that describes the weights, as JSON."""

_STUDY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)


def cache_folder() -> Path:
    """Return the folder for files that can be made again on this machine, such as prepared data; it
    need not exist."""
    return Path(os.environ.get("HSWEEP_CACHE") or "~/.cache/hsweep").expanduser()


def node_folder() -> Path:
    """Return the folder for files that only processes of this machine need while it is up:
    ``HSWEEP_NODE_DIR``, or one of this user's below the folder for temporary files; UserError if it
    cannot be made, or is another user's."""
    named = os.environ.get("HSWEEP_NODE_DIR")
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"hsweep-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not named and (folder.lstat().st_uid != os.getuid() or folder.is_symlink()):
            raise PermissionError(errno.EACCES, "it is another user's, or a link")
    except OSError as error:
        raise UserError(
            f"the folder for this machine's own files {folder} cannot be used ({error.strerror}); "
            "name another on a local disk by HSWEEP_NODE_DIR"
        ) from error
    return folder.absolute()


def index_file(journal: Path) -> Path:
    """Return the index of a study's log, which lies on this machine's own disk: an SQLite file is
    not safe on network file systems."""
    folder = node_folder() / "index"
    folder.mkdir(exist_ok=True)
    return folder / f"{_digest(str(journal.resolve()))}.db"


def check_study_name(name: str) -> str:
    """Return ``name`` if it can be a folder's name anywhere, and cannot leave the home; else raise
    UserError."""
    if not isinstance(name, str) or not _STUDY_NAME.fullmatch(name):
        raise UserError(
            "a study's name starts with a letter or digit and has at most 100 letters, digits, "
            f"'.', '_' or '-'; got {name!r}"
        )
    return name


def below(root: str, *names: str) -> str:
    """Return the folder with these names below a folder or URI.

    The query of a URI stays at its end: it says how to reach the store, as in
    ``s3://bucket/folder?endpoint_override=host:9000``.
    """
    scheme, mark, rest = root.partition("://") if "://" in root else ("", "", root)
    end = _QUERY.search(rest) if mark else None
    path, query = (rest[: end.start()], end[0]) if end else (rest, "")
    return f"{scheme}{mark}{'/'.join([path.rstrip('/'), *names])}{query}"


def sqlite_uri(file: Path) -> str:
    """Return the URI of a SQLite file, in which a few characters would mean something."""
    return "sqlite:///" + re.sub("[%?#]", lambda match: quote(match[0]), str(file))


def trial_folder(checkpoints: str, key: str) -> Path:
    """Return the folder that a trial of the user's own training writes to: beside its study's
    checkpoints, or on this machine alone where those lie in an object store."""
    if "://" not in checkpoints:
        return Path(checkpoints).parent / "trials" / key
    return node_folder() / "trials" / _digest(checkpoints) / key


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def weights_file(key: str, attempt: int) -> str:
    """Return the name of the file with the final weights of an attempt of a trial."""
    return f"{key}-{attempt:05d}.safetensors"


class _Below:
    """A path below the ``root`` of its owner, as a class attribute."""

    def __init__(self, *names: str) -> None:
        self._path = Path(*names)

    def __get__(self, owner: "Home | StudyPaths", _kind: type) -> Path:
        return owner.root / self._path


@dataclass(frozen=True, slots=True)
class Home:
    """The folder that holds every study, the MLflow store and the calibration."""

    root: Path

    studies = _Below("studies")
    mlflow_database = _Below("mlflow", "mlflow.db")
    mlflow_artifacts = _Below("mlflow", "artifacts")
    calibration = _Below("calibration.json")
    """Measured training speed, used by ``plan`` to estimate time."""

    @property
    def default_tracking_uri(self) -> str:
        """Tracking URI of the default MLflow store."""
        return sqlite_uri(self.mlflow_database)

    def submissions(self, name: str) -> Path:
        """Return the folder of the jobs that were submitted for the study called ``name``."""
        return self.root / "slurm" / check_study_name(name)

    def study(self, name: str) -> "StudyPaths":
        """Return the paths of the study called ``name``."""
        return StudyPaths(self.studies / check_study_name(name))

    def create(self) -> "Home":
        """Make the folders, if need be; UserError if the home cannot be written to."""
        try:
            self.studies.mkdir(parents=True, exist_ok=True)
            self.mlflow_artifacts.mkdir(parents=True, exist_ok=True)
            if not os.access(self.studies, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise UserError(
                f"the home {self.root} cannot be written to ({error.strerror}); give another with "
                "--home or HSWEEP_HOME"
            ) from error
        return self


@dataclass(frozen=True, slots=True)
class StudyPaths:
    """The files of one study."""

    root: Path

    sweep_source = _Below("sweep.py")
    """The study's sweep file, as it is on record."""
    manifest = _Below("study.json")
    """The sweep, the options and their provenance."""
    plan = _Below("plan.json")
    journal = _Below("journal")
    """Folder of the segments of the log: all that is on record, as lines of text."""
    holder = _Below("journal", "holder.json")
    """Note of the process that runs the study, which it renews every few seconds."""
    cluster = _Below("cluster.json")
    """What it takes to join the Ray of the process that runs the study; for its owner alone."""
    checkpoints = _Below("checkpoints")
    """Checkpoints, unless ``--storage`` puts them elsewhere."""
    weights = _Below("weights")
    """Final weights that are kept, unless ``--storage`` puts them elsewhere."""
    ray = _Below("ray")
    """Ray Tune's own files, unless ``--storage`` puts them elsewhere; they are never read back."""
    trials_table = _Below("trials.parquet")
    reports_table = _Below("reports.parquet")
    tensorboard = _Below("tensorboard")
    """What `--track tensorboard` writes."""
    wandb = _Below("wandb")
    """What `--track wandb` sends, or keeps for later."""
    analysis = _Below("analysis.json")
    report = _Below("report.html")
    code = _Below("code")
    """The modules of the sweep's folder, of a study that was brought here from its storage."""
    figures = _Below("figures")
    """The figures behind the answer, as PNG."""

    @property
    def name(self) -> str:
        """The study's name."""
        return self.root.name

    @property
    def index(self) -> Path:
        """Built from the journal on this machine, for quick answers."""
        return index_file(self.journal)

    @property
    def home(self) -> Path:
        """The folder of the study's home."""
        return self.root.parent.parent

    def earlier_sweep_source(self, number: int) -> Path:
        """The sweep file as it was before the edit of this number, from 1."""
        return self.root / f"sweep.{number}.py"

    def tracking_state(self, store: str) -> Path:
        """The position up to which the record is delivered to one MLflow store, which a short hash
        names, or to W&B or TensorBoard, and the ids of its runs there."""
        return self.root / f"tracking-{store}.json"

    def stored(self, storage: str | None, folder: Path) -> str:
        """Return the folder or URI of a folder of this study, given ``--storage``."""
        return str(folder.absolute()) if storage is None else below(storage, self.name, folder.name)

    def refuse_links_out(self) -> None:
        """Refuse a study with a link that leads out of the folder of studies, with UserError: files
        written or removed there would be somebody else's."""
        inside = self.root.parent.resolve()
        below = [self.root, *self.root.iterdir()]
        for folder in (self.checkpoints, self.journal):
            below += folder.iterdir() if folder.is_dir() else ()
        for path in below:
            # Not Path.resolve, which raises where links lead in a circle.
            target = Path(os.path.realpath(path))
            if path.is_symlink() and not target.is_relative_to(inside):
                raise UserError(
                    f"{path} is a link that leads out of the home, to {target}; put what it stands "
                    "for in its place, or use the home it belongs to with --home"
                )
