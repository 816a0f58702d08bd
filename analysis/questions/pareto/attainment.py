"""How far single runs scatter: the empirical attainment function over the fronts of the seeds.

Every seed gives a front of its own. The surface of a share s is attained by at least that share of
them (Grunert da Fonseca, Fonseca and Hall, "Inferential performance assessment of stochastic
optimisers and the attainment function", EMO 2001). A front of single runs is too good on average,
as every shape's luckiest seed may stand on it, so this shows spread and estimates nothing.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from analysis.questions.pareto.result import AttainmentSurface
from analysis.runs.configurations import Configuration
from analysis.statistics.optional import moocore
from hsweep.design.question import Goal

_MOST_COSTS: Final = 2
"""moocore computes the function in two and three dimensions."""
_MOST_POINTS: Final = 6000


def attainment(
    found: Sequence[Configuration], goal: Goal, num_costs: int
) -> tuple[tuple[AttainmentSurface, ...], str]:
    """Return the best, the median and the worst surface of the seeds' fronts, and a note.

    Only seeds that every shape ran to the end enter: a front without some shapes is another one.

    Args:
        found: the shapes, with the outcome of every full-budget run.
    """
    if num_costs > _MOST_COSTS:
        return (), f"the spread of single runs is drawn for up to {_MOST_COSTS} costs"
    library = moocore()
    if library is None:
        return (), "the spread of single runs needs the optional package moocore"
    common = set.intersection(*(set(item.outcomes) for item in found)) if found else set()
    seeds = sorted(common)
    if len(seeds) < 2:
        return (), "the spread of single runs needs two seeds that every shape ran to the end"
    if len(seeds) * len(found) > _MOST_POINTS:
        return (), f"the spread of single runs is drawn for up to {_MOST_POINTS} runs"
    sign = np.array([1.0 if goal == "min" else -1.0] + [1.0] * num_costs)
    runs = np.array([item.outcomes[seed] for seed in seeds for item in found]) * sign
    sets = np.repeat(np.arange(len(seeds)), len(found))
    shares = list(dict.fromkeys((1 / len(seeds), 0.5, 1.0)))
    levels = library.eaf(runs, sets, percentiles=[100 * share for share in shares])
    surfaces = []
    for share in shares:
        points = levels[np.isclose(levels[:, -1], 100 * share), :-1] * sign
        ordered = points[np.lexsort(points.T[1:][::-1])]
        surfaces.append(
            AttainmentSurface(share, tuple(tuple(float(x) for x in point) for point in ordered))
        )
    note = (
        f"spread of single runs over {len(seeds)} seeds (empirical attainment function); a front "
        "of single runs is too good on average and estimates nothing"
    )
    return tuple(surfaces), note
