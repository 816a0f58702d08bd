"""What is known of one MLflow store, in a file of the study's folder, one for each store.

Without the file, the runs are found by their tag and all of the record is delivered again, which
changes nothing in the store.
"""

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hsweep.files import write_text
from hsweep.paths import StudyPaths
from hsweep.tracking.target import TrackingTarget

PARENT: Final = "parent"
"""Stands for the study's own run where runs are listed by trial key."""

_KEPT: Final = (
    "cursor",
    "cursor_time",
    "experiment",
    "runs",
    "refused",
    "files",
    "labels",
    "models",
    "view",
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a store refused records of a trial, whose ``run`` has that name; ``sync`` and the next
    run send them again."""

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
        labels: what the runs of trials were called here, by trial key.
        models: ids of the logged models, by the name of the file with the weights.
        view: what the pages' view of the study was made of here.
        delivered: log entries delivered since this object was made; not part of the file.
    """

    def __init__(self, journal_path: Path, target: TrackingTarget) -> None:
        self._file = StudyPaths(journal_path.parent).tracking_state(target.scope)
        self._store = target.shown_uri
        self.delivered = 0
        self.reset()
        self.refresh()

    def reset(self) -> None:
        self.cursor, self.cursor_time = 0, 0.0
        self.experiment = ""
        self.runs: dict[str, str] = {}
        self.refused: dict[str, Refusal] = {}
        self.files: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.models: dict[str, str] = {}
        self.view = ""

    @property
    def trial_runs(self) -> dict[str, str]:
        """MLflow run ids of the trials that have a run, by trial key."""
        return {key: run_id for key, run_id in self.runs.items() if key != PARENT}

    def refresh(self) -> None:
        """Read what another process has written since; a damaged file changes nothing."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            found = json.loads(self._file.read_text())
            refused = {key: Refusal(**each) for key, each in found["refused"].items()}
            vars(self).update({name: found[name] for name in _KEPT} | {"refused": refused})

    def save(self) -> None:
        """Replace the file. Hold the store's lock meanwhile.

        Raises:
            OSError: it cannot be written; what was there before stays.
        """
        content = {"store": self._store} | {name: getattr(self, name) for name in _KEPT}
        write_text(self._file, json.dumps(content, default=asdict) + "\n")
