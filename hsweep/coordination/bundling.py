"""Which trials may be trained as one program: replicates, and points apart in rates alone.

Whether they are is decided where they train (``hsweep.training.together``), for there it can be
measured; here are the candidates.
"""

import functools
from collections.abc import Hashable
from typing import Final

from hsweep.design.recipe import Recipe
from hsweep.design.trial import Trial
from hsweep.planning.content import content_hash

MOST_TOGETHER: Final = 64
"""Trials of a bundle: more gain nothing, since the device is full by then."""


def kind_of(trial: Trial) -> Hashable | None:
    """Return what trials have in common that may be trained together, None for a trial that cannot
    be: how many updates a budget of seconds holds is each trial's own, and a compiled model is
    trained by itself.

    Such trials have the same model, task, budget, resources and stratum, so they meet the same
    rungs, and the same recipe but for learning rates and weight decay.
    """
    if trial.budget.unit == "seconds" or trial.recipe.compile != "off":
        return None
    return (
        trial.parts.get("model") or content_hash(trial.model),
        # The task's part of the key does not tell which data it reads.
        (trial.parts["task"], trial.parts["data"]) if trial.parts else content_hash(trial.task),
        _without_rates(trial.recipe),
        trial.budget,
        trial.resources,
        trial.stratum,
    )


@functools.lru_cache(maxsize=1024)
def _without_rates(recipe: Recipe) -> Recipe:
    # Asked for every trial that waits, of which there may be many thousands.
    return recipe.without_rates
