"""Many workers at once leave the record that one trial after another leaves, whatever dies.

Ray and Tune are played by threads of this process; coordinator, record and workers' queues are the
real ones.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
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
from hsweep.record.journal_reader import LEFT_OUT
from hsweep.training import worker_queue
from hsweep.training.run import Channel
from hsweep.training.worker_queue import BrokenWorkerError, TrialError, WorkerQueue

prepare_ray()

import ray  # noqa: E402
from ray.exceptions import RayActorError  # noqa: E402
from ray.tune.schedulers import TrialScheduler  # noqa: E402

from hsweep.ray_tune import scheduler as ray_scheduler  # noqa: E402
from hsweep.ray_tune import workers as ray_workers  # noqa: E402
from hsweep.ray_tune.messages import MESSAGES, PLACE, START, Place, WorkerStart  # noqa: E402
from hsweep.ray_tune.scheduler import CoordinatedScheduler  # noqa: E402
from hsweep.ray_tune.workers import Workers  # noqa: E402

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


def training(sessions: Any) -> Any:
    """A function that trains a trial as its session says."""

    def train(assignment: Assignment, channel: Channel) -> None:
        session = sessions(assignment)
        with contextlib.suppress(StopIteration):
            while channel.put(session.next_report()):
                pass

    return train


class Remote:
    """A method of an actor, called as Ray's are; done when the call returns."""

    def __init__(self, method: Any) -> None:
        self.remote = method


class Actor:
    """A worker process: a queue, and the names by which the driver calls it."""

    train = SimpleNamespace(options=lambda *, name: name)

    def __init__(self, sessions: Any) -> None:
        self.queue = WorkerQueue(training(sessions))
        self.give = Remote(self.queue.give)
        self.drop = Remote(self.queue.drop)


class Tune:
    """Asks a scheduler what to run, in as many workers as there are slots, in an order of its own.

    Args:
        scheduler: asks the coordinator.
        slots: workers at once.
        seed: of the order in which workers are heard and killed.
        kills: how many workers to kill.
    """

    def __init__(
        self, scheduler: CoordinatedScheduler, sessions: Any, slots: int, seed: int, kills: int = 0
    ) -> None:
        self.scheduler, self.sessions, self.slots, self.kills = scheduler, sessions, slots, kills
        scheduler.workers.max_workers = slots
        self.random = random.Random(seed)
        self.trials: dict[str, Any] = {}
        self.num_workers = 0
        self.largest = 0

    def run(self) -> None:
        while not self.scheduler.coordinator.is_exhausted:
            while len(self.trials) < self.slots and self._start():
                pass
            assert self.trials, "something waits and nothing runs"
            trial = self.random.choice(list(self.trials.values()))
            # Trials that all end alike before any reports would pause the study.
            has_reported = self.scheduler.coordinator.table.units_done > 0
            if self.kills and has_reported and self.random.random() < 0.3:
                self.kills -= 1
                self._end(trial, RayActorError(error_msg="killed"))
            else:
                self._hear(trial)

    def _start(self) -> bool:
        trial_id = f"worker-{self.num_workers}"
        start: WorkerStart | None = self.scheduler.workers.open(trial_id)
        if start is None:
            return False
        self.num_workers += 1
        actor = Actor(self.sessions)
        trial: Any = SimpleNamespace(
            trial_id=trial_id,
            config={START: start},
            storage=None,
            temporary_state=SimpleNamespace(ray_actor=actor),
        )
        self.trials[trial_id] = trial
        self.scheduler.on_trial_add(None, trial)
        actor.queue.give(start.assignments)
        return True

    def _hear(self, trial: Any) -> None:
        try:
            messages = trial.temporary_state.ray_actor.queue.next_messages()
        except BrokenWorkerError as error:
            self._end(trial, error)
            return
        result = {MESSAGES: messages, PLACE: self.place_of(trial)}
        found = self.scheduler.on_trial_result(None, trial, result)
        self.largest = max(self.largest, len(self.unfinished(trial)))
        if found == TrialScheduler.STOP:
            self.scheduler.on_trial_complete(None, trial, {})
            del self.trials[trial.trial_id]

    def place_of(self, trial: Any) -> Place | None:
        return None

    def unfinished(self, trial: Any) -> dict[str, Assignment]:
        return self.scheduler.workers.by_id[trial.trial_id].unfinished

    def _end(self, trial: Any, error: BaseException) -> None:
        del self.trials[trial.trial_id]
        raised[trial.trial_id] = error
        trial.temporary_state.ray_actor.queue.stop()
        self.scheduler.on_trial_error(None, trial)


raised: dict[str, BaseException] = {}


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_scheduler, "error_of", lambda trial: raised.pop(trial.trial_id))
    monkeypatch.setattr(ray, "wait", lambda references, timeout: (references, []))
    monkeypatch.setattr(ray, "nodes", list)
    monkeypatch.setattr(inline, "train", training(Scripted))
    monkeypatch.setattr(worker_queue, "MESSAGE_SECONDS", 0.0)


def sweep_of(stopping: Asha | None, **changes: Any) -> Sweep:
    return tiny_sweep(
        space=grid(width=list(range(1, 9))),
        replicates=3,
        budget=epochs(BUDGET),
        early_stopping=stopping,
        **changes,
    )


ASHA = Asha(grace=1, reduction_factor=2, min_survivors=3)


@contextmanager
def trained(sweep: Sweep, folder: Path, slots: int, seed: int, **more: Any) -> Iterator[Tune]:
    sessions = more.pop("sessions", Scripted)
    with coordinating(sweep, folder) as coordinator:
        tune = Tune(CoordinatedScheduler(coordinator), sessions, slots, seed, **more)
        tune.run()
        yield tune


def one_by_one(sweep: Sweep, folder: Path) -> None:
    with coordinating(sweep, folder) as coordinator:
        inline.InlineRunner().run(coordinator)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    stopping=st.sampled_from([None, ASHA]),
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
    folder, sweep = tmp_path_factory.mktemp("workers"), sweep_of(stopping, max_failures=9)
    one_by_one(sweep, folder / "one by one")
    with trained(sweep, folder / "workers", slots, seed, kills=kills):
        pass
    assert histories(folder / "workers") == histories(folder / "one by one")
    assert statuses(folder / "workers") == statuses(folder / "one by one")


def test_short_trials_are_given_out_several_at_once_and_long_ones_are_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sweep = tiny_sweep(space=grid(width=list(range(1, 60))), budget=epochs(BUDGET))
    with trained(sweep, tmp_path / "short", 2, 0) as tune:
        assert tune.num_workers <= 4
        assert tune.largest > 3
    monkeypatch.setattr(ray_workers, "AHEAD_SECONDS", 0.001)
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
    workers = Workers(coordinator, max_workers=2)
    assert workers.num_ahead() == 0
    for _ in range(ended):
        workers.note_duration(seconds)
    assert workers.num_ahead() == ahead


def test_a_failure_is_its_own_trials_and_costs_the_others_of_its_worker_nothing(
    tmp_path: Path,
) -> None:
    sweep = sweep_of(None, max_failures=1)
    with coordinating(sweep, tmp_path / "study") as coordinator:
        bad = coordinator.planned_trials()[10].key

        def sessions(assignment: Assignment) -> Scripted:
            return Scripted(assignment, raises=assignment.trial.key == bad)

        Tune(CoordinatedScheduler(coordinator), sessions, 1, 0).run()
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
        tune = Tune(CoordinatedScheduler(coordinator), Scripted, 1, 0)
        tune._start()
        tune._end(next(iter(tune.trials.values())), BrokenWorkerError("a trial failed here"))
        tune.run()
        rows = coordinator.journal.trials()
    assert {(row.status, row.failures) for row in rows} == {("finished", 0)}
    assert sorted({row.attempt for row in rows}) == [1, 2]


def test_a_trial_that_kills_its_process_is_found_among_those_of_its_worker(tmp_path: Path) -> None:
    """Each trial of a worker that dies goes on in one of its own; one that kills again failed."""
    sweep = tiny_sweep(space=grid(width=list(range(1, 41))), budget=epochs(BUDGET), max_failures=1)
    with coordinating(sweep, tmp_path / "study") as coordinator:
        bad = coordinator.planned_trials()[25].key

        def sessions(assignment: Assignment) -> Scripted:
            return Scripted(assignment, raises=assignment.trial.key == bad)

        tune = Tune(CoordinatedScheduler(coordinator), sessions, 1, 0)
        hear, num_unfinished = tune._hear, []

        def dying(trial: Any) -> None:
            queue, unfinished = trial.temporary_state.ray_actor.queue, tune.unfinished(trial)
            messages = queue.next_messages()
            is_dying = any(isinstance(each.event, TrialError) for each in messages)
            # A process that is killed does not say what raised.
            heard = [each for each in messages if not isinstance(each.event, TrialError)]
            queue.next_messages = lambda: heard
            if heard:
                hear(trial)
            del queue.next_messages
            if is_dying and trial.trial_id in tune.trials:
                num_unfinished.append(len(unfinished))
                tune._end(trial, RayActorError(error_msg="killed"))

        tune._hear = dying  # type: ignore[method-assign]
        tune.run()
        rows = {row.key: row for row in coordinator.journal.trials()}
    assert num_unfinished[0] > 1, "it was one of several at first"
    assert num_unfinished[1:] == [1, 1]
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

        tune = Tune(CoordinatedScheduler(coordinator), sessions, 1, 0)
        tune.run()
    assert tune.num_workers == 3
    # Expensive ones first.
    assert started == sorted(order, reverse=True)


class OnNodes(Tune):
    """Workers on three nodes, of which some fail what they get."""

    def __init__(self, scheduler: CoordinatedScheduler, bad: frozenset[str], seed: int) -> None:
        super().__init__(scheduler, None, 4, seed)
        self.bad, self.places = bad, dict[str, Place]()
        self.got: Counter[str] = Counter()
        scheduler.workers.max_workers = 4
        scheduler.workers.roster.nodes = {
            name: {
                "NodeID": name,
                "NodeManagerHostname": name,
                "NodeManagerAddress": "10.0.0.1",
                "Resources": {"CPU": 2.0},
            }
            for name in "abc"
        }

    def _start(self) -> bool:
        sessions: list[str] = []

        def session(assignment: Assignment) -> Scripted:
            self.got[sessions[0]] += 1
            return (Failing if sessions[0] in self.bad else Scripted)(assignment)

        self.sessions = session
        before = {*self.trials}
        if not super()._start():
            return False
        [trial_id] = self.trials.keys() - before
        avoided = self.trials[trial_id].config[START].avoided
        node = self.random.choice(sorted({*"abc"} - avoided))
        sessions.append(node)
        self.places[trial_id] = Place(node, node, 1)
        return True

    def place_of(self, trial: Any) -> Place | None:
        return self.places[trial.trial_id]


class Failing(Scripted):
    def next_report(self) -> Report:
        raise OSError("no space left on device")


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 999), bad=st.sampled_from(["a", "c"]))
def test_a_node_that_fails_every_trial_is_left_out_and_costs_none(
    tmp_path_factory: pytest.TempPathFactory, seed: int, bad: str
) -> None:
    folder = tmp_path_factory.mktemp("nodes")
    with coordinating(sweep_of(None, max_failures=2), folder) as coordinator:
        tune = OnNodes(CoordinatedScheduler(coordinator), frozenset(bad), seed)
        tune.run()
        assert coordinator.stop_reason is None
        rows = coordinator.journal.trials()
        told = (coordinator.journal.meta(LEFT_OUT) or "").splitlines()
    assert {row.status for row in rows} == {"finished"}
    # Three, and what its other process had been given meanwhile.
    assert all(0 < tune.got[node] <= 6 for node in bad if tune.got[node])
    for line in told:
        assert line.startswith(f"node {bad} (10.0.0.1) gets no trials: it failed ")
        assert " trials in a row (the last: OSError: no space left on device" in line


def test_a_trial_that_ends_without_a_last_report_has_failed(tmp_path: Path) -> None:
    sweep = tiny_sweep(space=grid(width=[1, 2, 3]), budget=epochs(BUDGET), max_failures=1)
    with coordinating(sweep, tmp_path / "study") as coordinator:
        silent = coordinator.planned_trials()[1].key

        class Silent(Scripted):
            def next_report(self) -> Report:
                if self.assignment.trial.key == silent and self.unit == 2:
                    raise StopIteration
                return super().next_report()

        Tune(CoordinatedScheduler(coordinator), Silent, 2, 0).run()
        rows = {row.key: row for row in coordinator.journal.trials()}
    assert rows[silent].status == "failed"
    assert rows[silent].reason == "the trial ended without its last report"
    assert {row.status for row in rows.values() if row.key != silent} == {"finished"}
