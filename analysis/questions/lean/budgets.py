"""Would a lean answer survive more training? Each shape's gap to the baseline at each budget.

As for a transition (`analysis.questions.transition.budgets`): changes between the last two budgets
come from seeds that were trained to both, what each shape can still change is bounded by
`still_to_come`, and an answer is settled if every combination of what is left leaves it as it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from analysis.questions.lean.result import LeanBudget, LeanBudgets, LeanGap, LeanResult, LeanRow
from analysis.runs.ladder import Ladder, Rung
from analysis.runs.table import Runs
from analysis.statistics.training import Gains, gains
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
    if _contradict(found[-2], result):
        choice = found[-2].choice
        was = f"it was {choice}" if choice else "every cheaper shape was worse"
        return replace(known, verdict="moving", reason=f"{was} at {earlier}")
    rows = [row for row in result.table if row.outcome == "excluded" or row.label == result.choice]
    gain = _gains(result, rows, ladder.rungs)
    if gain is None:
        return replace(
            known, reason="fewer than two seeds of a shape have both of the last budgets"
        )
    come, moved = gain.left[1:] - gain.left[0], gain.last[1:] - gain.last[0]
    same = float(np.logical_and.reduce(list(_holds(result, rows, come))).mean())
    known = replace(known, same=same)
    if same >= result.settings.confidence:
        is_same = found[-2].choice == result.choice
        reason = f"the same at {earlier}" if is_same else f"nothing speaks against it at {earlier}"
        if result.choice is not None:
            k = next(k for k, row in enumerate(rows) if row.label == result.choice)
            change = float(np.median(moved[k]))
            reason += f"; its difference has changed by {number_text(change, 2)} since"
        return replace(known, verdict="settled", reason=reason)
    course = float(np.logical_and.reduce(list(_holds(result, rows, moved))).mean())
    if course <= 1 - result.settings.confidence:
        longer = ladder.at(last.budget**2 / before.budget)
        return replace(known, verdict="moving", reason=f"at {longer} a gap would pass the margin")
    return replace(known, reason="with more training a gap may pass the margin")


def _contradict(before: LeanResult, result: LeanResult) -> bool:
    """Whether two answers exclude each other: they differ too where one merely leaves undecided
    what the other decides."""
    if before.verdict != result.verdict:
        return True
    then = {row.label: row.outcome for row in before.table}
    now = {row.label: row.outcome for row in result.table}
    decided = {"established", "excluded"}
    return any({then.get(label), outcome} == decided for label, outcome in now.items())


def _holds(result: LeanResult, rows: list[LeanRow], change: FloatArray) -> Iterator[Mask]:
    """Yield in which draws each gap stays on its side of the margin, shapes [B]."""
    for row, gained in zip(rows, change, strict=True):
        is_worse = row.diff + gained < -result.margin
        yield is_worse if row.outcome == "excluded" else ~is_worse


def _gains(result: LeanResult, rows: list[LeanRow], rungs: Sequence[Rung]) -> Gains | None:
    """Return how much better the baseline and each shape becomes with training, by the seeds that
    were trained to all of the budgets, or to as many of the last as it takes; None where a shape
    has fewer than two seeds at both of the last budgets."""
    settings = [result.baseline_setting, *(row.setting for row in rows)]
    configs = [result.baseline, *(row.config for row in rows)]
    sign = 1.0 if result.goal == "max" else -1.0
    places = [
        {**config, **(setting.values if setting is not None else {})}
        for config, setting in zip(configs, settings, strict=True)
    ]
    known = [[_by_seed(rung.runs, at) for rung in rungs] for at in places]
    for first in range(len(rungs) - 1):
        curves = []
        for values in known:
            common = sorted(set.intersection(*(set(each) for each in values[first:])))
            curves.append(sign * np.array([[each[n] for each in values[first:]] for n in common]))
        if all(len(curve) >= 2 for curve in curves):
            return gains(
                curves,
                [rung.budget for rung in rungs[first:]],
                exponent=result.settings.budget_exponent,
                draws=_DRAWS,
                rng=np.random.default_rng(0),
            )
    return None


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
