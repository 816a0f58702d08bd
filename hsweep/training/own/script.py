"""A trial of a script of the user's own: started, read, and ended with all that it has started."""

import contextlib
import json
import math
import shutil
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from hsweep.design.own_training import Command, OwnTask
from hsweep.design.trial import Assignment, Report, StorageFailure
from hsweep.errors import UserError
from hsweep.files import write_text
from hsweep.paths import trial_folder
from hsweep.training.checkpoints import StorageError
from hsweep.training.own.arguments import TIMES_FILE, arguments_of, can_resume, has_content
from hsweep.training.own.process import Exit, ScriptProcess, end_leftovers
from hsweep.training.own.readers import Reader, Unit
from hsweep.training.own.rows import cut_torn_lines
from hsweep.training.own.state import OwnState, name_problem
from hsweep.training.session import TrialEvent

_SHORTEST_WAIT: Final = 0.02
_LONGEST_WAIT: Final = 0.5


class ScriptSession:
    """A trial of a script in training: ask for its next reports, or close it.

    The script starts when it is first asked. Closing a session ends the script. The report of the
    budget's last unit is given once the script has ended, for it may have more to write; one that
    goes on training, or is silent for longer than a report may take, is ended.

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
        self._last: Report | None = None
        self._note = ""
        self._is_beyond = False
        self._is_over = False
        self._is_to_end = False
        self._wait = _SHORTEST_WAIT

    def next_events(self) -> Sequence[TrialEvent]:
        """Wait for the script's next report; nothing after the last.

        Raises:
            UserError: the command cannot be started, what it wrote cannot be read, or it ended
                before the budget's last unit, or was silent for too long.
        """
        if self._is_over:
            return []
        try:
            if self._process is None:
                self._start()
            report = self._next_report()
        except (OSError, StorageError) as error:
            self._is_over = True
            failure = StorageFailure(f"the trial's folder cannot be used: {error}")
            return [(self.assignment, failure)]
        self._is_over = report is None
        return [] if report is None else [(self.assignment, report)]

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

    def stop_waiting(self) -> None:
        """Wait for no more reports: what the script has written by then is read by a later
        attempt."""
        self._is_to_end = True

    def _start(self) -> None:
        assignment, trial = self.assignment, self.assignment.trial
        after = assignment.recorded_through
        end_leftovers(self._folder)
        if assignment.attempt == 1:
            # What lies there is of a study that was removed, or of one with the same storage.
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._folder)
        else:
            cut_torn_lines(self._command.metrics, self._folder)
        was_empty = not has_content(self._folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._state = OwnState(assignment)
        self._state.take_up(after, self._seconds_before())
        self._reader = Reader(self._command.metrics, self._folder, {trial.metric}, after)
        resumes = assignment.attempt > 1 and can_resume(self._command, trial, self._folder)
        if after and not resumes and (was_empty or self._command.resume):
            self._note = (
                f"nothing to go on from is in the trial's folder, with unit {after} on record: "
                "trained again from the start"
            )
        arguments = arguments_of(self._command, trial, self._folder, resumes=resumes)
        directory = Path(self._task.folder, self._command.folder)
        resources = assignment.resources
        variables = {"OMP_NUM_THREADS": str(resources.num_threads)}
        if not resources.gpus:
            variables["CUDA_VISIBLE_DEVICES"] = ""  # as for our own loop, which takes none then
        self._process = ScriptProcess(arguments, self._folder, directory, variables)

    def _next_report(self) -> Report | None:
        """Wait for a report; None if there is none to come."""
        assert self._process is not None
        assert self._reader is not None
        timeout = self.assignment.report_timeout or math.inf
        deadline = time.monotonic() + timeout
        while not self._unsent:
            is_all = self._last is None and self._state is not None and self._state.is_over
            if is_all or self._is_to_end:
                return None
            ended = self._process.wait(self._wait)
            is_late = ended is None and time.monotonic() > deadline
            if is_late:
                self._process.stop(self._command.grace_seconds)
            try:
                if ended is None and not is_late:
                    self._take(self._reader.poll())
                else:
                    self._take(self._reader.rest(killed=ended is None or ended.code != 0))
            except UserError as error:
                self._tell_output(error)
                raise
            late = f"no report for {timeout:g} s (report_timeout)" if is_late else ""
            self._judge(ended, late)
            self._wait = _SHORTEST_WAIT if self._unsent else min(2 * self._wait, _LONGEST_WAIT)
        return self._unsent.popleft()

    def _take(self, units: Sequence[Unit]) -> None:
        assert self._state is not None
        budget = self.assignment.trial.budget
        for unit, metrics in units:
            if unit > budget.amount:
                self._is_beyond = True
            if self._state.is_over or self._is_beyond:
                break
            report = self._state.add(unit, self._kept(metrics), None)
            if self._note:
                report, self._note = replace(report, note=self._note), ""
            if report.is_last and report.diverged_at is None:
                self._last = report
            else:
                self._unsent.append(report)
        if units:
            self._keep_time()

    def _kept(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics whose names can be recorded: a script writes its learning rate, its
        steps and what it calls ``acc@1`` unasked. Those that the sweep named are all kept."""
        trial = self.assignment.trial
        named = {trial.metric, *dict(self._command.metrics.metrics).values()}
        return {
            name: value
            for name, value in metrics.items()
            if name in named or not name_problem(name, trial.point)
        }

    def _judge(self, ended: Exit | None, late: str) -> None:
        """Give the last report if the script has ended or has to; raise if it ended without."""
        assert self._state is not None
        assert self._process is not None
        unit, budget = self._state.unit, self.assignment.trial.budget
        of_budget = f"unit {unit} of {budget.amount} {budget.unit}"
        if self._last is None:
            if self._unsent:
                return
            if late:
                raise self._error(f"{late} after {of_budget}: the script was ended")
            if ended is not None:
                raise self._error(f"the script {ended} after {of_budget}")
            if self._is_beyond:
                raise self._error(
                    f"the script went on beyond its budget after {of_budget}, and did not report "
                    f"unit {budget.amount}"
                )
            return
        if ended is not None:
            note = "" if ended.code == 0 else f"the script {ended} after its last report"
        elif late:
            note = f"the script had not ended after its last report, with {late}, and was ended"
        elif self._is_beyond:
            self._process.stop(self._command.grace_seconds)
            note = f"the script went on after unit {budget.amount}, the last, and was ended"
        else:
            return
        notes = "; ".join(each for each in (self._last.note, note) if each)
        self._unsent.append(replace(self._last, note=notes))
        self._last = None

    def _error(self, message: str) -> UserError:
        assert self._process is not None
        last_line = self._process.last_lines(1)
        error = UserError(f"{message}: {last_line}" if last_line else message)
        self._tell_output(error)
        return error

    def _tell_output(self, error: UserError) -> None:
        assert self._process is not None
        last_lines = self._process.last_lines() or "(nothing was written)"
        error.add_note(f"The output, {self._process.output}, ends like this:\n{last_lines}")

    def _seconds_before(self) -> float:
        try:
            return float(json.loads((self._folder / TIMES_FILE).read_text())["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0

    def _keep_time(self) -> None:
        if self._state is not None:
            write_text(self._folder / TIMES_FILE, json.dumps({"seconds": self._state.seconds()}))
