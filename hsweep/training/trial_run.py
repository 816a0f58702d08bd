"""One trial in training: the argument of its training function, and the path of its reports.

``train_model``, ``train_function`` and ``train_script`` train through it. A report comes with a
checkpoint where enough work is at risk; then it goes to the channel, which waits where early
stopping decides. Of several processes only rank 0 has a channel to report to, and at each report
all agree on whether the trial goes on.
"""

import contextlib
import functools
import json
import math
import operator
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NoReturn, get_args

from torch import Tensor

from hsweep.design.budget import BudgetUnit
from hsweep.design.function_model import model_name
from hsweep.design.labels import listed
from hsweep.design.sweep import RESERVED_AXES
from hsweep.design.trial import Assignment, Counting, Ended, Report
from hsweep.errors import FinalError, RefusedReportError, UserError, nearest, shown
from hsweep.paths import WEIGHTS_HEADER, trial_folder, weights_file
from hsweep.reporting import NUM_PARAMS
from hsweep.seeding import Seeds
from hsweep.training.checkpoints import (
    LAST_ATTEMPT,
    CheckpointStore,
    files_of,
    write_files,
)
from hsweep.training.devices import device_of, held_at_most
from hsweep.training.division import from_rank
from hsweep.training.own.leftovers import end_leftovers
from hsweep.training.process_state import KeptModules, ProcessState
from hsweep.training.run import Channel, StopTrial
from hsweep.training.storage import StorageError, Store
from hsweep.training.world import ALONE, World

RETURNED: Final = -1
"""Stands for the unit of a training function that has returned, ..."""
SAVES: Final = -2
"""... for that of one that saves between two reports, ..."""
ENDS: Final = -3
"""... and for that of one that ends by itself."""
_OTHER_CALLS: Final = {RETURNED: "has returned", SAVES: "saves", ENDS: "has ended"}

_SAVING_SHARE: Final = 0.05
"""The part of training that checkpoints between reports may take at most."""

_FORBIDDEN: Final = (RESERVED_AXES | {"time", "checkpoint"}) - {NUM_PARAMS, *get_args(BudgetUnit)}
_LONGEST_NAME: Final = 200
_SEEDS_BELOW: Final = 2**31

Contents = Callable[[], Mapping[str, Any]]
"""Returns the present contents of a checkpoint, but for the reports."""

IsUsable = Callable[[Mapping[str, Any]], bool]
"""Whether a training can go on from the contents of a checkpoint."""


class Pause(IntEnum):
    """What a trial does between two reports; the largest of its processes' counts."""

    NONE = 0
    SAVE = 1
    """It writes a checkpoint beside training."""
    END = 2
    """It writes a checkpoint, and ends there."""


_OVER_SECONDS: Final = 5.0


def now() -> float:
    """Return the time in seconds from an arbitrary start."""
    return time.perf_counter()


class TrialRun:
    """One trial in training (see ``hsweep.training.run.Run`` for what a user's function may use):
    its reports, its clock and its checkpoints, whatever trains it.

    Checkpoints are written so often that the work lost by a kill stays within the limit, during
    training where possible; ``close`` waits for the last. Rank 0 alone reads and writes them.

    Attributes:
        history: every report so far, over all attempts.
        train_seconds: time spent on updates and their data, over all attempts.
        data_seconds: the part of it spent waiting for data.
        steps_within: how many steps are done since the last report, if a checkpoint or the trial's
            start is there.
        process: the settings of the process before the trial.
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
        self.history: list[Report] = []
        self.train_seconds = self.data_seconds = 0.0
        self._trial = trial
        self._store = CheckpointStore(
            assignment.checkpoints, trial.key, assignment.attempt, trial.branch_point
        )
        self._contents: Contents | None = None
        self._last_path: Path | None = None
        self._base = self.steps_within = 0
        self._saved = (0, 0)  # the unit and the steps after it
        self._saving_seconds = 0.0
        self._is_own = True
        self._note = ""
        # Training time at the last report, at the last with contents, at the last checkpoint.
        self._seconds_before = self._seconds_offered = self._seconds_saved = 0.0
        self.resume_clock()
        self.process = ProcessState()
        self._kept_modules = KeptModules(getattr(trial.task, "train", None))
        self.is_stopped = self.has_reported = self._has_ended = False
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
        with self._remembering_refusal():
            self.check_ranks(unit)
            report = self._checked(unit, metrics)
            path = None if checkpoint is None else _path_of(checkpoint)
            self._last_path = path
            if path is not None:
                self.keep_weights(report, functools.partial(files_of, path))
            is_over = report.is_last or report.diverged_at is not None
            self.send(report, None if path is None or is_over else _contents_of(path))

    def finish(self) -> None:
        """End the training by itself; see ``Run.finish``."""
        with self._remembering_refusal():
            self.check_ranks(ENDS)
            self.end_by_itself()

    def tell_counts(self, offset: float | None) -> bool:
        """Tell the channel what a script counts from, None while its rows do not show it; return
        whether the trial goes on."""
        return self._channel.put(Counting(offset))

    def end_by_itself(self) -> None:
        """Tell the channel that the training has ended after its last report, unless that was the
        budget's.

        Raises:
            FinalError: it has not reported.
        """
        if self.is_over:
            return
        if not (self.unit or self.assignment.recorded_through):
            raise FinalError(
                f"the training ended without a report, and its budget is {self._trial.budget}: it "
                f"reports at least once what counts, {self._trial.metric!r}"
            )
        path = self._last_path
        if path is not None and path.exists():
            report = replace(self.history[-1], is_last=True)
            self.keep_weights(report, functools.partial(files_of, path))
        self._has_ended = True
        if not self.rank:
            self._channel.put(Ended())

    @property
    def should_checkpoint(self) -> bool:
        """Whether a checkpoint now would save much; see ``Run.should_checkpoint``."""
        return self.world.agree(self.pause > Pause.NONE)

    def save(self, checkpoint: Path | str) -> None:
        """Offer a checkpoint between two reports; see ``Run.save``."""
        with self._remembering_refusal():
            self.check_ranks(SAVES)
            path = _path_of(checkpoint)
            pause = Pause(int(self.world.of_rank_0(self.pause)))
            if pause:
                self.save_within(pause, self.steps_within + 1, _contents_of(path))

    @contextlib.contextmanager
    def _remembering_refusal(self) -> Iterator[None]:
        """Let the training function call this run, and fail its trial where that is refused."""
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
            yield
        except (UserError, OSError) as error:
            # Though the function may catch it: it is how the trial ends.
            self.refusal = error
            raise

    def send(self, report: Report, contents: Contents | None = None) -> None:
        """Add a report to the history, hand it over, and return if the trial goes on, or is over;
        ``contents`` are of a checkpoint from which training can go on, None where it cannot.

        Raises:
            StopTrial: the trial ends here.
            StorageError: checkpoints cannot be written.
        """
        if trouble := self._store.trouble():
            self.add_note(trouble)
        if not self.rank and report.unit > self.assignment.recorded_through:
            note, self._note = "; ".join(filter(None, [self._note, report.note])), ""
            report = replace(report, note=note)
        problem = self._add(report, contents)
        self.has_reported = True
        goes_on = self.rank > 0 or self._channel.put(report)
        may_go_on = goes_on and not self.is_over
        problem = (problem or self._problem_of(self._store.check)) if may_go_on else None
        goes_on = goes_on and problem is None and report.diverged_at is None
        if not self.world.agree(goes_on):
            if problem is None or self.world_size > 1:
                self.save_if_possible()
            if problem is not None:
                raise problem
            if not report.is_last:
                self.stop()
        if self.is_paused_by_reports:
            self.resume_clock()

    def _add(self, report: Report, contents: Contents | None) -> StorageError | None:
        """Add a report, and write a checkpoint if enough work is at risk, or a longer budget may
        go on from here; return why one, this or one before, could not be written.

        Work is at risk until the next report with contents and until its checkpoint is written;
        both are expected to take as long as they did before. So a kill costs at most
        ``checkpoint_seconds``, or the work between two of those reports if that takes longer;
        while a checkpoint is being written, also the work since the one before.
        """
        self.history.append(report)
        self.steps_within = 0
        self._seconds_before = report.wall_seconds
        self.resume_clock()
        self._contents = contents
        if contents is None:
            return None
        until_next = report.wall_seconds - self._seconds_offered
        self._seconds_offered = report.wall_seconds
        return self._problem_of(lambda: self._keep(report, until_next))

    def send_again(self) -> None:
        """Hand over the reports that a checkpoint remembers and the record lacks.

        Raises:
            StopTrial: the trial ends there.
        """
        recorded = self.assignment.recorded_through
        for report in [report for report in self.history if report.unit > recorded]:
            goes_on = self.rank > 0 or self._channel.put(report)
            if not self.world.agree(goes_on or self.is_over):
                self.stop()
        self.resume_clock()

    def check_ranks(self, unit: Any) -> None:
        """Refuse processes of one trial that are at different units, by a UserError: all of them
        call this with the unit that they report, ``RETURNED`` or ``SAVES``."""
        if self.world.size == 1:
            return
        before = self.unit
        try:
            number = operator.index(unit)
        except TypeError:
            number = before  # it is refused in its own rank
        units = self.world.gather(number)
        if len(set(units)) > 1:
            ranks = ", ".join(
                f"rank {rank} {_OTHER_CALLS.get(other, f'reports unit {other}')}"
                for rank, other in enumerate(units)
            )
            raise UserError(
                "every process of a trial reports the same units, one after another, and after "
                f"unit {before} they differ: {ranks}"
            )

    @property
    def unit(self) -> int:
        return self.history[-1].unit if self.history else self._base

    @property
    def is_over(self) -> bool:
        """Whether no report follows the last one."""
        return self._has_ended or any(
            row.is_last or row.diverged_at is not None for row in self.history[-1:]
        )

    def seconds(self) -> float:
        """Training time so far, over all attempts."""
        return self._seconds_before + now() - self._resumed_at

    def resume_clock(self) -> None:
        """Count time from here: waiting for the driver's decision is not training."""
        self._resumed_at = now()

    def add_note(self, text: str) -> None:
        """Add a note to the next report that is new to the record."""
        self._note = "; ".join(filter(None, [self._note, text]))

    @property
    def pause(self) -> Pause:
        """What this process asks for between two reports: a checkpoint where so much work is at
        risk as the sweep allows, unless the last took too much time for that or is still being
        written."""
        if self.has_to_end:
            return Pause.END
        limit, at_risk = self.assignment.checkpoint_seconds, self.seconds() - self._seconds_saved
        is_affordable = (
            at_risk * _SAVING_SHARE >= self._saving_seconds and not self._store.is_writing
        )
        is_due = at_risk >= limit and (is_affordable or not limit)
        return Pause.SAVE if is_due and not self.rank else Pause.NONE

    def save_within(self, pause: Pause, step: int, contents: Contents) -> None:
        """Write a checkpoint ``step`` steps after the last report, and end the trial if it has to
        end there; ``pause`` is the same in every process.

        Raises:
            StopTrial: the trial ends here.
            StorageError: the checkpoint before cannot be written.
        """
        self.steps_within, self._contents = step, contents
        if pause is Pause.END:
            self.save_if_possible()
            self.stop()
        self._save(beside=self.assignment.checkpoint_seconds > 0)
        self._contents = None  # training goes on, away from them

    def save_if_possible(self) -> None:
        """Write a checkpoint; if that fails, the older one stays."""
        self._problem_of(self._save_now)

    def close(self) -> None:
        """Wait for the last write to end, even if it fails; of a trial that is over for an instant
        alone, since nothing goes on from there."""
        self._problem_of(lambda: self._store.wait(_OVER_SECONDS if self.is_over else None))

    def _problem_of(self, action: Callable[[], None]) -> StorageError | None:
        """Run an action on checkpoints; return its error, after which none counts as saved."""
        try:
            action()
        except StorageError as error:
            self._saved = (0, 0)
            return error
        return None

    def _keep(self, report: Report, until_next: float) -> None:
        if report.unit == self._trial.branch_point and report.diverged_at is None:
            self._save_now()
            return
        limit, writing = self.assignment.checkpoint_seconds, self._store.write_seconds
        # A write that takes longer would not be done in time even if it began early.
        ahead = writing if 2 * writing <= limit else 0.0
        at_risk = self._seconds_before - self._seconds_saved + until_next + ahead
        # Training does not wait for a slow store: a later report has the next checkpoint.
        is_due = at_risk > limit or not limit
        if report.is_last:
            return
        if is_due and not (limit and self._store.is_writing):
            self._save(beside=limit > 0)
        else:
            self._store.check()

    def _save_now(self) -> None:
        self._problem_of(self._store.wait)
        if self._saved != (self.unit, self.steps_within):
            self._save(beside=False)

    def _save(self, *, beside: bool) -> None:
        if self._contents is None or self.world.rank:
            return
        started, step = now(), self.steps_within
        if step:
            self._seconds_before = self.seconds()
        contents = {**self._contents(), "history": [each.remembered() for each in self.history]}
        if step:
            times = self._seconds_before, self.train_seconds, self.data_seconds
            contents["within"] = {"step": step, "times": times}
        self._store.wait()
        self._store.save(self.unit, contents, step=step, beside=beside)
        self._saved, self._seconds_saved = (self.unit, step), self._seconds_before
        if step:
            self.resume_clock()
            self._saving_seconds = now() - started

    def restore(self, is_usable: IsUsable) -> dict[str, Any] | None:
        """Load the reports of the newest usable checkpoint; return all its contents, on the CPU in
        every process, or None without a checkpoint.

        Raises:
            StorageError: the checkpoints cannot be read.
        """
        saved, self._is_own, damaged = from_rank(self.world, 0, lambda: self._search(is_usable))
        if saved is not None:
            self.history = [self._report(row) for row in saved["history"]]
            within = saved.get("within", {"step": 0})
            self.steps_within, times = within["step"], (0.0, 0.0, 0.0)
            if self.history:
                last = self.history[-1]
                times = last.wall_seconds, last.train_seconds, last.data_seconds
            self._seconds_offered = times[0]
            times = within.get("times", times)
            self._seconds_before, self.train_seconds, self.data_seconds = times
            self._seconds_saved = self._seconds_before
            self._saved = self.unit, self.steps_within
        self._note = self._restart_note(damaged)
        self.resume_clock()
        return saved

    def keep_branch_point(self, contents: Contents) -> None:
        """Write a checkpoint from a shorter training into this trial's folder, for longer ones."""
        if not self._is_own and self.unit == self._trial.branch_point:
            self._saved, self._contents = (0, 0), contents
            self.save_if_possible()

    def go_on_from(self, unit: int, seconds: float) -> None:
        """Go on after a unit and seconds that are on record, without a checkpoint of ours."""
        self._base, self._seconds_before = unit, seconds
        self.resume_clock()

    def _go_back(self, unit: int) -> None:
        """Remove the reports from a unit on: the training function began there, whatever checkpoint
        it had."""
        last = self.history[-1]
        self._note = f"trained again from unit {unit}, with a checkpoint of unit {last.unit}"
        self.history = [report for report in self.history if report.unit < unit]
        seconds = self.history[-1].wall_seconds if self.history else 0.0
        self._seconds_before, self.steps_within = seconds, 0
        self._seconds_saved = self._seconds_offered = seconds

    def _search(self, is_usable: IsUsable) -> tuple[dict[str, Any] | None, bool, tuple[int, ...]]:
        """Return the newest checkpoint, whether it is the trial's own, and the units of those that
        are damaged."""

        def is_whole(saved: Mapping[str, Any]) -> bool:
            try:
                has_position = [row["unit"] for row in saved["history"]] or saved["within"]["step"]
                return bool(has_position) and is_usable(saved)
            except (KeyError, TypeError, AttributeError):
                return False

        newest, other = self._store.search(is_whole), self.assignment.continues
        if newest.state is not None or other is None:
            return newest.state, True, newest.damaged
        store = CheckpointStore(self.assignment.checkpoints, other, LAST_ATTEMPT)
        shorter = store.search(is_whole, self.assignment.shared)
        return shorter.state, False, newest.damaged + shorter.damaged

    def _report(self, row: Mapping[str, Any]) -> Report:
        report = Report(**row, is_last=row["unit"] == self._trial.budget.amount)
        if report.is_last:
            return report
        # The last report of a shorter budget is one among others of a longer one.
        metrics = report.metrics
        if not (self.assignment.measures_training or self._trial.is_decided_in_training):
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
        recorded, limit = self.assignment.recorded_through, self.assignment.checkpoint_seconds
        if not recorded:
            is_lost = self.assignment.continues is not None and not self.unit
            return f"no checkpoint of the shorter training is left: {again}" if is_lost else ""
        if not self.unit:
            lost = f"no checkpoint is left, with unit {recorded} on record: {again}"
            return "" if self.steps_within else lost
        pace = self.history[-1].wall_seconds / self.unit
        usual = max(limit, pace * self._trial.budget.report_every)
        if (recorded - self.unit) * pace <= 2 * usual:
            return ""
        return f"the newest checkpoint left is of unit {self.unit} of {recorded} on record: {again}"

    def open_folder(self, saved: Mapping[str, Any] | None = None) -> None:
        """Make the trial's folder ready, with a copy of its checkpoint beside it, once the programs
        of earlier attempts have ended.

        Rank 0 empties it in a first attempt, and the others wait for that.

        Raises:
            OSError: it cannot be written to, or a program cannot be killed.
        """
        end_leftovers(self.folder, self.rank)
        if self.assignment.attempt == 1 and not self.rank:
            # What lies there is of a study that was removed, or of one with the same storage.
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.folder)
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
        """Return a report's note on what was changed in the process; empty for nothing."""
        notes = []
        if changed := self.process.changed():
            notes.append(f"{who} changed {', '.join(changed)}: put back after the trial")
        if trained := self._kept_modules.trained():
            notes.append(
                f"{who} trains {listed(trained)}, built once for all trials of a process: unless "
                "it sets the weights back, each trial begins with those of the one before; build "
                "a new one in the function"
            )
        return "; ".join(notes)

    def keep_weights(self, report: Report, tensors: Callable[[], Mapping[str, Tensor]]) -> None:
        """Write the final weights, where the study keeps them and this report is the last: a
        safetensors file whose header names the model's builder.

        It is named by the trial and the attempt, and written before the last report is sent. So the
        record, which says which attempt finished, says which file counts, whatever was killed
        between the two.

        Raises:
            StorageError: they cannot be written, so the trial has not come to its end.
        """
        assignment, trial = self.assignment, self._trial
        is_final = report.is_last and report.diverged_at is None
        if not assignment.weights or not is_final or self.rank:
            return
        from safetensors.torch import save

        header = trial.result_at(report)
        if trial.model is not None:
            header |= {"model": model_name(trial.model)}
        texts = {"format": "pt", WEIGHTS_HEADER: json.dumps(header, default=str)}
        files = Store(assignment.weights, subject="weights")
        files.write(weights_file(trial.key, assignment.attempt), save(dict(tensors()), texts))
        # Files of earlier attempts that died before the record had their last report.
        for earlier in range(1, assignment.attempt):
            name = weights_file(trial.key, earlier)
            files.remove(name)
            files.remove(f".{name}.tmp")

    def _checked(self, unit: Any, metrics: Mapping[str, Any]) -> Report:
        """Return the report of a function or script; RefusedReportError if it cannot be."""
        unit = self._checked_unit(unit)
        numbers = {} if self.rank else self._numbers(metrics)
        finite = {
            name: value if value is not None and math.isfinite(value) else None
            for name, value in numbers.items()
        }
        seconds, is_last = self.seconds(), unit == self.budget
        is_noted = not self.has_reported or is_last
        return Report(
            unit=unit,
            step=unit,
            metrics=finite,
            wall_seconds=seconds,
            is_last=is_last,
            diverged_at=unit if numbers and finite[self._trial.metric] is None else None,
            train_seconds=seconds,
            peak_memory_bytes=held_at_most(self.device) or None,
            note=self.changes_note("the training function") if is_noted else "",
        )

    def _checked_unit(self, unit: Any) -> int:
        budget = self._trial.budget
        try:
            if isinstance(unit, bool):
                raise TypeError
            number = operator.index(unit)
        except TypeError:
            raise RefusedReportError(
                f"a report's unit is a whole number of {budget.unit}, not {shown(unit)}"
            ) from None
        if not self.has_reported and 1 <= number <= self.unit and self.history:
            self._go_back(number)
        if self.is_over or not self.unit < number <= budget.amount:
            hint = "; report what was trained, so the first of them as 1" * (number == 0)
            raise RefusedReportError(
                f"reports go forward from unit 1 up to the budget of {budget}, and end where the "
                f"metric is not finite: unit {number} cannot follow unit {self.unit}{hint}"
            )
        last_unit = max(self.unit, self.assignment.recorded_through)
        skipped = [rung for rung in self.assignment.waits_at if last_unit < rung < number]
        if skipped:
            raise RefusedReportError(
                f"unit {number} is reported after unit {last_unit}, and early stopping decides at "
                f"unit {min(skipped)} between them; report each unit of the budget, or say how "
                f"often it is reported, as in {budget.unit}({budget.amount}, report_every=...)"
            )
        return number

    def _numbers(self, metrics: Mapping[str, Any]) -> dict[str, float | None]:
        trial, history = self._trial, self.history
        numbers = {name: _number(name, value) for name, value in metrics.items()}
        if history and NUM_PARAMS in history[0].metrics:
            numbers.setdefault(NUM_PARAMS, history[0].metrics[NUM_PARAMS])
        if numbers.get(trial.metric) is None:
            near = () if trial.metric in numbers else nearest(trial.metric, numbers)
            hint = f". Is it {near[0]!r}? Then call it so here or in the sweep" if near else ""
            has = "None for it" if trial.metric in numbers else ", ".join(numbers) or "none"
            raise RefusedReportError(
                f"every report needs the sweep's metric {trial.metric!r}, which decides; this one "
                f"has {has}{hint or '. Make no report where it is not measured'}"
            )
        for name in numbers:
            if problem := name_problem(name, trial.point):
                raise RefusedReportError(problem)
        return numbers


def _path_of(checkpoint: Path | str) -> Path:
    path = Path(checkpoint)
    if not path.exists():
        raise RefusedReportError(
            f"a report's checkpoint is a folder or a file that is there; {path} is not"
        )
    return path


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
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        is_slip = bool(nearest(name, ["checkpoint"]))
        raise RefusedReportError(
            f"metric {name!r} of a report must be one number, not {shown(value)}; "
            f"{'did you mean checkpoint=?' if is_slip else 'give float(...) of it'}"
        ) from None
