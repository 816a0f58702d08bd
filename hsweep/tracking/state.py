"""What is known of one MLflow store, in a file of the study's folder.

Each store has a file of its own, so that processes that deliver to different stores share none.
Without the file, the runs are found by their tag and all of the record is delivered again, which
changes nothing in the store.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hsweep.files import write_text
from hsweep.paths import StudyPaths
from hsweep.tracking.target import TrackingTarget

PARENT: Final = "parent"
"""Stands for the study's own run where runs are listed by trial key."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A trial whose records a store refused; ``sync`` and the next run send them again.

    Attributes:
        key: the trial's.
        run: how its run is called.
        why: the store's reason, without secrets.
    """

    key: str
    run: str
    why: str


class StoreState:
    """How far a study's record is delivered to one store, and what is there.

    Attributes:
        cursor: number of the last log entry delivered; 0 before the first.
        cursor_time: when that entry was recorded, by which it is known again; 0 before the first.
        experiment: MLflow's id of the experiment; empty if it is not known.
        runs: MLflow run ids by trial key, that of the study's own run by ``PARENT``.
        refused: trials whose records the store refused, by key, in the order of the log.
        files: digests of the files uploaded, by name.
        delivered: log entries delivered since this object was made; not part of the file.
    """

    def __init__(self, journal_path: Path, target: TrackingTarget) -> None:
        self._file = StudyPaths(journal_path.parent).tracking_state(target.scope)
        self._store = target.shown_uri
        self._version: tuple[int, int] | None = None
        self.delivered = 0
        self.reset()
        self.refresh()

    def reset(self) -> None:
        """Take all of the study as new to the store."""
        self.cursor, self.cursor_time = 0, 0.0
        self.experiment = ""
        self.runs: dict[str, str] = {}
        self.refused: dict[str, Refusal] = {}
        self.files: dict[str, str] = {}

    @property
    def trial_runs(self) -> Mapping[str, str]:
        """MLflow run ids of the trials that have a run, by trial key."""
        return {key: run_id for key, run_id in self.runs.items() if key != PARENT}

    def refresh(self) -> None:
        """Read what another process has written since; a file that cannot be read changes
        nothing."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            version = self._version_on_disk()
            if version == self._version:
                return
            content = json.loads(self._file.read_text())
            cursor, cursor_time = int(content["cursor"]), float(content["cursor_time"])
            experiment = str(content["experiment"])
            runs, files = dict(content["runs"]), dict(content["files"])
            refused = {key: Refusal(**each) for key, each in content["refused"].items()}
            self.cursor, self.cursor_time, self.experiment = cursor, cursor_time, experiment
            self.runs, self.files, self.refused = runs, files, refused
            self._version = version

    def save(self) -> None:
        """Write the file, under a temporary name first. Hold the store's lock meanwhile.

        Raises:
            OSError: it cannot be written; what was there before stays.
        """
        content = {
            "store": self._store,
            "cursor": self.cursor,
            "cursor_time": self.cursor_time,
            "experiment": self.experiment,
            "runs": self.runs,
            "refused": {key: asdict(each) for key, each in self.refused.items()},
            "files": self.files,
        }
        write_text(self._file, json.dumps(content) + "\n")
        self._version = self._version_on_disk()

    def _version_on_disk(self) -> tuple[int, int]:
        found = self._file.stat()
        return found.st_ino, found.st_mtime_ns
