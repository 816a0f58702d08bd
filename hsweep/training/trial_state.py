"""The reports of a trial so far, its clock, and its way to disk and back."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hsweep.design.trial import Assignment, Report
from hsweep.training.checkpoints import LAST_ATTEMPT, BackgroundWriter, CheckpointStore
from hsweep.training.division import from_rank_0
from hsweep.training.storage import StorageError, usable_before
from hsweep.training.world import ALONE, World

Contents = Callable[[], Mapping[str, Any]]
"""Returns the present contents of a checkpoint, but for the reports."""

IsUsable = Callable[[Mapping[str, Any]], bool]
"""Whether a training can go on from the contents of a checkpoint."""


def now() -> float:
    """Return the time in seconds from an arbitrary start."""
    return time.perf_counter()


class TrialState:
    """The reports, the clock and the checkpoints of a trial in training, whatever trains it.

    Checkpoints are written so often that the work lost by a kill stays within the limit, during
    training where possible; ``close`` waits for the last. Rank 0 alone reads and writes them.

    Attributes:
        history: every report so far, over all attempts.
        train_seconds: time spent on updates and their data, over all attempts.
        data_seconds: the part of it spent waiting for data.

    Raises:
        StorageError: the storage cannot be used from here.
    """

    def __init__(self, assignment: Assignment, world: World = ALONE) -> None:
        trial = assignment.trial
        self.history: list[Report] = []
        self.train_seconds = 0.0
        self.data_seconds = 0.0
        self._assignment, self._trial, self._world = assignment, trial, world
        self._store = _store(
            assignment.checkpoints, trial.key, assignment.attempt, trial.branch_point
        )
        self._writer = BackgroundWriter(self._store)
        self._contents: Contents | None = None
        self._base = self._saved_unit = 0
        self._is_own = True
        self._note = ""
        # Training time at the last report, at the last with contents, at the last checkpoint, and
        # at the last one that is whole.
        self._seconds_before = self._seconds_offered = 0.0
        self._seconds_saved = self._seconds_whole = 0.0
        self.resume_clock()

    @property
    def unit(self) -> int:
        return self.history[-1].unit if self.history else self._base

    @property
    def is_over(self) -> bool:
        """Whether no report follows the last one."""
        last = self.history[-1] if self.history else None
        return last is not None and (last.is_last or last.diverged_at is not None)

    def unrecorded(self) -> list[Report]:
        """Return the reports that came with a checkpoint and are not on record."""
        return [
            report for report in self.history if report.unit > self._assignment.recorded_through
        ]

    def seconds(self) -> float:
        """Training time so far, over all attempts."""
        return self._seconds_before + now() - self._resumed_at

    def resume_clock(self) -> None:
        """Count time from here: waiting for the driver's decision is not training."""
        self._resumed_at = now()

    def add_note(self, text: str) -> None:
        """Add a note to the next report that is new to the record."""
        self._note = "; ".join(filter(None, [self._note, text]))

    def take_note(self, unit: int) -> str:
        """Return the notes for the report of a unit: empty where the record has that report."""
        if unit <= self._assignment.recorded_through:
            return ""
        note, self._note = self._note, ""
        return note

    def add(self, report: Report, contents: Contents | None) -> StorageError | None:
        """Add a report, and write a checkpoint if enough work is at risk, or a longer budget may
        go on from here.

        Work is at risk until the next report with contents and until its checkpoint is written;
        both are expected to take as long as they did before. So a kill costs at most
        ``checkpoint_seconds``, or the work between two of those reports if that takes longer;
        while a checkpoint is being written, also the work since the one before.

        Args:
            report: the newest.
            contents: of a checkpoint; None where training cannot go on from here.

        Returns:
            Why a checkpoint, this one or one before, could not be written.
        """
        self.history.append(report)
        self._seconds_before = report.wall_seconds
        self._resumed_at = now()
        self._contents = contents
        if contents is None:
            return None
        until_next = report.wall_seconds - self._seconds_offered
        self._seconds_offered = report.wall_seconds
        return self._problem_of(lambda: self._keep(report, until_next))

    def problem(self) -> StorageError | None:
        """Return why the last checkpoint could not be written; None if it was or still may be."""
        return self._problem_of(self._writer.check)

    def save_if_possible(self) -> None:
        """Write a checkpoint; if that fails, the older one stays."""
        self._problem_of(self._save_now)

    def close(self) -> None:
        """Wait for the last write to end, even if it fails."""
        self._problem_of(self._writer.wait)

    def _problem_of(self, action: Callable[[], None]) -> StorageError | None:
        """Run an action on checkpoints; return its error, after which no checkpoint counts as
        saved."""
        try:
            action()
        except StorageError as error:
            self._saved_unit, self._seconds_saved = 0, self._seconds_whole
            return error
        return None

    def _keep(self, report: Report, until_next: float) -> None:
        if report.unit == self._trial.branch_point and report.diverged_at is None:
            self._save_now()
        elif not report.is_last:
            self._bound_risk(until_next)

    def _bound_risk(self, until_next: float) -> None:
        """Write a checkpoint if a kill before the next report would cost more than the limit."""
        limit, writing = self._assignment.checkpoint_seconds, self._writer.seconds
        # A write that takes longer would not be done in time even if it began early.
        ahead = writing if 2 * writing <= limit else 0.0
        at_risk = self._seconds_before - self._seconds_saved
        if at_risk >= limit or at_risk + until_next + ahead > limit:
            self._save(beside=limit > 0)
        else:
            self._writer.check()

    def _save_now(self) -> None:
        self._problem_of(self._writer.wait)
        if self._saved_unit != self.unit:
            self._save(beside=False)

    def _save(self, *, beside: bool) -> None:
        if self._contents is None or self._world.rank:
            return
        contents = self._contents()
        self._writer.wait()
        self._seconds_whole = self._seconds_saved
        history = [report.remembered() for report in self.history]
        self._writer.save(self.unit, {**contents, "history": history}, beside=beside)
        self._saved_unit, self._seconds_saved = self.unit, self._seconds_before

    def restore(self, is_usable: IsUsable) -> dict[str, Any] | None:
        """Load the reports of the newest usable checkpoint; return all its contents, on the CPU in
        every process, or None without a checkpoint.

        Raises:
            StorageError: the checkpoints cannot be read.
        """
        saved, self._is_own, damaged = from_rank_0(self._world, lambda: self._search(is_usable))
        if saved is not None:
            self.history = [self._report(row) for row in saved["history"]]
            last = self.history[-1]
            self._seconds_before = self._seconds_saved = self._seconds_offered = last.wall_seconds
            self.train_seconds, self.data_seconds = last.train_seconds, last.data_seconds
            self._saved_unit = self.unit
        self._note = self._restart_note(damaged)
        self.resume_clock()
        return saved

    def keep_branch_point(self, contents: Contents) -> None:
        """Write a checkpoint from a shorter training into this trial's folder, for longer ones."""
        if not self._is_own and self.unit == self._trial.branch_point:
            self._saved_unit, self._contents = 0, contents
            self.save_if_possible()

    def go_on_from(self, unit: int, seconds: float) -> None:
        """Go on after a unit and seconds that are on record, without a checkpoint of ours."""
        self._base, self._seconds_before = unit, seconds
        self.resume_clock()

    def go_back(self, unit: int) -> None:
        """Remove the reports from a unit on: the training function began there, whatever checkpoint
        it had."""
        last = self.history[-1]
        self._note = f"trained again from unit {unit}, with a checkpoint of unit {last.unit}"
        self.history = [report for report in self.history if report.unit < unit]
        seconds = self.history[-1].wall_seconds if self.history else 0.0
        self._seconds_before += seconds - last.wall_seconds
        self._seconds_saved = self._seconds_offered = self._seconds_whole = seconds

    def _search(self, is_usable: IsUsable) -> tuple[dict[str, Any] | None, bool, tuple[int, ...]]:
        """Return the newest checkpoint, whether it is the trial's own, and the units of those that
        are damaged."""

        def is_whole(saved: Mapping[str, Any]) -> bool:
            try:
                return bool([row["unit"] for row in saved["history"]]) and is_usable(saved)
            except (KeyError, TypeError, AttributeError):
                return False

        newest = self._store.search(is_whole)
        damaged = newest.damaged
        other = self._assignment.continues
        is_own = newest.state is not None or other is None
        if not is_own and other is not None:
            shorter = _store(self._assignment.checkpoints, other, LAST_ATTEMPT)
            newest = shorter.search(is_whole, self._assignment.shared)
            damaged += newest.damaged
        return newest.state, is_own, damaged

    def _report(self, row: Mapping[str, Any]) -> Report:
        report = Report(**row, is_last=row["unit"] == self._trial.budget.amount)
        if report.is_last:
            return report
        # The last report of a shorter budget is one among others of a longer one.
        metrics = report.metrics
        if not (self._assignment.measures_training or self._trial.is_decided_in_training):
            metrics = {k: v for k, v in metrics.items() if k not in self._trial.training_metrics}
        return replace(report, latency_seconds=None, metrics=metrics)

    def _restart_note(self, damaged: tuple[int, ...]) -> str:
        """Return a note on where the trial goes on; empty where that is as usual."""
        unit = self.unit
        again = f"trained again from unit {unit}" if unit else "it starts again from the beginning"
        if damaged:
            units = " and ".join(map(str, damaged))
            s, are = ("s", "are") if len(damaged) > 1 else ("", "is")
            return f"the checkpoint{s} of unit{s} {units} {are} damaged: {again}"
        recorded, limit = self._assignment.recorded_through, self._assignment.checkpoint_seconds
        if not recorded:
            is_lost = self._assignment.continues is not None and not self.unit
            return f"no checkpoint of the shorter training is left: {again}" if is_lost else ""
        if not self.unit:
            return f"no checkpoint is left, with unit {recorded} on record: {again}"
        pace = self.history[-1].wall_seconds / self.unit
        usual = max(limit, pace * self._trial.budget.report_every)
        if (recorded - self.unit) * pace <= 2 * usual:
            return ""
        return f"the newest checkpoint left is of unit {self.unit} of {recorded} on record: {again}"


def _store(root: str, key: str, attempt: int, branch_point: int = 0) -> CheckpointStore:
    with usable_before():
        return CheckpointStore(root, key, attempt, branch_point)
