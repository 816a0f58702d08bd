"""The training that is left of a run, and the time it takes."""

from dataclasses import dataclass, field
from statistics import fmean

from hsweep.coordination.coordinator import Coordinator
from hsweep.design.trial import Trial


@dataclass(slots=True)
class Outlook:
    """Estimates the training that is left of a run if no trial fails, and its time at the pace so
    far.

    The time since the last report of each trial in training counts as training: where reports are
    far apart, it is most of the training.

    Args:
        expected: runs and budget units that early stopping leaves of the plan, or that a search in
            rounds typically asks for; None where all are trained, or the number is unknown.
        most: runs of the longest search in rounds of many; 0 without one.
    """

    coordinator: Coordinator
    expected: tuple[int, int] | None = None
    most: int = 0
    _began: float | None = None
    _trained: float = 0.0
    _last_report: dict[str, float] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)

    @property
    def num_runs(self) -> int:
        """Number of trials that will have been started at the end of the run."""
        with self.coordinator.lock:
            table = self.coordinator.table
            num_begun = table.num_ended + len(table.running)
            most = table.num_ended + len(table.open_keys)
            expected = most if self.expected is None else self.expected[0]
            if (rounds := self.coordinator.rounds) is not None:
                num_begun = max(num_begun, len(rounds.asked))
            return max(num_begun, min(expected, most)) + self.coordinator.num_to_come

    def _remainder(self) -> tuple[dict[str, int], float, float]:
        """Return the budget units left of each open trial, the share of them that early stopping
        leaves, and the units of trials that a search has yet to propose. Where early stopping
        shortens trials, such a trial counts as the mean of the ended trials."""
        coordinator, table = self.coordinator, self.coordinator.table
        units_left = {key: units for key in table.open_keys if (units := table.units_left(key))}
        share = 1.0
        if self.expected is not None and units_left:
            expected = self.expected[1] - table.units_done
            share = min(1.0, max(0, expected) / sum(units_left.values()))
        length: float = coordinator.sweep.budget.amount
        if coordinator.num_to_come and coordinator.sweep.early_stopping is not None:
            rows = (coordinator.journal.rows[key] for key in table.trials)
            length = fmean([row.unit for row in rows if row.status.is_final] or [length])
        return units_left, share, coordinator.num_to_come * length

    def started(self, trial: Trial, now: float) -> None:
        """Note that a trial was handed to a worker; ``now`` in seconds, by any clock."""
        self._last_report[trial.key] = now

    def reported(self, trial: Trial, seconds: float, now: float) -> None:
        """Note that a trial has trained for ``seconds`` in all its attempts; ``now`` by the same
        clock."""
        elapsed = now - self._last_report.get(trial.key, now)
        # Training before this run started the trial does not count.
        step = max(0.0, min(elapsed, seconds - self._seconds.get(trial.key, 0.0)))
        if self._began is None:
            self._began = now - step
        self._trained += step
        self._last_report[trial.key], self._seconds[trial.key] = now, seconds

    def seconds_left(self, now: float) -> float | None:
        """Return the estimated seconds until the run ends; None before any training, or where no
        speed was measured. ``now`` is by the clock of ``started`` and ``reported``."""
        began = self._began
        if began is None or now <= began:
            return None
        with self.coordinator.lock:
            table, speeds = self.coordinator.table, self.coordinator.speeds
            running = list(table.running)
            units_left, share, to_come = self._remainder()
            seconds_per_unit = {key: speeds.seconds(table.trials[key]) for key in units_left}
            if None in seconds_per_unit.values() or (to_come and speeds.mean is None):
                return None
            seconds = [
                units_left[key] * speed
                for key, speed in seconds_per_unit.items()
                if speed is not None
            ]
            remaining_seconds = share * sum(seconds) + to_come * (speeds.mean or 0.0)
        in_training = sum(now - max(began, self._last_report.get(key, now)) for key in running)
        workers = (self._trained + in_training) / (now - began)
        if not workers:
            return None
        longest = max(seconds, default=0.0)
        return max((remaining_seconds - in_training) / workers, longest - in_training, 0.0)
