"""Would a lean answer survive more training?"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from analysis.questions.lean.fit import fit
from analysis.questions.lean.result import LeanResult, LeanRow
from analysis.runs.ladder import Ladder
from analysis.runs.table import Runs
from analysis.sensitivity import (
    SURE,
    BudgetAnswer,
    Quantity,
    Verdicts,
    paired_curve,
    sensitivity,
)
from analysis.statistics.values import FloatArray
from analysis.values import AxisValue, number
from hsweep.errors import UserError

_DRAWS = 1000
Judge = Callable[[LeanResult, Mapping[str, Any]], LeanResult]
"""Has the last word about a comparison, given the axis value that parts it from others."""


def answer(
    runs: Runs,
    ladder: Ladder | None,
    question: Mapping[str, Any],
    judge: Judge | None = None,
    at: Mapping[str, Any] = MappingProxyType({}),
) -> LeanResult:
    """Return the answer to a question with the arguments of `fit`.

    With a ``ladder`` the answer includes whether it is settled.
    """
    result = fit(runs, **question)
    result = result if judge is None else judge(result, at)
    return with_training(result, ladder, partial(fit, **question)) if ladder else result


def with_training(
    result: LeanResult, ladder: Ladder, answer: Callable[[Runs], LeanResult]
) -> LeanResult:
    """Return the answer with whether it is settled.

    Whether it is depends on the excluded shapes and on the chosen one.

    Args:
        result: the answer, that of the largest budget that all shapes have.
        ladder: the runs of each budget.
        answer: compares the runs of one budget.
    """
    if not result.decides:
        return result
    rows = [row for row in result.table if row.outcome == "excluded" or row.label == result.choice]
    rest = [row for row in result.table if row not in rows]
    quantities = [
        _quantity(result, row, ladder, course, decides=course <= len(rows))
        for course, row in enumerate([None, *rows, *rest])
    ]

    def answer_changes(change: FloatArray) -> Verdicts:
        gaps = np.array([row.diff for row in rows])[:, None] + change[1:] - change[0]
        worse = gaps < -result.margin
        holds = np.array(
            [
                is_worse if row.outcome == "excluded" else ~is_worse
                for row, is_worse in zip(rows, worse, strict=True)
            ]
        )
        least = int(holds.mean(axis=1).argmin())
        unsure = np.flatnonzero(holds.mean(axis=1) < SURE).tolist()
        otherwise = f"change: {rows[least].label} would be worse by more than the margin"
        if rows[least].outcome == "excluded":
            otherwise = f"change: {rows[least].label} would come within the margin"
        return Verdicts(np.asarray(holds.all(axis=0)), otherwise, [0, *(k + 1 for k in unsure)])

    settled, missing = sensitivity(
        quantities,
        answer_changes,
        ladder,
        is_stopped=bool(result.stopped),
        answers=_answers(result, ladder, answer),
        is_log=False,
        draws=_DRAWS,
        rng=np.random.default_rng(0),
    )
    return replace(result, sensitivity=settled, missing=result.missing or missing)


def _answers(
    result: LeanResult, ladder: Ladder, answer: Callable[[Runs], LeanResult]
) -> list[BudgetAnswer]:
    answers = []
    for rung in ladder.rungs:
        try:
            there = result if rung is ladder.rungs[-1] else answer(rung.runs)
        except UserError:
            # Typically the baseline has no run at a shorter budget; the answer stands without it.
            continue
        runs = len(rung.runs.frame)
        answers.append(BudgetAnswer(number(rung.budget), runs, _verdict_text(there)))
    return answers


def _verdict_text(result: LeanResult) -> str:
    gaps = ", ".join(f"{row.label} {row.diff:+.3g} {row.outcome}" for row in result.table[:6])
    rest = len(result.table) - 6
    choice = f"{result.choice}; " if result.choice else ""
    return f"{result.verdict}: {choice}{gaps}{f' and {rest} more' if rest > 0 else ''}"


def _quantity(
    result: LeanResult, row: LeanRow | None, ladder: Ladder, course: int, *, decides: bool
) -> Quantity:
    """Return the curve of a shape over the budgets; a ``row`` of None is the baseline."""
    config, setting, runs = (
        (result.baseline, result.baseline_setting, result.baseline_n)
        if row is None
        else (row.config, row.setting, row.n)
    )
    at: dict[str, AxisValue] = {**config, **(setting.values if setting is not None else {})}
    curve = None
    if ladder.rungs:
        values = [_by_seed(rung.runs, at) for rung in (*ladder.rungs, *ladder.further)]
        curve = paired_curve(values, len(ladder.rungs) - 1)
    if curve is not None and result.goal == "min":
        curve = -curve
    return Quantity(at, runs, curve, 0, course, decides)


def _by_seed(runs: Runs, at: Mapping[str, AxisValue]) -> dict[str, float]:
    try:
        rows, _ = runs.rows(list(at))
    except UserError:
        # Further columns distinguish the rows of a shape: its settings compete.
        return {}
    here = rows["complete"].to_numpy(bool)
    for name, value in at.items():
        here = here & rows[name].eq(value).to_numpy(bool)
    chosen = rows.loc[here]
    return dict(zip(chosen["replicate"], chosen["value"].astype(float), strict=True))
