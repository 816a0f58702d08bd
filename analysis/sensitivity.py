"""Would an answer survive more training? The question is answered again in draws of the future.

A draw varies the seeds by their scatter, and how training goes on (`analysis.statistics.training`).
An answer is settled if nearly all draws give the same one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from analysis.statistics.training import HORIZON, futures
from analysis.statistics.values import FloatArray, Mask
from analysis.values import AxisValue, Jsonable, Number, describe
from hsweep.design.labels import budget_text, first_of
from hsweep.design.missing import Missing

if TYPE_CHECKING:
    from analysis.runs.ladder import Ladder

Settled = Literal["settled", "moving", "unknown"]
SHORTER: Final = "two budgets show how the answer moves with training, and a shorter one costs less"
"""Why runs of a shorter budget help to judge a longer one."""
SURE: Final = 0.98
"""Share of draws that must give the same answer for it to be settled: at 0.95, 4 of 72 simulated
answers that moved in the end passed for settled."""
_MOVED: Final = 0.05
"""Share of draws with the same answer up to which an answer counts as changed at a budget."""
_STOPPED: Final = "runs were stopped early, so that budgets hold different runs"
_ONE_SEED: Final = "two seeds show how far what training changes is scatter"
_MAY_CHANGE: Final = "more training may change the answer"


@dataclass(frozen=True, slots=True)
class BudgetAnswer:
    """The answer from the runs of one budget alone, in words."""

    budget: Number
    runs: int
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity(Jsonable):
    """Whether an answer would survive more training.

    Attributes:
        verdict: settled, moving or unknown.
        reason: why the verdict is so, in words.
        same: share of draws with the same answer; None without draws.
        unit: unit of the budget; empty where only its column is known.
        column: name of the budget's column; empty without one.
        answers: the answer at each budget, ascending; empty where there is one budget.
        is_single: there is only one budget.
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


@dataclass(frozen=True, slots=True)
class Quantity:
    """A cell or shape that an answer rests on.

    Attributes:
        at: its axis values.
        runs: number of runs behind it.
        curve: y of its seeds at each budget, shape [seeds, budgets]; None without two budgets that
            two seeds have.
        group: quantities of one group are alike: differences by noise are not extrapolated.
        course: quantities of one course learn by one power of the budget.
        decides: whether the answer depends on it.
    """

    at: Mapping[str, AxisValue]
    runs: int
    curve: FloatArray | None
    group: int = 0
    course: int = 0
    decides: bool = True


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Which draws give the same answer, and what the others change.

    Attributes:
        same: whether a draw gives the same answer, shape [B].
        otherwise: what happens to the answer in most other draws, as words after "may" or "would".
        turning: indices of the quantities that decide the answer.
        caveat: what else may change beside the answer, in words; empty where nothing does.
    """

    same: Mask
    otherwise: str
    turning: Collection[int]
    caveat: str = ""

    @property
    def share(self) -> float:
        """The share of draws with the same answer."""
        return float(self.same.mean())


def sensitivity(
    quantities: Sequence[Quantity],
    again: Callable[[FloatArray], Verdicts],
    ladder: "Ladder",
    *,
    is_stopped: bool,
    answers: Sequence[BudgetAnswer],
    is_log: bool,
    draws: int,
    rng: np.random.Generator,
) -> tuple[Sensitivity, tuple[Missing, ...]]:
    """Return whether an answer is settled, and the runs that would decide it.

    Args:
        again: answers the question again after changes of every quantity, shape [K, B].
        is_stopped: whether early stopping left different runs at each budget.
        answers: the answer from the runs of each budget alone.
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
    answer_index = len(ladder.rungs) - 1
    deciding = [k for k, quantity in enumerate(quantities) if quantity.decides]
    if lacking := [k for k in deciding if quantities[k].curve is None]:
        others = budgets[:answer_index] or budgets[answer_index + 1 :]
        labels = first_of([describe(quantities[k].at) for k in lacking], 3, "; ")
        has = "has" if len(lacking) == 1 else "have"
        reason = f"it rests on {labels}, which {has} fewer than two seeds trained to two budgets"
        missing = _trained(quantities, lacking, others[-1], ladder) if others else ()
        return replace(sensitivity, reason=reason), missing
    curves = [curve for k in deciding if (curve := quantities[k].curve) is not None]
    course = futures(
        curves,
        budgets,
        answer_index=answer_index,
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
    # A longer budget than any is asked for where those that decide have the longest.
    is_behind = (course.budgets[[deciding.index(k) for k in turning]] < course.longest).any()
    longer = course.longest if is_behind else course.longer
    for budget in dict.fromkeys((course.longest, course.longer)):
        then = again(course.at(budget))
        if then.share > _MOVED:
            continue
        at = budget_text(round(budget), ladder.unit, ladder.column)
        reason = f"at {at} the answer would {then.otherwise}"
        missing = _trained(quantities, turning, longer, ladder)
        if budget == course.longest < longer:
            # The deciding quantities have this budget: training all to it gives the new answer.
            missing = _trained(quantities, range(len(quantities)), budget, ladder)
        return replace(sensitivity, verdict="moving", reason=reason), missing
    reason = f"with up to {HORIZON:g} times the training it may {end.otherwise}"
    return replace(sensitivity, reason=reason), _trained(quantities, turning, longer, ladder)


def _second_budget(quantities: Sequence[Quantity], ladder: "Ladder") -> tuple[Missing, ...]:
    """Return the runs of a second budget, half as long, for an answer of a single budget."""
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
    quantities: Sequence[Quantity], indices: Collection[int], budget: float, ladder: "Ladder"
) -> tuple[Missing, ...]:
    """Return runs at a budget of the quantities at ``indices`` that were not trained so long; of
    one with a single seed, a second at all of its budgets."""
    if ladder.unit and ladder.to_extend is None:
        return ()  # of a study to which no runs of other budgets can be added
    budgets = np.array([rung.budget for rung in (*ladder.rungs, *ladder.further)])
    missing = []
    for k in sorted(indices):
        quantity, reached = quantities[k], budgets[len(ladder.rungs) - 1]
        if quantity.curve is not None:
            reached = budgets[~np.isnan(quantity.curve[0])].max()
        if quantity.curve is None and quantity.runs < 2:
            missing.append(Missing(dict(quantity.at), 2 - quantity.runs, _ONE_SEED))
        elif quantity.curve is None or reached < budget:
            missing.append(Missing(dict(quantity.at), quantity.runs, _MAY_CHANGE, round(budget)))
    return tuple(missing)


def paired_curve(values: Sequence[Mapping[str, float]], answer_index: int) -> FloatArray | None:
    """Return y of a quantity's seeds at each budget, shape [seeds, budgets].

    The seeds are those that were trained to all budgets, or to as many of the longest as two seeds
    share; at the other budgets y is NaN. None where they share fewer than two budgets, or not the
    budget of the answer.

    Args:
        values: y by seed, at each budget.
        answer_index: index of the answer's budget.
    """
    common, shown = set(values[answer_index]), []
    for place in reversed(range(len(values))):
        seeds = common & values[place].keys()
        if len(seeds) > 1:
            common = seeds
            shown.append(place)
    if len(shown) < 2 or answer_index not in shown:
        return None
    curve = np.full((len(common), len(values)), np.nan)
    for place in shown:
        curve[:, place] = [values[place][seed] for seed in sorted(common)]
    return curve
