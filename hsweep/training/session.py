"""Trials in training, as every runner drives them."""

from collections.abc import Sequence
from typing import Protocol

from hsweep.design.trial import Assignment, Event

TrialEvent = tuple[Assignment, Event]
"""A trial, and what it tells its driver."""


class Session(Protocol):
    """Trials in training: ask for their next reports, or close it."""

    @property
    def current(self) -> Assignment | None:
        """The trial whose failure it is if something is raised; None if that cannot be told."""
        ...

    def next_events(self) -> Sequence[TrialEvent]:
        """Train up to the next reports; nothing after the last."""
        ...

    def drop(self, key: str) -> None:
        """End one of the trials, keeping what is not yet on disk."""
        ...

    def close(self) -> None:
        """End all trials, keeping what is not yet on disk."""
        ...


class TrialSession:
    """A trial in training: ask for its next report, or close it.

    Args:
        assignment: the trial, and where its checkpoints lie.

    Closing a session whose trial has not reported its last writes a checkpoint.
    """

    def __init__(self, assignment: Assignment) -> None:
        import torch

        from hsweep.training.train import train

        resources = assignment.resources
        # Workers are reused between trials, so whatever a trial sets it sets for itself.
        torch.set_num_threads(resources.num_threads)
        self.assignment = assignment
        self._device = torch.device("cuda" if resources.gpus else "cpu")
        self._reports = train(assignment, self._device)

    @property
    def current(self) -> Assignment | None:
        """The trial."""
        return self.assignment

    def next_events(self) -> Sequence[TrialEvent]:
        """Return the next report, or why the trial cannot go on; nothing after the last."""
        return [(self.assignment, event) for event in (next(self._reports, None),) if event]

    def drop(self, key: str) -> None:
        """End the trial, which is the only one."""
        assert key == self.assignment.trial.key
        self.close()

    def close(self) -> None:
        """Stop training, keeping what is not yet on disk, and give the device's memory back.

        Work that cannot be kept is lost: the trial then goes on from an older checkpoint.
        """
        self._reports.close()
        if self._device.type == "cuda":
            from hsweep.training.memory import release

            release(self._device)
