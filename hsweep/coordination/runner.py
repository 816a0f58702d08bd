"""What runs trials: the contract, and the runner that needs nothing but this process."""

from collections.abc import Sequence
from typing import Protocol

from hsweep.coordination.coordinator import Coordinator
from hsweep.design.trial import Assignment
from hsweep.errors import failure_text
from hsweep.training.stacked.door import open_session
from hsweep.training.worker import Session


class Runner(Protocol):
    """Runs whatever a coordinator hands out, until nothing is left or a stop is requested.

    A failing trial is told to the coordinator and never ends the run; after a requested stop,
    every trial that was running has a checkpoint of its last report.
    """

    def run(self, coordinator: Coordinator) -> None:
        """Return when the coordinator is exhausted."""
        ...

    def close(self) -> None:
        """Let go of what is held; it may be called again."""
        ...


class InlineRunner:
    """Runs one trial after another in this process, or the trials of a bundle as one program."""

    def run(self, coordinator: Coordinator) -> None:
        """Return when the coordinator is exhausted."""
        while bundle := coordinator.take_bundle():
            session: Session | None = None
            try:
                session = open_session(bundle)
                try:
                    _train(session, bundle, coordinator)
                finally:
                    session.close()
            except Exception as error:
                failed = (session.current if session is not None else None) or bundle[0]
                coordinator.failed(failed, failure_text(error))
                for assignment in bundle:
                    coordinator.give_back(assignment)

    def close(self) -> None:
        """Do nothing: nothing is held."""


def _train(session: Session, bundle: Sequence[Assignment], coordinator: Coordinator) -> None:
    while words := session.next_words():
        for assignment, said in words:
            if not coordinator.report(assignment, said):
                session.drop(assignment.trial.key)
        if coordinator.stop_requested:
            return
    coordinator.all_said(bundle)
