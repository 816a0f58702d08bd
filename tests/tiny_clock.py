"""Time that passes only when told to."""

from dataclasses import dataclass

from tiny import TinyTask


class Clock:
    """In place of a module's ``time``."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


CLOCK = Clock()


@dataclass(frozen=True)
class TimedTask(TinyTask):
    """Every update takes so many seconds of the clock."""

    seconds: float = 1.0

    def before_update(self, number: int) -> None:
        CLOCK.now += self.seconds
