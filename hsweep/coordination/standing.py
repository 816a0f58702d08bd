"""Where every trial of a study stands, kept up to date so that asking costs nothing."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hsweep.design.question import Goal
from hsweep.design.trial import Trial, TrialStatus


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How far a study has come.

    Attributes:
        counts: trials by status.
        units_done: budget units on record.
        best: by stratum, the best value of the metric so far and the trial that reached it.
        running: units done by the trials in training, in the order of the plan.
    """

    counts: Mapping[TrialStatus, int]
    units_done: int
    best: Mapping[str, tuple[float, str]]
    running: Mapping[str, int]


@dataclass(slots=True)
class Standing:
    """Status, progress and last value of every trial.

    Args:
        goal: whether smaller or larger values of the metric are better.
        only: keys of the trials that are trained; None for all.

    Attributes:
        trials: by key, in the order they were planned.
        status: of each trial.
        units: budget units of each trial's last report.
        values: each trial's last value of the metric.
        running: keys of the trials in training.
    """

    goal: Goal
    only: frozenset[str] | None
    trials: dict[str, Trial] = field(default_factory=dict)
    status: dict[str, TrialStatus] = field(default_factory=dict)
    units: dict[str, int] = field(default_factory=dict)
    values: dict[str, float | None] = field(default_factory=dict)
    running: dict[str, None] = field(default_factory=dict)
    _counts: Counter[TrialStatus] = field(default_factory=Counter)
    _best: dict[str, tuple[float, str]] = field(default_factory=dict)
    _units_done: int = 0
    _units_left: int = 0

    def enter(self, trials: Iterable[Trial]) -> list[Trial]:
        """Add planned trials; return those that are new."""
        new = [trial for trial in trials if trial.key not in self.trials]
        for trial in new:
            self.trials[trial.key] = trial
            self.status[trial.key] = TrialStatus.PLANNED
            self.units[trial.key] = 0
            self._counts[TrialStatus.PLANNED] += 1
            self._units_left += self._lacking(trial)
        return new

    @property
    def units_left(self) -> int:
        """Budget units that the trials lack which are still to be trained."""
        return self._units_left

    def is_wanted(self, key: str) -> bool:
        """Whether a trial is trained at all."""
        return self.only is None or key in self.only

    def _lacking(self, trial: Trial) -> int:
        if not self.is_wanted(trial.key) or self.status[trial.key].is_final:
            return 0
        return trial.budget.amount - self.units[trial.key]

    def move(self, key: str, status: TrialStatus) -> None:
        """Note a trial's new status."""
        trial = self.trials[key]
        self._units_left -= self._lacking(trial)
        self._counts[self.status[key]] -= 1
        self._counts[status] += 1
        self.status[key] = status
        self._units_left += self._lacking(trial)
        if status is TrialStatus.RUNNING:
            self.running[key] = None
        else:
            self.running.pop(key, None)

    def reach(self, key: str, unit: int) -> None:
        """Note how far a trial has come; it never goes back."""
        trial = self.trials[key]
        self._units_left -= self._lacking(trial)
        self._units_done += max(0, unit - self.units[key])
        self.units[key] = max(self.units[key], unit)
        self._units_left += self._lacking(trial)

    def note_value(self, key: str, value: float | None) -> None:
        """Note a trial's last value of the metric; None if it was not finite."""
        self.values[key] = value
        if value is None:
            return
        stratum = self.trials[key].stratum
        best = self._best.get(stratum)
        sign = 1 if self.goal == "min" else -1
        if best is None or sign * value < sign * best[0]:
            self._best[stratum] = (value, key)

    def snapshot(self) -> Snapshot:
        """Return how far the study has come."""
        running = sorted(self.running, key=lambda key: self.trials[key].ordinal)
        return Snapshot(
            counts={status: self._counts[status] for status in TrialStatus},
            units_done=self._units_done,
            best=dict(self._best),
            running={key: self.units[key] for key in running},
        )
