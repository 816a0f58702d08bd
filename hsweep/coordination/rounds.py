"""Trials that wait until a design of rounds asks for them.

All trials that may be needed are planned. The design names those of its first round; when all of
them have ended it names the next ones by their values, and at its end nothing: the trials that no
round has named were not needed. It depends on values alone, so those on record bring it to where it
was, however many trials run at once and whatever has been killed.
"""

from dataclasses import dataclass, field

from hsweep.design.question import RoundDesign
from hsweep.design.trial import Trial


@dataclass(slots=True)
class RoundGate:
    """The trials that a design has not asked for, and what has become of the others.

    Attributes:
        waiting: trials that were placed and are not asked for yet, by key.
        values: of the trials that have ended.
        asked: keys of the trials that a round has named.
        is_over: whether the design has ended.
    """

    design: RoundDesign
    waiting: dict[str, Trial] = field(default_factory=dict)
    values: dict[str, float | None] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    is_over: bool = False

    def holds(self, trial: Trial) -> bool:
        """Let a trial wait, unless it has been asked for; return whether it waits."""
        if trial.key in self.asked:
            return False
        self.waiting[trial.key] = trial
        return True

    def end(self, key: str, value: float | None) -> None:
        self.values[key] = value
        self.waiting.pop(key, None)

    def unneeded(self) -> list[Trial]:
        """Return the trials that no round has named, once, when the design has ended."""
        if not self.is_over:
            return []
        left, self.waiting = list(self.waiting.values()), {}
        return left

    def advance(self) -> list[Trial]:
        """Return the waiting trials of the next round, once all of the present one have ended."""
        while not self.is_over and self.asked <= self.values.keys():
            keys = self.design.next_round(self.values)
            self.asked |= keys
            self.is_over = not keys
            # Of another study all of a round may have been taken.
            if opened := [self.waiting.pop(key) for key in sorted(keys) if key in self.waiting]:
                return opened
        return []
