"""What is kept of a trial of one's own training: its reports, its clock, its checkpoints."""

import math
import operator
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

import torch

from hsweep.design.budget import BudgetUnit
from hsweep.design.sweep import RESERVED_AXES
from hsweep.design.trial import Assignment, Report
from hsweep.errors import RefusedReportError, UserError, nearest, shown
from hsweep.training.checkpoints import CheckpointStore, StorageError, packed
from hsweep.training.weights import write_weights

NUM_PARAMS: Final = "num_params"
"""A metric by which a report may say how many parameters the model has."""

_FORBIDDEN: Final = (RESERVED_AXES | {"time"}) - {NUM_PARAMS, *get_args(BudgetUnit)}
_LONGEST_NAME: Final = 200


class OwnState:
    """The reports of a trial so far, over all attempts, and where it can go on from.

    Args:
        assignment: the trial, and where its checkpoints lie.

    Attributes:
        history: every report so far that a checkpoint remembers or this attempt has made.
        files: what the newest checkpoint holds, by path; None without one.

    Raises:
        StorageError: checkpoints cannot be looked for.
    """

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._trial = assignment.trial
        try:
            self._store = CheckpointStore(
                assignment.checkpoints, assignment.trial.key, assignment.attempt
            )
        except UserError as error:
            # The same storage was fine where the study was started.
            raise StorageError(str(error)) from error
        self.history: list[Report] = []
        self.files: dict[str, torch.Tensor] | None = None
        self._is_one_file = False
        self._base = 0
        self._has_reported = False
        self._note = ""
        self._seconds_before = 0.0
        self._seconds_saved = 0.0
        self._seconds_offered = 0.0
        self._unsaved: Path | None = None
        self._started = _now()

    def restore(self) -> None:
        """Take up the newest checkpoint, if there is one."""
        found = self._store.search(torch.device("cpu"), _is_usable)
        saved, recorded = found.state, self._assignment.recorded_through
        if saved is not None:
            amount = self._trial.budget.amount
            self.history = [
                Report(**row, is_last=row["unit"] == amount) for row in saved["history"]
            ]
            self.files, self._is_one_file = saved["files"], saved["is_one_file"]
            self._seconds_before = self.history[-1].wall_seconds
            self._seconds_saved = self._seconds_offered = self._seconds_before
        elif recorded:
            self._note = (
                f"no checkpoint is left, with unit {recorded} on record: it starts again from the "
                "beginning"
            )
        if found.damaged:
            units = " and ".join(map(str, found.damaged))
            self._note = f"the checkpoint of unit {units} is damaged: trained again from before"
        self._started = _now()

    def take_up(self, unit: int, seconds: float) -> None:
        """Go on from what an earlier attempt came to, which the record has."""
        self._base, self._seconds_before = unit, seconds
        self._started = _now()

    @property
    def unit(self) -> int:
        return self.history[-1].unit if self.history else self._base

    @property
    def is_over(self) -> bool:
        last = self.history[-1] if self.history else None
        return last is not None and (last.is_last or last.diverged_at is not None)

    def unrecorded(self) -> list[Report]:
        """Return the reports that a checkpoint remembers and the record lacks."""
        return [each for each in self.history if each.unit > self._assignment.recorded_through]

    def pause(self) -> None:
        """Stop the clock: waiting for the driver's decision is not training."""
        self._seconds_before = self.seconds()
        self._started = math.inf

    def go_on(self) -> None:
        self._started = _now()

    def seconds(self) -> float:
        """Training time so far, over all attempts."""
        return self._seconds_before + max(0.0, _now() - self._started)

    def add(
        self, unit: Any, metrics: Mapping[str, Any], checkpoint: Path | None, note: str = ""
    ) -> Report:
        """Return the report of a unit, having kept its checkpoint if enough work is at risk.

        Work is at risk until the next report with a checkpoint, which is taken to be as far away as
        the one before: no more than ``checkpoint_seconds`` is lost, or the work between two of
        those if that takes longer.

        Raises:
            RefusedReportError: a unit, a metric or a checkpoint that cannot be.
            StorageError: the checkpoint cannot be written.
        """
        budget = self._trial.budget
        unit = self._checked_unit(unit)
        numbers = self._numbers(metrics)
        if checkpoint is not None and not checkpoint.exists():
            raise RefusedReportError(
                f"a report's checkpoint is a folder or a file that is there; {checkpoint} is not"
            )
        is_finite = all(value is None or math.isfinite(value) for value in numbers.values())
        seconds = self.seconds()
        report = Report(
            unit=unit,
            step=unit,
            metrics={
                name: value if value is not None and math.isfinite(value) else None
                for name, value in numbers.items()
            },
            wall_seconds=seconds,
            is_last=unit == budget.amount,
            diverged_at=None if is_finite else unit,
            train_seconds=seconds,
            note="; ".join(filter(None, [self._take_note(unit), note])),
        )
        self.history.append(report)
        self._has_reported = True
        self._unsaved = None if self.is_over else checkpoint
        if checkpoint is not None and self.is_over:
            if report.diverged_at is None and self._assignment.weights:
                root, key = self._assignment.weights, self._trial.key
                header, tensors = self._trial.result_at(report), _files(checkpoint)
                write_weights(root, key, self._assignment.attempt, tensors, header)
        elif checkpoint is not None:
            at_risk, until_next = seconds - self._seconds_saved, seconds - self._seconds_offered
            self._seconds_offered = seconds
            if at_risk + until_next > self._assignment.checkpoint_seconds:
                self.keep()
        return report

    def follow(self, unit: Any) -> None:
        """Note that rank 0 of several processes reports a unit.

        Raises:
            RefusedReportError: a unit that cannot be.
        """
        unit = self._checked_unit(unit)
        is_last = unit == self._trial.budget.amount
        self.history.append(Report(unit, unit, {}, self.seconds(), is_last=is_last))
        self._has_reported = True

    def keep(self) -> None:
        """Write the last report's checkpoint, if it came with one and that is not written yet.

        Raises:
            StorageError: it cannot be.
        """
        if self._unsaved is None:
            return
        content = {
            "history": [report.remembered() for report in self.history],
            "files": _files(self._unsaved),
            "is_one_file": self._unsaved.is_file(),
        }
        self._store.save(self.unit, packed(content))
        self._seconds_saved, self._unsaved = self.history[-1].wall_seconds, None

    def _take_note(self, unit: int) -> str:
        """Return what the first report that is new to the record has to tell of the restart."""
        if unit <= self._assignment.recorded_through:
            return ""
        note, self._note = self._note, ""
        return note

    def _checked_unit(self, given: Any) -> int:
        budget = self._trial.budget
        try:
            if isinstance(given, bool):
                raise TypeError
            unit = operator.index(given)
        except TypeError:
            raise RefusedReportError(
                f"a report's unit is a whole number of {budget.unit}, not {shown(given)}"
            ) from None
        if not self._has_reported and 1 <= unit <= self.unit and self.history:
            self._go_back(unit)
        if self.is_over:
            raise RefusedReportError(
                f"a report of unit {unit} after that of unit {self.unit}, with which the trial was "
                f"over: its budget is {budget.amount} {budget.unit}"
            )
        if not self.unit < unit <= budget.amount:
            after = "is none: the first is 1" if unit < 1 else f"cannot follow unit {self.unit}"
            raise RefusedReportError(
                f"reports go forward, up to the budget of {budget.amount} {budget.unit}: unit "
                f"{unit} {after}"
            )
        done = max(self.unit, self._assignment.recorded_through)
        skipped = [each for each in self._assignment.waits_at if done < each < unit]
        if skipped:
            raise RefusedReportError(
                f"unit {unit} is reported after unit {done}, and early stopping decides at "
                f"unit {min(skipped)} between them; report each unit of the budget, or say how "
                f"often it is reported, as in {budget.unit}({budget.amount}, report_every=...)"
            )
        return unit

    def _go_back(self, unit: int) -> None:
        """Forget the reports from a unit on: the training began there, whatever its checkpoint."""
        last = self.history[-1]
        self._note = f"trained again from unit {unit}, with a checkpoint of unit {last.unit}"
        self.history = [each for each in self.history if each.unit < unit]
        seconds = self.history[-1].wall_seconds if self.history else 0.0
        self._seconds_before += seconds - last.wall_seconds
        self._seconds_saved = self._seconds_offered = seconds

    def _numbers(self, metrics: Mapping[str, Any]) -> dict[str, float | None]:
        trial = self._trial
        numbers = {name: _number(name, value) for name, value in metrics.items()}
        if self.history and NUM_PARAMS in self.history[0].metrics:
            numbers.setdefault(NUM_PARAMS, self.history[0].metrics[NUM_PARAMS])
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

    def write_files(self, folder: Path) -> Path:
        """Write what the newest checkpoint holds into a folder; return that, or the one file in it
        where a file was given."""
        assert self.files is not None
        for name, content in self.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.numpy().data)
        return folder / next(iter(self.files)) if self._is_one_file else folder


def _now() -> float:
    return time.perf_counter()


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


def _is_usable(saved: Mapping[str, Any]) -> bool:
    try:
        units = [row["unit"] for row in saved["history"]]
        return bool(units) and isinstance(saved["files"], dict) and "is_one_file" in saved
    except (KeyError, TypeError):
        return False


def _files(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Return the content of a file, or of all files below a folder, by path."""
    if checkpoint.is_file():
        return {checkpoint.name: _content(checkpoint)}
    return {
        str(file.relative_to(checkpoint)): _content(file)
        for file in sorted(checkpoint.rglob("*"))
        if file.is_file()
    }


def _content(file: Path) -> torch.Tensor:
    content = file.read_bytes()
    if not content:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


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
