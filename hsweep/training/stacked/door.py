"""The door to training: opens one trial, or several that may be trained as one program."""

from collections.abc import Sequence

from hsweep.design.trial import Assignment
from hsweep.training.freed_memory import reuse_freed_memory
from hsweep.training.session import Session
from hsweep.training.world import ALONE, World


def open_session(assignments: Sequence[Assignment], world: World = ALONE) -> Session:
    """Begin one trial, or several of one kind; torch is imported here at the earliest.

    Args:
        assignments: the trials; several are of one process.
        world: this process among those of the trial.
    """
    reuse_freed_memory()
    if len(assignments) == 1:
        if assignments[0].trial.model is None:
            from hsweep.training.own.session import open_own_session

            return open_own_session(assignments[0], world)
        from hsweep.training.train import TrialSession

        return TrialSession(assignments[0], world)
    from hsweep.training.stacked.session import StackedSession

    return StackedSession(assignments, always=assignments[0].always_stacked)
