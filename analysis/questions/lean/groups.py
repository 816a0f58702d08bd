"""Lean equivalents where a study holds several comparisons, each with a baseline of its own.

Families of models are compared with their own originals, not with each other. The families are one
study, though, and asking each at the full error rate would let one of them be wrong the more often
the more there are; so the rate is divided among them (Bonferroni), and Holm's procedure shares out
each part over the family's candidates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from analysis.questions.lean.result import LeanGroups, LeanResult, LeanSettings
from analysis.questions.lean.training import answer
from analysis.questions.pareto import fit as pareto
from analysis.questions.pareto.result import ParetoResult
from analysis.runs.ladder import Ladder
from analysis.runs.table import Runs
from analysis.values import AxisValue
from hsweep.design.question import Goal
from hsweep.errors import UserError


def fit_groups(
    runs: Runs,
    *,
    within: str,
    baseline: Mapping[str, AxisValue],
    margin: float,
    axes: Sequence[str],
    goal: Goal = "max",
    costs: Sequence[str] = ("num_params",),
    nuisance: Sequence[str] = (),
    settings: LeanSettings | None = None,
    chances: Mapping[str, float] | None = None,
    first_report: str | None = None,
    with_fronts: bool = False,
    ladder: Ladder | None = None,
    fixed_rate: float | None = None,
) -> LeanGroups:
    """Compare the shapes at each value of ``within`` with the baseline there.

    Args:
        baseline: axis values that pick exactly one shape at each value of ``within``.
        settings: as in ``lean.fit``; ``alpha`` is the error rate of the whole study.
        chances: what a constant predictor scores, by the value of ``within`` in words, where that
            is known.
        with_fronts: whether each value gets a front of its own.
        ladder: the runs of each budget; None leaves open whether the answers are settled.
        fixed_rate: the one learning rate of all runs, which was not tuned.

    Raises:
        UserError: a margin that is not a positive number.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise UserError(f"margin must be a positive number, not {margin!r}")
    groups = dict(list(runs.frame.groupby(within, sort=False)))
    whole = settings or LeanSettings()
    found: dict[str, LeanResult] = {}
    problems: dict[str, str] = {}
    fronts: dict[str, ParetoResult] = {}
    for value, rows in groups.items():
        part, name = Runs(rows, runs.metric, runs.columns), str(value)
        shared: dict[str, Any] = {
            "config": [
                axis
                for axis in axes
                if axis not in nuisance
                and (axis in baseline or rows[axis].nunique(dropna=False) > 1)
            ],
            "goal": goal,
            "costs": costs,
            "nuisance": nuisance,
        }
        chance = (chances or {}).get(name, whole.chance)
        own = replace(whole, alpha=whole.alpha / len(groups), chance=chance)
        question = {**shared, "baseline": baseline, "margin": margin, "settings": own}
        budgets = None if ladder is None else ladder.where(within, value)
        try:
            if with_fronts:
                fronts[name] = pareto.fit(part, **shared)
            found[name] = replace(answer(part, budgets, question, first_report), at={within: name})
        except UserError as error:
            # Typically the baseline has not finished; the other comparisons stand without it.
            problems[name] = str(error)
    return LeanGroups(within, found, problems, fronts, fixed_rate)
