"""The contract of runners, and the runner that trains in this process."""

from typing import Protocol

from hsweep.coordination.coordinator import Coordinator
from hsweep.design.trial import Assignment, Event, Resources
from hsweep.errors import FinalError, SpentProcessError, failure_text
from hsweep.training.run import Channel
from hsweep.training.train import train


class Runner(Protocol):
    """Runs the trials that a coordinator hands out, until none is left or a stop is requested.

    A failing trial is told to the coordinator and never ends the run; after a requested stop,
    every trial that was running has a checkpoint of its last report.
    """

    def run(self, coordinator: Coordinator) -> None:
        """Return when the coordinator is exhausted."""

    def room(self, request: Resources, /) -> int:
        """Return how many trials of this size train at once."""

    def close(self) -> None:
        """Release all resources; a second call does nothing."""


class InlineRunner:
    """Runs one trial after another in this process, in the thread that calls it."""

    def room(self, _request: Resources, /) -> int:
        """Return 1."""
        return 1

    def run(self, coordinator: Coordinator) -> None:
        while assignment := coordinator.next_assignment(in_driver=True):
            try:
                train(assignment, _Channel(coordinator, assignment))
            except Exception as error:
                is_final = isinstance(error, FinalError | SpentProcessError)
                coordinator.failed(assignment, failure_text(error), is_final=is_final)
                import torch

                # An error of a device lasts as long as the process, as CUDA's do.
                if isinstance(error, torch.AcceleratorError):
                    coordinator.request_stop(
                        "after this error no trial can use the device in this process; a new one "
                        "goes on",
                        is_trouble=True,
                    )
            if not coordinator.stop_requested:
                coordinator.no_more_events([assignment])

    def close(self) -> None:
        """Do nothing: nothing is held."""


class _Channel(Channel):
    """Where the events of a trial go: the coordinator, which decides at once."""

    def __init__(self, coordinator: Coordinator, assignment: Assignment) -> None:
        self._coordinator, self._assignment = coordinator, assignment

    @property
    def is_stopped(self) -> bool:
        return self._coordinator.stop_requested

    def put(self, event: Event, /) -> bool:
        goes_on = self._coordinator.report(self._assignment, event)
        return goes_on and not self._coordinator.stop_requested
