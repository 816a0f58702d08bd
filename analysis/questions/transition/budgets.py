"""Would the answer survive more training? The transition at each budget, and what is still to come.

The change of a cell between its last two budgets is estimated from seeds that were trained to both,
so that most of their noise cancels. What it can still change is bounded by `still_to_come`. Where
between its value and that bound each cell ends is not known: the answer is settled if all
combinations leave it as it is, in enough draws of the seeds behind the changes. The noise of the
answer itself is not drawn again: the answer's own tests and intervals are about that.

Cells may have longer budgets than the answer's, those that decide it before others. No cell is
compared with one of another budget: each goes on from where it is, by its own last two budgets.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from analysis.questions.transition.budget_changes import (
    Cell,
    Course,
    Step,
    axes_of,
    further_steps,
    grid_of,
)
from analysis.questions.transition.budget_conditions import PLACED, Condition, Ends, conditions
from analysis.questions.transition.budget_result import BudgetAnswer, Budgets, BudgetTrials
from analysis.questions.transition.cells import Cells, read_cells, resampled_cells, seed_noise
from analysis.questions.transition.lengths import fit_slopes
from analysis.questions.transition.location import step_drops
from analysis.questions.transition.result import CellValue, TransitionResult
from analysis.runs.ladder import Ladder
from analysis.runs.table import Runs
from analysis.statistics.settled import SHORTER
from analysis.statistics.values import Interval
from analysis.values import Number, number

_UNTESTED: Final = ("inconclusive", "suggested")
_SAME_CLAIM: Final = {"threshold": "transition"}
"""Both say that the error collapses to where it no longer grows with T."""
_MAY_CHANGE: Final = "more training may change the answer"


def with_budgets(
    result: TransitionResult, ladder: Ladder, answer: Callable[[Runs], TransitionResult]
) -> TransitionResult:
    """Return the answer with what every budget says, and whether it is settled.

    Args:
        result: the answer, that of the largest budget that all cells have.
        ladder: the runs of each budget.
        answer: fits the runs of one budget.
    """
    found = _budgets(result, ladder, answer)
    if ladder.is_fixed:
        seeds = tuple(each for each in found.missing if each.budget is None)
        found = replace(found, missing=seeds)
    return replace(result, budgets=found)


def _budgets(
    result: TransitionResult, ladder: Ladder, answer: Callable[[Runs], TransitionResult]
) -> Budgets:
    blank = Budgets(unit=ladder.unit, column=ladder.column)
    if ladder.obstacle:
        return replace(blank, reason=ladder.obstacle, missing=_first(result, ladder))
    found = {rung.budget: answer(rung.runs) for rung in ladder.rungs[:-1]}
    # A longer budget that only some cells have leaves a gap below one that all have.
    cells = {(cell.x, cell.by) for cell in result.cells}
    whole = [b for b, each in found.items() if cells <= {(cell.x, cell.by) for cell in each.cells}]
    before, earlier = (found[whole[-1]], ladder.at(whole[-1])) if whole else (None, "")
    answers = [(budget, found[budget]) for budget in whole]
    known = replace(
        blank,
        answers=tuple(
            _answer(number(budget), each)
            for budget, each in [*answers, (ladder.rungs[-1].budget, result)]
        ),
        further=tuple(number(rung.budget) for rung in ladder.further),
    )
    if result.verdict in _UNTESTED:
        return replace(known, reason="the largest budget has no answer that is tested")
    # A setting that competes has lost no run.
    pruned = (cell for cell in result.counts if cell.pruned or cell.not_needed)
    if any(cell.setting is None or not cell.setting.competed for cell in pruned):
        return replace(known, reason="runs were stopped early, so that budgets hold different runs")
    course = _course(result, found, ladder, answer)
    longer = course.longer
    beside = _beside(course.heads, (before, result))
    # What was trained on since says more than the budget before.
    is_passed = course.goes_on and course.went_on(beside)
    if before is not None and before.verdict in _UNTESTED and not is_passed:
        missing = _longer(result, course, beside, longer)
        return replace(known, reason=f"no answer is tested at {earlier}", missing=missing)
    if course.unknown.any():
        reason = (
            f"{course.unknown.sum()} cells hold no seed that was trained to both of the last "
            "budgets"
        )
        others = whole or [rung.budget for rung in ladder.rungs[:-1]] or [course.longest]
        return replace(known, reason=reason, missing=_lacking(result, course, others[-1]))
    if course.gap:
        return replace(known, reason=f"{course.gap} at both of the last budgets")
    if before is not None and _claimed(before) != _claimed(result) and not is_passed:
        missing = _longer(result, course, beside, longer)
        reason = f"{_in_words(before, result)} at {earlier}"
        return replace(known, verdict="moving", reason=reason, missing=missing)
    mass, slopes = result.settings.set_mass, fit_slopes(_cells(result))

    def rest_on(ends: Ends) -> list[Condition]:
        return list(conditions(ends, result, slopes))

    ahead = rest_on(course.ends())
    same = _share(ahead)
    known = replace(known, same=same)
    if same >= mass:
        at = f"{ladder.at(course.longest)} where it is decided" if course.goes_on else earlier
        return replace(known, verdict="settled", reason=f"the same at {at}")
    for budget in [*([course.longest] if course.goes_on else []), longer]:
        then = rest_on(course.at(budget))
        if _share(then) <= 1 - mass:
            worst = min(then, key=lambda each: each.holds.mean())
            reason = f"at {ladder.at(number(round(budget)))} {worst.what} would {worst.otherwise}"
            # Another answer is to be had where the cells that decide have been trained to: of all.
            is_there = budget == course.longest and course.went_on(worst.heads)
            decisive = range(len(course.heads)) if is_there else worst.heads
            missing = _longer(result, course, decisive, longer)
            return replace(known, verdict="moving", reason=reason, missing=missing)
    worst = min(ahead, key=lambda each: each.holds.mean())
    # Where the changes as estimated would not matter, their noise does.
    is_noise = _share(rest_on(course.typical().ends())) == 1
    missing = (
        _more_seeds(result, course, worst.heads)
        if is_noise
        else _longer(result, course, worst.heads, longer)
    )
    reason = f"with more training {worst.what} may {worst.otherwise}"
    return replace(known, reason=reason, missing=missing)


def _course(
    result: TransitionResult,
    found: Mapping[float, TransitionResult],
    ladder: Ladder,
    answer: Callable[[Runs], TransitionResult],
) -> Course:
    last = ladder.rungs[-1]
    rng = np.random.default_rng([result.settings.rng_seed, 3])
    earlier = [(budget, each.runs) for budget, each in found.items()]
    first = Step.of(earlier, (last.budget, result.runs), result, rng)
    further = further_steps([last, *ladder.further], result, answer)
    return Course.of([first, *further], last.budget, result)


def _beside(heads: Sequence[Number], found: Iterable[TransitionResult | None]) -> set[int]:
    """Return the indices of the head counts on both sides of where the answers lie."""
    stars = [each.h_star for each in found if each is not None]
    places = [heads.index(star) for star in stars if star in heads]
    return {k for place in places for k in (place - 1, place) if k >= 0}


def _share(found: Sequence[Condition]) -> float:
    return float(np.logical_and.reduce([condition.holds for condition in found]).mean())


def _claimed(result: TransitionResult) -> tuple[str, Number | None]:
    place = result.h_star if result.verdict in PLACED else None
    return _SAME_CLAIM.get(result.verdict, result.verdict), place


def _in_words(before: TransitionResult, result: TransitionResult) -> str:
    if before.verdict not in PLACED:
        return f"no transition in {before.x} was established"
    kind = f"a {before.verdict.replace('_only', '')} "
    if _claimed(before)[0] == _claimed(result)[0]:
        kind = ""
    return f"it was {kind}at {before.x} = {before.h_star:g}"


def _answer(budget: Number, result: TransitionResult) -> BudgetAnswer:
    return BudgetAnswer(
        budget,
        len(result.runs),
        result.verdict,
        result.h_star,
        result.h_set,
        _drop_interval(result),
        result.gamma_below,
        result.gamma_above,
    )


def _drop_interval(result: TransitionResult) -> Interval | None:
    if result.drop is None or result.noise_gap or result.h_peak is None:
        return None
    heads, _ = axes_of(result)
    rng = np.random.default_rng([result.settings.rng_seed, 2])
    drops = step_drops(resampled_cells(_cells(result), result.settings.B, rng))
    low, high = np.quantile(drops[:, heads.index(result.h_peak) - 1], [0.025, 0.975])
    return Interval(result.drop, float(low), float(high))


def _cells(result: TransitionResult) -> Cells:
    """Return the cells that an answer was read from."""
    runs: dict[Cell, list[float]] = {}
    for run in result.runs:
        runs.setdefault((run.x, run.by), []).append(run.y)
    grid = grid_of(*axes_of(result), runs)
    noise = seed_noise(grid, result.limits, result.settings.assumed_sd)
    fewest = int(grid.counts[grid.counts > 0].min())
    return read_cells(grid, noise, None if result.reading == "typical" else fewest)


def _first(result: TransitionResult, ladder: Ladder) -> tuple[BudgetTrials, ...]:
    """Return the runs that give an answer of one budget a second one, half as long, in all its
    cells: what changes in each takes two budgets."""
    if ladder.to_extend is None or result.verdict in _UNTESTED or result.missing:
        return ()
    other = ladder.to_extend // 2 or 2 * ladder.to_extend
    heads, _ = axes_of(result)
    beside = _beside(heads, [result])
    cells = sorted(result.cells, key=lambda cell: heads.index(cell.x) not in beside)
    why = SHORTER if other < ladder.to_extend else _MAY_CHANGE
    return tuple(_trials(cell, other, why) for cell in cells)


def _lacking(result: TransitionResult, course: Course, other: float) -> tuple[BudgetTrials, ...]:
    """Return the runs that give the cells a second budget that have none."""
    return tuple(
        _trials(cell, number(other))
        for cell in result.cells
        if course.unknown[course.heads.index(cell.x), course.place(cell.by)]
    )


def _more_seeds(
    result: TransitionResult, course: Course, decisive: Collection[int]
) -> tuple[BudgetTrials, ...]:
    """Return as many seeds again in the decisive cells, at the budgets that there are."""
    return tuple(
        BudgetTrials(
            cell.x, cell.by, cell.n, None, "too few seeds to tell what training still changes"
        )
        for cell in result.cells
        if course.heads.index(cell.x) in decisive
    )


def _longer(
    result: TransitionResult, course: Course, decisive: Collection[int], longer: float
) -> tuple[BudgetTrials, ...]:
    """Return runs of the decisive cells at a longer budget: the longest that any cell has, and once
    they all have that, one beyond it."""
    decisive = decisive or range(len(course.heads))
    budget = course.longest if course.are_behind(decisive) else longer
    return tuple(
        _trials(cell, number(round(budget)))
        for cell in result.cells
        if (k := course.heads.index(cell.x)) in decisive
        and course.budgets[k, course.place(cell.by)] < budget
    )


def _trials(cell: CellValue, budget: Number, why: str = _MAY_CHANGE) -> BudgetTrials:
    return BudgetTrials(cell.x, cell.by, cell.n, budget, why)
