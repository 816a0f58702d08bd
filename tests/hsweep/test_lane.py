"""A lane: training does not wait for the driver but where the driver may have a word."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tiny import tiny_sweep
from tiny_runs import assignment_of, planned

from hsweep import grid
from hsweep.design.trial import Assignment, Report
from hsweep.training.lane import Begun, BrokenLaneError, Failure, Lane, Word
from hsweep.training.worker import Said

TRIALS = planned(tiny_sweep(space=grid(width=[1, 2, 3, 4, 5, 6])))
PATIENCE = 30.0


def assigned(number: int, *waits_at: int) -> Assignment:
    given = assignment_of(TRIALS[number], Path("/nowhere"))
    return replace(given, waits_at=frozenset(waits_at))


def key(number: int) -> str:
    return TRIALS[number].key


@dataclass
class Scripted:
    """Says what a script has it say; remembers how far it came and whether it was closed."""

    assignment: Assignment
    num_reports: int = 3
    before: Callable[[int], None] = lambda unit: None
    said: int = 0
    is_closed: threading.Event = field(default_factory=threading.Event)

    @property
    def current(self) -> Assignment:
        return self.assignment

    def next_words(self) -> Sequence[Said]:
        if self.said == self.num_reports:
            return []
        self.before(self.said + 1)
        self.said += 1
        is_last = self.said == self.num_reports
        return [(self.assignment, Report(self.said, self.said, {}, 0.0, is_last))]

    def drop(self, key: str) -> None:
        raise AssertionError("a session of one trial is closed")

    def close(self) -> None:
        self.is_closed.set()


class Sessions:
    """Opens scripted sessions and keeps them by trial."""

    def __init__(self, **scripts: object) -> None:
        self.opened: dict[str, Scripted] = {}
        self.scripts = scripts

    def __call__(self, assignments: Sequence[Assignment]) -> Scripted:
        (assignment,) = assignments
        session = Scripted(assignment, **self.scripts)  # type: ignore[arg-type]
        self.opened[assignment.trial.key] = session
        return session


def units(words: Sequence[Word]) -> list[tuple[str, int]]:
    assert all(isinstance(word.said, Report | Begun) for word in words)
    return [(word.key, word.said.unit) for word in words if isinstance(word.said, Report)]


def everything(lane: Lane) -> list[Word]:
    """Ask a lane until it has no more to say."""
    words: list[Word] = []
    while said := lane.next_words():
        words += said
    return words


def reports_until(lane: Lane, number: int, unit: int) -> list[tuple[str, int]]:
    """Ask a lane until a trial of it has reported of a unit, and once no more: it waits there."""
    words = lane.next_words()
    while (key(number), unit) not in units(words):
        words += lane.next_words()
    return units(words)


def everything_before_the_end(lane: Lane) -> list[Word]:
    """Ask a lane until a trial of it has failed."""
    words = lane.next_words()
    while not isinstance(words[-1].said, Failure):
        words += lane.next_words()
    return words


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
    lane = Lane(opening=sessions)
    lane.give([assigned(0), assigned(1)])
    first = lane.next_words()
    lane.give([assigned(2)])
    expected = [(key(number), unit) for number in range(3) for unit in range(1, 401)]
    assert units(first + everything(lane)) == expected
    assert all(session.is_closed.is_set() for session in sessions.opened.values())
    assert lane.next_words() == [], "a lane that has run dry says so"


def test_training_goes_on_while_nobody_asks() -> None:
    reached = threading.Event()

    def before(unit: int) -> None:
        if unit == 3:
            reached.set()

    lane = Lane(opening=Sessions(before=before))
    lane.give([assigned(0)])
    first = lane.next_words()
    assert reached.wait(PATIENCE)
    assert units(first + everything(lane)) == [(key(0), 1), (key(0), 2), (key(0), 3)]


def test_it_does_not_run_ahead_of_its_driver_for_ever() -> None:
    sessions = Sessions(num_reports=10_000)
    lane = Lane(opening=sessions)
    lane.give([assigned(0)])
    parcels = []
    while words := lane.next_words():
        parcels.append(len(words))
    assert sum(parcels) == 10_001, "that it began is a word too"
    assert max(parcels) <= 256


def test_at_a_rung_a_trial_waits_until_it_is_judged() -> None:
    sessions = Sessions(num_reports=4)
    lane = Lane(opening=sessions)
    lane.give([assigned(0, 2)])
    assert reports_until(lane, 0, 2) == [(key(0), 1), (key(0), 2)]
    assert sessions.opened[key(0)].said == 2
    assert units(everything(lane)) == [(key(0), 3), (key(0), 4)]


def test_a_trial_dropped_at_its_rung_is_closed_there_and_the_next_one_begins() -> None:
    sessions = Sessions(num_reports=4)
    lane = Lane(opening=sessions)
    lane.give([assigned(0, 1), assigned(1)])
    assert reports_until(lane, 0, 1) == [(key(0), 1)]
    lane.drop(key(0))
    assert sessions.opened[key(0)].is_closed.is_set()
    assert units(everything(lane)) == [(key(1), unit) for unit in (1, 2, 3, 4)]
    assert sessions.opened[key(0)].said == 1


def test_a_trial_dropped_while_it_trains_ends_at_its_next_report() -> None:
    is_training, may_go, before = pausing_at(2)
    sessions = Sessions(num_reports=100, before=before)
    lane = Lane(opening=sessions)
    lane.give([assigned(0)])
    assert lane.next_words(), "it begins when it is first asked"
    assert is_training.wait(PATIENCE)
    dropping = threading.Thread(target=lane.drop, args=(key(0),))
    dropping.start()
    assert not sessions.opened[key(0)].is_closed.is_set()
    may_go.set()
    dropping.join(PATIENCE)
    assert sessions.opened[key(0)].is_closed.is_set()
    assert sessions.opened[key(0)].said <= 3


def test_a_trial_dropped_before_it_began_never_begins() -> None:
    sessions = Sessions()
    lane = Lane(opening=sessions)
    lane.give([assigned(0, 1), assigned(1), assigned(2)])
    assert reports_until(lane, 0, 1) == [(key(0), 1)]
    lane.drop(key(1))
    assert {number for number, _ in units(everything(lane))} == {key(0), key(2)}
    assert key(1) not in sessions.opened


@pytest.mark.parametrize("error", [RuntimeError("on purpose"), SystemExit(3), MemoryError()])
def test_what_a_trial_raises_is_its_last_word_and_the_lanes(error: BaseException) -> None:
    def before(unit: int) -> None:
        if unit == 2:
            raise error

    sessions = Sessions(before=before)
    lane = Lane(opening=sessions)
    lane.give([assigned(0), assigned(1)])
    words = everything_before_the_end(lane)
    assert units(words[:-1]) == [(key(0), 1)]
    assert words[-1].key == key(0)
    assert type(error).__name__ in words[-1].said.text
    assert "in before" in words[-1].said.text
    assert sessions.opened[key(0)].is_closed.is_set()
    with pytest.raises(BrokenLaneError):
        lane.next_words()
    assert key(1) not in sessions.opened


def test_a_failure_tells_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "correct-horse")

    def opening(assignments: Sequence[Assignment]) -> Scripted:
        raise OSError("https://me:correct-horse@store/data cannot be reached")

    lane = Lane(opening=opening)
    lane.give([assigned(0)])
    *_, word = everything_before_the_end(lane)
    assert isinstance(word.said, Failure)
    assert "cannot be reached" in word.said.text
    assert "correct-horse" not in word.said.text


def test_stopping_closes_what_trains_and_forgets_what_waits() -> None:
    sessions = Sessions(num_reports=4)
    lane = Lane(opening=sessions)
    lane.give([assigned(0, 1), assigned(1)])
    reports_until(lane, 0, 1)
    lane.stop()
    assert sessions.opened[key(0)].is_closed.is_set()
    assert list(sessions.opened) == [key(0)]
    lane.give([assigned(2)])
    assert {number for number, _ in units(everything(lane))} == {key(2)}


def test_every_piece_of_work_is_watched_over() -> None:
    watched: list[tuple[str, bool]] = []

    class Watching:
        def __init__(self, assignment: Assignment, is_turn: bool) -> None:
            watched.append((assignment.trial.key, is_turn))

        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None: ...

    lane = Lane(Watching, Sessions(num_reports=2))  # type: ignore[arg-type]
    lane.give([assigned(0)])
    everything(lane)
    # Beginning, two reports, learning that there are no more, and the end.
    assert watched == [(key(0), turn) for turn in (True, False, False, False, True)]


def test_a_trial_that_begins_is_said_to_before_it_can_do_any_harm() -> None:
    may_go = threading.Event()

    def before(unit: int) -> None:
        assert may_go.wait(PATIENCE)

    lane = Lane(opening=Sessions(num_reports=1, before=before))
    lane.give([assigned(0)])
    assert [word.said for word in lane.next_words()] == [Begun()]
    may_go.set()
    assert units(everything(lane)) == [(key(0), 1)]


def test_what_was_said_before_it_was_halted_can_be_asked_for() -> None:
    sessions = Sessions(num_reports=4)
    lane = Lane(opening=sessions)
    lane.give([assigned(0, 2), assigned(1)])
    assert reports_until(lane, 0, 2)[-1] == (key(0), 2)
    lane.halt()
    assert everything(lane) == []
    assert sessions.opened[key(0)].is_closed.is_set()
    assert sessions.opened[key(0)].said == 2
    assert key(1) not in sessions.opened


def test_a_halted_lane_says_what_its_trial_said_last() -> None:
    is_training, may_go, before = pausing_at(3)
    sessions = Sessions(num_reports=9, before=before)
    lane = Lane(opening=sessions)
    lane.give([assigned(0)])
    first = lane.next_words()
    assert is_training.wait(PATIENCE)
    lane.halt()
    may_go.set()
    assert units(first + everything(lane)) == [(key(0), 1), (key(0), 2), (key(0), 3)]
    assert sessions.opened[key(0)].is_closed.is_set()
