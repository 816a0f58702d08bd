"""Where the wall time of a command goes that trains."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PHASES: Final = ("planning", "starting", "training", "answering", "writing")
"""In their order. ``starting`` ends with the first training step, ``training`` with the last report
that was heard of, ``answering`` when the answer is printed, ``writing`` when the report is written
and MLflow has all."""

_START_TIME: Final = 19
"""In /proc/PID/stat, behind the program's name (proc(5): field 22)."""


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
        # Linux: counted from the start of the machine. Where psutil takes it from, that start is
        # known to the second only.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
        return cls(time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - started))

    def end(self, phase: str, at: float | None = None) -> None:
        """Note the end of a phase, now unless another time is given."""
        self._ends[phase] = time.time() if at is None else at

    def seconds(self) -> dict[str, float]:
        """Return how long each phase took whose end is known; no time is in two of them."""
        found: dict[str, float] = {}
        before = self.begun
        for phase in PHASES:
            if phase in self._ends:
                end = max(before, self._ends[phase])
                found[phase] = round(end - before, 2)
                before = end
        return found
