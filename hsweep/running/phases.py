"""Where the wall time of a command goes that trains."""

import time
from dataclasses import dataclass, field

import psutil

PHASES = ("planning", "starting", "training", "answering", "writing")
"""In their order. ``starting`` ends with the first training step, ``training`` with the last report
that was heard of, ``answering`` when the answer is printed, ``writing`` when the report is written
and MLflow has all."""


@dataclass(slots=True)
class Phases:
    """When each phase ended, in seconds since the epoch.

    Attributes:
        begun: when the first one began.
    """

    begun: float
    _ends: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of_process(cls) -> "Phases":
        """Return phases that began with this process."""
        return cls(psutil.Process().create_time())

    def end(self, phase: str, at: float | None = None) -> None:
        """Note the end of a phase, now unless another time is given."""
        self._ends[phase] = time.time() if at is None else at

    def seconds(self) -> dict[str, float]:
        """Return how long each phase took whose end is known; no time is in two of them."""
        found, before = {}, self.begun
        for phase in PHASES:
            if phase in self._ends:
                end = max(before, self._ends[phase])
                found[phase] = round(end - before, 2)
                before = end
        return found
