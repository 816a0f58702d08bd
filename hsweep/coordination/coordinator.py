"""Between the record and the runners: hands out trials, takes their reports, decides.

Whatever runs the trials, everything that counts happens here, in one process and in one order:
a report is recorded, the scheduler is asked, and the status it leads to is part of the same
transaction. Nothing here raises into a runner: if the record cannot be written, the study stops
handing out work and says why.
"""

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final, TypeVar

from hsweep.coordination.blame import Blame
from hsweep.coordination.bundling import kind_of
from hsweep.coordination.handing_out import HandingOut
from hsweep.coordination.parties import Observer, Proposer
from hsweep.coordination.race import Race
from hsweep.coordination.sizes import Sizes
from hsweep.coordination.standing import Snapshot, Standing
from hsweep.design.sweep import Sweep
from hsweep.design.trial import (
    Assignment,
    Report,
    Resources,
    Setback,
    Trial,
    TrialStatus,
    cost_columns,
)
from hsweep.planning.code_changes import note_code
from hsweep.record.endings import INTERRUPTED
from hsweep.record.journal import Journal, TrialRow
from hsweep.redaction import redact

_REASON_LENGTH: Final = 8_000

Result = TypeVar("Result")


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
        reuse: is asked about trials that were just added to the record; gives those of them their
            reports that are known from elsewhere and returns their keys.
    """

    journal: Journal
    sweep: Sweep
    trials: Iterable[Trial]
    checkpoints: str
    proposer: Proposer | None = None
    observer: Observer | None = None
    only: frozenset[str] | None = None
    kept: frozenset[str] = frozenset()
    reuse: Callable[[Sequence[Trial]], Collection[str]] | None = None
    stop_reason: str | None = None
    is_in_trouble: bool = False
    record_error: Exception | None = None
    _standing: Standing = field(init=False)
    _race: Race = field(init=False)
    _queue: HandingOut = field(default_factory=HandingOut)
    _attempts: dict[str, int] = field(default_factory=dict)
    _sizes: Sizes = field(init=False)
    _blame: Blame = field(default_factory=Blame)
    _continues: dict[str, str] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._standing = Standing(self.sweep.goal, self.only)
        # A process of one trial trains no others.
        self._sizes = Sizes("never" if self.sweep.isolate else self.sweep.together)
        self._race = Race(self.sweep, self.kept, knows_all=self.proposer is None)
        trials = list(self.trials)
        self._enter(trials)
        self._recall({trial.key for trial in trials})
        self._line_up(trials)

    def _enter(self, trials: Sequence[Trial]) -> Collection[str]:
        """Add trials to the record; return the keys of those whose results are there already."""
        self.journal.add_trials(planned_row(trial) for trial in trials)
        note_code(self.journal, trials)
        for trial in self._standing.enter(trials):
            self._attempts[trial.key] = 0
            self._race.enter(trial)
            if not self._standing.is_wanted(trial.key):
                self._race.wait_no_longer(trial)
        return self.reuse(trials) if self.reuse is not None else ()

    def _recall(self, keys: Collection[str]) -> None:
        """Take over what the record says of trials."""
        standing = self._standing
        for row in self.journal.trials():
            trial = standing.trials.get(row.key)
            if trial is None or row.key not in keys:
                continue
            standing.reach(row.key, row.unit)
            self._attempts[row.key] = row.attempt
            if row.continues:
                self._continues[row.key] = row.continues
            if row.alone:
                self._queue.alone.add(row.key)
            if row.status is TrialStatus.RUNNING:
                # Its driver was killed; whoever runs the study now runs all of it.
                self.journal.set_status(row.key, row.attempt, TrialStatus.PLANNED, INTERRUPTED)
            elif row.status.is_final:
                standing.move(row.key, row.status)
                self._race.leave(trial, row.status, row.reason)
        for entry in self.journal.reports():
            trial = standing.trials.get(entry.key)
            if trial is not None and entry.key in keys and entry.unit is not None:
                value = entry.payload["metrics"].get(self.sweep.metric)
                self._race.record(trial, entry.unit, value)
                standing.note_value(entry.key, value)

    def _line_up(self, trials: Iterable[Trial]) -> None:
        """Make trials that have not ended wait for a worker, or for the others at their rung."""
        strata: dict[str, None] = {}
        for trial in sorted(trials, key=self._priority):
            if self._standing.status[trial.key].is_final or not self._standing.is_wanted(trial.key):
                continue
            unit = self._standing.units[trial.key]
            if self._race.may_wait_at(trial, unit):
                self._queue.pause(trial.key, trial.stratum, unit)
                strata[trial.stratum] = None
            else:
                self._queue.add(trial.key)
        for stratum in strata:
            self._release(stratum)

    def _release(self, stratum: str) -> None:
        """Let the trials go on, or end them, that wait at a rung which can be decided now."""
        is_settled = True
        going_on = []
        for key, unit in self._queue.paused(stratum).items():
            trial = self._standing.trials[key]
            verdict = self._race.verdict(trial, unit)
            if verdict.wait:
                continue
            self._queue.unpause(key, stratum)
            if verdict.stop:
                self._stop_early(trial, verdict.reason)
                # Those that wait at a later rung wait for one less.
                is_settled = False
            else:
                going_on.append(trial)
        for trial in sorted(going_on, key=self._priority, reverse=True):
            self._queue.add(trial.key, first=True)
        if not is_settled:
            self._release(stratum)

    def _stop_early(self, trial: Trial, reason: str) -> None:
        """End a trial that is not in training."""
        self._set_status(trial.key, TrialStatus.STOPPED_EARLY, reason)
        value = self._standing.values.get(trial.key)
        self._end(trial, TrialStatus.STOPPED_EARLY, reason, value)

    def _priority(self, trial: Trial) -> tuple[int, int, int, int]:
        """Order of handing out: interrupted trials first, then every point once before any point
        twice, expensive points first so that none is left alone at the end."""
        return (
            0 if self._standing.units[trial.key] else 1,
            trial.replicate,
            -trial.counts.forward_flops,
            trial.ordinal,
        )

    @property
    def stop_requested(self) -> bool:
        """Whether the run shall end before its trials do."""
        return self.stop_reason is not None

    def request_stop(self, reason: str, *, is_trouble: bool = False) -> None:
        """Ask the run to end at the next opportunity; the first reason stays.

        Args:
            reason: why, for people.
            is_trouble: something does not work (nobody wanted the end).
        """
        if self.stop_reason is None:
            self.stop_reason, self.is_in_trouble = reason, is_trouble

    def take_bundle(self, like: Resources | None = None, places: int = 1) -> list[Assignment]:
        """Return the next trial to train, and those that may be trained with it as one program;
        none if there is none now (see ``is_exhausted``).

        Args:
            like: what the trial must occupy; None for whatever it does. Where the next one needs
                something else none is returned: nobody overtakes it.
            places: processes that train at once: no bundle is so large that some of them would
                have nothing to do.
        """
        with self._lock:
            key = self._next_key(like)
            if key is None:
                return []
            trial = self._standing.trials[key]
            at_work = self._queue.num_waiting + 1 + len(self._standing.running)
            others = self._others_of(trial, at_work // max(1, places) - 1)
            name = key if others else ""
            share = None
            if others and trial.resources.is_auto:
                share = self._sizes.of(trial, 1 + len(others)).devices
            begun = (self._begun(each, name, share) for each in (key, *others))
            bundle = [assignment for assignment in begun if assignment is not None]
            # As one program they take as long to report as one after another, at most.
            timeout = self.sweep.report_timeout
            patience = None if timeout is None else timeout * len(bundle)
            return [replace(assignment, report_timeout=patience) for assignment in bundle]

    def _others_of(self, trial: Trial, most: int) -> list[str]:
        """Take from the queue what may be trained with a trial as one program."""
        most = min(most, self._sizes.most_together(trial) - 1)
        kind = kind_of(trial) if most > 0 and trial.key not in self._queue.alone else None
        if kind is None:
            return []
        trials = self._standing.trials
        return self._queue.take_more(lambda key: kind_of(trials[key]) == kind, most)

    def _next_key(self, like: Resources | None) -> str | None:
        if self.stop_requested:
            return None
        if self._queue.next is None and self.proposer is not None:
            self._propose(self.proposer)
        self._drop_lost()
        if like is not None and not self._is_next_like(like):
            return None
        return self._queue.take(self._standing.running)

    def _begun(self, key: str, bundle: str = "", share: float | None = None) -> Assignment | None:
        """Note that an attempt of a trial begins; None if the record cannot hold that."""
        trial = self._standing.trials[key]
        attempt = self._guarded(lambda: self.journal.begin_attempt(key, trial.origin))
        if attempt is None:
            return None
        if share is None and trial.resources.is_auto:
            share = self._sizes.of(trial).devices
        self._attempts[key] = attempt
        self._standing.move(key, TrialStatus.RUNNING)
        self._notify(lambda observer: observer.started(trial, attempt))
        return Assignment(
            trial=trial,
            attempt=attempt,
            recorded_through=self._standing.units[key],
            checkpoints=self.checkpoints,
            checkpoint_seconds=self.sweep.checkpoint_seconds,
            probe=self.sweep.probe,
            is_alone=key in self._queue.alone,
            continues=self._continues.get(key),
            report_timeout=self.sweep.report_timeout,
            waits_at=self._race.waits_at(trial),
            isolate=self.sweep.isolate,
            share=share,
            bundle=bundle,
            is_settled=self.sweep.together == "always",
        )

    def _is_next_like(self, resources: Resources) -> bool:
        """Whether a trial waits that shares its device, and occupies just this."""
        key = self._queue.next
        return key is not None and self._sizes.of(self._standing.trials[key]) == resources

    def resources_of(self, trial: Trial) -> Resources:
        """Return what a trial would occupy if it were taken now."""
        return self._sizes.of(trial)

    def pack(self, device_bytes: int) -> None:
        """Share devices out among trials by the memory they need.

        Args:
            device_bytes: memory of the smallest device.
        """
        with self._lock:
            self._sizes.pack(device_bytes, self._held())

    def _held(self) -> Iterator[tuple[Trial, int]]:
        """Yield what trials have held of their device, by the record."""
        for entry in self.journal.reports():
            trial = self._standing.trials.get(entry.key)
            peak = entry.payload.get("peak_memory_bytes")
            if trial is not None and peak is not None and "micro_batch" not in entry.payload:
                yield trial, peak

    @property
    def num_waiting(self) -> int:
        """How many trials could be taken now by workers that have room for each."""
        return self._queue.num_waiting

    def give_back(self, assignment: Assignment) -> None:
        """Let a trial be taken again that was never begun, or whose process ended through none of
        its doing; nothing counts against it, and nobody is told."""
        key = assignment.trial.key
        with self._lock:
            if self._is_current(assignment):
                self._set_status(key, TrialStatus.PLANNED, "")
                self._standing.move(key, TrialStatus.PLANNED)
                self._queue.add(key, first=True)

    def _propose(self, proposer: Proposer) -> None:
        """Add the proposer's next trials that must be trained, if it has any."""
        while self._queue.next is None and (proposed := self._guarded(proposer.propose)):
            known = self._guarded(lambda trials=proposed: self._enter(trials))  # type: ignore[misc]
            if known is None:
                return
            if known:
                self._guarded(lambda keys=known: self._recall(keys))  # type: ignore[misc]
            for trial in proposed:
                if trial.key in known:
                    value = self._standing.values.get(trial.key)
                    self._end(trial, self._standing.status[trial.key], "", value)
            self._line_up(trial for trial in proposed if trial.key not in known)

    def _drop_lost(self) -> None:
        """End waiting trials whose shape was stopped meanwhile: they would be stopped as well."""
        while (key := self._queue.next) is not None:
            trial = self._standing.trials[key]
            reason = self._race.lost(trial)
            if not reason:
                return
            self._queue.drop_next()
            self._stop_early(trial, reason)
            self._release(trial.stratum)

    @property
    def is_exhausted(self) -> bool:
        """Whether no trial is waiting or running, so none can come back."""
        with self._lock:
            return self.stop_requested or (self._queue.is_empty and not self._standing.running)

    def report(self, assignment: Assignment, said: Report | Setback) -> bool:
        """Take what a trial says; a report of a unit on record decides nothing again.

        Returns:
            Whether the trial goes on where it is. If not, it has ended or will be handed out again.
        """
        with self._lock:
            if not self._is_current(assignment):
                return False
            self._sizes.learn(assignment, said)
            if isinstance(said, Setback):
                self._set_back(assignment, said)
                return False
            return self._take_report(assignment, said)

    def _take_report(self, assignment: Assignment, report: Report) -> bool:
        trial = assignment.trial
        key = trial.key
        if report.unit <= self._standing.units[key] and report.diverged_at is None:
            # A resumed trial passes where it has been; the record says it went on from there.
            return True
        value = report.metrics.get(self.sweep.metric)
        status, reason = self._status_after(trial, report, value)
        recorded = self._guarded(
            lambda: self.journal.record(key, assignment.attempt, report, value, status, reason)
        )
        if recorded is None:
            return False
        self._blame.has_reported(key)
        self._standing.reach(key, report.unit)
        self._standing.note_value(key, value)
        self._notify(lambda observer: observer.reported(trial, report))
        if status is TrialStatus.PLANNED:
            self._standing.move(key, status)
            self._queue.pause(key, trial.stratum, report.unit)
        elif status is not TrialStatus.RUNNING:
            self._end(trial, status, reason, value)
        # The last of a rung to arrive decides for those that wait there.
        self._release(trial.stratum)
        return status is TrialStatus.RUNNING

    def _status_after(
        self, trial: Trial, report: Report, value: float | None
    ) -> tuple[TrialStatus, str]:
        if report.diverged_at is not None:
            return TrialStatus.DIVERGED, f"not finite at step {report.diverged_at}"
        if report.is_last:
            return TrialStatus.FINISHED, ""
        self._race.record(trial, report.unit, value)
        verdict = self._race.verdict(trial, report.unit)
        if verdict.stop:
            return TrialStatus.STOPPED_EARLY, verdict.reason
        if verdict.wait:
            return TrialStatus.PLANNED, verdict.reason
        return TrialStatus.RUNNING, ""

    def _set_back(self, assignment: Assignment, setback: Setback) -> None:
        setback = replace(setback, message=redact(setback.message))
        trial = assignment.trial
        if setback.kind == "storage":
            self._again(trial, setback.message)
            self.request_stop(setback.message, is_trouble=True)
        elif assignment.is_alone:
            self._set_status(trial.key, TrialStatus.TOO_LARGE, setback.message)
            self._end(trial, TrialStatus.TOO_LARGE, setback.message, None)
            self._release(trial.stratum)
        else:
            reason = f"{setback.message}; it will be trained with nothing beside it"
            self._guarded(lambda: self.journal.set_alone(trial.key, assignment.attempt, reason))
            self._queue.alone.add(trial.key)
            self._postpone(trial, reason)

    def failed(self, assignment: Assignment, error: str, *, is_own_fault: bool = True) -> None:
        """Note that an attempt failed: the trial is tried again up to the sweep's limit.

        Args:
            assignment: the attempt.
            error: what happened: a line that says it, then what there is to know besides, of which
                the end is kept.
            is_own_fault: False if the attempt lost its place (its node died), which does not count
                against the trial unless it happens again and again without a report in between.
        """
        trial = assignment.trial
        key = trial.key
        with self._lock:
            if not self._is_current(assignment):
                return
            reason = _shortened(redact(error))
            if not is_own_fault and self._blame.counts_as_lost(key):
                self._again(trial, reason)
                return
            failures = self._guarded(
                lambda: self.journal.note_failure(
                    key, assignment.attempt, self.sweep.max_failures, reason
                )
            )
            if failures is None:
                return
            if failures <= self.sweep.max_failures:
                self._postpone(trial, reason)
            else:
                self._end(trial, TrialStatus.FAILED, reason, None)
                self._release(trial.stratum)
            if pause := self._blame.studys_own(key, reason):
                self.request_stop(pause, is_trouble=True)

    def all_said(self, assignments: Iterable[Assignment]) -> None:
        """Note that trials say no more; one that has not come to its end has failed."""
        for assignment in assignments:
            self.failed(assignment, "the trial ended without its last report")

    def _again(self, trial: Trial, reason: str) -> None:
        """Plan a trial again that lost its place, and hand it out before the others."""
        self._set_status(trial.key, TrialStatus.PLANNED, reason)
        self._postpone(trial, reason, first=True)

    def _postpone(self, trial: Trial, reason: str, *, first: bool = False) -> None:
        """Hand a trial out again that the record has as planned."""
        self._standing.move(trial.key, TrialStatus.PLANNED)
        self._queue.add(trial.key, first=first)
        self._notify(lambda observer: observer.ended(trial, TrialStatus.PLANNED, reason))

    def _set_status(self, key: str, status: TrialStatus, reason: str) -> None:
        attempt = self._attempts[key]
        self._guarded(lambda: self.journal.set_status(key, attempt, status, reason))

    def settle(self) -> None:
        """Note, at the end of a run, which trials were interrupted."""
        with self._lock:
            for key in list(self._standing.running):
                self._set_status(key, TrialStatus.PLANNED, INTERRUPTED)
                self._standing.move(key, TrialStatus.PLANNED)

    def snapshot(self) -> Snapshot:
        """Return how far the study has come."""
        with self._lock:
            return self._standing.snapshot()

    @property
    def num_to_come(self) -> int:
        """How many trials a search has yet to propose, at most."""
        return self.proposer.num_to_come if self.proposer is not None else 0

    def units_left(self) -> float:
        """Return the budget units that are likely to be trained still.

        Without those that early stopping will spare, and with those of trials that a search has
        yet to propose: as many for each as the trials had that have ended, where early stopping
        shortens some.
        """
        with self._lock:
            standing, budget = self._standing, self.sweep.budget.amount
            ended = [standing.units[key] for key in self.final_keys()]
            is_shortened = self.sweep.early_stopping is not None and ended
            each = fmean(ended) if is_shortened else budget
            left = standing.units_left - self._race.units_spared(budget)
            return max(0, left) + self.num_to_come * each

    def final_keys(self) -> list[str]:
        """Return the keys of all trials that are done with."""
        return [key for key, status in self._standing.status.items() if status.is_final]

    def value(self, key: str) -> float | None:
        """Return a trial's last reported value of the study's metric."""
        return self._standing.values.get(key)

    def planned_trials(self) -> list[Trial]:
        """Return every trial known so far, finished or not."""
        return list(self._standing.trials.values())

    def _end(self, trial: Trial, status: TrialStatus, reason: str, value: float | None) -> None:
        self._standing.move(trial.key, status)
        self._race.leave(trial, status, reason)
        if self.proposer is not None:
            proposer = self.proposer
            self._guarded(lambda: proposer.tell(trial, status, value))
        self._notify(lambda observer: observer.ended(trial, status, reason))

    def _is_current(self, assignment: Assignment) -> bool:
        key = assignment.trial.key
        return (
            self._attempts.get(key) == assignment.attempt
            and self._standing.status[key] is TrialStatus.RUNNING
        )

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Enter whatever happens in this block in the record at once, at its end.

        Nothing that follows from it may be done before. If the record cannot be written the run
        ends, and what it holds is what it held before.
        """
        with self._lock:
            try:
                with self.journal.together():
                    yield
            except Exception as error:
                self._trouble(error)

    def _guarded(self, action: Callable[[], Result]) -> Result | None:
        """Do something with the record; if it fails, end the run rather than the process."""
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


def _shortened(reason: str) -> str:
    """Return a reason with its first line whole, and of very much else the end."""
    if len(reason) <= _REASON_LENGTH:
        return reason
    first, _, rest = reason.partition("\n")
    first = first[: _REASON_LENGTH // 2]
    return f"{first}\n...{rest[len(first) - _REASON_LENGTH :]}"


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
