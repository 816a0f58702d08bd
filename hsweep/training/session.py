"""Trials in training, as every runner drives them."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from hsweep.design.trial import Assignment, Event

TrialEvent = tuple[Assignment, Event]
"""A trial, and what it tells its driver."""


class Session(Protocol):
    """Trials in training: ask for their next reports, or close it."""

    def next_events(self) -> Sequence[TrialEvent]:
        """Train up to the next reports; nothing after the last."""

    def drop(self, key: str) -> None:
        """End one of the trials, keeping what is not yet on disk."""

    def close(self) -> None:
        """End all trials, keeping what is not yet on disk, and give the device's memory back."""


@runtime_checkable
class WaitingSession(Session, Protocol):
    """A session whose training is another process, so that nothing has to wait for its reports."""

    def stop_waiting(self) -> None:
        """Let ``next_events`` return nothing soon; called from another thread or a signal."""
