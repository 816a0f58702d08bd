"""What a trial's training consists of at a report, and its way to a checkpoint and back."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from hsweep.design.configuration import encoded
from hsweep.design.trial import Assignment, Report
from hsweep.errors import UserError
from hsweep.training.checkpoints import (
    LAST_ATTEMPT,
    BackgroundWriter,
    CheckpointStore,
    StorageError,
)
from hsweep.training.division import from_rank_0
from hsweep.training.precision import Autocast
from hsweep.training.weights import plain_tensors, write_weights
from hsweep.training.world import ALONE, World
from tasks.base import TaskData

_BEYOND_A_REPORT: Final = 0.1
"""Where reports are further apart than work at risk may be: the share of the time between two by
which a kill may cost more than one, while a checkpoint is being written beside."""


class TrialState:
    """All that changes while a trial trains, and its way to disk and back.

    Neither the schedule nor the random generators are part of it: both are functions of the step.
    Checkpoints are written beside training where that keeps what a kill may cost within the limit;
    ``close`` waits for the last.

    Of several processes rank 0 reads and writes them. Where weights are sharded, every process has
    to do its part of that, so all call ``add`` and ``save_if_possible`` at the same points.

    Attributes:
        average: of the weights, where the recipe has one; None for none.
        scaler: of the loss, where the recipe has one; None for none.
        history: every report so far.
        is_sharded: whether each process holds a share of the weights.
        train_seconds: time spent on updates and their data, over all attempts.
        data_seconds: the part of it spent waiting for data.

    Raises:
        StorageError: the storage cannot be used from here.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        assignment: Assignment,
        clock: Callable[[], float],
        world: World = ALONE,
        *,
        average: AveragedModel | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.average = average
        self.scaler = scaler
        parts = {"model": model, "optimizer": optimizer, "average": average, "scaler": scaler}
        self._parts: dict[str, Any] = {
            name: each for name, each in parts.items() if each is not None
        }
        self.history: list[Report] = []
        self._assignment = assignment
        self._clock = clock
        self._world = world
        self.is_sharded = world.size > 1 and assignment.trial.recipe.sharding == "full"
        self._trial = assignment.trial
        self._store = _store(
            assignment.checkpoints, assignment.trial.key, assignment.attempt, assignment.trial.trunk
        )
        self._writer = BackgroundWriter(self._store)
        self.train_seconds = 0.0
        self.data_seconds = 0.0
        self._seconds_before = 0.0
        self._seconds_saved = 0.0
        self._seconds_whole = 0.0
        self._until_last = 0.0
        self._saved_unit = 0
        self._note = ""
        self.resume_clock()

    @property
    def unit(self) -> int:
        return self.history[-1].unit if self.history else 0

    @property
    def evaluated(self) -> nn.Module:
        """The model that reports are about: the average of the weights where there is one."""
        return self.model if self.average is None else self.average.module

    @property
    def is_over(self) -> bool:
        """Whether the last report there is says that no other follows."""
        last = self.history[-1] if self.history else None
        return last is not None and (last.is_last or last.diverged_at is not None)

    def unrecorded(self) -> list[Report]:
        """Return the reports that a checkpoint remembers and the record lacks."""
        return [each for each in self.history if each.unit > self._assignment.recorded_through]

    def seconds(self) -> float:
        """Training time so far, over all attempts."""
        return self._seconds_before + self._clock() - self._resumed_at

    def resume_clock(self) -> None:
        """Count time again: waiting for the driver's decision is not training."""
        self._resumed_at = self._clock()

    def take_note(self, unit: int) -> str:
        """Return what the first report that is new to the record has to tell of the restart."""
        if unit <= self._assignment.recorded_through:
            return ""
        note, self._note = self._note, ""
        return note

    def add(self, report: Report) -> StorageError | None:
        """Note a report, and write a checkpoint if enough work is at risk, or a longer budget may
        go on from here.

        Work is at risk until the next report, which is taken to be as far away as the one before,
        and until the checkpoint is written, which is taken to last as long as the one before: so no
        more than ``checkpoint_seconds`` is lost, or one report if those take longer (and a tenth of
        it, while a checkpoint is being written). A checkpoint is never written more often than that
        takes.

        Final weights that the study keeps are written as well.

        Returns:
            Why a checkpoint, this one or one before, could not be written.

        Raises:
            StorageError: the final weights cannot be written, so the trial has not come to its end.
        """
        until_next = report.wall_seconds - self._seconds_before
        self.history.append(report)
        self._seconds_before = report.wall_seconds
        self._keep_weights()
        return self._tried(lambda: self._keep(report, until_next))

    def problem(self) -> StorageError | None:
        """Return why a checkpoint that was being written could not be; None as long as it can."""
        return self._tried(self._writer.check)

    def save_if_possible(self) -> None:
        """Write a checkpoint, or leave the trial to an older one."""
        self._tried(self._save_now)

    def close(self) -> None:
        """Return when nothing is being written any more, whatever came of it."""
        self._tried(self._writer.wait)

    def _tried(self, action: Callable[[], None]) -> StorageError | None:
        """Return why something could not be written, having noted what is on disk then."""
        try:
            action()
        except StorageError as error:
            self._saved_unit, self._seconds_saved = 0, self._seconds_whole
            return error
        return None

    def _keep(self, report: Report, until_next: float) -> None:
        if report.unit == self._trial.trunk and report.diverged_at is None:
            self._save_now()
        elif not report.is_last:
            self._bound_risk(until_next)

    def _bound_risk(self, until_next: float) -> None:
        """Write a checkpoint, or wait for one, if a kill before the next report would cost more
        than it may."""
        limit, writing = self._assignment.checkpoint_seconds, self._writer.seconds
        # What takes longer cannot be had in time by beginning early.
        ahead = writing if 2 * writing <= limit else 0.0
        at_risk = self._seconds_before - self._seconds_saved
        # One report that took long says nothing of the next.
        usual, self._until_last = min(until_next, self._until_last), until_next
        allowed = max(limit, usual * (1 + _BEYOND_A_REPORT))
        if self._agreed(at_risk >= limit or at_risk + until_next + ahead > limit):
            self._save(beside=limit > 0 and at_risk + writing <= allowed)
            return
        self._writer.check()
        if (
            self._writer.is_writing
            and self._seconds_before - self._seconds_whole + until_next > allowed
        ):
            self._writer.wait()

    def _keep_weights(self) -> None:
        last = self.history[-1]
        if not self._assignment.weights or not last.is_last or last.diverged_at is not None:
            return
        state = self._whole(self.evaluated.state_dict())
        if self._world.rank == 0:
            header = self._trial.result_at(last) | {"model": encoded(self._trial.model)}
            root, key, attempt = self._assignment.weights, self._trial.key, self._assignment.attempt
            write_weights(root, key, attempt, plain_tensors(state), header)

    def _save_now(self) -> None:
        self._tried(self._writer.wait)
        if self._agreed(self._saved_unit != self.unit):
            self._save(beside=False)

    def _agreed(self, is_due: bool) -> bool:
        """Return whether a checkpoint is due, by rank 0's clock where all have a part in it."""
        return self._world.agree(is_due) if self.is_sharded else is_due

    def _save(self, *, beside: bool) -> None:
        state = {
            **{name: each.state_dict() for name, each in self._parts.items()},
            "history": [report.remembered() for report in self.history],
        }
        state = self._whole(state)
        if self._world.rank:
            return
        self._writer.wait()
        self._seconds_whole = self._seconds_saved
        self._writer.save(self.unit, state, beside=beside)
        self._saved_unit, self._seconds_saved = self.unit, self._seconds_before

    def _whole(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state with whole tensors, in rank 0."""
        if not self.is_sharded:
            return state
        from hsweep.training.sharding import gathered

        return gathered(state, self._world)

    def restore(self, device: torch.device) -> None:
        """Continue from the newest valid checkpoint, if there is one.

        Raises:
            StorageError: it cannot be looked for, or final weights that it holds not be written.
        """
        # Loaded on the CPU where it is passed on, and put on each device from there.
        place = device if self._world.size == 1 else torch.device("cpu")
        saved, is_own, damaged = from_rank_0(self._world, lambda: self._found(place))
        if saved is not None:
            self._load(saved)
            self.history = [self._report(row) for row in saved["history"]]
            self._seconds_before = self._seconds_saved = self.history[-1].wall_seconds
            self._saved_unit = self.unit
            self.train_seconds = self.history[-1].train_seconds
            self.data_seconds = self.history[-1].data_seconds
            # They are this attempt's only if it has written them.
            self._keep_weights()
            if not is_own and self.unit == self._trial.trunk:
                # A longer training yet looks for it here.
                self._saved_unit = 0
                self.save_if_possible()
        self._note = self._restart_note(damaged)
        self.resume_clock()

    def _found(self, device: torch.device) -> tuple[dict[str, Any] | None, bool, tuple[int, ...]]:
        """Return the newest checkpoint, whether it is the trial's own, and the units of those that
        are damaged."""
        found = self._store.search(device, self._is_usable)
        damaged = found.damaged
        other = self._assignment.continues
        is_own = found.state is not None or other is None
        if not is_own and other is not None:
            shorter = _store(self._assignment.checkpoints, other, LAST_ATTEMPT)
            found = shorter.search(device, self._is_usable, self._assignment.shared)
            damaged += found.damaged
        return found.state, is_own, damaged

    def _load(self, saved: Mapping[str, Any]) -> None:
        if self.is_sharded:
            from hsweep.training.sharding import shares_of

            saved = {**saved, **shares_of(self.model, self.optimizer, saved)}
        for name, each in self._parts.items():
            each.load_state_dict(saved[name])

    def _is_usable(self, saved: Mapping[str, Any]) -> bool:
        """Whether a checkpoint is one of this model, at a report of this budget."""
        try:
            units = [row["unit"] for row in saved["history"]]
            weights = _shapes(saved["model"])
            groups = [len(group["params"]) for group in saved["optimizer"]["param_groups"]]
        except (KeyError, TypeError, AttributeError):
            return False
        return (
            bool(units)
            and self._parts.keys() <= saved.keys()
            and units == self._trial.budget.report_units()[: len(units)]
            and weights == _shapes(self.model.state_dict())
            and groups == [len(group["params"]) for group in self.optimizer.param_groups]
        )

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
        """Return what is to be said of where the trial goes on; empty where that is as usual."""
        again = (
            f"trained again from unit {self.unit}"
            if self.unit
            else "it starts again from the beginning"
        )
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


class Opened(NamedTuple):
    """A trial ready to train on a device, what its losses are computed under, and the processes
    that train it."""

    data: TaskData
    model: nn.Module
    state: TrialState
    autocast: Autocast
    device: torch.device
    world: World = ALONE


def _store(root: str, key: str, attempt: int, trunk: int = 0) -> CheckpointStore:
    try:
        return CheckpointStore(root, key, attempt, trunk)
    except UserError as error:
        # The same storage was fine where the study was started.
        raise StorageError(str(error)) from error


def _shapes(weights: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "shape", None) for name, value in weights.items()}
