"""Which trials may be trained as one program: replicates, and points apart in rates alone.

Whether they are is decided where they train (``hsweep.training.together``), for there it can be
measured; here are the candidates.
"""

import functools
from collections.abc import Collection, Hashable, Sequence
from typing import Final

from hsweep.design.recipe import Recipe
from hsweep.design.trial import Trial
from hsweep.planning.identity import content_hash

MOST_TOGETHER: Final = 64
"""Trials of a bundle: more gain nothing, since the device is full by then."""


def bundles(
    trials: Sequence[Trial],
    *,
    places: int = 1,
    most: int = MOST_TOGETHER,
    alone: Collection[str] = (),
) -> list[tuple[Trial, ...]]:
    """Divide trials into bundles whose trials may be trained together.

    Such trials have the same model, task, budget, resources and stratum, so they meet the same
    rungs, and the same recipe but for learning rates and weight decay. Every trial is in one
    bundle, possibly alone. Bundles come in the order of their first trials, and so do the trials
    of each.

    Args:
        trials: to be trained, in the order they are handed out.
        places: processes that train at once: no bundle is so large that some of them would have
            nothing to do.
        most: trials in a bundle.
        alone: keys of trials that must be trained alone.
    """
    largest = max(1, min(most, len(trials) // max(1, places)))
    divided: list[list[Trial]] = []
    unfilled: dict[Hashable, list[Trial]] = {}
    for trial in trials:
        kind = None if trial.key in alone else kind_of(trial)
        bundle = unfilled.get(kind) if kind is not None else None
        if bundle is None or len(bundle) >= largest:
            bundle = []
            divided.append(bundle)
            if kind is not None:
                unfilled[kind] = bundle
        bundle.append(trial)
    return [tuple(bundle) for bundle in divided]


def kind_of(trial: Trial) -> Hashable | None:
    """Return what trials have in common that may be trained together, None for a trial that cannot
    be: how many updates a budget of seconds holds is each trial's own, and a compiled model is
    trained by itself."""
    if trial.budget.unit == "seconds" or trial.recipe.compile != "off":
        return None
    return (
        trial.parts.get("model") or content_hash(trial.model),
        trial.parts.get("task") or content_hash(trial.task),
        _without_rates(trial.recipe),
        trial.budget,
        trial.resources,
        trial.stratum,
    )


@functools.lru_cache(maxsize=1024)
def _without_rates(recipe: Recipe) -> Recipe:
    # Asked for every trial that waits, of which there may be many thousands.
    return recipe.without_rates
