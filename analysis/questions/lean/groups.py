"""Several comparisons of one study, each with its own baseline.

Families of models are compared with their originals, not with each other. If each family were
tested at the full error rate, some family would be wrong the more often the more families there
are. So the rate is divided among the families (Bonferroni), and Holm's procedure divides each part
over the family's candidates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from analysis.questions.lean.result import LeanGroups, LeanResult, LeanSettings
from analysis.questions.lean.training import Judge, answer
from analysis.questions.pareto import fit as pareto
from analysis.questions.pareto.result import ParetoResult
from analysis.runs.ladder import Ladder
from analysis.runs.table import Runs
from analysis.values import AxisValue
from hsweep.errors import UserError


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
    judge: Judge | None = None,
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
        judge: has the last word about every comparison.
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
                fronts[name] = pareto.fit(part, **shared)
            result = answer(part, budgets, question, judge, {within: value})
            results[name] = replace(result, at={within: name})
        except UserError as error:
            # Typically the baseline has not finished; the other comparisons stand without it.
            problems[name] = str(error)
    return LeanGroups(within, results, problems, fronts)
