"""Would an answer survive more training? It is given again for draws of where training ends.

What is uncertain is drawn: the seeds, by what they scatter, and what training still changes
(`analysis.statistics.training`). An answer is settled if nearly all draws give the same one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from analysis.statistics.training import HORIZON, Futures, futures
from analysis.statistics.values import FloatArray, Mask
from analysis.values import AxisValue, Jsonable, Number, budget_text
from hsweep.design.question import Missing

if TYPE_CHECKING:
    from analysis.runs.ladder import Ladder

Settled = Literal["settled", "moving", "unknown"]
SHORTER: Final = "two budgets show how the answer moves with training, and a shorter one costs less"
"""Why runs of a shorter budget tell something of a longer one."""
SURE: Final = 0.98
"""Share of draws that give the same answer where it is settled: 0.95 let 4 of 72 simulated answers
that moved in the end pass for settled."""
_MOVED: Final = 0.05
"""Share of draws up to which an answer has another one at a budget."""
_STOPPED: Final = "runs were stopped early, so that budgets hold different runs"
_MAY_CHANGE: Final = "more training may change the answer"


@dataclass(frozen=True, slots=True)
class BudgetAnswer:
    """What the runs of one budget say alone, in words."""

    budget: Number
    runs: int
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity(Jsonable):
    """Whether an answer would survive more training.

    Attributes:
        verdict: settled, moving or unknown.
        reason: in words.
        same: share of draws with the same answer; None where none were drawn.
        unit: what a budget counts; empty where only its column is known.
        column: of the budget; empty without one.
        answers: at each budget, ascending; empty where there is one.
        is_single: there is but one budget.
        is_assumed: how fast gains fade is assumed, as nothing was trained to three budgets.
    """

    verdict: Settled = "unknown"
    reason: str = ""
    same: float | None = None
    unit: str = ""
    column: str = ""
    answers: tuple[BudgetAnswer, ...] = ()
    is_single: bool = False
    is_assumed: bool = False

    def at(self, budget: float) -> str:
        """Return a budget in words."""
        return budget_text(budget, self.unit, self.column)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A cell or shape that an answer rests on.

    Attributes:
        at: its axis values.
        runs: how many it is read from.
        curve: y of its seeds at each budget, shape [seeds, budgets]; None without two budgets that
            two seeds have.
        group: quantities of one group are alike: noise that parts them is not carried on.
        course: quantities of one course learn by one power of the budget.
        decides: whether the answer turns on it.
    """

    at: Mapping[str, AxisValue]
    runs: int
    curve: FloatArray | None
    group: int = 0
    course: int = 0
    decides: bool = True


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The answer in draws: which give the same one, and what decides where others differ.

    Attributes:
        same: shape [B].
        otherwise: what the answer does in most of the others, after "may" or "would".
        turning: places of the quantities that decide it.
        caveat: what beside the answer may change, in words; empty where nothing does.
    """

    same: Mask
    otherwise: str
    turning: Collection[int]
    caveat: str = ""

    @property
    def share(self) -> float:
        """The share of draws with the same answer."""
        return float(self.same.mean())


Again = Callable[[FloatArray], Verdicts]
"""Gives the answer again after changes of every quantity, shape [K, B]."""


def sensitivity(
    quantities: Sequence[Quantity],
    again: Again,
    ladder: "Ladder",
    *,
    is_stopped: bool,
    answers: Sequence[BudgetAnswer],
    is_log: bool,
    draws: int,
    rng: np.random.Generator,
) -> tuple[Sensitivity, tuple[Missing, ...]]:
    """Return whether an answer is settled, and the runs that would tell.

    Args:
        is_stopped: whether early stopping left different runs at each budget.
        answers: what the runs of each budget say alone.
        is_log: whether y is the log10 of an error; else more is better.
    """
    blank = Sensitivity(unit=ladder.unit, column=ladder.column)
    if ladder.obstacle:
        missing = _second_budget(quantities, ladder)
        blank = replace(blank, reason=ladder.obstacle, is_single=ladder.is_single)
        return blank, missing
    if is_stopped:
        return replace(blank, reason=_STOPPED), ()
    sensitivity = replace(blank, answers=tuple(answers))
    budgets = [rung.budget for rung in (*ladder.rungs, *ladder.further)]
    own = len(ladder.rungs) - 1
    deciding = [k for k, quantity in enumerate(quantities) if quantity.decides]
    if lacking := [k for k in deciding if quantities[k].curve is None]:
        others = budgets[:own] or budgets[own + 1 :]
        reason = "fewer than two seeds of what decides it were trained to two budgets"
        missing = _trained(quantities, lacking, others[-1], ladder) if others else ()
        return replace(sensitivity, reason=reason), missing
    curves = [curve for k in deciding if (curve := quantities[k].curve) is not None]
    course = futures(
        curves,
        budgets,
        own=own,
        is_log=is_log,
        groups=[quantities[k].group for k in deciding],
        courses=[quantities[k].course for k in deciding],
        draws=draws,
        rng=rng,
    )
    shown = max((~np.isnan(curve[0])).sum() for curve in curves)
    sensitivity = replace(sensitivity, is_assumed=bool(shown < 3))
    end = again(course.end())
    sensitivity = replace(sensitivity, same=end.share)
    if end.share >= SURE:
        reason = f"the answer stays with up to {HORIZON:g} times the training"
        if end.caveat:
            reason += f", but {end.caveat}"
        return replace(sensitivity, verdict="settled", reason=reason), ()
    turning = [deciding[k] for k in sorted(end.turning)] or deciding
    longer = _next_budget(course, [deciding.index(k) for k in turning])
    for budget in dict.fromkeys((course.longest, course.longer)):
        then = again(course.at(budget))
        if then.share > _MOVED:
            continue
        at = ladder.at(round(budget))
        reason = f"at {at} the answer would {then.otherwise}"
        missing = _trained(quantities, turning, longer, ladder)
        if budget == course.longest < longer:
            # Another answer is to be had where what decides has been trained to: of all.
            missing = _trained(quantities, range(len(quantities)), budget, ladder)
        return replace(sensitivity, verdict="moving", reason=reason), missing
    reason = f"with more training the answer may {end.otherwise}"
    return replace(sensitivity, reason=reason), _trained(quantities, turning, longer, ladder)


def _next_budget(course: Futures, turning: Sequence[int]) -> float:
    """Return the longest budget that any has, and once those that decide have it, one beyond."""
    is_behind = bool((course.budgets[list(turning)] < course.longest).any())
    return course.longest if is_behind else course.longer


def _second_budget(quantities: Sequence[Quantity], ladder: "Ladder") -> tuple[Missing, ...]:
    """Return the runs that give an answer of one budget a second one, half as long."""
    if ladder.to_extend is None:
        return ()
    other = ladder.to_extend // 2 or 2 * ladder.to_extend
    why = SHORTER if other < ladder.to_extend else _MAY_CHANGE
    return tuple(
        Missing(dict(quantity.at), quantity.runs, why, other)
        for quantity in quantities
        if quantity.decides
    )


def _trained(
    quantities: Sequence[Quantity], which: Collection[int], budget: float, ladder: "Ladder"
) -> tuple[Missing, ...]:
    """Return runs at a budget of those of ``which`` that were not trained so long."""
    if ladder.is_fixed:
        return ()
    budgets = np.array([rung.budget for rung in (*ladder.rungs, *ladder.further)])
    missing = []
    for k in sorted(which):
        quantity, reached = quantities[k], budgets[len(ladder.rungs) - 1]
        if quantity.curve is not None:
            reached = budgets[~np.isnan(quantity.curve[0])].max()
        if quantity.curve is None or reached < budget:
            missing.append(Missing(dict(quantity.at), quantity.runs, _MAY_CHANGE, round(budget)))
    return tuple(missing)


def paired_curve(values: Sequence[Mapping[str, float]], own: int) -> FloatArray | None:
    """Return y of the seeds of a quantity at each budget, shape [seeds, budgets]: those that were
    trained to all of its budgets, or to as many of the longest as two seeds have. NaN at the
    others; None with fewer than two budgets, the answer's among them.

    Args:
        values: y by seed, at each budget.
        own: place of the answer's budget.
    """
    common, shown = set(values[own]), []
    for place in reversed(range(len(values))):
        seeds = common & values[place].keys()
        if len(seeds) > 1:
            common = seeds
            shown.append(place)
    if len(shown) < 2 or own not in shown:
        return None
    curve = np.full((len(common), len(values)), np.nan)
    for place in shown:
        curve[:, place] = [values[place][seed] for seed in sorted(common)]
    return curve
