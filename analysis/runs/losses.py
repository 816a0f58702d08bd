"""Runs that are left out of the mean of their cell or shape, counted by the reason."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from analysis.runs.statuses import AT_CHANCE, NOT_NEEDED, SHORT

LOST_WORDS: Final = {"diverged": "diverged", "failed": "failed", "too_large": "too large"}
"""The statuses of runs without a result, and their names in texts."""
_WORDS: Final = {
    **LOST_WORDS,
    "screened": "far from the others",
    "at_chance": "at chance",
    SHORT: "short of the budget",
}
_MAX_NAMES: Final = 6


@dataclass(frozen=True, slots=True)
class Losses:
    """How many runs of a cell or shape are left out of its mean and median.

    Attributes:
        started: all runs of the cell or shape that are not planned or not needed.
        diverged: runs whose loss became infinite or NaN.
        failed: runs that ended with an error.
        too_large: runs that did not fit their device.
        screened: complete runs too far from the others of their shape, on either side.
        at_chance: runs that learned no more than a constant predictor, while others learned more.
        short: runs that ended short of the budget, of which no word says why.
    """

    started: int = 0
    diverged: int = 0
    failed: int = 0
    too_large: int = 0
    screened: int = 0
    at_chance: int = 0
    short: int = 0

    @classmethod
    def of(cls, statuses: Iterable[str], screened: int = 0) -> "Losses":
        """Return the losses among runs with these statuses.

        Where no run learned more than a constant predictor, runs at chance are not losses: their
        results are the cell's.
        """
        counted = Counter(statuses)
        started = counted.total() - counted["planned"] - counted[NOT_NEEDED]
        lost = {status: counted[status] for status in LOST_WORDS}
        at_chance = counted[AT_CHANCE] if counted["finished"] else 0
        short = counted[SHORT]
        return cls(started, **lost, screened=screened, at_chance=at_chance, short=short)

    @property
    def total(self) -> int:
        """Number of runs that are left out."""
        return sum(getattr(self, name) for name in _WORDS)

    @property
    def text(self) -> str:
        """The losses in words, ``2 of 5 diverged``; empty where there are none."""
        return ", ".join(
            f"{number} of {self.started} {word}"
            for name, word in _WORDS.items()
            if (number := getattr(self, name))
        )

    @property
    def behind(self) -> str:
        """The text after the number of runs behind a mean: `` left (2 of 5 diverged)``."""
        return f" left ({self.text})" if self.total else ""


NONE_LOST: Final = Losses()


def losses_named(losses_of: Iterable[tuple[str, Losses]]) -> str:
    """Return a text on the losses of several cells or shapes, the largest share first."""
    lost = [(name, losses) for name, losses in losses_of if losses.total]
    lost.sort(key=lambda pair: -pair[1].total / pair[1].started)
    named = [f"{losses.text} at {name}" for name, losses in lost[:_MAX_NAMES]]
    unnamed = len(lost) - len(named)
    return "; ".join([*named, *([f"and {unnamed} more"] if unnamed else [])])
