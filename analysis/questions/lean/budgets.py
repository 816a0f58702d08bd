"""Would a lean answer survive more training? Each shape's gap to the baseline at each budget.

As for a transition (`analysis.questions.transition.budgets`): changes between the last two budgets
come from seeds that were trained to both, what each shape can still change is bounded by
`still_to_come`, and an answer is settled if every combination of what is left leaves it as it is.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from analysis.questions.lean.result import LeanBudget, LeanBudgets, LeanGap, LeanResult, LeanRow
from analysis.runs.ladder import Ladder
from analysis.runs.table import Runs
from analysis.statistics.training import centre, still_to_come
from analysis.statistics.values import FloatArray, Mask
from analysis.text.numbers import number_text
from analysis.values import AxisValue, number
from hsweep.errors import UserError

_DRAWS: Final = 1000


def with_budgets(
    result: LeanResult, ladder: Ladder, answer: Callable[[Runs], LeanResult]
) -> LeanResult:
    """Return the answer with the gaps at every budget, and whether it is settled.

    Args:
        result: the answer, that of the largest budget.
        ladder: the runs of each budget.
        answer: compares the runs of one budget.
    """
    return replace(result, budgets=_budgets(result, ladder, answer))


def _budgets(
    result: LeanResult, ladder: Ladder, answer: Callable[[Runs], LeanResult]
) -> LeanBudgets:
    blank = LeanBudgets("unknown", "", ladder.unit, ladder.column)
    if ladder.obstacle:
        return replace(blank, reason=ladder.obstacle)
    before, last = ladder.rungs[-2:]
    earlier = ladder.at(before.budget)
    try:
        found = [*(answer(rung.runs) for rung in ladder.rungs[:-1]), result]
    except UserError as error:
        # Typically the baseline has no run at a shorter budget; the answer stands without it.
        return replace(blank, reason=f"a shorter budget has no answer: {error}")
    known = replace(
        blank,
        answers=tuple(
            LeanBudget(
                number(rung.budget),
                each.verdict,
                each.choice,
                tuple(LeanGap(row.label, row.ci, row.outcome) for row in each.table),
            )
            for rung, each in zip(ladder.rungs, found, strict=True)
        ),
    )
    if result.verdict not in ("found", "excluded"):
        return replace(known, reason="the largest budget decides nothing")
    if found[-2].verdict not in ("found", "excluded"):
        return replace(known, reason=f"nothing is decided at {earlier}")
    if result.stopped:
        return replace(known, reason="runs were stopped early, so that budgets hold different runs")
    if (found[-2].verdict, found[-2].choice) != (result.verdict, result.choice):
        choice = found[-2].choice
        was = f"it was {choice}" if choice else "every cheaper shape was worse"
        return replace(known, verdict="moving", reason=f"{was} at {earlier}")
    rows = [row for row in result.table if row.outcome == "excluded" or row.label == result.choice]
    changes = _changes(result, rows, before.runs, last.runs)
    if changes is None:
        return replace(
            known, reason="fewer than two seeds of a shape have both of the last budgets"
        )
    base, own = changes[0], changes[1:]
    ratio = last.budget / before.budget
    come = still_to_come(changes, ratio, exponent=result.settings.budget_exponent, is_log=False)
    low = np.minimum(come[1:], 0) - np.maximum(come[0], 0)
    high = np.maximum(come[1:], 0) - np.minimum(come[0], 0)
    same = float(np.logical_and.reduce(list(_holds(result, rows, low, high))).mean())
    known = replace(known, same=same)
    moved = own - base
    if same >= result.settings.confidence:
        reason = f"the same at {earlier}"
        if result.choice is not None:
            k = next(k for k, row in enumerate(rows) if row.label == result.choice)
            change = float(np.median(moved[k]))
            reason += f"; its difference has changed by {number_text(change, 2)} since"
        return replace(known, verdict="settled", reason=reason)
    course = float(np.logical_and.reduce(list(_holds(result, rows, moved, moved))).mean())
    if course <= 1 - result.settings.confidence:
        longer = ladder.at(last.budget * ratio)
        return replace(known, verdict="moving", reason=f"at {longer} a gap would pass the margin")
    return replace(known, reason="with more training a gap may pass the margin")


def _holds(
    result: LeanResult, rows: list[LeanRow], low: FloatArray, high: FloatArray
) -> Iterator[Mask]:
    """Yield in which draws each gap stays on its side of the margin, shapes [B]."""
    for row, least, most in zip(rows, low, high, strict=True):
        if row.outcome == "excluded":
            yield row.diff + most < -result.margin
        else:
            yield row.diff + least >= -result.margin


def _changes(
    result: LeanResult, rows: list[LeanRow], before: Runs, last: Runs
) -> FloatArray | None:
    """Return draws of how much better the baseline and each shape became, shape [1 + K, B]; None
    where a shape has fewer than two seeds at both budgets."""
    settings = [result.baseline_setting, *(row.setting for row in rows)]
    configs = [result.baseline, *(row.config for row in rows)]
    sign = 1.0 if result.goal == "max" else -1.0
    paired = []
    for config, setting in zip(configs, settings, strict=True):
        at = {**config, **(setting.values if setting is not None else {})}
        earlier, now = _by_seed(before, at), _by_seed(last, at)
        common = [seed for seed in now if seed in earlier]
        if len(common) < 2:
            return None
        paired.append(np.array([sign * (now[seed] - earlier[seed]) for seed in common]))
    df = sum(each.size - 1 for each in paired)
    sd = np.sqrt(sum(float(np.sum((each - each.mean()) ** 2)) for each in paired) / df)
    rng = np.random.default_rng(0)
    return np.array(
        [
            centre(each[rng.integers(0, each.size, size=(_DRAWS, each.size))])
            + sd / np.sqrt(each.size * (each.size - 1)) * rng.standard_t(df, _DRAWS)
            for each in paired
        ]
    )


def _by_seed(runs: Runs, at: Mapping[str, AxisValue]) -> dict[str, float]:
    try:
        rows, _ = runs.rows(list(at))
    except UserError:
        # Rows that more columns tell apart than the shape has: its settings compete.
        return {}
    here = rows["complete"].to_numpy(bool)
    for name, value in at.items():
        here = here & rows[name].eq(value).to_numpy(bool)
    chosen = rows.loc[here]
    return dict(zip(chosen["replicate"], chosen["value"].astype(float), strict=True))
