"""Hands out trials to runners, records their reports and decides which trials go on.

With every runner these steps happen in one process and in one order: early stopping decides about
a report, and the report and the resulting status are recorded together. No method raises an error
into a runner: if the record cannot be written, the coordinator hands out no more trials and gives
the reason.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hsweep.coordination.asha import StratifiedAsha
from hsweep.coordination.gate import Gate, RuleGate
from hsweep.coordination.queue import TrialQueue
from hsweep.coordination.retry_policy import IN_DRIVER, RetryPolicy, ends_left, shortened
from hsweep.coordination.rounds import RoundGate
from hsweep.coordination.run_trials import RunTrials
from hsweep.coordination.speeds import Speeds
from hsweep.design.early_stopping import Asha
from hsweep.design.labels import TrialLabels
from hsweep.design.scales import outside_scale
from hsweep.design.stopping_rule import StoppingRule
from hsweep.design.sweep import Sweep
from hsweep.design.trial import (
    Assignment,
    Counting,
    Ended,
    Event,
    Report,
    Resources,
    StorageFailure,
    Trial,
    TrialStatus,
)
from hsweep.errors import FencedError, format_error, user_frame
from hsweep.record.final_report import FinalReport
from hsweep.record.journal import Journal, TrialRow
from hsweep.record.journal_reader import LEFT_OUT, OFFSET
from hsweep.record.summary import INTERRUPTED
from hsweep.record.weights import WeightsKeeper
from hsweep.secrets import redact

if TYPE_CHECKING:
    from hsweep.coordination.search import OptunaProposer


class Observer(Protocol):
    """Shows every start, report and end; its methods must not take long."""

    def started(self, trial: Trial, attempt: int) -> None:
        """A trial was handed to a worker."""

    def reported(self, trial: Trial, report: Report) -> None:
        """A report was recorded."""

    def said(self, line: str) -> None:
        """Something is to be told that is about no trial."""

    def ended(self, trial: Trial, status: TrialStatus, reason: str) -> None:
        """A trial reached a final state, or will be tried again (status ``planned``)."""


@dataclass(slots=True)
class Coordinator:
    """The state of one run of a study.

    Args:
        journal: the record; only this object writes trials' states to it.
        trials: all planned trials, finished or not; they are on record.
        checkpoints: folder or URI for checkpoints.
        only: keys of the trials to hand out; None for all that have not ended.
        exempt: keys of trials without early stopping, since an answer needs their full-budget
            values.
        keeper: removes superfluous final weights; None where the study keeps no weights.
        named_by: trials whose varying axes name all trials; empty for ``trials``.

    Attributes:
        table: the trials and where they stand.
        ending_seconds: how long a run that was asked to end waits for what its trials are at.
    """

    journal: Journal
    sweep: Sweep
    trials: Iterable[Trial]
    checkpoints: str
    proposer: "OptunaProposer | None" = None
    rounds: RoundGate | None = None
    observer: Observer | None = None
    only: frozenset[str] | None = None
    exempt: frozenset[str] = frozenset()
    keeper: WeightsKeeper | None = None
    named_by: Sequence[Trial] = ()
    stop_reason: str | None = None
    is_in_trouble: bool = False
    table: RunTrials = field(init=False)
    speeds: Speeds = field(default_factory=Speeds)
    ending_seconds: float = 60.0
    _labels: TrialLabels = field(init=False)
    _gate: Gate = field(init=False)
    _queue: TrialQueue = field(init=False)
    _final: dict[str, FinalReport] = field(default_factory=dict)
    _unjudged: set[str] = field(default_factory=set)
    _retries: RetryPolicy = field(default_factory=RetryPolicy)
    _isolated: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        sweep, rows = self.sweep, self.journal.rows
        self.table = RunTrials(rows, sweep.metric, sweep.direction, self.only)
        self._gate = _gate_of(sweep, knows_all=self.proposer is None)
        self._queue = TrialQueue(rows, self._priority)
        trials = list(self.trials)
        named = self.named_by or trials
        self._labels = TrialLabels(
            (trial.point for trial in named), (trial.budget.amount for trial in named)
        )
        self._enter(trials)
        if self.keeper is not None:
            recorded_rows = (rows[key] for key in self.table.trials)
            self.keeper.recall(row for row in recorded_rows if row.status is TrialStatus.FINISHED)
        self._line_up(trials)

    def _enter(self, trials: Sequence[Trial]) -> None:
        """Add trials, and replay their recorded reports and states."""
        for trial in self.table.add(trials):
            if trial.key not in self.exempt:
                self._gate.enter(trial)
        with_reports = []
        self._end_attempts_left(trial.key for trial in trials)
        for trial in trials:
            row = self.journal.rows[trial.key]
            if row.unit:
                with_reports.append(row.key)
                if not (row.continues or row.reused_from):
                    self.speeds.note(trial, row.wall_seconds, row.unit)
        for entry in self.journal.reports(with_reports) if with_reports else ():
            unit, metrics = entry.unit or 0, entry.payload["metrics"]
            self._note_value(self.table.trials[entry.key], unit, metrics)
        for row in (self.journal.rows[trial.key] for trial in trials):
            if row.status.is_final:
                self._end_at_rungs(row)
                self._end_in_round(row)

    def _note_value(self, trial: Trial, unit: int, metrics: Mapping[str, float | None]) -> None:
        """Note a report, for its trial and for the rung that may be there."""
        fresh = FinalReport(self.sweep.metric, self.sweep.direction, self.sweep.final)
        final = self._final.setdefault(trial.key, fresh)
        final.add(unit, metrics)
        self._gate.record(trial, unit, final.value)

    def _end_at_rungs(self, row: TrialRow) -> None:
        trial = self.table.trials[row.key]
        if row.status is TrialStatus.FINISHED:
            self._gate.carry(trial, row.unit, self.value(row.key))
        self._gate.end(trial, row.status, row.reason, row.unit)

    def _end_attempts_left(self, keys: Iterable[str]) -> None:
        """End the attempts of trials whose driver was killed; this run has all of the study."""
        rows = {key: self.journal.rows[key] for key in keys}
        left = {key: row for key, row in rows.items() if row.status is TrialStatus.RUNNING}
        for key, change in ends_left(left, self.journal, self.sweep.max_failures).items():
            self.journal.set_status(key, left[key].attempt, **change)
            self.table.note(key)

    def _line_up(self, trials: Iterable[Trial]) -> None:
        """Make trials that have not ended wait for a worker, or for the others at their rung."""
        due = [trial for trial in trials if self.table.is_due(trial.key)]
        for trial in sorted(due, key=lambda trial: self._priority(trial.key)):
            self._place(trial)
        for stratum in dict.fromkeys(trial.stratum for trial in due):
            self._release(stratum)
        self._open_round()

    def _end_in_round(self, row: TrialRow) -> None:
        if self.rounds is not None:
            is_usable = row.status is TrialStatus.FINISHED
            self.rounds.end(row.key, self.value(row.key) if is_usable else None)

    def _open_round(self) -> None:
        """Let the trials of the next round begin where all of the present one have ended; at the
        end, those that no round has named end without having begun."""
        if self.rounds is None:
            return
        opened = self.rounds.advance()
        for trial in sorted(opened, key=lambda trial: self._priority(trial.key)):
            self._place(trial)
        # The scouts of an earlier round may have decided about these.
        for stratum in dict.fromkeys(trial.stratum for trial in opened):
            self._release(stratum)
        for trial in self.rounds.unneeded():
            self._stop_early(trial, self.rounds.design.why_not)

    def _priority(self, key: str) -> tuple[int, int, int, float, int]:
        """Order of handing out: interrupted trials first, those that fail time and again last; then
        shorter budgets of a ladder before longer ones, every point once before any point twice,
        long trials first so that none is the only one left at the end."""
        trial, row = self.table.trials[key], self.journal.rows[key]
        speed = self.speeds.expected(trial)
        turn = 2 if row.failures > 1 else 0 if row.unit else 1
        return (turn, row.budget, row.replicate, -speed, trial.ordinal)

    def _place(self, trial: Trial) -> None:
        """Let a trial wait at its rung, or in the queue for a worker."""
        # What an answer lacks is trained at once.
        rounds = None if trial.key in self.exempt else self.rounds
        if self.table.is_done(trial.key) or (rounds is not None and rounds.holds(trial)):
            return
        rung = self._gate.gate(trial, self.journal.rows[trial.key].unit)
        if rung is None:
            self._queue.add(trial.key)
        else:
            self._gate.wait(trial, rung)

    def _release(self, stratum: str) -> None:
        """Decide about the trials of a stratum that wait at a rung: each goes on or ends, if the
        rung can be decided now."""
        # Losers of one rung that wait at a later rung end in the next pass.
        while released := self._gate.release(stratum):
            going_on = []
            for trial, verdict in released:
                if verdict.stop:
                    self._stop_early(trial, verdict.reason)
                else:
                    going_on.append(trial.key)
            for key in sorted(going_on, key=self._priority, reverse=True):
                self._queue.add(key, first=True)

    def _stop_early(self, trial: Trial, reason: str) -> None:
        """End a trial that lost at a rung; a trial that never started becomes ``not_needed``."""
        row = self.journal.rows[trial.key]
        status = TrialStatus.STOPPED_EARLY if row.has_begun else TrialStatus.NOT_NEEDED
        # The report of the rung may be lost, so where that was is said again.
        self._set_status(row, status, reason, unit=row.unit)
        self._end(trial)

    @property
    def stop_requested(self) -> bool:
        return self.stop_reason is not None

    def request_stop(self, reason: str, *, is_trouble: bool = False) -> None:
        """Ask the run to end at the next opportunity; the first reason stays.

        ``is_trouble`` marks a stop because of a failure.
        """
        if self.stop_reason is None:
            self.stop_reason, self.is_in_trouble = reason, is_trouble

    def next_assignment(
        self,
        size: Resources | None = None,
        is_ready: Callable[[str], bool] = lambda _key: True,
        *,
        in_driver: bool = False,
    ) -> Assignment | None:
        """Return the next trial to train; None if no trial can be handed out now.

        Args:
            size: resources of a worker that is reused; None for a new worker. If the next trial
                needs other resources, None is returned: no trial overtakes it.
            is_ready: returns whether the trial with a key can start at once; others are skipped.
            in_driver: whether it will train in this process, which it can end.
        """
        with self.lock:
            key = self._next(is_ready)
            if key is None:
                return None
            trial = self.table.trials[key]
            needs_new_worker = key in self._isolated or self.journal.rows[key].exclusive
            if size is not None and (needs_new_worker or trial.resources != size):
                return None
            self._queue.take(key)
            return self._begin(trial, IN_DRIVER if in_driver else "")

    def _next(self, is_ready: Callable[[str], bool]) -> str | None:
        if self.stop_requested:
            return None
        if self.proposer is not None and not self._queue.num_shared:
            self._propose(self.proposer)
        while key := self._queue.next(self.table.running.values(), is_ready):
            trial = self.table.trials[key]
            reason = self._gate.lost(trial)
            if not reason:
                return key
            # Its point was stopped meanwhile, so it would be stopped as well.
            self._queue.take(key)
            self._stop_early(trial, reason)
            self._release(trial.stratum)
        return None

    def _begin(self, trial: Trial, reason: str) -> Assignment | None:
        """Begin an attempt of a trial; None if the record cannot hold that."""
        row, source = self.journal.rows[trial.key], self.table.start_of(trial.key)
        self._unjudged.discard(row.key)
        begin = self.journal.begin_attempt
        if not self._record(row.key, lambda: begin(row.key, trial.origin, source, reason)):
            return None
        self._notify(lambda observer: observer.started(trial, row.attempt))
        return Assignment(
            trial=trial,
            attempt=row.attempt,
            recorded_through=row.unit,
            recorded_seconds=row.wall_seconds,
            checkpoints=self.checkpoints,
            checkpoint_seconds=self.sweep.checkpoint_seconds,
            label=self.label(trial),
            probe=self.sweep.probe,
            is_exclusive=row.exclusive,
            continues=source or None,
            shared=self.table.shared(row.key) if source else 0,
            report_timeout=self.sweep.report_timeout,
            waits_at=self._gate.milestones(trial),
            isolate=self.sweep.isolate or row.key in self._isolated,
            weights="" if self.keeper is None else self.keeper.folder.root,
            measures_training=self.sweep.train_metrics == "always",
            offset=None if (offset := self.journal.meta(OFFSET)) is None else float(offset),
        )

    def label(self, trial: Trial) -> str:
        return self._labels.of(trial.point, trial.replicate, trial.budget.amount)

    @property
    def num_gaps(self) -> int:
        """Trials that are not compared at a rung, since the record has lost their report of it."""
        return self._gate.num_gaps

    @property
    def num_waiting(self) -> int:
        return self._queue.num_shared

    def requeue(self, assignment: Assignment) -> None:
        """Put a trial back that was not started, or whose process ended for a cause outside the
        trial. It does not count as a failure, and the observer is not called."""
        with self.lock:
            row = self._current(assignment)
            if row is not None:
                self._set_status(row, TrialStatus.PLANNED)
                self._queue.add(row.key, first=True)

    def _propose(self, proposer: "OptunaProposer") -> None:
        """Add the proposer's next trials that must be trained, if it has any."""
        try:
            while not self._queue.num_shared and (proposed := proposer.propose()):
                self._enter(proposed)
                for trial in proposed:
                    if self.journal.rows[trial.key].status.is_final:  # by another study
                        self._end(trial)
                self._line_up(proposed)
        except Exception as error:
            self._trouble(error)

    @property
    def is_exhausted(self) -> bool:
        """Whether the run has no more trials to hand out, now or later."""
        with self.lock:
            is_waiting = not self._queue.is_empty or self._gate.any_waits
            return self.stop_requested or not (is_waiting or self.table.running)

    def report(self, assignment: Assignment, event: Event) -> bool:
        """Record an event of a trial and decide what follows; a report of a unit on record decides
        nothing again. Return whether the trial goes on where it is: if not, it has ended or will be
        handed out again."""
        with self.lock:
            row = self._current(assignment)
            if row is None:
                return False
            if isinstance(event, Report):
                # A resumed trial passes where it has been; the record says it went on from there.
                is_known = event.unit <= row.unit and event.diverged_at is None
                return is_known or self._take_report(assignment.trial, row, event)
            if isinstance(event, Ended):
                return self._take_end(assignment.trial, row)
            if isinstance(event, Counting):
                return self._take_counts(row.key, event.offset)
            message = redact(event.message)
            if isinstance(event, StorageFailure):
                self._end_attempt(row, TrialStatus.PLANNED, message, is_next=True)
                self.request_stop(message, is_trouble=True)
            elif assignment.is_exclusive:
                message += (
                    ", even alone; make the shape or the batch smaller, train in bfloat16 or take "
                    "a device with more memory"
                )
                self._end_attempt(row, TrialStatus.TOO_LARGE, message)
            else:
                message += "; it will be trained with nothing beside it"
                self._end_attempt(row, TrialStatus.PLANNED, message, exclusive=True)
            return False

    def failed(
        self,
        assignment: Assignment,
        error: str,
        *,
        is_own_fault: bool = True,
        needs_new_worker: bool = False,
        is_final: bool = False,
        node: str = "",
    ) -> None:
        """Note that an attempt failed: the trial is tried again up to the sweep's limit.

        Args:
            error: the cause in one line, and details in further lines.
            is_own_fault: False if the attempt lost its node or worker, which counts against the
                trial only if it happens several times without a report in between.
            needs_new_worker: whether further attempts need a process of their own.
            is_final: whether another attempt would fail in the same way, so that none is made.
            node: where that was, if the trial may run on another node.
        """
        with self.lock:
            row, reason = self._current(assignment), shortened(redact(error))
            if row is None:
                return
            if needs_new_worker:
                self._isolated.add(row.key)
            if not is_own_fault and self._retries.is_bad_luck(row.key):
                self._end_attempt(row, TrialStatus.PLANNED, reason, is_next=True)
                return
            failures = row.failures + 1
            repeats = self._retries.repeats(row.key, reason, row.unit)
            is_over = is_final or repeats or failures > self.sweep.max_failures
            status = TrialStatus.FAILED if is_over else TrialStatus.PLANNED
            self._end_attempt(row, status, reason, failures=failures)
            if pause := self._retries.reason_to_pause(row.key, reason, row.unit, node):
                self.request_stop(pause, is_trouble=True)

    def say(self, line: str) -> None:
        """Show a line that is about no trial."""
        with self.lock:
            self._notify(lambda observer: observer.said(line))

    def record_left_out(self, lines: Iterable[str]) -> None:
        """Record which nodes get no trials, a line each with the reason."""
        with self.lock:
            try:
                self.journal.set_metas({LEFT_OUT: "\n".join(lines) or None})
            except Exception as error:
                self._trouble(error)

    def no_more_events(self, assignments: Iterable[Assignment]) -> None:
        """Note that trials will report no more: an unfinished one has failed."""
        for assignment in assignments:
            self.failed(assignment, "the trial ended without its last report")

    def _end_attempt(
        self,
        row: TrialRow,
        status: TrialStatus,
        reason: str,
        *,
        is_next: bool = False,
        **changed: Any,
    ) -> None:
        """Record that an attempt ended without its last report, and other changes of the trial's
        state; a trial that is planned again is the next to be handed out if ``is_next``."""
        trial = self.table.trials[row.key]
        if not self._set_status(row, status, reason, **changed):
            return
        if status.is_final:
            self._end(trial)
        else:
            self._queue.add(row.key, first=is_next)
            self._notify(lambda observer: observer.ended(trial, status, reason))
        self._release(trial.stratum)

    def _take_report(self, trial: Trial, row: TrialRow, report: Report) -> bool:
        """Record a report with the status it leads to; return whether its trial goes on."""
        status, reason = self._status_after(trial, report)
        record, counts = self.journal.record, None
        if status is TrialStatus.FINISHED:
            reason, counts = self._final[row.key].at_end(report.unit, trial.budget)
        if not self._record(
            row.key, lambda: record(row.key, row.attempt, report, status, reason, counts)
        ):
            return False
        self._retries.has_reported(row.key, report.unit)
        if not row.continues:
            self.speeds.note(trial, report.wall_seconds, report.unit)
        self._notify(lambda observer: observer.reported(trial, report))
        self._stop_at_odd_value(trial, report.metrics.get(self.sweep.metric))
        if status is TrialStatus.PLANNED:
            self._gate.wait(trial, report.unit, is_undecided=True)
        elif status.is_final:
            self._end(trial)
        # The last report at a rung decides about the trials that wait at it.
        self._release(trial.stratum)
        return status is TrialStatus.RUNNING

    def _take_end(self, trial: Trial, row: TrialRow) -> bool:
        """Record that a trial has ended by itself, as its last or its best report counts."""
        reason, counts = self._final[row.key].at_end(row.unit, trial.budget)
        last = {} if counts is None else {"last": {**row.last, "metrics": counts}}
        if self._set_status(row, TrialStatus.FINISHED, reason, **last):
            self._end(trial)
            self._release(trial.stratum)
        return False

    def _take_counts(self, key: str, offset: float | None) -> bool:
        """Note what the study's script counts from, for later trials; return whether its trial goes
        on. One that could not be judged while it trained is not stopped early."""
        self._unjudged.add(key)
        if offset is None or self.journal.meta(OFFSET) is not None:
            return True
        return self._record(key, lambda: self.journal.set_meta(OFFSET, str(offset)))

    def _status_after(self, trial: Trial, report: Report) -> tuple[TrialStatus, str]:
        """Return the status that a report leads to, and the reason."""
        if report.diverged_at is not None:
            is_loss = report.diverged_at < report.step
            name = "the training loss" if is_loss else self.sweep.metric
            return TrialStatus.DIVERGED, f"{name} was not finite at step {report.diverged_at}"
        self._note_value(trial, report.unit, report.metrics)
        if report.is_last:
            return TrialStatus.FINISHED, ""
        if trial.key in self._unjudged:
            return TrialStatus.RUNNING, ""
        try:
            verdict = self._gate.verdict(trial, report.unit)
        except Exception as error:  # of a rule of the user's own
            place = user_frame(error)
            at = f" at {place}" if place else ""
            self.request_stop(f"early stopping fails: {format_error(error)}{at}", is_trouble=True)
            return TrialStatus.RUNNING, ""
        if verdict.stop:
            return TrialStatus.STOPPED_EARLY, verdict.reason
        return TrialStatus.PLANNED if verdict.wait else TrialStatus.RUNNING, verdict.reason

    def _stop_at_odd_value(self, trial: Trial, value: float | None) -> None:
        """End the run if the reported value makes the question unanswerable."""
        question = self.sweep.question
        scale = None if question is None else question.logarithmic_scale
        problem = outside_scale(value, scale) if scale is not None and value is not None else ""
        if problem:
            message = f"{self.label(trial)} reports {self.sweep.metric} = {value:g}, and {problem}"
            self.request_stop(message, is_trouble=True)

    def settle(self) -> None:
        """Record the trials in training as interrupted, at the end of a run."""
        with self.lock:
            for row in list(self.table.running.values()):
                self._set_status(row, TrialStatus.PLANNED, INTERRUPTED)

    @property
    def num_to_come(self) -> int:
        """Trials that a search has yet to propose, at most."""
        return self.proposer.num_to_come if self.proposer is not None else 0

    def value(self, key: str) -> float | None:
        return self.journal.rows[key].metrics.get(self.sweep.metric)

    def planned_trials(self) -> list[Trial]:
        return list(self.table.trials.values())

    def _end(self, trial: Trial) -> None:
        """Tell early stopping, weights, search and display that a trial has ended."""
        row = self.journal.rows[trial.key]
        self._end_at_rungs(row)
        if self.keeper is not None:
            self.keeper.ended(row)
        if self.proposer is not None:
            try:
                self.proposer.tell(trial, row.status, row.unit, self.value(row.key))
            except Exception as error:
                self._trouble(error)
        self._notify(lambda observer: observer.ended(trial, row.status, row.reason))
        self._end_in_round(row)
        # Before the next round opens, which may end all that wait.
        if (longer := self.table.longer.get(row.key)) is not None:
            self._place(self.table.trials[longer])
        self._open_round()

    def _current(self, assignment: Assignment) -> TrialRow | None:
        row = self.table.running.get(assignment.trial.key)
        return row if row is not None and row.attempt == assignment.attempt else None

    def _set_status(
        self, row: TrialRow, status: TrialStatus, reason: str = "", **changed: Any
    ) -> bool:
        change = self.journal.set_status
        return self._record(
            row.key, lambda: change(row.key, row.attempt, status, reason, **changed)
        )

    def _record(self, key: str, action: Callable[[], object]) -> bool:
        """Run an action that writes to the record of a trial; return whether it succeeded. If the
        record cannot be written, the run ends, and not the process."""
        try:
            action()
        except Exception as error:
            self._trouble(error)
            return False
        self.table.note(key)
        return True

    def _trouble(self, error: Exception) -> None:
        if isinstance(error, FencedError):
            return self.request_stop(str(error), is_trouble=True)
        self.request_stop(
            f"the study's record cannot be written ({error}); what is on record stays, free "
            "space or give back the permission to write",
            is_trouble=True,
        )

    def _notify(self, notify: Callable[[Observer], None]) -> None:
        if self.observer is None:
            return
        try:
            notify(self.observer)
        except Exception:
            # A display that fails must not cost a study; the record has everything.
            self.observer = None


def _gate_of(sweep: Sweep, *, knows_all: bool) -> Gate:
    """Return what decides about the trials of a sweep at their rungs."""
    stopping, budget, goal = sweep.early_stopping, sweep.budget, sweep.direction
    if isinstance(stopping, Asha):
        return StratifiedAsha(stopping, budget, goal, knows_all=knows_all)
    return RuleGate(stopping, budget, goal) if isinstance(stopping, StoppingRule) else Gate()
