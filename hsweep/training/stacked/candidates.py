"""Which trials may be trained as one program: replicates.

Whether they are is decided where they train (``hsweep.training.stacked.session``), for there it can
be measured.
"""

from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Final

from hsweep.design.trial import Trial

MOST_STACKED: Final = 64
"""Trials of one program: more gain nothing, since the device is full by then."""


def kind_of(trial: Trial) -> Hashable | None:
    """Return what replicates have in common that may be stacked, None for a trial that cannot be.

    How many updates a budget of seconds holds is each trial's own, and some recipes have to be
    trained separately (``Recipe.is_stackable``), as is a trial that several processes train. Trials
    of one kind meet the same rungs. Models, tasks and data are told apart by the parts of the
    trials' keys.
    """
    is_single = trial.resources.processes == 1
    if not is_single or not trial.parts or trial.budget.unit == "seconds":
        return None
    if not trial.recipe.is_stackable:
        return None
    return (
        *(trial.parts[part] for part in ("model", "task", "data")),
        *(trial.recipe, trial.budget, trial.resources, trial.stratum),
    )


def joining(first: Trial, waiting: Iterable[Trial], most: int) -> list[Trial]:
    """Return those of the waiting trials that may be stacked with the first, ``most`` of them."""
    kind = kind_of(first) if most > 0 else None
    if kind is None:
        return []
    alike = (trial for trial in waiting if trial is not first and kind_of(trial) == kind)
    return list(islice(alike, min(most, MOST_STACKED - 1)))
