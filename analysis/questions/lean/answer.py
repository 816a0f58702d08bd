"""The answer of a lean question, over the budgets that its runs were trained to.

A study whose shapes were raced is answered by the tests of its race.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from analysis.questions.lean.design import Standing
from analysis.questions.lean.fit import fit
from analysis.questions.lean.result import RACING, LeanResult, LeanRow, LeanVerdict, RowOutcome
from analysis.questions.lean.search import LeanSearch
from analysis.runs.ladder import Ladder
from analysis.runs.table import Runs
from analysis.sensitivity import SURE, BudgetAnswer, Quantity, Verdicts, paired_curve, sensitivity
from analysis.statistics.values import FloatArray, Interval
from analysis.text.numbers import gain_text
from analysis.values import AxisValue, number
from hsweep.design.labels import first_of, point_label
from hsweep.design.point import Point
from hsweep.errors import UserError

_DRAWS = 1000


def answer(
    runs: Runs,
    ladder: Ladder,
    question: Mapping[str, Any],
    race: LeanSearch | None = None,
    at: Mapping[str, Any] | None = None,
    seeds_planned: int | None = None,
) -> LeanResult:
    """Return the answer to a question with the arguments of `fit`, with whether it is settled.

    With a ``race`` it is that of the race, where ``at`` parts the comparison from others. While
    runs have not ended, ``seeds_planned`` is how many seeds each shape is to have.
    """
    result = fit(runs, **question)
    if race is not None:
        result = _raced(result, race, at or {})
    if seeds_planned is not None:
        result = _so_far(result, seeds_planned)
    return with_training(result, ladder, partial(fit, **question))


def _so_far(result: LeanResult, seeds_planned: int) -> LeanResult:
    """Return a comparison of a study whose runs have not all ended: part of its seeds establishes
    nothing."""
    words: dict[RowOutcome, RowOutcome] = {
        "established": "ahead so far",
        "excluded": "behind so far",
    }
    verdicts: dict[LeanVerdict, LeanVerdict] = {"found": "ahead so far", "excluded": "undecided"}
    return replace(
        result,
        verdict=verdicts.get(result.verdict, result.verdict),
        table=tuple(
            replace(row, outcome=words.get(row.outcome, row.outcome)) for row in result.table
        ),
        seeds_planned=seeds_planned,
    )


def _raced(result: LeanResult, race: LeanSearch, at: Mapping[str, Any]) -> LeanResult:
    """Return a comparison with the verdict of its race; ``at`` has the value of the axis that parts
    it from others."""
    if result.verdict in ("untrained", "no_candidates"):
        return replace(result, missing=())
    ends = race.played.answer
    shapes = [(race.shapes[each.shape], each) for raced in ends or () for each in raced]
    standings = {shape: each for shape, each in shapes if shape.has(at)}
    table = tuple(_with_standing(row, standings, result) for row in result.table)
    chosen = next((row for row in table if row.accepted), None)
    verdict: LeanVerdict = "undecided"
    if chosen is not None:
        verdict = "found"
    elif standings and all(each.outcome == "excluded" for each in standings.values()):
        verdict = "excluded"
    return replace(
        result,
        verdict=verdict,
        reason="" if ends is not None else RACING,
        table=table,
        choice=None if chosen is None else chosen.label,
        untried=tuple(
            point_label(shape, race.varying)
            for shape, each in standings.items()
            if each.look < 0 and not any(shape.has(row.config) for row in table)
        ),
        missing=(),
        warnings=(),
    )


def _with_standing(
    row: LeanRow, standings: Mapping[Point, Standing], result: LeanResult
) -> LeanRow:
    """Return a row with what the race has shown of its shape."""
    standing = next((each for shape, each in standings.items() if shape.has(row.config)), None)
    if standing is None:
        return replace(row, outcome="undecided", seeds_needed=None)
    row = replace(row, outcome=standing.outcome, seeds_needed=None)
    if not standing.se > 0:
        return row
    quantile = special.stdtrit(standing.df, (1 + result.settings.confidence) / 2)
    diff, reach = standing.diff, standing.se * float(quantile)
    return replace(
        row,
        diff=diff,
        ci=Interval(diff, diff - reach, diff + reach),
        df=standing.df,
        p_raw=float(special.stdtr(standing.df, -(diff + result.margin) / standing.se)),
        p_holm=standing.p,
        p_worse=standing.p_worse,
    )


def with_training(
    result: LeanResult, ladder: Ladder, answer: Callable[[Runs], LeanResult]
) -> LeanResult:
    """Return the answer, that of the largest budget that all shapes have, with whether it is
    settled; ``answer`` compares the runs of one budget.

    Whether it is depends on the excluded shapes and on the chosen one.
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
                ~is_worse if row.label == result.choice else is_worse
                for row, is_worse in zip(rows, worse, strict=True)
            ]
        )
        least = int(holds.mean(axis=1).argmin())
        unsure = np.flatnonzero(holds.mean(axis=1) < SURE).tolist()
        otherwise = f"change, as {rows[least].label} would come within the margin"
        if rows[least].label == result.choice:
            otherwise = f"change, as {rows[least].label} would be worse by more than the margin"
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
    """Return what the runs of one budget say: which shapes are as good, and how the others did."""
    if result.reason and not result.decides:
        return result.reason
    words = {"established": "as good", "excluded": "worse by more"}
    groups: dict[str, list[str]] = {word: [] for word in (*words.values(), "undecided")}
    for row in result.table:
        gain = gain_text(Interval(row.diff, math.nan, math.nan), is_share=result.is_share)
        groups[words.get(row.outcome, "undecided")].append(f"{row.label} ({gain})")
    return "; ".join(f"{word}: {first_of(rows)}" for word, rows in groups.items() if rows)


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
    here = rows.runs["complete"].to_numpy(bool)
    for name, value in at.items():
        here = here & rows.keys[name].eq(value).to_numpy(bool)
    chosen = rows.runs.loc[here]
    return dict(zip(chosen["replicate"], chosen["value"].astype(float), strict=True))
