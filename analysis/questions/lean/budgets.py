"""Would a lean answer survive more training? Each shape's gap to the baseline at each budget.

What each shape still gains with training is read from all its budgets (`gains`), by the seeds that
were trained to each of them. An answer is settled if its gaps at the end of training decide the
same, in enough draws.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from analysis.questions.lean.budget_changes import Course
from analysis.questions.lean.result import (
    LeanBudget,
    LeanBudgets,
    LeanGap,
    LeanResult,
    LeanRow,
    LeanTrials,
)
from analysis.runs.ladder import Ladder
from analysis.runs.table import Runs
from analysis.statistics.settled import SHORTER
from analysis.statistics.values import FloatArray, Mask
from analysis.text.numbers import number_text
from analysis.values import number
from hsweep.errors import UserError

_MAY_CHANGE: Final = "more training may change the answer"


def with_budgets(
    result: LeanResult, ladder: Ladder, answer: Callable[[Runs], LeanResult]
) -> LeanResult:
    """Return the answer with the gaps at every budget, and whether it is settled.

    Args:
        result: the answer, that of the largest budget that all shapes have.
        ladder: the runs of each budget.
        answer: compares the runs of one budget.
    """
    found = _budgets(result, ladder, answer)
    return replace(result, budgets=replace(found, missing=()) if ladder.is_fixed else found)


def _budgets(
    result: LeanResult, ladder: Ladder, answer: Callable[[Runs], LeanResult]
) -> LeanBudgets:
    blank = LeanBudgets(unit=ladder.unit, column=ladder.column)
    # What the answer turns on: the shapes it excludes, and the one it chooses.
    rows = [row for row in result.table if row.outcome == "excluded" or row.label == result.choice]
    if ladder.obstacle:
        half = 0 if ladder.to_extend is None else ladder.to_extend // 2 or 2 * ladder.to_extend
        is_asked = bool(half) and result.decides and not result.missing
        why = SHORTER if half < (ladder.to_extend or 0) else _MAY_CHANGE
        missing = _trials(result, [None, *rows], half, why) if is_asked else ()
        return replace(blank, reason=ladder.obstacle, missing=missing)
    found: dict[float, LeanResult] = {}
    for rung in ladder.rungs[:-1]:
        # Typically the baseline has no run at a shorter budget; the answer stands without it.
        with contextlib.suppress(UserError):
            each = answer(rung.runs)
            if {row.label for row in rows} <= {row.label for row in each.table}:
                found[rung.budget] = each
    answered = ladder.rungs[-1].budget
    known = replace(
        blank,
        answers=tuple(
            LeanBudget(
                number(budget),
                each.verdict,
                each.choice,
                tuple(LeanGap(row.label, row.ci, row.outcome) for row in each.table),
            )
            for budget, each in (*found.items(), (answered, result))
        ),
        further=tuple(number(rung.budget) for rung in ladder.further),
    )
    if not result.decides:
        return replace(known, reason="the largest budget decides nothing")
    if result.stopped:
        return replace(known, reason="runs were stopped early, so that budgets hold different runs")
    course = Course.of(result, rows, ladder)
    last = max(found, default=0.0)
    earlier = ladder.at(last)
    before = found.get(last)
    if before is not None and _contradict(before, result):
        turning = [row for row in rows if row.label in (before.choice, result.choice)] or rows
        # What was trained on since says more than the budget before.
        if not course.went_on(turning):
            missing = _longer(result, course, turning)
            was = f"it was {before.choice}" if before.choice else "every cheaper shape was worse"
            reason = f"{was} at {earlier}"
            return replace(known, verdict="moving", reason=reason, missing=missing)
    if lacking := [row for row in (None, *rows) if not course.is_known(row)]:
        *shorter, _ = ladder.rungs
        other = last or (shorter[-1].budget if shorter else course.longest)
        return replace(
            known,
            reason="fewer than two seeds of a shape have both of the last budgets",
            missing=_trials(result, lacking, other),
        )
    holds = _holds(result, rows, course.end())
    same = float(np.logical_and.reduce(holds).mean())
    known = replace(known, same=same)
    confidence = result.settings.confidence
    if same >= confidence:
        is_same = before is not None and (before.verdict, before.choice) == (
            result.verdict,
            result.choice,
        )
        reason, since = f"the same at {earlier}", "since"
        if course.goes_on:
            reason = f"the same at {ladder.at(course.longest)} where it is decided"
            since = f"since {ladder.at(answered)}"
        elif not is_same:
            reason = f"nothing speaks against it at {earlier}"
        if result.choice is not None:
            moved = course.since if course.goes_on else course.last
            k = next(k for k, row in enumerate(rows, start=1) if row.label == result.choice)
            change = float(np.median(moved[k] - moved[0]))
            reason += f"; its difference has changed by {number_text(change, 2)} {since}"
        return replace(known, verdict="settled", reason=reason)
    for budget in [*([course.longest] if course.goes_on else []), course.longer]:
        then = _holds(result, rows, course.at(budget))
        if np.logical_and.reduce(then).mean() <= 1 - confidence:
            reason = f"at {ladder.at(number(round(budget)))} a gap would pass the margin"
            turning = _turning(rows, then, confidence)
            missing = _longer(result, course, turning)
            if budget == course.longest and course.went_on(turning):
                # Another answer is to be had where these have been trained to: of all shapes.
                missing = _trials(result, course.behind(result.table, budget), budget)
            return replace(known, verdict="moving", reason=reason, missing=missing)
    missing = _longer(result, course, _turning(rows, holds, confidence))
    reason = "with more training a gap may pass the margin"
    return replace(known, reason=reason, missing=missing)


def _contradict(before: LeanResult, result: LeanResult) -> bool:
    """Whether two answers exclude each other. They differ, too, where one merely leaves undecided
    what the other decides."""
    if before.decides and before.verdict != result.verdict:
        return True
    then = {row.label: row.outcome for row in before.table}
    now = {row.label: row.outcome for row in result.table}
    decided = {"established", "excluded"}
    return any({then.get(label), outcome} == decided for label, outcome in now.items())


def _holds(result: LeanResult, rows: Sequence[LeanRow], change: FloatArray) -> list[Mask]:
    """Return in which draws each gap stays on its side of the margin after these changes, shape
    [K, B]; shapes [B]."""
    worse = [row.diff + gained < -result.margin for row, gained in zip(rows, change, strict=True)]
    return [
        each if row.outcome == "excluded" else ~each for row, each in zip(rows, worse, strict=True)
    ]


def _turning(rows: Sequence[LeanRow], holds: Sequence[Mask], confidence: float) -> list[LeanRow]:
    """Return the shapes whose gaps do not surely enough stay on their side."""
    return [row for row, each in zip(rows, holds, strict=True) if each.mean() < confidence]


def _longer(
    result: LeanResult, course: Course, turning: Sequence[LeanRow]
) -> tuple[LeanTrials, ...]:
    """Return runs of the baseline and of the shapes that decide at a longer budget: the longest
    that any shape has, and once they all have that, one beyond it."""
    budget = course.longest if course.behind(turning, course.longest) else course.longer
    return _trials(result, course.behind(turning, budget), budget)


def _trials(
    result: LeanResult, rows: Sequence[LeanRow | None], budget: float, why: str = _MAY_CHANGE
) -> tuple[LeanTrials, ...]:
    """Return runs of shapes at a budget; None stands for the baseline."""
    shapes = [
        (result.baseline, result.baseline_setting, result.baseline_label, result.baseline_n)
        if row is None
        else (row.config, row.setting, row.label, row.n)
        for row in rows
    ]
    return tuple(
        LeanTrials(
            {**config, **(setting.values if setting is not None else {})},
            label,
            n,
            number(round(budget)),
            why,
        )
        for config, setting, label, n in shapes
    )
