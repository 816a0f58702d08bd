"""The state of every trial of a study, kept once, with sums that cost nothing to ask for."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hsweep.design.question import Goal
from hsweep.design.trial import Trial, TrialStatus


@dataclass(slots=True, eq=False)
class ScheduledTrial:
    """A trial and its state; only ``TrialTable`` changes status, unit and value.

    Attributes:
        is_wanted: this run trains it unless it has ended.
        is_exempt: early stopping never ends it, since its full-budget value was asked for.
        unit: budget units of the last report.
        value: of the study's metric in the last report; None if it was not finite.
        attempt: number of the current attempt, 0 before the first.
        noted_attempt: the attempt whose first report says how many processes train it.
        shorter, longer: the trials of the same ladder with the next smaller and larger budget.
        continues: key of the shorter training that it goes on from.
        shared: budget units that it need not train, since it has them in common with that.
        is_exclusive: it trains with nothing beside it, because it did not fit beside others.
        needs_new_worker: it is trained in a process that trains nothing else.
        num_lost: how often in a row its place was lost without a report.
    """

    trial: Trial
    is_wanted: bool = True
    is_exempt: bool = False
    status: TrialStatus = TrialStatus.PLANNED
    unit: int = 0
    value: float | None = None
    attempt: int = 0
    noted_attempt: int = 0
    shorter: "ScheduledTrial | None" = None
    longer: "ScheduledTrial | None" = None
    shared: int = 0
    continues: str | None = None
    is_exclusive: bool = False
    needs_new_worker: bool = False
    num_lost: int = 0

    @property
    def is_done(self) -> bool:
        """Whether it reports no more in this run."""
        return self.status.is_final or not self.is_wanted

    @property
    def is_due(self) -> bool:
        """Whether it need not wait for the shorter training that it goes on from."""
        return self.shorter is None or self.shorter.is_done

    @property
    def has_begun(self) -> bool:
        """Whether it was ever handed out, or has results from elsewhere."""
        return bool(self.attempt or self.unit)

    @property
    def reached(self) -> int:
        """Budget units that need no training of its own any more."""
        return max(self.unit, self.shared)

    @property
    def units_left(self) -> int:
        """Budget units that this run may still train."""
        return 0 if self.is_done else self.trial.budget.amount - self.reached


@dataclass(frozen=True, slots=True)
class Overview:
    """How far a study has come.

    Attributes:
        units_done: budget units trained, those that trials have in common once.
        best: by stratum, the best value of the metric so far and the trial that reached it.
        running: units done by the trials in training, in the order of the plan.
    """

    counts: Mapping[TrialStatus, int]
    units_done: int
    best: Mapping[str, tuple[float, str]]
    running: Mapping[str, int]


@dataclass(slots=True)
class TrialTable:
    """All trials of a study, by key and in the order they were planned.

    Args:
        goal: whether smaller or larger values of the metric are better.
        only: keys of the trials that are trained; None for all.
        exempt: keys of the trials that early stopping never ends.

    """

    goal: Goal
    only: frozenset[str] | None
    exempt: Collection[str]
    rows: dict[str, ScheduledTrial] = field(default_factory=dict)
    running: dict[str, ScheduledTrial] = field(default_factory=dict)
    _counts: Counter[TrialStatus] = field(default_factory=Counter)
    _best: dict[str, tuple[float, str]] = field(default_factory=dict)
    _units_done: int = 0

    def add(self, trials: Iterable[Trial]) -> list[ScheduledTrial]:
        new = []
        for trial in trials:
            if trial.key not in self.rows:
                is_wanted = self.only is None or trial.key in self.only
                row = ScheduledTrial(trial, is_wanted, is_exempt=trial.key in self.exempt)
                self.rows[trial.key] = row
                if (shorter := self.rows.get(trial.shorter)) is not None:
                    row.shorter, shorter.longer, row.shared = shorter, row, trial.shared
                self._counts[row.status] += 1
                new.append(row)
        return new

    def move(self, row: ScheduledTrial, status: TrialStatus) -> None:
        self._counts[row.status] -= 1
        self._counts[status] += 1
        row.status = status
        if status is TrialStatus.RUNNING:
            self.running[row.trial.key] = row
        else:
            self.running.pop(row.trial.key, None)

    def reach(self, row: ScheduledTrial, unit: int, value: float | None) -> None:
        """Note a trial's report; a trial never goes back."""
        before = row.reached
        row.unit = max(row.unit, unit)
        self._units_done += row.reached - before
        row.value = value
        if value is None:
            return
        best = self._best.get(row.trial.stratum)
        sign = 1 if self.goal == "min" else -1
        if best is None or sign * value < sign * best[0]:
            self._best[row.trial.stratum] = (value, row.trial.key)

    def go_on_from(self, row: ScheduledTrial, key: str | None, shared: int) -> None:
        """Note what shorter training a trial goes on from, and how many units that spares."""
        row.continues, row.shared = key, shared

    @property
    def num_ended(self) -> int:
        """Trials that have ended, without those that were not needed."""
        return sum(
            number
            for status, number in self._counts.items()
            if status.is_final and status is not TrialStatus.NOT_NEEDED
        )

    def overview(self) -> Overview:
        running = sorted(self.running.values(), key=lambda row: row.trial.ordinal)
        return Overview(
            counts={status: self._counts[status] for status in TrialStatus},
            units_done=self._units_done,
            best=dict(self._best),
            running={row.trial.key: row.unit for row in running},
        )
