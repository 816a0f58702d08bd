"""What a coordinator talks to: a search that proposes trials, and a display."""

from typing import Protocol

from hsweep.design.trial import Report, Trial, TrialStatus


class Proposer(Protocol):
    """Proposes trials while a study runs."""

    @property
    def num_to_come(self) -> int:
        """How many trials are still to be proposed, at most."""

    def propose(self) -> list[Trial]:
        """Return new trials; none when there will be no more."""

    def tell(self, trial: Trial, status: TrialStatus, unit: int, value: float | None) -> None:
        """Learn how a trial ended, and the unit and value of its last report."""


class Observer(Protocol):
    """Is told of every start, report and end, for display; must not take long."""

    def started(self, trial: Trial, attempt: int) -> None:
        """A trial was handed to a worker."""

    def reported(self, trial: Trial, report: Report) -> None:
        """A report was recorded."""

    def ended(self, trial: Trial, status: TrialStatus, reason: str) -> None:
        """A trial reached a final state, or will be tried again (status ``planned``)."""
