"""A trial that is trained report by report: as far as a test asks, and no further."""

import queue
import threading
from collections.abc import Generator

from hsweep.design.trial import Assignment, Event
from hsweep.training.run import Channel
from hsweep.training.train import train
from hsweep.training.world import ALONE, World


class Steps(Channel):
    """The channel of a trial whose next report is trained when it is asked for."""

    def __init__(self) -> None:
        self.has_to_stop = False
        self.events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

    @property
    def is_stopped(self) -> bool:
        return self.has_to_stop

    def put(self, event: Event, /) -> bool:
        self.events.put(event)
        return not self.is_stopped and self.answers.get()


def train_stepwise(assignment: Assignment, world: World = ALONE) -> Generator[Event, None, None]:
    """Yield what a trial reports, which trains in a thread; to close this ends the trial there.

    What its training raises is raised where its next report was asked for.
    """
    steps = Steps()

    def run() -> None:
        try:
            train(assignment, steps, world)
            steps.events.put(None)
        except BaseException as error:
            steps.events.put(error)

    thread = threading.Thread(target=run, name="training", daemon=True)
    thread.start()
    try:
        while isinstance(event := steps.events.get(), Event):
            yield event
            steps.answers.put(True)
        if event is not None:
            raise event
    finally:
        steps.has_to_stop = True
        steps.answers.put(False)
        thread.join()


def to_the_end(assignment: Assignment, world: World = ALONE) -> list[Event]:
    """Train a trial to its end, in this thread, and return what it reports."""
    events: list[Event] = []

    class Listening(Steps):
        def put(self, event: Event, /) -> bool:
            events.append(event)
            return True

    train(assignment, Listening(), world)
    return events
