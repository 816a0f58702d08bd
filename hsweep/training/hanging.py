"""Ends a process whose work for a trial hangs, and writes its traceback to a file."""

import faulthandler
import sys
from pathlib import Path
from typing import Final, TextIO

from hsweep.design.trial import Assignment

START_SECONDS: Final = 300.0
"""The least time for starting a process and for ending a trial, where reports have a timeout."""


def hang_file(folder: str | Path, assignment: Assignment) -> Path:
    """Return the path of the file for the traceback of a worker that hangs."""
    return Path(folder) / f"hang-{assignment.trial.key}-{assignment.attempt}.txt"


class HangWatch:
    """Ends this process if work for a trial takes longer than a report may, or than beginning or
    ending a trial may; leaves in a file where the work was.

    A thread keeps watch that needs no interpreter lock: it notices foreign code that never returns.

    Attributes:
        folder: for the file; None lets work take any time.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self._file: TextIO | None = None

    def begin(self, assignment: Assignment, *, is_turn: bool) -> None:
        """Work for a trial begins: up to its next report or, at a turn from one trial to the next,
        until the trial has begun or ended."""
        timeout = assignment.patience_seconds
        if timeout is None or self.folder is None:
            return
        seconds = max(timeout, START_SECONDS) if is_turn else timeout
        file = self._open(hang_file(self.folder, assignment))
        faulthandler.dump_traceback_later(seconds, exit=True, file=file)

    def end(self) -> None:
        """No work is under way."""
        faulthandler.cancel_dump_traceback_later()

    def _open(self, path: Path) -> TextIO:
        """Return a file that is open for writing, or standard error where it cannot be."""
        if self._file is None or self._file.name != str(path):
            if self._file is not None:
                self._file.close()
            self._file = None
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("w", encoding="utf-8")
            except OSError:
                return sys.stderr
        return self._file
