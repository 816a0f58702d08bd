"""Trains a trial by a user's script: starts it, reads it, and ends it with all that it has
started."""

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hsweep.design.user_training import Command, UserTraining
from hsweep.errors import FinalError, RefusedReportError, UserError
from hsweep.reporting import SEED_VARIABLE
from hsweep.training.own.process import (
    ScriptProcess,
    arguments_of,
    can_resume,
    end_text,
    has_content,
)
from hsweep.training.own.readers import Reader, Unit
from hsweep.training.own.rows import cut_torn_lines
from hsweep.training.storage import StorageError
from hsweep.training.trial_run import TrialRun, name_problem

_SHORTEST_WAIT: Final = 0.02
_LONGEST_WAIT: Final = 0.5


def train_script(run: TrialRun) -> None:
    """Run the user's command, and report what it writes.

    The budget's last unit is reported once the script has ended, for it may have more to write. One
    that ends before with exit code 0 has ended by itself. A
    script that goes on training, or is silent for longer than a report may take, is ended, and so
    is one whose trial ends. Its folder stays.

    Raises:
        StorageError: the trial's folder cannot be used.
        StopTrial: the trial ends at a report, or between two of them.
        UserError: the command cannot be started, what it wrote cannot be read, or it failed before
            the budget's last unit, or was silent for too long.
    """
    try:
        with contextlib.closing(_Script(run)) as script:
            script.train()
    except OSError as error:
        raise StorageError(f"the trial's folder cannot be used: {error}") from error


class _Script:
    """The script of a trial, from its start on."""

    def __init__(self, run: TrialRun) -> None:
        assignment, trial = run.assignment, run.assignment.trial
        task = trial.task
        assert isinstance(task, UserTraining)
        assert isinstance(task.train, Command)
        self._run, self._command = run, task.train
        self._assignment, self._folder = assignment, run.folder
        self._last: tuple[int, dict[str, Any]] | None = None
        self._is_beyond = False
        run.is_paused_by_reports = False
        resumes = self._prepare()
        self._reader = Reader(
            *(self._command.metrics, self._folder, {trial.metric}, trial.budget),
            *(assignment.recorded_through, assignment.offset),
        )
        arguments = arguments_of(self._command, trial, self._folder, resumes=resumes)
        directory = Path(task.folder, self._command.folder)
        variables = {
            "OMP_NUM_THREADS": str(assignment.resources.num_threads),
            SEED_VARIABLE: str(trial.seeds.program),
        }
        if not assignment.resources.gpus:
            variables["CUDA_VISIBLE_DEVICES"] = ""  # as for our own loop, which takes none then
        self._process = ScriptProcess(arguments, self._folder, directory, variables)

    def _prepare(self) -> bool:
        """Prepare the trial's folder; return whether the script can continue an earlier attempt."""
        assignment, trial = self._assignment, self._assignment.trial
        after = assignment.recorded_through
        self._run.open_folder()
        cut_torn_lines(self._command.metrics, self._folder)
        was_empty = not has_content(self._folder)
        self._run.go_on_from(after, assignment.recorded_seconds)
        resumes = assignment.attempt > 1 and can_resume(self._command, trial, self._folder)
        if after and not resumes and (was_empty or self._command.resume):
            self._run.add_note(
                f"nothing to go on from is in the trial's folder, with unit {after} on record: "
                "trained again from the start"
            )
        return resumes

    def train(self) -> None:
        """Report the metrics that the script writes, until its last report."""
        run, wait = self._run, _SHORTEST_WAIT
        timeout = self._assignment.report_timeout or math.inf
        deadline, told = time.monotonic() + timeout, self._reader.counting
        while not run.is_over:
            if run.has_to_end:
                run.stop()
            code = self._process.wait(wait)
            late = ""
            if code is None and time.monotonic() > deadline:
                late = f"no report for {timeout:g} s (report_timeout)"
                self._process.stop(self._command.grace_seconds)
            try:
                if code is None and not late:
                    self._process.free_output()
                    units = self._reader.poll()
                else:
                    units = self._reader.last_units(killed=code != 0)
                is_alive = bool(units)
                if told != (told := self._reader.counting):
                    run.tell_counts(self._reader.decided)
                    is_alive = True
                self._report(units)
                self._judge(code, late)
            except UserError as error:
                last_lines = self._process.last_lines() or "(nothing was written)"
                error.add_note(f"The output, {self._process.output}, ends like this:\n{last_lines}")
                raise
            if is_alive:
                deadline = time.monotonic() + timeout
            wait = _SHORTEST_WAIT if is_alive else min(2 * wait, _LONGEST_WAIT)

    def close(self) -> None:
        self._process.stop(self._command.grace_seconds)

    def _report(self, units: Sequence[Unit]) -> None:
        amount = self._run.budget
        for unit, metrics in units:
            if unit > amount:
                self._is_beyond = True
            if self._run.is_over or self._last is not None or self._is_beyond:
                break
            recordable = self._recordable(metrics)
            if unit == amount and all(map(math.isfinite, recordable.values())):
                self._last = unit, recordable
            else:
                self._run.report(unit, **recordable)

    def _recordable(self, metrics: Mapping[str, float]) -> dict[str, Any]:
        """Return the metrics whose names can be recorded: a script writes its learning rate, its
        steps and other numbers unasked. RefusedReportError for one that the sweep names."""
        trial = self._assignment.trial
        needed = {trial.metric, *dict(self._command.metrics.metrics).values()}
        problems = {name: name_problem(name, trial.point) for name in metrics}
        if refused := [problem for name, problem in problems.items() if problem and name in needed]:
            raise RefusedReportError(refused[0])
        return {name: value for name, value in metrics.items() if not problems[name]}

    def _judge(self, code: int | None, late: str) -> None:
        """Make the last report if the script has ended or has to, or end the trial where it has
        ended by itself; UserError where it has failed."""
        run = self._run
        if late:
            how = f"was ended, with {late},"
        elif code is not None:
            how = end_text(code)
        else:
            how = "went on beyond its budget" if self._is_beyond else ""
        if run.is_over or not how:
            return
        if self._last is None and code == 0:
            # What ended it may be why this trial has to end, which is known a little later.
            time.sleep(_LONGEST_WAIT)
            return run.stop() if run.has_to_end else run.end_by_itself()
        if self._last is None:
            problem = f"the script {how} after unit {run.unit} of {run.budget} {run.budget_unit}"
            # By convention 2 is a wrong use of the command, which another attempt would repeat.
            kind = FinalError if code == 2 and not run.unit else UserError
            raise kind(": ".join(filter(None, [problem, self._process.last_lines(1)])))
        self._process.stop(self._command.grace_seconds)
        if code != 0:
            run.add_note(f"the script {how} after its last report")
        unit, metrics = self._last
        run.report(unit, **metrics)
