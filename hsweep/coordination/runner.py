"""What runs trials: the contract, and the runner that needs nothing but this process."""

import traceback
from typing import Protocol

from hsweep.coordination.coordinator import Coordinator
from hsweep.training.worker import TrialSession


class Runner(Protocol):
    """Runs whatever a coordinator hands out, until nothing is left or a stop is requested.

    A failing trial is told to the coordinator and never ends the run; after a requested stop,
    every trial that was running has a checkpoint of its last report.
    """

    def run(self, coordinator: Coordinator) -> None:
        """Return when the coordinator is exhausted."""
        ...


class InlineRunner:
    """Runs one trial after another in this process."""

    def run(self, coordinator: Coordinator) -> None:
        """Return when the coordinator is exhausted."""
        while (assignment := coordinator.take()) is not None:
            try:
                session = TrialSession(assignment)
                try:
                    while coordinator.report(assignment, session.next_report()):
                        if coordinator.stop_requested:
                            break
                finally:
                    session.close()
            except Exception:
                coordinator.failed(assignment, traceback.format_exc())
