"""Where runners enter training; what is imported from here on is part of a trial's key."""

from collections.abc import Sequence

from hsweep.design.trial import Assignment
from hsweep.training.session import Session, TrialSession


def open_session(assignments: Sequence[Assignment]) -> Session:
    """Begin trials: one, or several of one stack, which may be trained as one program."""
    if len(assignments) == 1:
        return TrialSession(assignments[0])
    from hsweep.training.bundle import BundleSession

    return BundleSession(assignments, is_settled=assignments[0].always_stacked)
