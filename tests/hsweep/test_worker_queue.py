"""A worker's queue: training does not wait for the driver but where the driver may stop a trial."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tiny import tiny_sweep
from tiny_runs import assignment_of, planned

from hsweep import grid
from hsweep.design.trial import Assignment, Report
from hsweep.training import worker_queue
from hsweep.training.run import Channel
from hsweep.training.worker_queue import (
    BrokenWorkerError,
    HangWatch,
    Message,
    TrialError,
    WorkerQueue,
)

TRIALS = planned(tiny_sweep(space=grid(width=[1, 2, 3, 4, 5, 6])))
PATIENCE = 200.0


def assigned(number: int, *waits_at: int) -> Assignment:
    given = assignment_of(TRIALS[number], Path("/nowhere"))
    return replace(given, waits_at=frozenset(waits_at))


def key(number: int) -> str:
    return TRIALS[number].key


@dataclass
class Scripted:
    """Reports what a script has it report; remembers how far it came and whether it was closed."""

    assignment: Assignment
    num_reports: int = 3
    before: Callable[[int], None] = lambda unit: None
    num_said: int = 0
    is_closed: threading.Event = field(default_factory=threading.Event)

    def train(self, channel: Channel) -> None:
        channel.begins()
        goes_on = True
        while goes_on and self.num_said < self.num_reports:
            self.before(self.num_said + 1)
            self.num_said += 1
            is_last = self.num_said == self.num_reports
            goes_on = channel.put(Report(self.num_said, self.num_said, {}, 0.0, is_last))


class Sessions:
    """Trains scripted trials, and keeps them by key."""

    def __init__(self, **scripts: object) -> None:
        self.opened: dict[str, Scripted] = {}
        self.scripts = scripts

    def __call__(self, assignment: Assignment, channel: Channel) -> None:
        session = Scripted(assignment, **self.scripts)  # type: ignore[arg-type]
        self.opened[assignment.trial.key] = session
        try:
            session.train(channel)
        finally:
            session.is_closed.set()


def units(messages: Sequence[Message]) -> list[tuple[str, int]]:
    assert all(message.event is None or isinstance(message.event, Report) for message in messages)
    return [
        (message.key, message.event.unit)
        for message in messages
        if isinstance(message.event, Report)
    ]


def everything(queue: WorkerQueue) -> list[Message]:
    """Ask until there is nothing more."""
    messages: list[Message] = []
    while found := queue.next_messages():
        messages += found
    return messages


def reports_until(queue: WorkerQueue, number: int, unit: int) -> list[tuple[str, int]]:
    """Ask until a trial of it has reported of a unit, and once no more: it waits there."""
    messages = queue.next_messages()
    while (key(number), unit) not in units(messages):
        messages += queue.next_messages()
    return units(messages)


def everything_before_the_end(queue: WorkerQueue) -> list[Message]:
    """Ask until a trial of it has failed."""
    messages = queue.next_messages()
    while not isinstance(messages[-1].event, TrialError):
        messages += queue.next_messages()
    return messages


def pausing_at(unit: int) -> tuple[threading.Event, threading.Event, Callable[[int], None]]:
    """Return what to call before each unit: at this one it says so and waits until it may go."""
    is_there, may_go = threading.Event(), threading.Event()

    def before(number: int) -> None:
        if number == unit:
            is_there.set()
            assert may_go.wait(PATIENCE)

    return is_there, may_go, before


def test_trials_are_trained_in_the_order_given_and_nothing_they_say_is_lost() -> None:
    sessions = Sessions(num_reports=400)
    queue = WorkerQueue(train=sessions)
    queue.give([assigned(0), assigned(1)])
    first = queue.next_messages()
    queue.give([assigned(2)])
    expected = [(key(number), unit) for number in range(3) for unit in range(1, 401)]
    assert units(first + everything(queue)) == expected
    assert all(session.is_closed.is_set() for session in sessions.opened.values())
    assert queue.next_messages() == [], "a queue that is empty says so"


def test_training_goes_on_while_nobody_asks() -> None:
    reached = threading.Event()

    def before(unit: int) -> None:
        if unit == 3:
            reached.set()

    queue = WorkerQueue(train=Sessions(before=before))
    queue.give([assigned(0)])
    first = queue.next_messages()
    assert reached.wait(PATIENCE)
    assert units(first + everything(queue)) == [(key(0), 1), (key(0), 2), (key(0), 3)]


def test_it_does_not_run_ahead_of_its_driver_for_ever() -> None:
    sessions = Sessions(num_reports=10_000)
    queue = WorkerQueue(train=sessions)
    queue.give([assigned(0)])
    deliveries = []
    while messages := queue.next_messages():
        deliveries.append(len(messages))
    assert sum(deliveries) == 10_001, "that it started is a message too"
    assert max(deliveries) <= 256


def test_at_a_rung_a_trial_waits_until_it_is_judged() -> None:
    sessions = Sessions(num_reports=4)
    queue = WorkerQueue(train=sessions)
    queue.give([assigned(0, 2)])
    assert reports_until(queue, 0, 2) == [(key(0), 1), (key(0), 2)]
    assert sessions.opened[key(0)].num_said == 2
    assert units(everything(queue)) == [(key(0), 3), (key(0), 4)]


def test_a_trial_dropped_at_its_rung_is_closed_there_and_the_next_one_begins() -> None:
    sessions = Sessions(num_reports=4)
    queue = WorkerQueue(train=sessions)
    queue.give([assigned(0, 1), assigned(1)])
    assert reports_until(queue, 0, 1) == [(key(0), 1)]
    queue.drop(key(0))
    assert sessions.opened[key(0)].is_closed.is_set()
    assert units(everything(queue)) == [(key(1), unit) for unit in (1, 2, 3, 4)]
    assert sessions.opened[key(0)].num_said == 1


def test_a_trial_dropped_while_it_trains_ends_at_its_next_report() -> None:
    is_training, may_go, before = pausing_at(2)
    sessions = Sessions(num_reports=100, before=before)
    queue = WorkerQueue(train=sessions)
    queue.give([assigned(0)])
    assert queue.next_messages(), "it begins when it is first asked"
    assert is_training.wait(PATIENCE)
    dropping = threading.Thread(target=queue.drop, args=(key(0),))
    dropping.start()
    assert not sessions.opened[key(0)].is_closed.is_set()
    may_go.set()
    dropping.join(PATIENCE)
    assert sessions.opened[key(0)].is_closed.is_set()
    assert sessions.opened[key(0)].num_said <= 3


def test_a_trial_dropped_before_it_began_never_begins() -> None:
    sessions = Sessions()
    queue = WorkerQueue(train=sessions)
    queue.give([assigned(0, 1), assigned(1), assigned(2)])
    assert reports_until(queue, 0, 1) == [(key(0), 1)]
    queue.drop(key(1))
    assert {number for number, _ in units(everything(queue))} == {key(0), key(2)}
    assert key(1) not in sessions.opened


@pytest.mark.parametrize("error", [RuntimeError("on purpose"), SystemExit(3), MemoryError()])
def test_what_a_trial_raises_is_its_last_message_and_the_workers(error: BaseException) -> None:
    def before(unit: int) -> None:
        if unit == 2:
            raise error

    sessions = Sessions(before=before)
    queue = WorkerQueue(train=sessions)
    queue.give([assigned(0), assigned(1)])
    messages = everything_before_the_end(queue)
    assert units(messages[:-1]) == [(key(0), 1)]
    assert messages[-1].key == key(0)
    assert type(error).__name__ in messages[-1].event.text
    assert "in before" in messages[-1].event.text
    assert sessions.opened[key(0)].is_closed.is_set()
    with pytest.raises(BrokenWorkerError):
        queue.next_messages()
    assert key(1) not in sessions.opened


def test_a_failure_tells_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "correct-horse")

    def train(assignment: Assignment, channel: Channel) -> None:
        raise OSError("https://me:correct-horse@store/data cannot be reached")

    queue = WorkerQueue(train=train)
    queue.give([assigned(0)])
    *_, message = everything_before_the_end(queue)
    assert isinstance(message.event, TrialError)
    assert "cannot be reached" in message.event.text
    assert "correct-horse" not in message.event.text


def test_stopping_closes_what_trains_and_forgets_what_waits() -> None:
    sessions = Sessions(num_reports=4)
    queue = WorkerQueue(train=sessions)
    queue.give([assigned(0, 1), assigned(1)])
    reports_until(queue, 0, 1)
    queue.stop()
    assert sessions.opened[key(0)].is_closed.is_set()
    assert list(sessions.opened) == [key(0)]
    queue.give([assigned(2)])
    assert {number for number, _ in units(everything(queue))} == {key(2)}


def test_every_piece_of_work_is_watched_over() -> None:
    watched: list[tuple[str, bool] | None] = []

    class Watching(HangWatch):
        def begin(self, assignment: Assignment, *, is_turn: bool) -> None:
            watched.append((assignment.trial.key, is_turn))

        def end(self) -> None:
            watched.append(None)

    queue = WorkerQueue(Sessions(num_reports=2), Watching())
    queue.give([assigned(0)])
    everything(queue)
    turn, work = (key(0), True), (key(0), False)
    # Beginning, the way to each of two reports, and the end; no time counts while one is taken.
    assert watched == [turn, work, None, work, None, turn, None]


def test_that_a_trial_starts_is_told_before_it_can_do_any_harm() -> None:
    may_go = threading.Event()

    def before(unit: int) -> None:
        assert may_go.wait(PATIENCE)

    queue = WorkerQueue(train=Sessions(num_reports=1, before=before))
    queue.give([assigned(0)])
    assert [message.event for message in queue.next_messages()] == [None]
    may_go.set()
    assert units(everything(queue)) == [(key(0), 1)]


def test_what_was_said_before_it_was_halted_can_be_asked_for() -> None:
    sessions = Sessions(num_reports=4)
    queue = WorkerQueue(train=sessions)
    queue.give([assigned(0, 2), assigned(1)])
    assert reports_until(queue, 0, 2)[-1] == (key(0), 2)
    queue.halt()
    assert everything(queue) == []
    assert sessions.opened[key(0)].is_closed.is_set()
    assert sessions.opened[key(0)].num_said == 2
    assert key(1) not in sessions.opened


def test_a_halted_queue_tells_what_its_trial_reported_last() -> None:
    is_training, may_go, before = pausing_at(3)
    sessions = Sessions(num_reports=9, before=before)
    queue = WorkerQueue(train=sessions)
    queue.give([assigned(0)])
    first = queue.next_messages()
    assert is_training.wait(PATIENCE)
    queue.halt()
    may_go.set()
    assert units(first + everything(queue)) == [(key(0), 1), (key(0), 2), (key(0), 3)]
    assert sessions.opened[key(0)].is_closed.is_set()


def test_a_queue_that_retires_ends_its_trial_begins_no_other_and_then_its_process() -> None:
    is_training, may_go, before = pausing_at(3)
    sessions = Sessions(num_reports=9, before=before)
    queue = WorkerQueue(train=sessions)
    queue.give([assigned(0), assigned(1)])
    messages = queue.next_messages()

    def ask() -> None:
        while True:
            messages.extend(queue.next_messages())

    assert is_training.wait(PATIENCE)
    queue.retire()
    may_go.set()
    with pytest.raises(BrokenWorkerError):
        ask()
    assert units(messages) == [(key(0), 1), (key(0), 2), (key(0), 3)]
    assert [*sessions.opened] == [key(0)]


def test_a_driver_comes_to_its_turn_while_a_unit_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_queue, "TURN_SECONDS", 0.01)
    _, may_go, before = pausing_at(1)
    queue = WorkerQueue(train=Sessions(num_reports=1, before=before))
    queue.give([assigned(0)])
    for _ in range(3):
        assert [(each.key, each.event) for each in queue.next_messages()] == [(key(0), None)]
    may_go.set()
    assert (key(0), 1) in units(everything(queue))
