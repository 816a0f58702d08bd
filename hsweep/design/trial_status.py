"""The status of a trial."""

from enum import StrEnum


class TrialStatus(StrEnum):
    """The state of a trial. All but the first two are final: a trial with a final status is not
    trained again.

    ``not_needed``: the trial was never started, since its setting had lost with other seeds or at a
        shorter budget. ``too_large``: the trial did not fit its device even alone and with one
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
        """Whether a trial with this status will not be trained again."""
        return self not in (TrialStatus.PLANNED, TrialStatus.RUNNING)
