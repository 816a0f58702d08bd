"""The trials of a study as event files for TensorBoard: a folder each, in the study's own.

A file begins with a restart at its first step, from which TensorBoard drops what earlier files
have: what is sent again is shown once.
"""

import re
import time
from collections.abc import Sequence
from typing import Any, Final

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import hparams, scalar

from hsweep.record.rows import LogRow, TrialRow
from hsweep.tracking.contents import trial_metrics
from hsweep.tracking.sink import Sink

_MAX_NAME: Final = 150


class TensorboardRuns(Sink):
    """Metrics by unit of the budget, and what runs are compared by as hyperparameters."""

    def __init__(self, *of_study: Any) -> None:
        super().__init__(*of_study)
        self._files: dict[str, EventsWriter] = {}
        """Of the trials that have not ended, by key."""

    def send(self, trial: TrialRow, label: str, rows: Sequence[LogRow]) -> None:
        points = trial_metrics(rows)
        if points:
            file = self._files.get(trial.key) or self._open(trial, label, points[0][3])
            for name, value, moment, unit in points:
                file.write_event(
                    Event(step=unit, wall_time=moment / 1000, summary=scalar(name, value))
                )
            file.flush()
        if trial.status.is_final and trial.key in self._files:
            self._files.pop(trial.key).close()

    def _open(self, trial: TrialRow, label: str, first_unit: int) -> EventsWriter:
        """Begin a file of a trial. Its folder stays as the trial was called first."""
        runs, is_new = self._state.runs, trial.key not in self._state.runs
        name = re.sub(r"[^\w.,=#+ -]", "_", label)[:_MAX_NAME]
        folder = self._paths.tensorboard / runs.setdefault(trial.key, f"{name} {trial.key[:8]}")
        folder.mkdir(parents=True, exist_ok=True)
        # Its time is in seconds, in which a file may be left and the next one begun.
        file = EventsWriter(str(folder / "events"), f".{time.time_ns()}")
        self._files[trial.key] = file
        restart = SessionLog(status=SessionLog.START)
        file.write_event(Event(step=first_unit, wall_time=time.time(), session_log=restart))
        for summary in hparams(self._values(trial), {self._study.metric: 0}) if is_new else ():
            file.write_event(Event(wall_time=time.time(), summary=summary))
        return file

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()
