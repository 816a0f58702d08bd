"""Many lanes at once leave the record that one trial after another leaves, whatever dies.

Ray and Tune are played by threads of this process; coordinator, record and lanes are the real ones.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import tiny_sweep
from tiny_runs import coordinating, histories, statuses

from hsweep import Asha, Sweep, epochs, grid
from hsweep.coordination import runner as inline
from hsweep.design.trial import Assignment, Report, Resources
from hsweep.ray_tune.environment import prepare_ray
from hsweep.training import lane as training_lane
from hsweep.training.lane import BrokenLaneError, Failure, Lane
from hsweep.training.worker import Said

prepare_ray()

import ray  # noqa: E402
from ray.exceptions import RayActorError  # noqa: E402

from hsweep.ray_tune import dispatch as ray_dispatch  # noqa: E402
from hsweep.ray_tune import link as ray_link  # noqa: E402
from hsweep.ray_tune.actor import PARCEL, WORDS, Parcel  # noqa: E402
from hsweep.ray_tune.link import Link  # noqa: E402

BUDGET = 8


@dataclass
class Scripted:
    """A trial whose values are a function of itself and the unit; it remembers nothing on disk,
    so it goes on from what the record has."""

    assignment: Assignment
    raises: bool = False
    unit: int = field(init=False)

    def __post_init__(self) -> None:
        self.unit = self.assignment.recorded_through

    @property
    def current(self) -> Assignment:
        return self.assignment

    def next_report(self) -> Report:
        if self.unit == BUDGET:
            raise StopIteration
        if self.raises and self.unit == 1:
            raise RuntimeError("on purpose")
        self.unit += 1
        trial = self.assignment.trial
        value = random.Random(f"{trial.key}/{self.unit}").random()
        return Report(
            self.unit, self.unit, {"nmse": value, "fit": 0.0}, 0.001 * self.unit,
            is_last=self.unit == BUDGET, train_seconds=0.001 * self.unit,
        )  # fmt: skip

    def next_words(self) -> Sequence[Said]:
        try:
            return [(self.assignment, self.next_report())]
        except StopIteration:
            return []

    def drop(self, key: str) -> None:
        self.close()

    def close(self) -> None:
        pass


class Remote:
    """A method of an actor, called as Ray's are; done when the call returns."""

    def __init__(self, method: Any) -> None:
        self.remote = method


class Actor:
    """A worker process: a lane, and the names by which the driver calls it."""

    def __init__(self, sessions: Any) -> None:
        self.lane = Lane(opening=lambda given: sessions(*given))
        self.give = Remote(self.lane.give)
        self.drop = Remote(self.lane.drop)
        self.where = Remote(lambda: None)


class Tune:
    """Asks a link what to run, in as many lanes as there are slots, in an order of its own.

    Args:
        link: to the coordinator.
        slots: lanes at once.
        seed: of the order in which lanes are heard and killed.
        kills: how many lanes to kill.
    """

    def __init__(self, link: Link, sessions: Any, slots: int, seed: int, kills: int = 0) -> None:
        self.link, self.sessions, self.slots, self.kills = link, sessions, slots, kills
        self.random = random.Random(seed)
        self.trials: dict[str, Any] = {}
        self.num_lanes = 0
        self.largest = 0

    def run(self) -> None:
        while not self.link.coordinator.is_exhausted:
            while len(self.trials) < self.slots and self._start():
                pass
            assert self.trials, "something waits and nothing runs"
            trial = self.random.choice(list(self.trials.values()))
            # Trials that all end alike before any reports would pause the study.
            has_reported = self.link.coordinator.snapshot().units_done > 0
            if self.kills and has_reported and self.random.random() < 0.3:
                self.kills -= 1
                self._end(trial, RayActorError(error_msg="killed"))
            else:
                self._hear(trial)

    def _start(self) -> bool:
        trial_id = f"lane-{self.num_lanes}"
        parcel: Parcel | None = self.link.next_parcel(trial_id)
        if parcel is None:
            return False
        self.num_lanes += 1
        actor = Actor(self.sessions)
        trial: Any = SimpleNamespace(
            trial_id=trial_id,
            config={PARCEL: parcel},
            storage=None,
            temporary_state=SimpleNamespace(ray_actor=actor),
        )
        self.trials[trial_id] = trial
        self.link.began(trial)
        actor.lane.give(parcel.assignments)
        return True

    def _hear(self, trial: Any) -> None:
        try:
            words = trial.temporary_state.ray_actor.lane.next_words()
        except BrokenLaneError as error:
            self._end(trial, error)
            return
        goes_on = self.link.said(trial, {WORDS: words})
        self.largest = max(self.largest, len(self.undone(trial)))
        if not goes_on:
            self.link.ended(trial)
            del self.trials[trial.trial_id]

    def undone(self, trial: Any) -> dict[str, Assignment]:
        return self.link._lanes[trial.trial_id].undone

    def _end(self, trial: Any, error: BaseException) -> None:
        del self.trials[trial.trial_id]
        ray_link_heard[trial.trial_id] = error
        trial.temporary_state.ray_actor.lane.stop()
        self.link.failed(trial)


ray_link_heard: dict[str, BaseException] = {}


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_link, "heard_of", lambda trial: ray_link_heard.pop(trial.trial_id))
    monkeypatch.setattr(ray, "wait", lambda references, timeout: (references, []))
    monkeypatch.setattr(ray, "nodes", list)
    monkeypatch.setattr(inline, "open_session", lambda given: Scripted(*given))
    monkeypatch.setattr(training_lane, "PARCEL_SECONDS", 0.0)


def sweep_of(stopping: Asha | None, **changes: Any) -> Sweep:
    return tiny_sweep(
        space=grid(width=list(range(1, 9))),
        replicates=3,
        budget=epochs(BUDGET),
        early_stopping=stopping,
        **changes,
    )


TOGETHER = Asha(grace=1, reduction_factor=2, min_survivors=3)


@contextmanager
def trained(sweep: Sweep, folder: Path, slots: int, seed: int, **more: Any) -> Iterator[Tune]:
    sessions = more.pop("sessions", Scripted)
    with coordinating(sweep, folder) as coordinator:
        tune = Tune(Link(coordinator, slots), sessions, slots, seed, **more)
        tune.run()
        yield tune


def alone(sweep: Sweep, folder: Path) -> None:
    with coordinating(sweep, folder) as coordinator:
        inline.InlineRunner().run(coordinator)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    stopping=st.sampled_from([None, TOGETHER]),
    slots=st.integers(1, 5),
    kills=st.integers(0, 6),
    seed=st.integers(0, 999),
)
def test_the_record_is_what_one_trial_after_another_leaves(
    tmp_path_factory: pytest.TempPathFactory,
    stopping: Asha | None,
    slots: int,
    kills: int,
    seed: int,
) -> None:
    folder, sweep = tmp_path_factory.mktemp("lanes"), sweep_of(stopping, max_failures=9)
    alone(sweep, folder / "alone")
    with trained(sweep, folder / "lanes", slots, seed, kills=kills):
        pass
    assert histories(folder / "lanes") == histories(folder / "alone")
    assert statuses(folder / "lanes") == statuses(folder / "alone")


def test_short_trials_travel_together_and_long_ones_do_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sweep = tiny_sweep(space=grid(width=list(range(1, 60))), budget=epochs(BUDGET))
    with trained(sweep, tmp_path / "short", 2, 0) as tune:
        assert tune.num_lanes <= 4
        assert tune.largest > 3
    monkeypatch.setattr(ray_dispatch, "AHEAD_SECONDS", 0.001)
    with trained(sweep, tmp_path / "long", 2, 0) as tune:
        assert tune.largest == 1


@pytest.mark.parametrize(
    ("seconds", "ended", "waiting", "ahead"),
    [
        (0.001, 1, 10_000, 64),
        (0.02, 1, 10_000, 25),
        (1.0, 1, 10_000, 0),
        (0.02, 1, 80, 10),
        (0.02, 63, 8, 1),
        (0.02, 64, 8, 5),
        (0.004, 64, 8, 25),
        (0.3, 64, 8, 1),
        (0.3, 64, 7, 0),
    ],
)
def test_work_ahead_is_half_a_second_and_what_is_left_is_divided_down_to_a_tenth(
    seconds: float, ended: int, waiting: int, ahead: int
) -> None:
    coordinator: Any = SimpleNamespace(num_waiting=waiting)
    dispatch = ray_dispatch.Dispatch(coordinator, has_happened=lambda reference: True, places=2)
    assert dispatch.num_ahead() == 0
    for _ in range(ended):
        dispatch.note_duration(seconds)
    assert dispatch.num_ahead() == ahead


def test_a_failure_is_its_own_trials_and_costs_the_others_of_its_lane_nothing(
    tmp_path: Path,
) -> None:
    sweep = sweep_of(None, max_failures=1)
    with coordinating(sweep, tmp_path / "study") as coordinator:
        bad = coordinator.planned_trials()[10].key

        def sessions(assignment: Assignment) -> Scripted:
            return Scripted(assignment, raises=assignment.trial.key == bad)

        Tune(Link(coordinator), sessions, 1, 0).run()
        rows = {row.key: row for row in coordinator.journal.trials()}
    assert rows[bad].status == "failed"
    assert rows[bad].failures == 2
    assert "on purpose" in rows[bad].reason
    others = [row for row in rows.values() if row.key != bad]
    assert {(row.status, row.failures) for row in others} == {("finished", 0)}


def test_a_process_that_another_trial_broke_unheard_is_no_failure_of_the_next(
    tmp_path: Path,
) -> None:
    """The driver had ended that trial; it raised before it learned so, and its process went on."""
    with coordinating(sweep_of(None), tmp_path / "study") as coordinator:
        tune = Tune(Link(coordinator), Scripted, 1, 0)
        tune._start()
        tune._end(next(iter(tune.trials.values())), BrokenLaneError("a trial failed here"))
        tune.run()
        rows = coordinator.journal.trials()
    assert {(row.status, row.failures) for row in rows} == {("finished", 0)}
    assert sorted({row.attempt for row in rows}) == [1, 2]


def test_a_trial_that_kills_its_process_is_found_among_those_of_its_lane(tmp_path: Path) -> None:
    """Whoever is in a lane that dies goes on alone; only the one that kills again is blamed."""
    sweep = tiny_sweep(space=grid(width=list(range(1, 41))), budget=epochs(BUDGET), max_failures=1)
    with coordinating(sweep, tmp_path / "study") as coordinator:
        bad = coordinator.planned_trials()[25].key

        def sessions(assignment: Assignment) -> Scripted:
            return Scripted(assignment, raises=assignment.trial.key == bad)

        tune = Tune(Link(coordinator), sessions, 1, 0)
        hear, together = tune._hear, []

        def dying(trial: Any) -> None:
            lane, undone = trial.temporary_state.ray_actor.lane, tune.undone(trial)
            words = lane.next_words()
            is_dying = any(isinstance(word.said, Failure) for word in words)
            # What it says when it raises is not said by a process that is killed.
            heard = [word for word in words if not isinstance(word.said, Failure)]
            lane.next_words = lambda: heard
            if heard:
                hear(trial)
            del lane.next_words
            if is_dying and trial.trial_id in tune.trials:
                together.append(len(undone))
                tune._end(trial, RayActorError(error_msg="killed"))

        tune._hear = dying  # type: ignore[method-assign]
        tune.run()
        rows = {row.key: row for row in coordinator.journal.trials()}
    assert together[0] > 1, "it was not alone at first"
    assert together[1:] == [1, 1]
    assert rows[bad].status == "failed"
    assert rows[bad].failures == 2
    others = [row for row in rows.values() if row.key != bad]
    assert {(row.status, row.failures) for row in others} == {("finished", 0)}


def test_a_larger_trial_is_not_overtaken_for_ever(tmp_path: Path) -> None:
    """One slot, small trials without end around a large one: it starts in its turn."""
    sweep = tiny_sweep(
        space=grid(width=list(range(1, 31))),
        budget=epochs(BUDGET),
        resources=lambda point: Resources(cpus=2 if point.width == 15 else 1),
    )
    started: list[int] = []
    with coordinating(sweep, tmp_path / "study") as coordinator:
        order = [trial.point["width"] for trial in coordinator.planned_trials()]

        def sessions(assignment: Assignment) -> Scripted:
            started.append(assignment.trial.point["width"])
            return Scripted(assignment)

        tune = Tune(Link(coordinator), sessions, 1, 0)
        tune.run()
    assert tune.num_lanes == 3
    # Expensive ones first.
    assert started == sorted(order, reverse=True)


def test_a_trial_that_ends_without_a_last_report_has_failed(tmp_path: Path) -> None:
    sweep = tiny_sweep(space=grid(width=[1, 2, 3]), budget=epochs(BUDGET), max_failures=1)
    with coordinating(sweep, tmp_path / "study") as coordinator:
        silent = coordinator.planned_trials()[1].key

        class Silent(Scripted):
            def next_report(self) -> Report:
                if self.assignment.trial.key == silent and self.unit == 2:
                    raise StopIteration
                return super().next_report()

        Tune(Link(coordinator), Silent, 2, 0).run()
        rows = {row.key: row for row in coordinator.journal.trials()}
    assert rows[silent].status == "failed"
    assert rows[silent].reason == "the trial ended without its last report"
    assert {row.status for row in rows.values() if row.key != silent} == {"finished"}
