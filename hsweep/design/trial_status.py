"""The status of a trial."""

from enum import StrEnum


class TrialStatus(StrEnum):
    """Where a trial stands. All but the first two are final: such a trial is never trained again.

    ``not_needed`` is a trial that was never started: what it competes as had lost by other seeds,
    or at a shorter budget. ``too_large`` is one that did not fit its device even alone and with one
    example at once.
    """

    PLANNED = "planned"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED_EARLY = "stopped_early"
    NOT_NEEDED = "not_needed"
    DIVERGED = "diverged"
    FAILED = "failed"
    TOO_LARGE = "too_large"

    @property
    def is_final(self) -> bool:
        """Whether a trial in this state is done with."""
        return self not in (TrialStatus.PLANNED, TrialStatus.RUNNING)
