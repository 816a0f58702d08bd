"""How fast a run trains, and so how long the rest takes."""

from collections.abc import Collection
from dataclasses import dataclass, field

from hsweep.coordination.coordinator import Outlook
from hsweep.design.trial import Trial


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
