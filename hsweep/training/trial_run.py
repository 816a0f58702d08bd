"""One trial in training: the argument of its training function, and the path of its reports.

``train_model``, ``train_function`` and ``train_script`` train through it. A report is added to the
trial's state, which writes a checkpoint where enough work is at risk; then it goes to the channel,
which waits where early stopping decides. Of several processes only rank 0 has a channel to report
to, and at each report all agree on whether the trial goes on.
"""

import math
import operator
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn, get_args

import torch

from hsweep.design.budget import BudgetUnit
from hsweep.design.sweep import RESERVED_AXES
from hsweep.design.trial import Assignment, Report
from hsweep.errors import RefusedReportError, UserError, nearest, shown
from hsweep.paths import trial_folder
from hsweep.seeding import Seeds
from hsweep.training.checkpoints import files_of, write_files
from hsweep.training.devices import device_of
from hsweep.training.memory import held_at_most
from hsweep.training.process_state import ProcessState
from hsweep.training.run import Channel, StopTrial
from hsweep.training.trial_state import Contents, TrialState
from hsweep.training.weights import write_weights
from hsweep.training.world import ALONE, World

NUM_PARAMS: Final = "num_params"
"""A metric by which a report may say how many parameters the model has."""

RETURNED: Final = -1
"""Stands for the unit of a training function that has returned."""

_FORBIDDEN: Final = (RESERVED_AXES | {"time", "checkpoint"}) - {NUM_PARAMS, *get_args(BudgetUnit)}
_LONGEST_NAME: Final = 200
_SEEDS_BELOW: Final = 2**31


class TrialRun:
    """One trial in training (see ``hsweep.training.run.Run`` for what a user's function may use).

    Attributes:
        assignment: the trial, and where its checkpoints lie.
        state: its reports so far.
        process: the settings of the process before the trial.
        world: this process among those of the trial.
        is_stopped: a report has raised ``StopTrial``.
        has_reported: whether this attempt has reported.
        refusal: why a report could not be used: the trial has failed, whatever its function does.
        is_paused_by_reports: whether waiting for a decision is no training; a script trains on.

    Raises:
        StorageError: the storage cannot be used from here.
    """

    def __init__(self, assignment: Assignment, channel: Channel, world: World = ALONE) -> None:
        trial = assignment.trial
        self.assignment, self.world = assignment, world
        self.state = TrialState(assignment, world)
        self.process = ProcessState()
        self.is_stopped = self.has_reported = False
        self.refusal: UserError | OSError | None = None
        self.is_paused_by_reports = True
        self._channel, self._pid = channel, os.getpid()
        self.rank, self.world_size = world.rank, world.size
        self.budget: int = trial.budget.amount
        self.budget_unit: BudgetUnit = trial.budget.unit
        self.seeds: Seeds = trial.seeds.below(_SEEDS_BELOW)
        self.device = device_of(assignment.resources.gpus)
        self.folder: Path = trial_folder(assignment.checkpoints, trial.key)
        self.checkpoint: Path | None = None
        # Each process reads a copy of its own: those of one node share the folder.
        self._restored = self.folder.with_name(f"{trial.key}.restored-{self.rank}")

    @property
    def is_fork(self) -> bool:
        """Whether the training function has started this process."""
        return os.getpid() != self._pid

    @property
    def has_to_end(self) -> bool:
        """Whether the trial must end before its next report."""
        return self._channel.is_stopped

    def stop(self) -> NoReturn:
        """End the trial here.

        Raises:
            StopTrial: always.
        """
        self.is_stopped = True
        raise StopTrial

    def report(
        self, unit: int, checkpoint: Path | str | None = None, **metrics: float | None
    ) -> None:
        """Report the metrics after ``unit`` units of the budget; see ``Run.report``."""
        if self.is_fork:
            raise UserError(
                "report was called in a process that the training function has started; only the "
                "process that the function was called in can report"
            )
        if self.is_stopped:
            raise StopTrial
        if self.refusal is not None:
            raise self.refusal
        try:
            self.check_ranks(unit)
            report = self._checked(unit, metrics)
            path = None if checkpoint is None else Path(checkpoint)
            if path is not None and not path.exists():
                raise RefusedReportError(
                    f"a report's checkpoint is a folder or a file that is there; {path} is not"
                )
            if path is not None and report.is_last:
                self._keep_weights(report, path)
            is_over = report.is_last or report.diverged_at is not None
            self.send(report, None if path is None or is_over else _contents_of(path))
        except (UserError, OSError) as error:
            # Though the function may catch it: it is how the trial ends.
            self.refusal = error
            raise

    def send(self, report: Report, contents: Contents | None = None) -> None:
        """Add a report to the state, hand it over, and return if the trial goes on, or is over.

        Args:
            report: every process of the trial sends it.
            contents: of a checkpoint from which training can go on; None where it cannot.

        Raises:
            StopTrial: the trial ends here.
            StorageError: checkpoints cannot be written.
        """
        state = self.state
        if self.rank == 0:
            notes = filter(None, [state.take_note(report.unit), report.note])
            report = replace(report, note="; ".join(notes))
        problem = state.add(report, contents)
        self.has_reported = True
        goes_on = self.rank > 0 or self._channel.put(report)
        problem = (problem or state.problem()) if goes_on and not state.is_over else None
        goes_on = goes_on and problem is None and report.diverged_at is None
        if not self.world.agree(goes_on):
            if problem is None or self.world_size > 1:
                state.save_if_possible()
            if problem is not None:
                raise problem
            if not report.is_last:
                self.stop()
        if self.is_paused_by_reports:
            state.resume_clock()

    def send_again(self) -> None:
        """Hand over the reports that a checkpoint remembers and the record lacks.

        Raises:
            StopTrial: the trial ends there.
        """
        for report in self.state.unrecorded():
            goes_on = self.rank > 0 or self._channel.put(report)
            if not self.world.agree(goes_on or self.state.is_over):
                self.stop()
        self.state.resume_clock()

    def check_ranks(self, unit: Any) -> None:
        """Refuse processes of one trial that are at different units: all of them call this.

        Args:
            unit: the unit that this one reports, or ``RETURNED``.

        Raises:
            UserError: they differ.
        """
        if self.world.size == 1:
            return
        before = self.state.unit
        try:
            number = operator.index(unit)
        except TypeError:
            number = before  # it is refused in its own rank
        units = self.world.gather(number)
        if len(set(units)) > 1:
            ranks = ", ".join(
                f"rank {rank} {'has returned' if other == RETURNED else f'reports unit {other}'}"
                for rank, other in enumerate(units)
            )
            raise UserError(
                "every process of a trial reports the same units, one after another, and after "
                f"unit {before} they differ: {ranks}"
            )

    def open_folder(self, saved: Mapping[str, Any] | None) -> None:
        """Make the trial's folder ready, with a copy of its checkpoint beside it.

        Rank 0 empties it in a first attempt, and the others wait for that.

        Raises:
            OSError: it cannot be written to.
        """
        if self.assignment.attempt == 1 and not self.rank:
            # What lies there is of a study that was removed, or of one with the same storage.
            shutil.rmtree(self.folder, ignore_errors=True)
        self.world.agree(True)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.close_folder()
        if saved is not None:
            self._restored.mkdir()
            self.checkpoint = write_files(saved, self._restored)

    def close_folder(self) -> None:
        """Remove the function's copy of the checkpoint."""
        shutil.rmtree(self._restored, ignore_errors=True)

    def changes_note(self, who: str) -> str:
        """Return a report's note on settings that were changed in the process; empty for none."""
        changed = ", ".join(self.process.changed())
        return f"{who} changed {changed}: put back after the trial" if changed else ""

    def _keep_weights(self, report: Report, checkpoint: Path) -> None:
        assignment = self.assignment
        if assignment.weights and report.diverged_at is None and not self.rank:
            trial, files = assignment.trial, files_of(checkpoint)
            header = trial.result_at(report)
            write_weights(assignment.weights, trial.key, assignment.attempt, files, header)

    def _checked(self, unit: Any, metrics: Mapping[str, Any]) -> Report:
        """Return the report of a function or script.

        Raises:
            RefusedReportError: a unit or a metric that cannot be.
        """
        unit = self._checked_unit(unit)
        numbers = {} if self.rank else self._numbers(metrics)
        finite = {
            name: value if value is not None and math.isfinite(value) else None
            for name, value in numbers.items()
        }
        metric = self.assignment.trial.metric
        seconds, is_last = self.state.seconds(), unit == self.budget
        is_noted = not self.has_reported or is_last
        return Report(
            unit=unit,
            step=unit,
            metrics=finite,
            wall_seconds=seconds,
            is_last=is_last,
            diverged_at=unit if numbers and finite[metric] is None else None,
            train_seconds=seconds,
            peak_memory_bytes=held_at_most(self.device) or None,
            note=self.changes_note("the training function") if is_noted else "",
        )

    def _checked_unit(self, unit: Any) -> int:
        state, budget = self.state, self.assignment.trial.budget
        try:
            if isinstance(unit, bool):
                raise TypeError
            number = operator.index(unit)
        except TypeError:
            raise RefusedReportError(
                f"a report's unit is a whole number of {budget.unit}, not {shown(unit)}"
            ) from None
        if not self.has_reported and 1 <= number <= state.unit and state.history:
            state.go_back(number)
        if state.is_over:
            raise RefusedReportError(
                f"a report of unit {number} after that of unit {state.unit}, with which the trial "
                f"was over: its budget is {budget.amount} {budget.unit}"
            )
        if not state.unit < number <= budget.amount:
            after = "is none: the first is 1" if number < 1 else f"cannot follow unit {state.unit}"
            raise RefusedReportError(
                f"reports go forward, up to the budget of {budget.amount} {budget.unit}: unit "
                f"{number} {after}"
            )
        last_unit = max(state.unit, self.assignment.recorded_through)
        skipped = [rung for rung in self.assignment.waits_at if last_unit < rung < number]
        if skipped:
            raise RefusedReportError(
                f"unit {number} is reported after unit {last_unit}, and early stopping decides at "
                f"unit {min(skipped)} between them; report each unit of the budget, or say how "
                f"often it is reported, as in {budget.unit}({budget.amount}, report_every=...)"
            )
        return number

    def _numbers(self, metrics: Mapping[str, Any]) -> dict[str, float | None]:
        trial, history = self.assignment.trial, self.state.history
        numbers = {name: _number(name, value) for name, value in metrics.items()}
        if history and NUM_PARAMS in history[0].metrics:
            numbers.setdefault(NUM_PARAMS, history[0].metrics[NUM_PARAMS])
        if numbers.get(trial.metric) is None:
            near = nearest(trial.metric, numbers)
            hint = f". Is it {near[0]!r}? Then call it so here or in the sweep" if near else ""
            raise RefusedReportError(
                f"every report needs the sweep's metric {trial.metric!r}, which decides; this one "
                f"has {', '.join(numbers) or 'none'}{hint}"
            )
        for name in numbers:
            if problem := name_problem(name, trial.point):
                raise RefusedReportError(problem)
        return numbers


def _contents_of(checkpoint: Path) -> Contents:
    return lambda: {"files": files_of(checkpoint), "is_one_file": checkpoint.is_file()}


def name_problem(name: str, point: Mapping[str, Any]) -> str:
    """Return why a metric of a trial at a point cannot have this name, empty if it can."""
    if name in point or name in _FORBIDDEN:
        clash = "is an axis" if name in point else "has a meaning of its own in tables"
        return f"metric {name!r} of a report: the name {clash}; call it otherwise"
    if not (name.strip() and name.isprintable() and len(name) <= _LONGEST_NAME):
        return (
            f"a metric's name is printable text of at most {_LONGEST_NAME} characters, not "
            f"{shown(name)}"
        )
    return ""


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        is_slip = bool(nearest(name, ["checkpoint"]))
        raise RefusedReportError(
            f"metric {name!r} of a report must be one number, not {shown(value)}; "
            f"{'did you mean checkpoint=?' if is_slip else 'give float(...) of it'}"
        ) from None
