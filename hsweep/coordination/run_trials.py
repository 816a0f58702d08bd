"""The trials of one run: their plans, their recorded rows, and running totals."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hsweep.design.scales import Goal
from hsweep.design.trial import Trial, TrialStatus
from hsweep.record.rows import TrialRow
from hsweep.record.summary import num_ended


@dataclass(slots=True)
class RunTrials:
    """All trials of a run, by key and in the order they were planned.

    Args:
        rows: of the record, which changes them.
        only: keys of the trials that are trained; None for all.

    Attributes:
        longer: key of the trial with the next larger budget, by key.
        open_keys: keys of the trials that may still report in this run.
        best: by stratum, the best value of the metric so far and the trial that reached it.
        units_done: number of trained budget units; units that trials share count once.
    """

    rows: Mapping[str, TrialRow]
    metric: str
    goal: Goal
    only: Collection[str] | None = None
    trials: dict[str, Trial] = field(default_factory=dict)
    longer: dict[str, str] = field(default_factory=dict)
    running: dict[str, TrialRow] = field(default_factory=dict)
    open_keys: dict[str, None] = field(default_factory=dict)
    counts: Counter[TrialStatus] = field(default_factory=Counter)
    best: dict[str, tuple[float, str]] = field(default_factory=dict)
    units_done: int = 0
    _noted: dict[str, tuple[TrialStatus, int]] = field(default_factory=dict)

    def add(self, trials: Iterable[Trial]) -> list[Trial]:
        """Add recorded trials; return the trials that were not in the table."""
        new = [trial for trial in trials if trial.key not in self.trials]
        for trial in new:
            self.trials[trial.key] = trial
            if trial.previous in self.trials:
                self.longer[trial.previous] = trial.key
            self.note(trial.key)
        return new

    def note(self, key: str) -> None:
        """Update the sums after a trial's row has changed."""
        row, trial = self.rows[key], self.trials[key]
        trained = max(0, row.unit - self.shared(key))
        status, before = self._noted.get(key, (None, 0))
        self._noted[key] = row.status, trained
        self.units_done += trained - before
        self.counts[row.status] += 1
        if status is not None:
            self.counts[status] -= 1
        if row.status is TrialStatus.RUNNING:
            self.running[key] = row
        else:
            self.running.pop(key, None)
        if self.is_done(key):
            self.open_keys.pop(key, None)
        else:
            self.open_keys[key] = None
        value = row.metrics.get(self.metric)
        if value is not None:
            best, sign = self.best.get(trial.stratum), 1 if self.goal == "min" else -1
            if best is None or sign * value < sign * best[0]:
                self.best[trial.stratum] = (value, key)

    def is_done(self, key: str) -> bool:
        is_left_out = self.only is not None and key not in self.only
        return is_left_out or self.rows[key].status.is_final

    def shorter(self, key: str) -> str:
        """Return the trial of the same ladder with the next smaller budget; empty for none."""
        shorter = self.trials[key].previous
        return shorter if shorter in self.trials else ""

    def is_due(self, key: str) -> bool:
        """Whether the trial with the next smaller budget, from which this one goes on, has
        ended."""
        shorter = self.shorter(key)
        return not shorter or self.is_done(shorter)

    def shared(self, key: str) -> int:
        """Return the budget units that a trial with a smaller budget has trained for this one."""
        row, trial = self.rows[key], self.trials[key]
        if row.continues in self.rows:
            return trial.shared_with(self.rows[row.continues].budget)
        return trial.shared if self.shorter(key) and not row.attempt else 0

    def units_left(self, key: str) -> int:
        """Return the budget units of a trial that this run may still train."""
        reached = max(self.rows[key].unit, self.shared(key))
        return 0 if self.is_done(key) else self.trials[key].budget.amount - reached

    def start_of(self, key: str) -> str:
        """Return the key of the trial with the largest smaller budget whose training this one can
        continue; empty for none."""
        trial, continued_key = self.trials[key], self.rows[key].continues
        source = self.shorter(key)
        while source and not (self.rows[source].attempt and self.rows[source].unit):
            source = self.shorter(source)
        candidates = [candidate for candidate in (continued_key, source) if candidate in self.rows]
        units = {
            candidate: trial.shared_with(self.rows[candidate].budget) for candidate in candidates
        }
        best = max(candidates, key=lambda candidate: units[candidate], default="")
        return best if units.get(best) else ""

    def units_trained(self) -> dict[str, int]:
        """Return the budget units trained for each trial that has begun, without shared ones."""
        rows = ((key, row) for key in self.trials if (row := self.rows[key]).has_begun)
        return {key: max(0, row.unit - self.shared(key)) for key, row in rows}

    @property
    def num_ended(self) -> int:
        """Trials that have ended, without those that were not needed."""
        return num_ended(self.counts)
