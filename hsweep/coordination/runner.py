"""What runs trials: the contract, and the runner that needs nothing but this process."""

from typing import Protocol

from hsweep.coordination.coordinator import Coordinator
from hsweep.design.trial import Assignment
from hsweep.errors import RefusedReportError, failure_text
from hsweep.training.door import open_session
from hsweep.training.session import Session, WaitingSession


class Runner(Protocol):
    """Runs whatever a coordinator hands out, until nothing is left or a stop is requested.

    A failing trial is told to the coordinator and never ends the run; after a requested stop,
    every trial that was running has a checkpoint of its last report.
    """

    def run(self, coordinator: Coordinator) -> None:
        """Return when the coordinator is exhausted."""

    def close(self) -> None:
        """Let go of what is held; it may be called again."""


class InlineRunner:
    """Runs one trial after another in this process."""

    def run(self, coordinator: Coordinator) -> None:
        while assignment := coordinator.next_assignment():
            session: Session | None = None
            try:
                session = open_session(assignment)
                if isinstance(session, WaitingSession):
                    coordinator.stop_waiting = session.stop_waiting
                    if coordinator.stop_requested:
                        session.stop_waiting()
                try:
                    _train(session, assignment, coordinator)
                finally:
                    coordinator.stop_waiting = None
                    session.close()
            except Exception as error:
                is_final = isinstance(error, RefusedReportError)
                coordinator.failed(assignment, failure_text(error), is_final=is_final)

    def close(self) -> None:
        """Do nothing: nothing is held."""


def _train(session: Session, assignment: Assignment, coordinator: Coordinator) -> None:
    while events := session.next_events():
        for _, event in events:
            if not coordinator.report(assignment, event):
                session.drop(assignment.trial.key)
        if coordinator.stop_requested:
            return
    if coordinator.stop_requested:  # which ended the wait for the next
        return
    coordinator.no_more_events([assignment])
