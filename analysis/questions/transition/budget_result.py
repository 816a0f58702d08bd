"""A transition at each budget that its runs were trained to, as frozen values."""

from dataclasses import dataclass

from analysis.statistics.settled import SettledBy
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
        budget: that so many of its seeds are trained to; None for further seeds at the budgets that
            there are.
    """

    x: Number
    by: Number | None
    trials: int
    budget: Number | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets(SettledBy, Jsonable):
    """Whether a transition would survive more training.

    Attributes:
        answers: at each budget up to the answer's, ascending; empty where there is one.
        further: longer budgets of the cells that decide it, ascending.
        missing: the runs that would tell, decisive cells first.
    """

    answers: tuple[BudgetAnswer, ...] = ()
    further: tuple[Number, ...] = ()
    missing: tuple[BudgetTrials, ...] = ()
