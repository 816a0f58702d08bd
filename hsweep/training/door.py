"""The door to training: opens one trial."""

from hsweep.design.trial import Assignment
from hsweep.training.freed_memory import reuse_freed_memory
from hsweep.training.session import Session
from hsweep.training.world import ALONE, World


def open_session(assignment: Assignment, world: World = ALONE) -> Session:
    """Begin a trial; torch is imported here at the earliest.

    Args:
        assignment: the trial.
        world: this process among those of the trial.
    """
    reuse_freed_memory()
    if assignment.trial.model is None:
        from hsweep.training.own.session import open_own_session

        return open_own_session(assignment, world)
    from hsweep.training.train import TrialSession

    return TrialSession(assignment, world)
