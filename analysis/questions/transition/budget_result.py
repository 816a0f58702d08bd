"""A transition at each budget that its runs were trained to, as frozen values."""

from dataclasses import dataclass

from analysis.statistics.training import SINGLE, Settled
from analysis.statistics.values import Interval
from analysis.values import Jsonable, Number


@dataclass(frozen=True, slots=True)
class BudgetAnswer:
    """What the runs of one budget say alone.

    Attributes:
        runs: full runs of this budget.
        drop: at the largest step, with a 95 % interval from redrawn seeds; None without measured
            noise.
        gamma_below: slope in log10 T below h*, with its 1 - alpha interval.
        gamma_above: the same from h* on.
    """

    budget: Number
    runs: int
    verdict: str
    h_star: Number | None
    h_set: tuple[Number, ...]
    drop: Interval | None
    gamma_below: Interval | None
    gamma_above: Interval | None


@dataclass(frozen=True, slots=True)
class BudgetTrials:
    """Runs of one cell that would tell whether an answer is settled.

    Attributes:
        budget: that they are trained to; None for further seeds at the budgets that there are.
    """

    x: Number
    by: Number | None
    trials: int
    budget: Number | None
    why: str


@dataclass(frozen=True, slots=True)
class Budgets(Jsonable):
    """Whether the answer would survive more training.

    Attributes:
        verdict: settled (the last two budgets give the same answer, and nothing that training can
            still change crosses a threshold), moving, or unknown.
        reason: in words.
        unit: what a budget counts; empty where only its column is known.
        column: of the budget; empty without one.
        answers: at each budget, ascending; empty where there is one budget.
        same: share of draws in which nothing that training can still change would change the
            answer; None where the last two budgets do not give the same one.
        missing: the runs that would tell, decisive cells first.
    """

    verdict: Settled
    reason: str
    unit: str
    column: str
    answers: tuple[BudgetAnswer, ...] = ()
    same: float | None = None
    missing: tuple[BudgetTrials, ...] = ()

    @property
    def is_single(self) -> bool:
        """Whether there is but one budget."""
        return not self.answers and self.reason == SINGLE

    def at(self, budget: Number) -> str:
        """Return a budget in words."""
        return f"{budget:g} {self.unit}" if self.unit else f"{self.column} = {budget:g}"
