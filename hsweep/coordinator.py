"""Between the record and the runners: hands out trials, takes their reports, decides.

Whatever runs the trials, everything that counts happens here, in one process and in one order:
a report is recorded, the scheduler is asked, and the status it leads to is part of the same
transaction. Nothing here raises into a runner: if the record cannot be written, the study stops
handing out work and says why.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from hsweep.journal import Journal, TrialRow
from hsweep.plan import cost_columns
from hsweep.schedule import StratifiedAsha
from hsweep.sweep import Sweep
from hsweep.trial import Assignment, Report, Trial, TrialStatus

_REASON_LENGTH: Final = 8_000

Result = TypeVar("Result")


class Proposer(Protocol):
    """Proposes trials while a study runs."""

    def propose(self) -> list[Trial]:
        """Return new trials; none when there will be no more."""
        ...

    def tell(self, trial: Trial, status: TrialStatus, value: float | None) -> None:
        """Learn how a trial ended."""
        ...


class Observer(Protocol):
    """Is told of everything that happens, for display; must not take long."""

    def started(self, trial: Trial, attempt: int) -> None:
        """A trial was handed to a worker."""
        ...

    def reported(self, trial: Trial, report: Report) -> None:
        """A report was recorded."""
        ...

    def ended(self, trial: Trial, status: TrialStatus, reason: str) -> None:
        """A trial reached a final state, or will be tried again (status ``planned``)."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How far a study has come."""

    counts: Mapping[TrialStatus, int]
    units_done: int
    units_planned: int
    best: Mapping[str, tuple[float, str]]
    running: Mapping[str, int]


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
        kept: keys of trials that early stopping leaves alone: their full-budget values were asked
            for. What they report still counts at the rungs, but not as a contender left.
    """

    journal: Journal
    sweep: Sweep
    trials: Iterable[Trial]
    checkpoints: str
    proposer: Proposer | None = None
    observer: Observer | None = None
    only: frozenset[str] | None = None
    kept: frozenset[str] = frozenset()
    stop_reason: str | None = None
    record_error: Exception | None = None
    _by_key: dict[str, Trial] = field(default_factory=dict)
    _rows: dict[str, TrialRow] = field(default_factory=dict)
    _status: dict[str, TrialStatus] = field(default_factory=dict)
    _units: dict[str, int] = field(default_factory=dict)
    _attempts: dict[str, int] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)
    _best: dict[str, tuple[float, str]] = field(default_factory=dict)
    _values: dict[str, float | None] = field(default_factory=dict)
    _waiting: deque[str] = field(default_factory=deque)
    _asha: StratifiedAsha = field(init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._asha = StratifiedAsha(self.sweep.early_stopping, self.sweep.budget, self.sweep.goal)
        self._enter(list(self.trials))
        rows = {row.key: row for row in self.journal.trials()}
        for key, trial in self._by_key.items():
            row = rows[key]
            self._status[key], self._units[key] = row.status, row.unit
            self._attempts[key] = row.attempt
            if row.status is TrialStatus.RUNNING:
                # Its driver was killed; whoever runs the study now runs all of it.
                self._status[key] = TrialStatus.PLANNED
                self.journal.set_status(key, row.attempt, TrialStatus.PLANNED, "interrupted")
            if row.status.is_final and row.status is not TrialStatus.FINISHED:
                self._leave_race(trial, row.status, row.reason)
        for entry in self.journal.reports():
            known = self._by_key.get(entry.key)
            if known is not None and entry.unit is not None:
                value = entry.payload["metrics"].get(self.sweep.metric)
                self._asha.record(
                    entry.key, known.stratum, entry.unit, value, self._contender(known)
                )
                self._note_value(known, value)
        unfinished = [
            trial
            for key, trial in self._by_key.items()
            if not self._status[key].is_final and self._is_wanted(key)
        ]
        self._waiting.extend(trial.key for trial in sorted(unfinished, key=self._priority))

    def _enter(self, trials: list[Trial]) -> None:
        self.journal.add_trials(planned_row(trial) for trial in trials)
        for trial in trials:
            self._by_key[trial.key] = trial
            self._status.setdefault(trial.key, TrialStatus.PLANNED)
            self._units.setdefault(trial.key, 0)
            self._attempts.setdefault(trial.key, 0)
            self._asha.add(trial.key, trial.stratum, self._contender(trial))
            if trial.key in self.kept:
                self._leave_race(trial, TrialStatus.PLANNED, "")

    def _is_wanted(self, key: str) -> bool:
        return self.only is None or key in self.only

    def _priority(self, trial: Trial) -> tuple[int, int, int, int]:
        """Order of handing out: interrupted trials first, then every point once before any point
        twice, expensive points first so that none is left alone at the end."""
        return (
            0 if self._units[trial.key] else 1,
            trial.replicate,
            -trial.counts.forward_flops,
            trial.ordinal,
        )

    @property
    def stop_requested(self) -> bool:
        """Whether the run shall end before its trials do."""
        return self.stop_reason is not None

    def request_stop(self, reason: str) -> None:
        """Ask the run to end at the next opportunity; the first reason stays."""
        if self.stop_reason is None:
            self.stop_reason = reason

    def take(self) -> Assignment | None:
        """Return the next trial to train, None if there is none now (see ``is_exhausted``)."""
        with self._lock:
            if self.stop_requested:
                return None
            if not self._waiting and self.proposer is not None:
                proposed = self._guarded(self.proposer.propose) or []
                if proposed:
                    self._guarded(lambda: self._enter(proposed))
                    self._waiting.extend(trial.key for trial in proposed)
            self._drop_lost()
            if not self._waiting:
                return None
            key = self._waiting.popleft()
            trial = self._by_key[key]
            attempt = self._guarded(lambda: self.journal.begin_attempt(key))
            if attempt is None:
                return None
            self._attempts[key], self._status[key] = attempt, TrialStatus.RUNNING
            self._notify(lambda observer: observer.started(trial, attempt))
            return Assignment(
                trial=trial,
                attempt=attempt,
                recorded_through=self._units[key],
                checkpoints=self.checkpoints,
                checkpoint_seconds=self.sweep.checkpoint_seconds,
                probe=self.sweep.probe,
            )

    def _drop_lost(self) -> None:
        """End waiting trials whose shape was stopped meanwhile: they would be stopped as well."""
        while self._waiting:
            trial = self._by_key[self._waiting[0]]
            reason = self._asha.lost(trial.key, trial.stratum, self._contender(trial))
            if not reason or trial.key in self.kept:
                return
            self._waiting.popleft()
            attempt = self._attempts[trial.key]
            self._guarded(
                lambda trial=trial, attempt=attempt, reason=reason: self.journal.set_status(  # type: ignore[misc]
                    trial.key, attempt, TrialStatus.STOPPED_EARLY, reason
                )
            )
            self._end(trial, TrialStatus.STOPPED_EARLY, reason, None)

    @property
    def is_exhausted(self) -> bool:
        """Whether no trial is waiting or running, so none can come back."""
        with self._lock:
            running = TrialStatus.RUNNING in self._status.values()
            return self.stop_requested or not (self._waiting or running)

    def report(self, assignment: Assignment, report: Report) -> bool:
        """Take a trial's report; one of a unit on record decides nothing again.

        Returns:
            Whether the trial goes on.
        """
        trial = assignment.trial
        key = trial.key
        with self._lock:
            if not self._is_current(assignment):
                return False
            if report.unit <= self._units[key] and report.diverged_at is None:
                # A resumed trial passes where it has been; the record says it went on from there.
                return True
            value = report.metrics.get(self.sweep.metric)
            status, reason = self._status_after(trial, report, value)
            recorded = self._guarded(
                lambda: self.journal.record(key, assignment.attempt, report, value, status, reason)
            )
            if recorded is None:
                return False
            self._units[key] = max(self._units[key], report.unit)
            self._note_value(trial, value)
            self._notify(lambda observer: observer.reported(trial, report))
            if status is TrialStatus.RUNNING:
                return True
            self._end(trial, status, reason, value)
            return False

    def _status_after(
        self, trial: Trial, report: Report, value: float | None
    ) -> tuple[TrialStatus, str]:
        if report.diverged_at is not None:
            return TrialStatus.DIVERGED, f"not finite at step {report.diverged_at}"
        if report.is_last:
            return TrialStatus.FINISHED, ""
        verdict = self._asha.decide(
            trial.key, trial.stratum, report.unit, value, self._contender(trial)
        )
        if verdict.stop and trial.key not in self.kept:
            return TrialStatus.STOPPED_EARLY, verdict.reason
        return TrialStatus.RUNNING, ""

    def failed(self, assignment: Assignment, error: str) -> None:
        """Note that an attempt failed: the trial is tried again up to the sweep's limit."""
        trial = assignment.trial
        key = trial.key
        with self._lock:
            if not self._is_current(assignment):
                return
            self._failures[key] = self._failures.get(key, 0) + 1
            reason = error[-_REASON_LENGTH:]
            again = self._failures[key] <= self.sweep.max_failures
            status = TrialStatus.PLANNED if again else TrialStatus.FAILED
            self._guarded(lambda: self.journal.set_status(key, assignment.attempt, status, reason))
            if again:
                self._status[key] = status
                self._waiting.append(key)
                self._notify(lambda observer: observer.ended(trial, status, reason))
            else:
                self._end(trial, status, reason, None)

    def settle(self) -> None:
        """Note, at the end of a run, which trials were interrupted."""
        with self._lock:
            for key, status in self._status.items():
                if status is TrialStatus.RUNNING:
                    attempt = self._attempts[key]
                    self._guarded(
                        lambda key=key, attempt=attempt: self.journal.set_status(  # type: ignore[misc]
                            key, attempt, TrialStatus.PLANNED, "interrupted"
                        )
                    )
                    self._status[key] = TrialStatus.PLANNED

    def snapshot(self) -> Snapshot:
        """Return how far the study has come."""
        with self._lock:
            budget = self.sweep.budget.amount
            statuses = list(self._status.values())
            left = sum(
                budget - self._units[key]
                for key, status in self._status.items()
                if not status.is_final and self._is_wanted(key)
            )
            done = sum(self._units.values())
            return Snapshot(
                counts={status: statuses.count(status) for status in TrialStatus},
                units_done=done,
                units_planned=done + left,
                best=dict(self._best),
                running={
                    key: self._units[key]
                    for key, status in self._status.items()
                    if status is TrialStatus.RUNNING
                },
            )

    def final_keys(self) -> list[str]:
        """Return the keys of all trials that are done with."""
        return [key for key, status in self._status.items() if status.is_final]

    def value(self, key: str) -> float | None:
        """Return a trial's last reported value of the study's metric."""
        return self._values.get(key)

    def planned_trials(self) -> list[Trial]:
        """Return every trial known so far, finished or not."""
        return list(self._by_key.values())

    def _end(self, trial: Trial, status: TrialStatus, reason: str, value: float | None) -> None:
        self._status[trial.key] = status
        if status is not TrialStatus.FINISHED:
            self._leave_race(trial, status, reason)
        if self.proposer is not None:
            proposer = self.proposer
            self._guarded(lambda: proposer.tell(trial, status, value))
        self._notify(lambda observer: observer.ended(trial, status, reason))

    def _contender(self, trial: Trial) -> str | None:
        """Return what a trial competes as: itself (None), or its point with all replicates."""
        stopping = self.sweep.early_stopping
        if stopping is None or stopping.compete == "trials":
            return None
        return json.dumps(dict(trial.point), default=str)

    def _leave_race(self, trial: Trial, status: TrialStatus, reason: str) -> None:
        why = reason if status is TrialStatus.STOPPED_EARLY else ""
        if why or self._contender(trial) is None:
            # A shape whose replicate failed or diverged goes on with the others.
            self._asha.leave(trial.key, trial.stratum, self._contender(trial), stopped=why)

    def _note_value(self, trial: Trial, value: float | None) -> None:
        self._values[trial.key] = value
        if value is None:
            return
        best = self._best.get(trial.stratum)
        sign = 1 if self.sweep.goal == "min" else -1
        if best is None or sign * value < sign * best[0]:
            self._best[trial.stratum] = (value, trial.key)

    def _is_current(self, assignment: Assignment) -> bool:
        key = assignment.trial.key
        return (
            self._attempts.get(key) == assignment.attempt
            and self._status[key] is TrialStatus.RUNNING
        )

    def _guarded(self, action: Callable[[], Result]) -> Result | None:
        """Do something with the record; if it fails, end the run rather than the process."""
        try:
            return action()
        except Exception as error:
            self.record_error = error
            self.request_stop(f"the study's record cannot be written: {error}")
            return None

    def _notify(self, tell: Callable[[Observer], None]) -> None:
        if self.observer is None:
            return
        try:
            tell(self.observer)
        except Exception:
            # A display that fails must not cost a study; the record has everything.
            self.observer = None


def planned_row(trial: Trial) -> TrialRow:
    """Return the row that records a planned trial."""
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
