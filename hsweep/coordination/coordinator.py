"""Between the record and the runners: hands out trials, takes their reports, decides.

Whatever runs the trials, everything that counts happens here, in one process and in one order:
a report is recorded, the scheduler is asked, and the status it leads to is part of the same
transaction. Nothing here raises into a runner: if the record cannot be written, the study stops
handing out work and says why.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Final, TypeVar

from hsweep.coordination.asha import StratifiedAsha
from hsweep.coordination.keeping import Keeping
from hsweep.coordination.outlook import Outlook, shares_of
from hsweep.coordination.protocols import Observer, Proposer
from hsweep.coordination.queue import TrialQueue, priority
from hsweep.coordination.retry_policy import RetryPolicy, shortened
from hsweep.coordination.speeds import Speeds
from hsweep.coordination.trial_table import Overview, ScheduledTrial, TrialTable
from hsweep.design.labels import TrialLabels
from hsweep.design.question import logarithmic_scale, outside_scale
from hsweep.design.sweep import Sweep
from hsweep.design.trial import (
    Assignment,
    Event,
    OutOfMemory,
    Report,
    Resources,
    StorageFailure,
    Trial,
    TrialStatus,
    cost_columns,
    trial_labels,
)
from hsweep.planning.code_changes import code_metas
from hsweep.record.endings import INTERRUPTED
from hsweep.record.journal import Journal, TrialRow
from hsweep.record.journal_reader import RUNS
from hsweep.record.recipes import recipe_metas
from hsweep.redaction import redact

Result = TypeVar("Result")

_HANDED_OUT_BETWEEN: Final = 16
"""The queue is put in order again after a sixteenth of it is handed out: towards the end, where the
order counts, each time, and with ten thousand trials for a few microseconds each."""
_SHARED_ENDS: Final = (TrialStatus.DIVERGED, TrialStatus.TOO_LARGE)
"""What a longer training of the same comes to as well, the former within what both have in common.
"""


@dataclass(slots=True)
class Coordinator:
    """The state of one run of a study.

    Args:
        journal: the record; only this object writes trials' states to it.
        sweep: the resolved sweep.
        trials: everything planned, finished or not.
        checkpoints: folder or URI for checkpoints.
        proposer: for adaptive searches.
        observer: for display.
        only: keys of the trials to hand out; None for all that have not ended.
        exempt: keys of trials that early stopping never ends, since their full-budget values were
            asked for. What they report still counts at the rungs, but not as a survivor.
        reuse: is asked about trials that were just added to the record; gives those of them their
            reports that are known from elsewhere and returns their keys.
        keeping: which final weights stay; None where none are kept.
        named_by: trials by whose axes all are called; empty for ``trials``.

    Attributes:
        labels: what trials are called.
    """

    journal: Journal
    sweep: Sweep
    trials: Iterable[Trial]
    checkpoints: str
    proposer: Proposer | None = None
    observer: Observer | None = None
    only: frozenset[str] | None = None
    exempt: frozenset[str] = frozenset()
    reuse: Callable[[Sequence[Trial]], Collection[str]] | None = None
    keeping: Keeping | None = None
    named_by: Sequence[Trial] = ()
    stop_reason: str | None = None
    is_in_trouble: bool = False
    record_error: Exception | None = None
    labels: TrialLabels = field(init=False)
    _table: TrialTable = field(init=False)
    _asha: StratifiedAsha = field(init=False)
    _queue: TrialQueue = field(default_factory=TrialQueue)
    _retries: RetryPolicy = field(default_factory=RetryPolicy)
    _speeds: Speeds = field(default_factory=Speeds)
    _num_handed_out: int = 0
    _num_runs: int | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        sweep = self.sweep
        self._table = TrialTable(sweep.direction, self.only, self.exempt)
        self._asha = StratifiedAsha(
            sweep.early_stopping, sweep.budget, sweep.direction, knows_all=self.proposer is None
        )
        trials = list(self.trials)
        self.labels = trial_labels(self.named_by or trials)
        self._enter(trials)
        self._recall({trial.key for trial in trials})
        if self.keeping is not None:
            rows = self._table.rows.values()
            self.keeping.recall(row for row in rows if row.status is TrialStatus.FINISHED)
        self._line_up(trials)
        self._note_runs()

    def _enter(self, trials: Sequence[Trial]) -> Collection[str]:
        """Add trials to the record; return the keys of those whose results are there already."""
        self.journal.add_trials(planned_row(trial) for trial in trials)
        self.journal.set_metas(
            {**code_metas(self.journal, trials), **recipe_metas(self.journal, trials)}
        )
        for row in self._table.add(trials):
            self._asha.enter(row)
        self._num_runs = None
        return self.reuse(trials) if self.reuse is not None else ()

    def _recall(self, keys: Collection[str]) -> None:
        rows = {key: row for key, row in self._table.rows.items() if key in keys}
        recorded = self.journal.trials()
        shorter = self.journal.trials_of({known.continues for known in recorded} - {""})
        for known in recorded:
            row = rows.get(known.key)
            if row is None:
                continue
            row.attempt = known.attempt
            if (source := shorter.get(known.continues)) is not None:
                self._table.go_on_from(row, source.key, row.trial.shared_with(source.budget))
            row.is_exclusive = known.exclusive
            if known.unit:
                self._table.reach(row, known.unit, known.metrics.get(self.sweep.metric))
                if not (known.continues or known.reused_from):
                    self._speeds.note(row.trial, known.wall_seconds, known.unit)
            if known.status is TrialStatus.RUNNING:
                # Its driver was killed; this run has all of the study.
                self.journal.set_status(known.key, row.attempt, TrialStatus.PLANNED, INTERRUPTED)
            elif known.status.is_final:
                self._table.move(row, known.status)
                self._asha.end(row, known.reason)
        for entry in self.journal.reports():
            row = rows.get(entry.key)
            if row is not None and entry.unit is not None:
                value = entry.payload["metrics"].get(self.sweep.metric)
                self._asha.record(row, entry.unit, value)
                self._table.reach(row, entry.unit, value)

    def _line_up(self, trials: Iterable[Trial]) -> None:
        """Make trials that have not ended wait for a worker, or for the others at their rung."""
        due = [row for row in (self._table.rows[trial.key] for trial in trials) if row.is_due]
        for row in sorted(due, key=self._priority):
            self._place(row)
        for stratum in dict.fromkeys(row.trial.stratum for row in due):
            self._release(stratum)

    def _priority(self, row: ScheduledTrial) -> tuple[int, int, int, float, int]:
        return priority(row, self._speeds)

    def _place(self, row: ScheduledTrial) -> None:
        """Make a trial that is due wait where it has to."""
        if row.is_done or self._ends_like_the_shorter(row):
            return
        if self._asha.may_wait(row):
            self._asha.wait(row)
        else:
            self._queue.add(row)

    def _ends_like_the_shorter(self, row: ScheduledTrial) -> bool:
        """End a trial whose training would end as that of the shorter budget has."""
        shorter = row.shorter
        if shorter is None or shorter.status not in _SHARED_ENDS:
            return False
        status = shorter.status
        if status is TrialStatus.DIVERGED and shorter.unit > row.trial.shared:
            return False
        while not shorter.attempt and shorter.shorter is not None:
            shorter = shorter.shorter  # the one that was trained
        source, through, value = shorter.trial, shorter.unit, shorter.value
        known = self.journal.trials_of([source.key])[source.key]
        reason = f"as with {source.budget}: {known.reason}"
        if status is TrialStatus.DIVERGED:
            self._guarded(
                lambda: self.journal.append(
                    self.journal.continuation(
                        row.trial.key,
                        source.key,
                        through=through,
                        status=status,
                        reason=reason,
                        continues=source.key,
                    )
                )
            )
            self._table.reach(row, through, value)
        else:
            self._set_status(row, status, reason)
        self._end(row, status, reason)
        return True

    def _release(self, stratum: str) -> None:
        """Let the trials go on, or end them, that wait at a rung which can be decided now."""
        # Of those that end, the ones at a later rung need not wait any longer.
        while released := self._asha.release(stratum):
            going_on = []
            for row, verdict in released:
                if verdict.stop:
                    self._stop_early(row, verdict.reason)
                else:
                    going_on.append(row)
            for row in sorted(going_on, key=self._priority, reverse=True):
                self._queue.add(row, first=True)

    def _stop_early(self, row: ScheduledTrial, reason: str) -> None:
        """End a trial that has lost; one that was never started is not needed."""
        has_begun = row.attempt or row.unit
        status = TrialStatus.STOPPED_EARLY if has_begun else TrialStatus.NOT_NEEDED
        self._set_status(row, status, reason)
        self._end(row, status, reason)

    @property
    def stop_requested(self) -> bool:
        return self.stop_reason is not None

    def request_stop(self, reason: str, *, is_trouble: bool = False) -> None:
        """Ask the run to end at the next opportunity; the first reason stays.

        ``is_trouble`` says that something does not work: the end was not wanted.
        """
        if self.stop_reason is None:
            self.stop_reason, self.is_in_trouble = reason, is_trouble

    def next_assignment(
        self,
        size: Resources | None = None,
        is_ready: Callable[[str], bool] = lambda _key: True,
    ) -> Assignment | None:
        """Return the next trial to train; None if there is none now (see ``is_exhausted``).

        Args:
            size: what a worker occupies that trains other trials already; None for a new worker.
                Where the next trial needs something else, none is returned: no trial overtakes it.
            is_ready: whether a trial, by key, can be started at once; others are passed over.
        """
        with self._lock:
            row = self._next(is_ready)
            if row is None:
                return None
            needs_new_worker = row.needs_new_worker or row.is_exclusive
            if size is not None and (needs_new_worker or row.trial.resources != size):
                return None
            self._queue.remove(row)
            self._num_handed_out += 1
            return self._begin(row)

    def _next(self, is_ready: Callable[[str], bool]) -> ScheduledTrial | None:
        if self.stop_requested:
            return None
        if self.proposer is not None and not self._queue.shared:
            self._propose(self.proposer)
        self._put_in_order()
        running = self._table.running.values()
        while row := self._queue.next(running, lambda row: is_ready(row.trial.key)):
            reason = self._asha.lost(row)
            if not reason:
                return row
            # Its point was stopped meanwhile, so it would be stopped as well.
            self._queue.remove(row)
            self._stop_early(row, reason)
            self._release(row.trial.stratum)
        return None

    def _put_in_order(self) -> None:
        """Let what was measured meanwhile decide which trials are longest."""
        if self._num_handed_out * _HANDED_OUT_BETWEEN >= len(self._queue.shared):
            self._queue.put_in_order(self._priority)
            self._num_handed_out = 0

    def _begin(self, row: ScheduledTrial) -> Assignment | None:
        """Begin an attempt of a trial; None if the record cannot hold that."""
        trial = row.trial
        self._choose_start(row)
        gpus = trial.resources.gpus
        attempt = self._guarded(
            lambda: self.journal.begin_attempt(trial.key, trial.origin, row.continues or "", gpus)
        )
        if attempt is None:
            return None
        row.attempt = attempt
        self._table.move(row, TrialStatus.RUNNING)
        self._notify(lambda observer: observer.started(trial, attempt))
        return Assignment(
            trial=trial,
            attempt=attempt,
            recorded_through=row.unit,
            checkpoints=self.checkpoints,
            checkpoint_seconds=self.sweep.checkpoint_seconds,
            label=self.labels.of(trial.point, trial.replicate, trial.budget.amount),
            probe=self.sweep.probe,
            is_exclusive=row.is_exclusive,
            continues=row.continues,
            shared=row.shared,
            report_timeout=self.sweep.report_timeout,
            waits_at=self._asha.milestones(row),
            isolate=self.sweep.isolate or row.needs_new_worker,
            weights="" if self.keeping is None else self.keeping.root,
            measures_training=self.sweep.train_metrics == "always",
        )

    def _choose_start(self, row: ScheduledTrial) -> None:
        """Let a trial go on from the longest one of its ladder that was trained here."""
        shorter = row.shorter
        while shorter is not None and not (shorter.attempt and shorter.unit):
            shorter = shorter.shorter
        known = row.shared if row.continues is not None else 0
        shared = 0 if shorter is None else row.trial.shared_with(shorter.trial.budget.amount)
        if shorter is not None and shared > known:
            self._table.go_on_from(row, shorter.trial.key, shared)
        elif not known:
            self._table.go_on_from(row, None, 0)

    @property
    def num_waiting(self) -> int:
        """How many trials could be handed out now to workers that have room for each."""
        return len(self._queue.shared)

    def requeue(self, assignment: Assignment) -> None:
        """Hand a trial out again that was not started, or whose process ended for another's fault;
        nothing counts against it, and the display is not told."""
        with self._lock:
            row = self._current(assignment)
            if row is not None:
                self._set_status(row, TrialStatus.PLANNED, "")
                self._table.move(row, TrialStatus.PLANNED)
                self._queue.add(row, first=True)

    def _propose(self, proposer: Proposer) -> None:
        """Add the proposer's next trials that must be trained, if it has any."""
        try:
            while not self._queue.shared and (proposed := proposer.propose()):
                known = self._enter(proposed)
                if known:
                    self._recall(set(known))
                for key in known:
                    row = self._table.rows[key]
                    self._end(row, row.status, "")
                self._line_up(trial for trial in proposed if trial.key not in known)
        except Exception as error:
            self._trouble(error)

    @property
    def is_exhausted(self) -> bool:
        """Whether no trial is waiting or running, so none can come back."""
        with self._lock:
            is_waiting = not self._queue.is_empty or self._asha.any_waits
            return self.stop_requested or not (is_waiting or self._table.running)

    def report(self, assignment: Assignment, event: Event) -> bool:
        """Take what a trial reports; a report of a unit on record decides nothing again. Return
        whether the trial goes on where it is: if not, it has ended or will be handed out again."""
        with self._lock:
            row = self._current(assignment)
            if row is None:
                return False
            if isinstance(event, OutOfMemory):
                self._take_out_of_memory(assignment, row, redact(event.message))
                return False
            if isinstance(event, StorageFailure):
                message = redact(event.message)
                self._try_again(row, message, first=True)
                self.request_stop(message, is_trouble=True)
                return False
            return self._take_report(row, self._with_processes(row, assignment, event))

    def _with_processes(
        self, row: ScheduledTrial, assignment: Assignment, report: Report
    ) -> Report:
        """Return an attempt's first report with how many processes train it: the result is equal
        up to rounding, not to the bit."""
        number = assignment.resources.processes
        if number == 1 or row.noted_attempt == row.attempt:
            return report
        row.noted_attempt = row.attempt
        notes = filter(None, [report.note, f"trained by {number} processes"])
        return replace(report, note="; ".join(notes))

    def _take_report(self, row: ScheduledTrial, report: Report) -> bool:
        trial = row.trial
        if report.unit <= row.unit and report.diverged_at is None:
            # A resumed trial passes where it has been; the record says it went on from there.
            return True
        value = report.metrics.get(self.sweep.metric)
        status, reason = self._status_after(row, report, value)
        recorded = self._guarded(
            lambda: self.journal.record(trial.key, row.attempt, report, status, reason)
        )
        if recorded is None:
            return False
        self._retries.has_reported(row)
        if row.continues is None:
            self._speeds.note(trial, report.wall_seconds, report.unit)
        self._table.reach(row, report.unit, value)
        self._notify(lambda observer: observer.reported(trial, report))
        self._refuse_scale(row, value)
        if status is TrialStatus.PLANNED:
            self._table.move(row, status)
            self._asha.wait(row)
        elif status is not TrialStatus.RUNNING:
            self._end(row, status, reason)
        # The last of a rung to arrive decides for those that wait there.
        self._release(trial.stratum)
        return status is TrialStatus.RUNNING

    def _refuse_scale(self, row: ScheduledTrial, value: float | None) -> None:
        """End the run at a value that its question could not be answered with."""
        scale = logarithmic_scale(self.sweep.question)
        problem = outside_scale(value, scale) if scale is not None and value is not None else ""
        if problem:
            trial = row.trial
            label = self.labels.of(trial.point, trial.replicate, trial.budget.amount)
            self.request_stop(
                f"{label} reports {self.sweep.metric} = {value:g}, and {problem}", is_trouble=True
            )

    def _status_after(
        self, row: ScheduledTrial, report: Report, value: float | None
    ) -> tuple[TrialStatus, str]:
        if report.diverged_at is not None:
            return TrialStatus.DIVERGED, f"not finite at step {report.diverged_at}"
        self._asha.record(row, report.unit, value)
        if report.is_last:
            return TrialStatus.FINISHED, ""
        verdict = self._asha.verdict(row, report.unit)
        if verdict.stop:
            return TrialStatus.STOPPED_EARLY, verdict.reason
        if verdict.wait:
            return TrialStatus.PLANNED, verdict.reason
        return TrialStatus.RUNNING, ""

    def _take_out_of_memory(
        self, assignment: Assignment, row: ScheduledTrial, message: str
    ) -> None:
        if assignment.is_exclusive:
            self._set_status(row, TrialStatus.TOO_LARGE, message)
            self._end(row, TrialStatus.TOO_LARGE, message)
            self._release(row.trial.stratum)
        else:
            reason = f"{message}; it will be trained with nothing beside it"
            self._set_status(row, TrialStatus.PLANNED, reason, exclusive=True)
            row.is_exclusive = True
            self._postpone(row, reason)

    def failed(
        self,
        assignment: Assignment,
        error: str,
        *,
        is_own_fault: bool = True,
        needs_new_worker: bool = False,
        is_final: bool = False,
    ) -> None:
        """Note that an attempt failed: the trial is tried again up to the sweep's limit.

        Args:
            assignment: the attempt.
            error: a line that says what happened, then what there is to know besides.
            is_own_fault: False if the attempt lost its place (its node died), which does not count
                against the trial unless it happens again and again without a report in between.
            needs_new_worker: from here on it is trained in a process that trains nothing else.
            is_final: another attempt would end in the same way, so there is none.
        """
        with self._lock:
            row = self._current(assignment)
            if row is None:
                return
            row.needs_new_worker = row.needs_new_worker or needs_new_worker
            reason = shortened(redact(error))
            if not is_own_fault and self._retries.is_bad_luck(row):
                self._try_again(row, reason, first=True)
                return
            most = 0 if is_final else self.sweep.max_failures
            failures = self._guarded(
                lambda: self.journal.note_failure(row.trial.key, row.attempt, most, reason)
            )
            if failures is None:
                return
            if failures <= most:
                self._postpone(row, reason)
            else:
                self._end(row, TrialStatus.FAILED, reason)
                self._release(row.trial.stratum)
            if pause := self._retries.reason_to_pause(row, reason):
                self.request_stop(pause, is_trouble=True)

    def no_more_events(self, assignments: Iterable[Assignment]) -> None:
        """Note that trials report no more; one that has not come to its end has failed."""
        for assignment in assignments:
            self.failed(assignment, "the trial ended without its last report")

    def _try_again(self, row: ScheduledTrial, reason: str, *, first: bool = False) -> None:
        self._set_status(row, TrialStatus.PLANNED, reason)
        self._postpone(row, reason, first=first)

    def _postpone(self, row: ScheduledTrial, reason: str, *, first: bool = False) -> None:
        self._table.move(row, TrialStatus.PLANNED)
        self._queue.add(row, first=first)
        self._notify(lambda observer: observer.ended(row.trial, TrialStatus.PLANNED, reason))

    def _set_status(
        self, row: ScheduledTrial, status: TrialStatus, reason: str, **changed: Any
    ) -> None:
        key, attempt = row.trial.key, row.attempt
        self._guarded(lambda: self.journal.set_status(key, attempt, status, reason, **changed))

    def settle(self) -> None:
        """Note, at the end of a run, which trials were interrupted."""
        with self._lock:
            for row in list(self._table.running.values()):
                self._set_status(row, TrialStatus.PLANNED, INTERRUPTED)
                self._table.move(row, TrialStatus.PLANNED)
            self._note_runs()

    def _note_runs(self) -> None:
        """Record how many trials the study will have trained, for those who read it."""
        self._guarded(lambda: self.journal.set_meta(RUNS, str(self.num_runs)))

    def overview(self) -> Overview:
        with self._lock:
            return self._table.overview()

    @property
    def num_to_come(self) -> int:
        return self.proposer.num_to_come if self.proposer is not None else 0

    def outlook(self) -> Outlook:
        """Return what is likely to be trained still; a trial that a search has yet to propose
        counts as those that have ended, where early stopping shortens some."""
        with self._lock:
            rows = self._table.rows
            shares = shares_of(rows, self._asha)
            units = sum(share.units for share in shares.values())
            speeds = {
                key: self._speeds.seconds(rows[key].trial) for key in shares if shares[key].units
            }
            each = [shares[key].units * speed for key, speed in speeds.items() if speed is not None]
            seconds = sum(each) if len(each) == len(speeds) else None
            if to_come := self.num_to_come:
                ended = [row.unit for row in rows.values() if row.status.is_final]
                is_shortened = self.sweep.early_stopping is not None and ended
                length = fmean(ended) if is_shortened else self.sweep.budget.amount
                units += to_come * length
                mean = self._speeds.mean
                is_known = seconds is not None and mean is not None
                seconds = (seconds or 0) + to_come * length * (mean or 0) if is_known else None
            return Outlook(round(units), seconds, max(each, default=0.0))

    @property
    def num_runs(self) -> int:
        """How many trials will have been started in all, if none fails that early stopping counts
        on."""
        with self._lock:
            if self._num_runs is None:
                shares = shares_of(self._table.rows, self._asha)
                self._num_runs = round(sum(share.start for share in shares.values()))
            return self._num_runs + self.num_to_come

    @property
    def num_ended(self) -> int:
        """How many of them have ended."""
        with self._lock:
            return self._table.num_ended

    def final_keys(self) -> list[str]:
        return [key for key, row in self._table.rows.items() if row.status.is_final]

    def value(self, key: str) -> float | None:
        return self._table.rows[key].value

    def planned_trials(self) -> list[Trial]:
        return [row.trial for row in self._table.rows.values()]

    def _end(self, row: ScheduledTrial, status: TrialStatus, reason: str) -> None:
        self._table.move(row, status)
        if status is not TrialStatus.FINISHED:
            self._num_runs = None
        self._asha.end(row, reason)
        if self.keeping is not None:
            self.keeping.ended(row)
        if self.proposer is not None:
            proposer = self.proposer
            self._guarded(lambda: proposer.tell(row.trial, status, row.unit, row.value))
        self._notify(lambda observer: observer.ended(row.trial, status, reason))
        if row.longer is not None:
            self._place(row.longer)

    def _current(self, assignment: Assignment) -> ScheduledTrial | None:
        row = self._table.rows.get(assignment.trial.key)
        if row is None or row.attempt != assignment.attempt:
            return None
        return row if row.status is TrialStatus.RUNNING else None

    def _guarded(self, action: Callable[[], Result]) -> Result | None:
        """Use the record; if it fails, end the run rather than the process."""
        try:
            return action()
        except Exception as error:
            self._trouble(error)
            return None

    def _trouble(self, error: Exception) -> None:
        self.record_error = self.record_error or error
        self.request_stop(
            f"the study's record cannot be written ({error}); what is on record stays, free "
            "space or give back the permission to write",
            is_trouble=True,
        )

    def _notify(self, tell: Callable[[Observer], None]) -> None:
        if self.observer is None:
            return
        try:
            tell(self.observer)
        except Exception:
            # A display that fails must not cost a study; the record has everything.
            self.observer = None


def planned_row(trial: Trial) -> TrialRow:
    return TrialRow(
        key=trial.key,
        ordinal=trial.ordinal,
        point=trial.point,
        replicate=trial.replicate,
        stratum=trial.stratum,
        budget=trial.budget.amount,
        counts=cost_columns(trial),
        parts=trial.parts,
    )


def stop_after(coordinator: Coordinator, seconds: float) -> threading.Timer:
    """Ask the run to end once ``seconds`` have passed; cancel the returned timer to disarm it."""
    timer = threading.Timer(
        max(0.0, seconds), coordinator.request_stop, ("the time budget is used up",)
    )
    timer.daemon = True
    timer.start()
    return timer
