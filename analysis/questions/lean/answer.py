"""The answer of a lean question, over the budgets that its runs were trained to.

Several comparisons of one study have each their own baseline: families of models are compared with
their originals, not with each other. If each family were tested at the full error rate, some family
would be wrong the more often the more families there are. So the rate is divided among the families
(Bonferroni), and Holm's procedure divides each part over the family's candidates.

A study whose shapes were raced is answered by the tests of its race.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from analysis.adaptive.lean import Standing
from analysis.adaptive.planned import LeanSearch
from analysis.questions.lean.fit import fit
from analysis.questions.lean.result import (
    RACING,
    LeanGroups,
    LeanResult,
    LeanRow,
    LeanSettings,
    LeanVerdict,
)
from analysis.questions.pareto import fit as pareto
from analysis.questions.pareto.result import ParetoResult, ParetoSettings
from analysis.runs.grouped import grouped
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
from analysis.statistics.values import FloatArray, Interval
from analysis.values import AxisValue, number
from hsweep.design.space import Point
from hsweep.errors import UserError

_DRAWS = 1000


def answer(
    runs: Runs,
    ladder: Ladder | None,
    question: Mapping[str, Any],
    race: LeanSearch | None = None,
    at: Mapping[str, Any] | None = None,
) -> LeanResult:
    """Return the answer to a question with the arguments of `fit`.

    With a ``ladder`` the answer includes whether it is settled; with a ``race`` it is that of the
    race, where ``at`` parts the comparison from others.
    """
    result = fit(runs, **question)
    if race is not None:
        result = _raced(result, race, at or {})
    return with_training(result, ladder, partial(fit, **question)) if ladder else result


def fit_groups(
    runs: Runs,
    *,
    within: str,
    baseline: Mapping[str, AxisValue],
    margin: float,
    axes: Sequence[str],
    settings: LeanSettings = LeanSettings(),
    chances: Mapping[str, float] | None = None,
    with_fronts: bool = False,
    ladder: Ladder | None = None,
    race: LeanSearch | None = None,
    **roles: Any,
) -> LeanGroups:
    """Compare the shapes at each value of ``within`` with the baseline there.

    Args:
        baseline: axis values that pick exactly one shape at each value of ``within``.
        settings: as in ``lean.fit``; ``alpha`` is the error rate of the whole study.
        chances: a constant predictor's score, by the value of ``within`` in words, where it is
            known.
        with_fronts: whether each value gets a front of its own.
        ladder: the runs of each budget; None leaves open whether the answers are settled.
        race: the search of a study whose shapes were raced.
        roles: ``goal``, ``costs`` and ``nuisance``, as in ``lean.fit``.

    Raises:
        UserError: a margin that is not a positive number.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise UserError(f"margin must be a positive number, not {margin!r}")
    groups = dict(list(runs.frame.groupby(within, sort=False)))
    results: dict[str, LeanResult] = {}
    problems: dict[str, str] = {}
    fronts: dict[str, ParetoResult] = {}
    for value, rows in groups.items():
        part, name = Runs(rows, runs.metric, runs.columns), str(value)
        varying = [axis for axis in axes if rows[axis].nunique(dropna=False) > 1]
        config = [axis for axis in axes if axis in varying or axis in baseline]
        shared = {
            **roles,
            "config": [axis for axis in config if axis not in roles.get("nuisance", ())],
        }
        chance = (chances or {}).get(name, settings.chance)
        group_settings = replace(settings, alpha=settings.alpha / len(groups), chance=chance)
        question = {**shared, "baseline": baseline, "margin": margin, "settings": group_settings}
        budgets = None if ladder is None else ladder.where(within, value)
        try:
            if with_fronts:
                screening = ParetoSettings().crash_sd
                fronts[name] = pareto.fit(grouped(part, **shared, crash_sd=screening))
            result = answer(part, budgets, question, race, {within: value})
            results[name] = replace(result, at={within: name})
        except UserError as error:
            # Typically the baseline has not finished; the other comparisons stand without it.
            problems[name] = str(error)
    return LeanGroups(within, results, problems, fronts)


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
        missing=(),
        warnings=(),
    )


def _with_standing(
    row: LeanRow, standings: Mapping[Point, Standing], result: LeanResult
) -> LeanRow:
    """Return a row with what the race has shown at the last look that the shape had."""
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
