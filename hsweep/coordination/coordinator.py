"""Between the record and the runners: hands out trials, takes their reports, decides.

Whatever runs the trials, everything that counts happens here, in one process and in one order:
early stopping is asked about a report, and the report and the status it leads to are recorded
together. Nothing here raises into a runner: if the record cannot be written, the study stops
handing out work and says why.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Final

from hsweep.coordination.asha import StratifiedAsha
from hsweep.coordination.keeping import Keeping
from hsweep.coordination.protocols import Observer, Proposer
from hsweep.coordination.queue import TrialQueue
from hsweep.coordination.retry_policy import RetryPolicy, shortened
from hsweep.coordination.speeds import Speeds
from hsweep.coordination.trial_table import Overview, TrialTable
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
from hsweep.secrets import redact

_SHARED_ENDS: Final = (TrialStatus.DIVERGED, TrialStatus.TOO_LARGE)
"""What a longer training of the same comes to as well, the former within what both have in common.
"""


@dataclass(frozen=True, slots=True)
class _Failure:
    """An attempt that ended without its last report (see ``Coordinator.failed``)."""

    error: str
    is_own_fault: bool
    is_final: bool


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a trial's event leads to.

    Attributes:
        changed: what else of the trial's state it changes.
        first: a trial that is planned again is the next to be handed out.
    """

    status: TrialStatus
    reason: str = ""
    changed: Mapping[str, Any] = field(default_factory=dict)
    first: bool = False


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a run is likely to train still, if no trial fails.

    Attributes:
        units: budget units.
        seconds: of training, as if one trial were trained after the other; None while nothing says
            how long any takes.
        longest: the seconds of the longest trial.
    """

    units: int
    seconds: float | None
    longest: float = 0.0


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
        expected: runs and budget units that early stopping leaves of the plan, where it is known;
            None where it leaves all.

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
    expected: tuple[int, int] | None = None
    stop_reason: str | None = None
    is_in_trouble: bool = False
    record_error: Exception | None = None
    labels: TrialLabels = field(init=False)
    _table: TrialTable = field(init=False)
    _asha: StratifiedAsha = field(init=False)
    _queue: TrialQueue = field(init=False)
    _retries: RetryPolicy = field(default_factory=RetryPolicy)
    _speeds: Speeds = field(default_factory=Speeds)
    _isolated: set[str] = field(default_factory=set)
    _noted: dict[str, int] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        sweep, rows = self.sweep, self.journal.rows
        self._table = TrialTable(rows, sweep.metric, sweep.direction, self.only)
        self._asha = StratifiedAsha(
            sweep.early_stopping, sweep.budget, sweep.direction, knows_all=self.proposer is None
        )
        self._queue = TrialQueue(rows, self._priority)
        trials = list(self.trials)
        self.labels = trial_labels(self.named_by or trials)
        self._enter(trials)
        self._recall(trials)
        if self.keeping is not None:
            finished = (rows[key] for key in self._table.trials)
            self.keeping.recall(row for row in finished if row.status is TrialStatus.FINISHED)
        self._line_up(trials)
        self._note_runs()

    def _enter(self, trials: Sequence[Trial]) -> Collection[str]:
        """Add trials to the record; return the keys of those whose results are there already."""
        self.journal.add_trials(planned_row(trial) for trial in trials)
        self.journal.set_metas(
            {**code_metas(self.journal, trials), **recipe_metas(self.journal, trials)}
        )
        new = self._table.add(trials)
        known = self.reuse(trials) if self.reuse is not None else ()
        for trial in new:
            is_trained = self._table.is_trained(trial.key)
            self._asha.enter(trial, is_exempt=trial.key in self.exempt, is_trained=is_trained)
        return known

    def _recall(self, trials: Iterable[Trial]) -> None:
        """Take up what is on record of trials."""
        with_reports = []
        for trial in trials:
            row = self.journal.rows[trial.key]
            if row.status is TrialStatus.RUNNING:
                # Its driver was killed; this run has all of the study.
                self.journal.set_status(row.key, row.attempt, TrialStatus.PLANNED, INTERRUPTED)
            if row.unit:
                with_reports.append(row.key)
                if not (row.continues or row.reused_from):
                    self._speeds.note(trial, row.wall_seconds, row.unit)
            self._table.note(row.key)
            if row.status.is_final:
                self._asha.end(trial, row.status, row.reason)
        for entry in self.journal.reports_of(with_reports) if with_reports else ():
            value = entry.payload["metrics"].get(self.sweep.metric)
            self._asha.record(self._table.trials[entry.key], entry.unit or 0, value)

    def _line_up(self, trials: Iterable[Trial]) -> None:
        """Make trials that have not ended wait for a worker, or for the others at their rung."""
        due = [trial for trial in trials if self._table.is_due(trial.key)]
        for trial in sorted(due, key=lambda trial: self._priority(trial.key)):
            self._place(trial)
        for stratum in dict.fromkeys(trial.stratum for trial in due):
            self._release(stratum)

    def _priority(self, key: str) -> tuple[int, int, int, float, int]:
        """Order of handing out: interrupted trials first, then shorter budgets of a ladder before
        longer ones, every point once before any point twice, long trials first so that none is the
        only one left at the end."""
        trial, row = self._table.trials[key], self.journal.rows[key]
        speed = self._speeds.expected(trial)
        return (0 if row.unit else 1, row.budget, row.replicate, -speed, trial.ordinal)

    def _place(self, trial: Trial) -> None:
        """Make a trial that is due wait where it has to."""
        if self._table.is_done(trial.key) or self._ends_like_the_shorter(trial):
            return
        row, at = self.journal.rows[trial.key], self.journal.rows[trial.key].unit
        if self.sweep.budget.ladder:
            shorter = self._table.shorter(trial.key)
            at = self.journal.rows[shorter].budget if shorter else 0
        if self._asha.may_wait(trial, at, has_reported=row.unit > 0):
            self._asha.wait(trial, at)
        else:
            self._queue.add(trial.key)

    def _ends_like_the_shorter(self, trial: Trial) -> bool:
        """End a trial whose training would end as that of the shorter budget has."""
        rows, source = self.journal.rows, self._table.shorter(trial.key)
        if not source or (status := rows[source].status) not in _SHARED_ENDS:
            return False
        if status is TrialStatus.DIVERGED and rows[source].unit > trial.shared:
            return False
        while not rows[source].attempt and (shorter := self._table.shorter(source)):
            source = shorter  # the one that was trained
        row, known = rows[trial.key], rows[source]
        reason = f"as with {self._table.trials[source].budget}: {known.reason}"
        if status is TrialStatus.DIVERGED:
            entries = self.journal.continuation(
                row.key,
                source,
                through=known.unit,
                status=status,
                reason=reason,
                continues=source,
            )
            self._record(row.key, lambda: self.journal.append(entries))
        else:
            self._set_status(row, status, reason)
        self._end(trial)
        return True

    def _release(self, stratum: str) -> None:
        """Let the trials go on, or end them, that wait at a rung which can be decided now."""
        # Of those that end, the ones at a later rung need not wait any longer.
        while released := self._asha.release(stratum):
            going_on = []
            for trial, verdict in released:
                if verdict.stop:
                    self._stop_early(trial, verdict.reason)
                else:
                    going_on.append(trial.key)
            for key in sorted(going_on, key=self._priority, reverse=True):
                self._queue.add(key, first=True)

    def _stop_early(self, trial: Trial, reason: str) -> None:
        """End a trial that has lost; one that was never started is not needed."""
        row = self.journal.rows[trial.key]
        status = TrialStatus.STOPPED_EARLY if row.has_begun else TrialStatus.NOT_NEEDED
        self._set_status(row, status, reason)
        self._end(trial)

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
            key = self._next(is_ready)
            if key is None:
                return None
            trial = self._table.trials[key]
            needs_new_worker = key in self._isolated or self.journal.rows[key].exclusive
            if size is not None and (needs_new_worker or trial.resources != size):
                return None
            self._queue.take(key)
            return self._begin(trial)

    def _next(self, is_ready: Callable[[str], bool]) -> str | None:
        if self.stop_requested:
            return None
        if self.proposer is not None and not self._queue.num_shared:
            self._propose(self.proposer)
        while key := self._queue.next(self._table.running.values(), is_ready):
            trial = self._table.trials[key]
            reason = self._asha.lost(trial)
            if not reason:
                return key
            # Its point was stopped meanwhile, so it would be stopped as well.
            self._queue.take(key)
            self._stop_early(trial, reason)
            self._release(trial.stratum)
        return None

    def _begin(self, trial: Trial) -> Assignment | None:
        """Begin an attempt of a trial; None if the record cannot hold that."""
        row, source = self.journal.rows[trial.key], self._table.start_of(trial.key)
        gpus = trial.resources.gpus
        if not self._record(
            row.key, lambda: self.journal.begin_attempt(row.key, trial.origin, source, gpus)
        ):
            return None
        self._notify(lambda observer: observer.started(trial, row.attempt))
        return Assignment(
            trial=trial,
            attempt=row.attempt,
            recorded_through=row.unit,
            checkpoints=self.checkpoints,
            checkpoint_seconds=self.sweep.checkpoint_seconds,
            label=self.labels.of(trial.point, trial.replicate, trial.budget.amount),
            probe=self.sweep.probe,
            is_exclusive=row.exclusive,
            continues=source or None,
            shared=self._table.shared(row.key) if source else 0,
            report_timeout=self.sweep.report_timeout,
            waits_at=self._asha.milestones(trial),
            isolate=self.sweep.isolate or row.key in self._isolated,
            weights="" if self.keeping is None else self.keeping.root,
            measures_training=self.sweep.train_metrics == "always",
        )

    @property
    def num_waiting(self) -> int:
        """How many trials could be handed out now to workers that have room for each."""
        return self._queue.num_shared

    def requeue(self, assignment: Assignment) -> None:
        """Hand a trial out again that was not started, or whose process ended for another's fault;
        nothing counts against it, and the display is not told."""
        with self._lock:
            row = self._current(assignment)
            if row is not None:
                self._set_status(row, TrialStatus.PLANNED)
                self._queue.add(row.key, first=True)

    def _propose(self, proposer: Proposer) -> None:
        """Add the proposer's next trials that must be trained, if it has any."""
        try:
            while not self._queue.num_shared and (proposed := proposer.propose()):
                known = self._enter(proposed)
                self._recall(proposed)
                for key in known:
                    self._end(self._table.trials[key])
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
            if isinstance(event, Report) and event.unit <= row.unit and event.diverged_at is None:
                # A resumed trial passes where it has been; the record says it went on from there.
                return True
            goes_on = self._take(assignment, row, event)
            if isinstance(event, StorageFailure):
                self.request_stop(redact(event.message), is_trouble=True)
            return goes_on

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
            if row is not None:
                if needs_new_worker:
                    self._isolated.add(row.key)
                self._take(assignment, row, _Failure(error, is_own_fault, is_final))

    def no_more_events(self, assignments: Iterable[Assignment]) -> None:
        """Note that trials report no more; one that has not come to its end has failed."""
        for assignment in assignments:
            self.failed(assignment, "the trial ended without its last report")

    def _take(self, assignment: Assignment, row: TrialRow, event: Event | _Failure) -> bool:
        """Record an event with the status it leads to; return whether its trial goes on."""
        trial, outcome = assignment.trial, self._outcome(assignment, row, event)
        status, reason = outcome.status, outcome.reason
        if isinstance(event, Report):
            report = self._with_processes(assignment, event)
            record = self.journal.record
            if not self._record(
                row.key, lambda: record(row.key, row.attempt, report, status, reason)
            ):
                return False
            self._note_report(trial, row, report)
            if status is TrialStatus.PLANNED:
                self._asha.wait(trial, report.unit, is_undecided=True)
        else:
            if not self._set_status(row, status, reason, **outcome.changed):
                return False
            if status is TrialStatus.PLANNED:
                self._queue.add(row.key, first=outcome.first)
                self._notify(lambda observer: observer.ended(trial, status, reason))
        if status.is_final:
            self._end(trial)
        if "failures" in outcome.changed and (
            pause := self._retries.reason_to_pause(row.key, reason)
        ):
            self.request_stop(pause, is_trouble=True)
        # The last of a rung to arrive decides for those that wait there.
        self._release(trial.stratum)
        return status is TrialStatus.RUNNING

    def _outcome(self, assignment: Assignment, row: TrialRow, event: Event | _Failure) -> _Outcome:
        """Return what an event leads to."""
        if isinstance(event, Report):
            if event.diverged_at is not None:
                return _Outcome(TrialStatus.DIVERGED, f"not finite at step {event.diverged_at}")
            value = event.metrics.get(self.sweep.metric)
            self._asha.record(assignment.trial, event.unit, value)
            if event.is_last:
                return _Outcome(TrialStatus.FINISHED)
            verdict = self._asha.verdict(assignment.trial, event.unit)
            if verdict.stop:
                return _Outcome(TrialStatus.STOPPED_EARLY, verdict.reason)
            status = TrialStatus.PLANNED if verdict.wait else TrialStatus.RUNNING
            return _Outcome(status, verdict.reason)
        if isinstance(event, OutOfMemory):
            message = redact(event.message)
            if assignment.is_exclusive:
                return _Outcome(TrialStatus.TOO_LARGE, message)
            message += "; it will be trained with nothing beside it"
            return _Outcome(TrialStatus.PLANNED, message, {"exclusive": True})
        if isinstance(event, StorageFailure):
            return _Outcome(TrialStatus.PLANNED, redact(event.message), first=True)
        reason = shortened(redact(event.error))
        if not event.is_own_fault and self._retries.is_bad_luck(row.key):
            return _Outcome(TrialStatus.PLANNED, reason, first=True)
        failures = row.failures + 1
        is_over = event.is_final or failures > self.sweep.max_failures
        status = TrialStatus.FAILED if is_over else TrialStatus.PLANNED
        return _Outcome(status, reason, {"failures": failures})

    def _with_processes(self, assignment: Assignment, report: Report) -> Report:
        """Return an attempt's first report with how many processes train it: the result is equal
        up to rounding, not to the bit."""
        key, number = assignment.trial.key, assignment.resources.processes
        if number == 1 or self._noted.get(key) == assignment.attempt:
            return report
        self._noted[key] = assignment.attempt
        notes = filter(None, [report.note, f"trained by {number} processes"])
        return replace(report, note="; ".join(notes))

    def _note_report(self, trial: Trial, row: TrialRow, report: Report) -> None:
        self._retries.has_reported(row.key)
        if not row.continues:
            self._speeds.note(trial, report.wall_seconds, report.unit)
        self._notify(lambda observer: observer.reported(trial, report))
        # A value that its question could not be answered with ends the run.
        value = report.metrics.get(self.sweep.metric)
        scale = logarithmic_scale(self.sweep.question)
        problem = outside_scale(value, scale) if scale is not None and value is not None else ""
        if problem:
            label = self.labels.of(trial.point, trial.replicate, trial.budget.amount)
            self.request_stop(
                f"{label} reports {self.sweep.metric} = {value:g}, and {problem}", is_trouble=True
            )

    def settle(self) -> None:
        """Note, at the end of a run, which trials were interrupted."""
        with self._lock:
            for row in list(self._table.running.values()):
                self._set_status(row, TrialStatus.PLANNED, INTERRUPTED)
            self._note_runs()

    def _note_runs(self) -> None:
        """Record how many trials the study will have trained, for those who read it."""
        try:
            self.journal.set_meta(RUNS, str(self.num_runs))
        except Exception as error:
            self._trouble(error)

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
            table = self._table
            left = {key: table.units_left(key) for key in table.trials}
            left = {key: number for key, number in left.items() if number}
            units: float = sum(left.values())
            share = 1.0
            if self.expected is not None and units:
                expected = self.expected[1] - table.overview().units_done
                share = min(1.0, max(0, expected) / units)
            speeds = {key: self._speeds.seconds(table.trials[key]) for key in left}
            each = [left[key] * speed for key, speed in speeds.items() if speed is not None]
            seconds = share * sum(each) if len(each) == len(speeds) else None
            units *= share
            if to_come := self.num_to_come:
                rows = (self.journal.rows[key] for key in table.trials)
                ended = [row.unit for row in rows if row.status.is_final]
                is_shortened = self.sweep.early_stopping is not None and ended
                length = fmean(ended) if is_shortened else self.sweep.budget.amount
                units += to_come * length
                mean = self._speeds.mean
                is_known = seconds is not None and mean is not None
                seconds = (seconds or 0) + to_come * length * (mean or 0) if is_known else None
            return Outlook(round(units), seconds, max(each, default=0.0))

    def units_trained(self) -> dict[str, int]:
        """Return the budget units that each trial that has begun was trained for itself, by key."""
        return self._table.units_trained()

    @property
    def num_runs(self) -> int:
        """How many trials will have been started in all, if none fails that early stopping counts
        on."""
        with self._lock:
            begun = self.num_ended + len(self._table.running)
            waiting = sum(not self._table.is_done(key) for key in self._table.trials)
            most = self.num_ended + waiting
            expected = most if self.expected is None else self.expected[0]
            return max(begun, min(expected, most)) + self.num_to_come

    @property
    def num_ended(self) -> int:
        """How many of them have ended."""
        with self._lock:
            return self._table.num_ended

    def final_keys(self) -> list[str]:
        return [key for key in self._table.trials if self.journal.rows[key].status.is_final]

    def value(self, key: str) -> float | None:
        return self.journal.rows[key].metrics.get(self.sweep.metric)

    def planned_trials(self) -> list[Trial]:
        return list(self._table.trials.values())

    def _end(self, trial: Trial) -> None:
        """Take note of a trial that has ended."""
        row = self.journal.rows[trial.key]
        self._asha.end(trial, row.status, row.reason)
        if self.keeping is not None:
            self.keeping.ended(row)
        if self.proposer is not None:
            try:
                self.proposer.tell(trial, row.status, row.unit, self.value(row.key))
            except Exception as error:
                self._trouble(error)
        self._notify(lambda observer: observer.ended(trial, row.status, row.reason))
        if (longer := self._table.longer.get(row.key)) is not None:
            self._place(self._table.trials[longer])

    def _current(self, assignment: Assignment) -> TrialRow | None:
        row = self._table.running.get(assignment.trial.key)
        return row if row is not None and row.attempt == assignment.attempt else None

    def _set_status(
        self, row: TrialRow, status: TrialStatus, reason: str = "", **changed: Any
    ) -> bool:
        change = self.journal.set_status
        return self._record(
            row.key, lambda: change(row.key, row.attempt, status, reason, **changed)
        )

    def _record(self, key: str, action: Callable[[], object]) -> bool:
        """Record something of a trial; return whether it is on record. If the record cannot be
        written the run ends rather than the process."""
        try:
            action()
        except Exception as error:
            self._trouble(error)
            return False
        self._table.note(key)
        return True

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
