"""What the rung histories of a pruned sweep tell, as frozen values."""

from dataclasses import dataclass
from typing import Literal

from analysis.findings.jsonable import Jsonable, Number

Competition = Literal["within_cells", "across_x", "unclear"]


@dataclass(frozen=True, slots=True)
class Rung:
    """A budget at which runs were stopped.

    Attributes:
        budget: in the unit of the budget column.
        reached: runs known to have got that far.
        stopped: runs that ended there.
        improvement: G_b, the largest fall of y from there to the full budget among full-budget
            runs; None where none of them has a record so early.
    """

    budget: float
    reached: int
    stopped: int
    improvement: float | None


@dataclass(frozen=True, slots=True)
class Bound:
    """A stopped run: its y at the full budget lies in [low, high], never at its last value.

    Attributes:
        x: of its cell.
        by: of its cell.
        replicate: of the run.
        budget: where it stopped.
        low: high less the largest improvement seen from there on; None where none was seen.
        high: y when it was stopped.
    """

    x: Number
    by: Number | None
    replicate: str
    budget: float
    low: float | None
    high: float


@dataclass(frozen=True, slots=True)
class Refit:
    """The answer if every stopped run had ended at one end of its interval."""

    verdict: str
    h_star: Number | None


@dataclass(frozen=True, slots=True)
class Pruning(Jsonable):
    """What stopped the runs of a sweep, and whether the answer depends on what they hid.

    Attributes:
        rungs: budgets at which runs were stopped, ascending.
        competition: whether runs were compared within their cell (h, T) or across h as well; a
            sweep pruned across h loses its worse head counts and cannot show a collapse.
        within_order: share of pairs of one cell in which the stopped run was the worse one; None
            without such pairs.
        across_order: the same for pairs of one T and different h.
        bounds: one a stopped run.
        at_high: the answer with every stopped run at its upper bound; None where no verdict is
            given or no run was stopped inside a cell with results.
        at_low: with every stopped run at its lower bound.
    """

    rungs: tuple[Rung, ...]
    competition: Competition
    within_order: float | None
    across_order: float | None
    bounds: tuple[Bound, ...]
    at_high: Refit | None
    at_low: Refit | None
