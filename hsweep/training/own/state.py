"""What is kept of a trial of one's own training: its reports, its clock, its checkpoints."""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from hsweep.design.trial import Assignment, Report
from hsweep.errors import UserError, shown
from hsweep.training.checkpoints import CheckpointStore, StorageError, packed
from hsweep.training.trial_state import report_row

NUM_PARAMS: Final = "num_params"
"""A metric by which a report may say how many parameters the model has."""

_FORBIDDEN: Final = frozenset({"unit", "step", "time", "key", "seed", "status", "wall_seconds"})


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
        self._base = 0
        self._seconds_before = 0.0
        self._started = time.perf_counter()

    def restore(self) -> None:
        """Take up the newest checkpoint, if there is one."""
        saved = self._store.search(torch.device("cpu"), _is_usable).state
        if saved is not None:
            amount = self._trial.budget.amount
            self.history = [
                Report(**row, is_last=row["unit"] == amount) for row in saved["history"]
            ]
            self.files = saved["files"]
            self._seconds_before = self.history[-1].wall_seconds
        self._started = time.perf_counter()

    def take_up(self, unit: int, seconds: float) -> None:
        """Go on from what an earlier attempt came to, which the record has."""
        self._base, self._seconds_before = unit, seconds
        self._started = time.perf_counter()

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
        self._started = time.perf_counter()

    def seconds(self) -> float:
        """Training time so far, over all attempts."""
        return self._seconds_before + max(0.0, time.perf_counter() - self._started)

    def add(self, unit: int, metrics: Mapping[str, Any], checkpoint: Path | None) -> Report:
        """Return the report of a unit, having kept its checkpoint.

        Raises:
            UserError: a unit or a metric that cannot be.
            StorageError: the checkpoint cannot be written.
        """
        budget = self._trial.budget
        self._check_unit(unit)
        numbers = self._numbers(metrics)
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
        )
        self.history.append(report)
        if checkpoint is not None and not self.is_over:
            self._save(checkpoint)
        return report

    def follow(self, unit: int) -> None:
        """Note that rank 0 of several processes reports a unit.

        Raises:
            UserError: a unit that cannot be.
        """
        self._check_unit(unit)
        is_last = unit == self._trial.budget.amount
        self.history.append(Report(unit, unit, {}, self.seconds(), is_last=is_last))

    def _check_unit(self, unit: int) -> None:
        budget = self._trial.budget
        if isinstance(unit, bool) or not isinstance(unit, int):
            raise UserError(
                f"a report's unit is a whole number of {budget.unit}, not {shown(unit)}"
            )
        if self.is_over:
            raise UserError(
                f"a report of unit {unit} after that of unit {self.unit}, with which the trial was "
                f"over: its budget is {budget.amount} {budget.unit}"
            )
        if not self.unit < unit <= budget.amount:
            raise UserError(
                f"reports go forward, up to the budget of {budget.amount} {budget.unit}: unit "
                f"{unit} cannot follow unit {self.unit}"
            )
        skipped = [each for each in self._assignment.waits_at if self.unit < each < unit]
        if skipped:
            raise UserError(
                f"unit {unit} is reported after unit {self.unit}, and early stopping decides at "
                f"unit {min(skipped)} between them; report each unit of the budget, or say how "
                f"often it is reported, as in {budget.unit}({budget.amount}, report_every=...)"
            )

    def _numbers(self, metrics: Mapping[str, Any]) -> dict[str, float | None]:
        trial = self._trial
        numbers = {name: _number(name, value) for name, value in metrics.items()}
        if self.history and NUM_PARAMS in self.history[0].metrics:
            numbers.setdefault(NUM_PARAMS, self.history[0].metrics[NUM_PARAMS])
        if numbers.get(trial.metric) is None:
            raise UserError(
                f"every report needs the sweep's metric {trial.metric!r}, which decides; this one "
                f"has {', '.join(numbers) or 'none'}"
            )
        for name in numbers:
            if name in trial.point or name in _FORBIDDEN:
                what = "an axis" if name in trial.point else "a column of every table"
                raise UserError(f"metric {name!r} has the name of {what}; call it otherwise")
        return numbers

    def _save(self, checkpoint: Path) -> None:
        if not checkpoint.is_dir():
            raise UserError(f"a report's checkpoint is a folder, and {checkpoint} is none")
        files = {
            str(file.relative_to(checkpoint)): _content(file)
            for file in sorted(checkpoint.rglob("*"))
            if file.is_file()
        }
        history = [report_row(report) for report in self.history]
        self._store.save(self.unit, packed({"history": history, "files": files}))

    def write_files(self, folder: Path) -> Path:
        """Write what the newest checkpoint holds into a folder of that name, and return it."""
        assert self.files is not None
        for name, content in self.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.numpy().tobytes())
        return folder


def _is_usable(saved: Mapping[str, Any]) -> bool:
    try:
        units = [row["unit"] for row in saved["history"]]
        return bool(units) and isinstance(saved["files"], dict)
    except (KeyError, TypeError):
        return False


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
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise UserError(
            f"metric {name!r} of a report must be one number, not {shown(value)}; give float(...) "
            "of it"
        ) from None
