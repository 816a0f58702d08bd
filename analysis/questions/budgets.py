"""Whether an answer would survive more training, as far as all kinds of question share it."""

from dataclasses import dataclass

from analysis.runs.ladder import Budgeted
from analysis.statistics.training import SINGLE, Settled
from analysis.values import Jsonable


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledBy(Budgeted, Jsonable):
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
