"""What of a study's trials is likely to be trained still, and how long that takes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hsweep.coordination.asha import StratifiedAsha
from hsweep.coordination.trial_table import ScheduledTrial
from hsweep.design.trial import Trial, TrialStatus


class Share(NamedTuple):
    """What is likely to be trained of a trial: the probability that it is started, or has been, and
    budget units."""

    start: float
    units: float


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


def shares_of(rows: Mapping[str, ScheduledTrial], asha: StratifiedAsha) -> dict[str, Share]:
    """Return what is likely to be trained of each trial, by key: of one that has ended, nothing."""
    found = {}
    uncertain = asha.shares()
    for key, row in rows.items():
        if row.is_done:
            is_run = row.status.is_final and row.status is not TrialStatus.NOT_NEEDED
            found[key] = Share(float(is_run), 0.0)
        else:
            found[key] = Share(*uncertain.get(key, (1.0, row.units_left)))
    return found


@dataclass(slots=True)
class Pace:
    """How much training a run gets done in a second, and so how long the rest takes.

    What trials in training have done since they were heard of counts as well: where reports are
    far apart it is most of what has been done.
    """

    _began: float | None = None
    _trained: float = 0.0
    _heard: dict[str, float] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)

    def started(self, trial: Trial, now: float) -> None:
        """Note that a trial was handed to a worker; ``now`` in seconds, by any clock."""
        self._heard[trial.key] = now

    def reported(self, trial: Trial, seconds: float, now: float) -> None:
        """Note that a trial has trained for so many seconds, over all its attempts."""
        since = now - self._heard.get(trial.key, now)
        # What it trained before it was handed out is no training of now.
        step = max(0.0, min(since, seconds - self._seconds.get(trial.key, 0.0)))
        if self._began is None:
            self._began = now - step
        self._trained += step
        self._heard[trial.key], self._seconds[trial.key] = now, seconds

    def seconds_left(self, outlook: Outlook, running: Collection[str], now: float) -> float | None:
        """Return how long the rest takes; None before anything is trained, or where nothing says
        how long trials take.

        Args:
            outlook: of the run.
            running: keys of the trials in training.
            now: by the clock of the others.
        """
        began = self._began
        if began is None or outlook.seconds is None or now <= began:
            return None
        in_training = sum(now - max(began, self._heard.get(key, now)) for key in running)
        workers = (self._trained + in_training) / (now - began)
        left = max(0.0, outlook.seconds - in_training)
        return max(left / workers, outlook.longest - in_training) if workers else None
