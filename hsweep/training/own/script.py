"""A trial of a script of the user's own: started, read, and ended with all that it has started."""

import json
import shutil
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hsweep.design.own_training import Command, OwnTask
from hsweep.design.trial import Assignment, Report, StorageFailure
from hsweep.files import write_text
from hsweep.paths import trial_folder
from hsweep.training.checkpoints import StorageError
from hsweep.training.own.process import Exit, ScriptProcess
from hsweep.training.own.readers import Reader, Unit
from hsweep.training.own.state import OwnState
from hsweep.training.own.template import fill
from hsweep.training.session import TrialEvent

_SHORTEST_WAIT: Final = 0.02
_LONGEST_WAIT: Final = 0.5
_TIMES: Final = "hsweep-times.json"
"""Training time of the attempts before this one, in the trial's folder."""
_SHOWN_LINES: Final = 20


class ScriptError(RuntimeError):
    """The script ended before its trial did."""


class ScriptSession:
    """A trial of a script in training: ask for its next reports, or close it.

    The script starts when it is first asked. Closing a session ends the script.

    Args:
        assignment: the trial.
        task: what is known of its metrics, and where it runs.
        command: the script.
    """

    def __init__(self, assignment: Assignment, task: OwnTask, command: Command) -> None:
        self.assignment = assignment
        self._task, self._command = task, command
        self._folder = trial_folder(assignment.checkpoints, assignment.trial.key)
        self._process: ScriptProcess | None = None
        self._reader: Reader | None = None
        self._state: OwnState | None = None
        self._unsent: deque[Report] = deque()
        self._is_over = False
        self._wait = _SHORTEST_WAIT

    @property
    def current(self) -> Assignment | None:
        """The trial."""
        return self.assignment

    def next_events(self) -> Sequence[TrialEvent]:
        """Wait for the script's next reports; nothing after the last.

        Raises:
            ScriptError: it ended before the budget's last unit.
            UserError: the command cannot be started, or what it wrote cannot be read.
        """
        if self._is_over:
            return []
        try:
            if self._process is None:
                self._start()
            while not self._unsent:
                ended = self._waited()
                if ended is not None and not self._unsent:
                    self._is_over = True
                    self._check_end(ended)
                    return []
        except (OSError, StorageError) as error:
            self._is_over = True
            return [
                (self.assignment, StorageFailure(f"the trial's folder cannot be used: {error}"))
            ]
        report = self._unsent.popleft()
        return [(self.assignment, report)]

    def drop(self, key: str) -> None:
        """End the trial, which is the only one."""
        assert key == self.assignment.trial.key
        self.close()

    def close(self) -> None:
        """End the script and all that it has started; its folder stays."""
        self._is_over = True
        if self._process is not None:
            self._process.stop(self._command.grace_seconds)
            self._keep_time()

    def _start(self) -> None:
        trial = self.assignment.trial
        self._folder.mkdir(parents=True, exist_ok=True)
        after = self.assignment.recorded_through
        if self.assignment.attempt == 1:
            # What lies there is of a study that was removed, or of one with the same storage.
            shutil.rmtree(self._folder)
            self._folder.mkdir()
        self._state = OwnState(self.assignment)
        self._state.take_up(after, self._seconds_before())
        self._reader = Reader(self._command.metrics, self._folder, {trial.metric}, after)
        arguments = arguments_of(self._command, self.assignment, self._folder)
        directory = Path(self._task.folder, self._command.folder)
        threads = str(self.assignment.resources.num_threads)
        variables = {"OMP_NUM_THREADS": threads}
        self._process = ScriptProcess(arguments, self._folder, directory, variables)

    def _waited(self) -> Exit | None:
        """Wait a little, take what was written meanwhile, and return how the script ended, if it
        has."""
        assert self._process is not None
        assert self._reader is not None
        ended = self._process.wait(self._wait)
        if ended is None:
            self._take(self._reader.poll())
        else:
            self._take(self._reader.rest(killed=ended.code != 0))
        self._wait = _SHORTEST_WAIT if self._unsent else min(2 * self._wait, _LONGEST_WAIT)
        return ended

    def _take(self, units: Sequence[Unit]) -> None:
        assert self._state is not None
        for unit, metrics in units:
            if unit > self.assignment.trial.budget.amount or self._state.is_over:
                return
            self._unsent.append(self._state.add(unit, metrics, None))
        if units:
            self._keep_time()

    def _check_end(self, ended: Exit) -> None:
        assert self._state is not None
        assert self._process is not None
        budget = self.assignment.trial.budget
        if self._state.is_over:
            return
        raise ScriptError(
            f"the script {ended} after unit {self._state.unit} of {budget.amount} {budget.unit}; "
            f"its output is in {self._process.output}, and ends like this:\n"
            f"{self._process.last_lines(_SHOWN_LINES) or '(it wrote nothing)'}"
        )

    def _seconds_before(self) -> float:
        try:
            return float(json.loads((self._folder / _TIMES).read_text())["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0

    def _keep_time(self) -> None:
        if self._state is not None:
            write_text(self._folder / _TIMES, json.dumps({"seconds": self._state.seconds()}))


def fields_of(assignment: Assignment, folder: Path) -> dict[str, Any]:
    """Return what a command's fields are filled in with."""
    trial = assignment.trial
    return {
        **trial.point,
        "seed": trial.replicate,
        "budget": trial.budget.amount,
        "folder": folder,
        "key": trial.key,
        "processes": assignment.resources.processes,
    }


def arguments_of(command: Command, assignment: Assignment, folder: Path) -> list[str]:
    """Return the command line of one attempt.

    ``{resume}`` is nothing in a first attempt, and where its text names a file or folder of the
    trial's that is not there.

    Raises:
        UserError: a field that there is not.
    """
    fields = fields_of(assignment, folder)
    resume = command.resume
    if resume:
        named = [Path(each) for each in fill(resume, fields) if each.startswith(str(folder))]
        is_first = assignment.attempt == 1
        if is_first or not all(path.exists() for path in named):
            resume = ""
    return fill(command.template.replace("{resume}", resume), fields)
