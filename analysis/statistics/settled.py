"""Whether an answer would survive more training, and what a budget is called."""

from dataclasses import dataclass
from typing import Final, Literal

Settled = Literal["settled", "moving", "unknown"]
"""Whether an answer would survive more training."""
SINGLE: Final = "longer training was not tried"
"""Why that is not known with one budget."""
SHORTER: Final = "two budgets show how the answer moves with training, and a shorter one costs less"
"""Why runs of a shorter budget tell something of a longer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgeted:
    """What a budget is called.

    Attributes:
        unit: what it counts (epochs); empty where only its column is known.
        column: of the budget; empty without one.
    """

    unit: str = ""
    column: str = ""

    def at(self, budget: float) -> str:
        """Return a budget in words."""
        if not self.unit:
            return f"{self.column} = {budget:g}"
        return f"{budget:g} {self.unit.removesuffix('s') if budget == 1 else self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledBy(Budgeted):
    """Whether an answer would survive more training.

    A subclass adds ``answers``, what the runs of each budget say alone, and ``missing``, the runs
    that would tell.

    Attributes:
        verdict: settled (the last two budgets give the same answer, and nothing that training can
            still change would change it), moving, or unknown.
        reason: in words.
        same: share of draws in which nothing that training can still change would change the
            answer; None where that was not asked.
    """

    verdict: Settled = "unknown"
    reason: str = ""
    same: float | None = None

    @property
    def is_single(self) -> bool:
        """Whether there is but one budget."""
        return self.reason == SINGLE
