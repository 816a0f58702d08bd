"""One trial in training: what its training function is given, and the way of its reports.

``train_model``, ``train_function`` and ``train_script`` train through it. A report is noted and
its checkpoint written where enough work is at risk; then it is handed to the channel, which waits
where early stopping decides. Of several processes rank 0 alone has a channel to report to, and all
agree at each report on whether the trial goes on.
"""

import math
import operator
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args

import torch

from hsweep.design.budget import BudgetUnit
from hsweep.design.sweep import RESERVED_AXES
from hsweep.design.trial import Assignment, Report
from hsweep.errors import RefusedReportError, UserError, nearest, shown
from hsweep.paths import trial_folder
from hsweep.seeding import Seeds
from hsweep.training.memory import held_at_most
from hsweep.training.own.files import files_of, write_files
from hsweep.training.process_state import ProcessState
from hsweep.training.run import Channel, Run, StopTrial
from hsweep.training.trial_state import Contents, TrialState
from hsweep.training.weights import write_weights
from hsweep.training.world import ALONE, World

NUM_PARAMS: Final = "num_params"
"""A metric by which a report may say how many parameters the model has."""

ENDED: Final = -1
"""In place of a unit: the function has returned."""

_FORBIDDEN: Final = (RESERVED_AXES | {"time", "checkpoint"}) - {NUM_PARAMS, *get_args(BudgetUnit)}
_LONGEST_NAME: Final = 200
_SEEDS_BELOW: Final = 2**31


class TrialRun:
    """One trial in training (see ``hsweep.training.run.Run`` for what a user's function may use).

    Attributes:
        assignment: the trial, and where its checkpoints lie.
        state: its reports so far.
        process: what the process was like before the trial.
        world: this process among those of the trial.
        is_stopped: a report has raised ``StopTrial``.
        has_reported: in this attempt.
        refused: why a report could not be used: the trial has failed, whatever its function does.
        is_paused_by_reports: whether waiting for a decision is no training; a script trains on.

    Raises:
        StorageError: its storage cannot be used from here.
    """

    def __init__(self, assignment: Assignment, channel: Channel, world: World = ALONE) -> None:
        trial = assignment.trial
        self.assignment, self.world = assignment, world
        self.state = TrialState(assignment, world)
        self.process = ProcessState()
        self.is_stopped = self.has_reported = False
        self.refused: UserError | OSError | None = None
        self.is_paused_by_reports = True
        self._channel = channel
        self._trial = trial
        self._pid = os.getpid()
        self.rank, self.world_size = world.rank, world.size
        self.budget: int = trial.budget.amount
        self.budget_unit: BudgetUnit = trial.budget.unit
        self.seeds: Seeds = trial.seeds.below(_SEEDS_BELOW)
        self.device = torch.device("cuda" if assignment.resources.gpus else "cpu")
        self.folder: Path = trial_folder(assignment.checkpoints, trial.key)
        self.checkpoint: Path | None = None
        # Each process reads a copy of its own: those of one node share the folder.
        self._restored = self.folder.with_name(f"{trial.key}.restored-{self.rank}")

    if not TYPE_CHECKING:  # which would let any name of this class pass

        def __getattr__(self, name: str) -> NoReturn:
            known = [each for each in dir(Run) if not each.startswith("_")]
            near = nearest(name, known)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"run has no {name!r}, but {', '.join(known)}{hint}")

    @property
    def is_fork(self) -> bool:
        """Whether this process was started by the training function."""
        return os.getpid() != self._pid

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
        if self.refused is not None:
            raise self.refused
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
            contents = None if path is None or is_over else _contents_of(path)
            self.send(report, contents)
        except (UserError, OSError) as error:
            # Though the function may catch it: it is how the trial ends.
            self.refused = error
            raise

    def send(self, report: Report, contents: Contents | None = None) -> None:
        """Note a report, hand it over, and return if the trial goes on, or is over with it.

        Args:
            report: what the trial has come to; every process of the trial sends it.
            contents: of a checkpoint from which training can go on; None where it cannot.

        Raises:
            StopTrial: it ends here.
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
                self.is_stopped = True
                raise StopTrial
        if self.is_paused_by_reports:
            state.resume_clock()

    def send_again(self) -> None:
        """Hand over what a checkpoint remembers and the record lacks.

        Raises:
            StopTrial: the trial ends there.
        """
        for report in self.state.unrecorded():
            goes_on = self.rank > 0 or self._channel.put(report)
            if not self.world.agree(goes_on or self.state.is_over):
                self.is_stopped = True
                raise StopTrial
        self.state.resume_clock()

    def stop_if_asked(self) -> None:
        """End the trial here, between two reports, if it has to end.

        Raises:
            StopTrial: it has.
        """
        if self._channel.is_stopped:
            self.is_stopped = True
            raise StopTrial

    @property
    def is_interrupted(self) -> bool:
        """Whether the study was asked to end."""
        return self._channel.is_stopped

    def check_ranks(self, unit: Any) -> None:
        """Refuse processes of one trial that are at different units: all of them call this.

        Args:
            unit: that this one reports; ``ENDED`` where its function has returned.

        Raises:
            UserError: they differ.
        """
        if self.world.size == 1:
            return
        before = self.state.unit
        try:
            number = operator.index(unit)
        except TypeError:
            number = before  # it is refused in the rank that gave it
        units = self.world.gather(number)
        if len(set(units)) > 1:
            named = ", ".join(
                f"rank {rank} {'has returned' if each == ENDED else f'reports unit {each}'}"
                for rank, each in enumerate(units)
            )
            raise UserError(
                "every process of a trial reports the same units, one after another, and after "
                f"unit {before} they differ: {named}"
            )

    def open_folder(self, saved: Mapping[str, Any] | None) -> None:
        """Make the trial's folder ready, with what its checkpoint held beside it.

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
        """Remove the copy of the checkpoint that the function was given."""
        shutil.rmtree(self._restored, ignore_errors=True)

    def changes_note(self, who: str) -> str:
        """Return what a report says of what was changed in the process; empty for nothing."""
        changed = ", ".join(self.process.changed())
        return f"{who} changed {changed}: put back after the trial" if changed else ""

    def _keep_weights(self, report: Report, checkpoint: Path) -> None:
        assignment = self.assignment
        if assignment.weights and report.diverged_at is None and not self.rank:
            header, files = self._trial.result_at(report), files_of(checkpoint)
            root, key, attempt = assignment.weights, self._trial.key, assignment.attempt
            write_weights(root, key, attempt, files, header)

    def _checked(self, unit: Any, metrics: Mapping[str, Any]) -> Report:
        """Return the report of a function or script, if it can be one.

        Raises:
            RefusedReportError: a unit or a metric that cannot be.
        """
        unit = self._checked_unit(unit)
        numbers = {} if self.rank else self._numbers(metrics)
        is_finite = all(value is None or math.isfinite(value) for value in numbers.values())
        seconds = self.state.seconds()
        is_noted = not self.has_reported or unit == self.budget
        return Report(
            unit=unit,
            step=unit,
            metrics={
                name: value if value is not None and math.isfinite(value) else None
                for name, value in numbers.items()
            },
            wall_seconds=seconds,
            is_last=unit == self.budget,
            diverged_at=None if is_finite else unit,
            train_seconds=seconds,
            peak_memory_bytes=held_at_most(self.device) or None,
            note=self.changes_note("the training function") if is_noted else "",
        )

    def _checked_unit(self, given: Any) -> int:
        state, budget = self.state, self._trial.budget
        try:
            if isinstance(given, bool):
                raise TypeError
            unit = operator.index(given)
        except TypeError:
            raise RefusedReportError(
                f"a report's unit is a whole number of {budget.unit}, not {shown(given)}"
            ) from None
        if not self.has_reported and 1 <= unit <= state.unit and state.history:
            state.go_back(unit)
        if state.is_over:
            raise RefusedReportError(
                f"a report of unit {unit} after that of unit {state.unit}, with which the trial "
                f"was over: its budget is {budget.amount} {budget.unit}"
            )
        if not state.unit < unit <= budget.amount:
            after = "is none: the first is 1" if unit < 1 else f"cannot follow unit {state.unit}"
            raise RefusedReportError(
                f"reports go forward, up to the budget of {budget.amount} {budget.unit}: unit "
                f"{unit} {after}"
            )
        done = max(state.unit, self.assignment.recorded_through)
        skipped = [each for each in self.assignment.waits_at if done < each < unit]
        if skipped:
            raise RefusedReportError(
                f"unit {unit} is reported after unit {done}, and early stopping decides at "
                f"unit {min(skipped)} between them; report each unit of the budget, or say how "
                f"often it is reported, as in {budget.unit}({budget.amount}, report_every=...)"
            )
        return unit

    def _numbers(self, metrics: Mapping[str, Any]) -> dict[str, float | None]:
        trial, history = self._trial, self.state.history
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
    """Return why a metric of a trial at a point cannot be called so, empty if it can."""
    if name in point or name in _FORBIDDEN:
        what = "is an axis" if name in point else "has a meaning of its own in tables"
        return f"metric {name!r} of a report: the name {what}; call it otherwise"
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
