"""Which trials may be trained as one program: replicates, and points apart in rates alone.

Whether they are is decided where they train (``hsweep.training.together``), for there it can be
measured; here are the candidates.
"""

import functools
from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Final

from hsweep.design.recipe import Recipe
from hsweep.design.trial import Trial
from hsweep.planning.identity import content_hash

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


def joining(first: Trial, waiting: Iterable[Trial], most: int) -> list[Trial]:
    """Return the waiting trials that may be trained with the first as one program, at most so
    many."""
    kind = kind_of(first) if most > 0 else None
    if kind is None:
        return []
    alike = (trial for trial in waiting if trial is not first and kind_of(trial) == kind)
    return list(islice(alike, min(most, MOST_TOGETHER - 1)))


@functools.lru_cache(maxsize=1024)
def _without_rates(recipe: Recipe) -> Recipe:
    # Asked for every trial that waits, of which there may be many thousands.
    return recipe.without_rates
