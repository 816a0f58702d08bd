"""What stands between Tune and the coordinator, as far as it shows without a Ray."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny import tiny_sweep
from tiny_runs import assignment_of, planned

from hsweep.design.trial import Resources
from hsweep.ray_tune.environment import prepare_ray
from hsweep.training.worker_queue import START_SECONDS

prepare_ray()

import ray  # noqa: E402

from hsweep.ray_tune import roster as ray_roster  # noqa: E402
from hsweep.ray_tune import runner as ray_runner  # noqa: E402
from hsweep.ray_tune import scheduler as ray_scheduler  # noqa: E402
from hsweep.ray_tune.actor import TrialActor  # noqa: E402
from hsweep.ray_tune.messages import START, WorkerStart  # noqa: E402
from hsweep.ray_tune.roster import HEAD_SECONDS, Roster  # noqa: E402
from hsweep.ray_tune.scheduler import GRACE_SECONDS, CoordinatedScheduler  # noqa: E402
from hsweep.ray_tune.workers import Worker, Workers  # noqa: E402

TRIAL = planned(tiny_sweep())[0]


def node(name: str, cpus: float = 1, gpus: float = 0, *, alive: bool = True) -> dict[str, Any]:
    place = {"NodeManagerHostname": name, "NodeManagerAddress": name}
    return {"NodeID": name, "Alive": alive, "Resources": {"CPU": cpus, "GPU": gpus}, **place}


def test_an_attempt_asks_for_what_it_occupies_not_what_its_trial_usually_does() -> None:
    share = replace(TRIAL, resources=Resources(cpus=1, gpus=0.25))

    def bundles(**changes: Any) -> Any:
        start = WorkerStart([replace(assignment_of(share, Path("/nowhere")), **changes)])
        return TrialActor.default_resource_request({START: start}).bundles

    assert bundles() == [{"CPU": 1, "GPU": 0.25}]
    assert bundles(is_exclusive=True) == [{"CPU": 1, "GPU": 1}]


def test_only_a_cluster_without_any_fitting_node_has_no_room() -> None:
    one = Resources(cpus=1)
    waiting = [Worker(one), Worker(one, avoided=frozenset({"b"}))]
    workers = Workers(None)  # type: ignore[arg-type]

    def fits(*nodes: dict[str, Any], waiting: list[Worker] = waiting) -> bool:
        workers.roster.nodes = {node["NodeID"]: node for node in nodes}
        return workers.any_fits(waiting)

    assert fits(node("a", cpus=4))
    assert not fits(node("a", cpus=0.5))
    assert not fits()
    assert not fits(node("b"), waiting=waiting[1:])
    assert "one needs 1 cpus and 0 gpus" in ray_runner._no_room(waiting)


class Clock:
    """A clock that goes on only when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
        self.now = 1000.0
        for module in modules:
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))


def seconds_until_killed(
    monkeypatch: pytest.MonkeyPatch, timeout: float | None, *, started: bool, tick: float = 0.5
) -> float | None:
    killed: list[Any] = []
    monkeypatch.setattr(ray, "kill", killed.append)
    clock = Clock(monkeypatch, ray_scheduler)
    scheduler, process = CoordinatedScheduler(None), object()  # type: ignore[arg-type]
    worker = scheduler.workers.by_id["t"] = Worker(TRIAL.resources)
    worker.add(replace(assignment_of(TRIAL, Path("/nowhere")), report_timeout=timeout))
    state = SimpleNamespace(ray_actor=process)
    trial: Any = SimpleNamespace(trial_id="t", temporary_state=state)
    scheduler.on_trial_add(None, trial)
    if started:
        worker.started.add(TRIAL.key)
    for _ in range(2000):
        scheduler.tick()
        if killed:
            assert killed == [process]
            return clock.now - 1000.0
        clock.now += tick
    return None


@pytest.mark.parametrize(
    ("timeout", "started", "expected"),
    [
        (None, True, None),
        (30.0, True, 30.0 + GRACE_SECONDS),
        (30.0, False, START_SECONDS + GRACE_SECONDS),
        (400.0, False, 400.0 + GRACE_SECONDS),
    ],
)
def test_a_silent_process_is_ended_after_its_own_watch_would_have_done_it(
    monkeypatch: pytest.MonkeyPatch, timeout: float | None, started: bool, expected: float | None
) -> None:
    killed_after = seconds_until_killed(monkeypatch, timeout, started=started)
    assert killed_after == (None if expected is None else pytest.approx(expected, abs=1.0))


def test_a_process_between_two_trials_has_the_time_of_one_that_starts() -> None:
    """The one before may still be writing what it keeps."""
    trials = planned(tiny_sweep())[:2]
    first, second = (
        replace(assignment_of(trial, Path("/nowhere")), report_timeout=30.0) for trial in trials
    )
    worker = Worker(first.resources)
    worker.add(first)
    worker.add(second)
    worker.started.add(first.trial.key)
    assert worker.patience == 30.0
    worker.is_done_with(first.trial.key)
    assert worker.patience == START_SECONDS
    worker.started.add(second.trial.key)
    assert worker.patience == 30.0
    worker.is_done_with(second.trial.key)
    assert worker.patience is None


def test_time_in_which_the_driver_itself_was_stopped_is_nobodys_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An hour between two looks counts as one second."""
    killed_after = seconds_until_killed(monkeypatch, 30.0, started=True, tick=3600.0)
    assert killed_after is not None
    assert killed_after >= 3600.0 * 30


@pytest.fixture
def health(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster that answers as long as ``answers`` holds, and its clock."""
    clock = Clock(monkeypatch, ray_roster)
    cluster = SimpleNamespace(answers=True, nodes=[node("mine"), node("other")], clock=clock)

    def nodes() -> list[dict[str, Any]]:
        if not cluster.answers:
            raise RuntimeError("no answer")
        return list(cluster.nodes)

    monkeypatch.setattr(ray, "nodes", nodes)
    monkeypatch.setattr(ray_roster, "draining_nodes", set)
    context = SimpleNamespace(get_node_id=lambda: "mine")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    cluster.health = Roster(SimpleNamespace(say=lambda _line: None))  # type: ignore[arg-type]
    cluster.health.update(cluster.nodes)
    return cluster


def look(cluster: Any, seconds: float, step: float = 1.0) -> str | None:
    until = cluster.clock.now + seconds
    while cluster.clock.now < until:
        cluster.clock.now += step
        trouble: str | None = cluster.health.trouble()
        if cluster.health._asking is not None:
            cluster.health._asking.result()
        if trouble is not None:
            return trouble
    return None


def test_a_head_that_answers_is_well_and_one_that_is_silent_for_long_is_given_up(
    health: Any,
) -> None:
    assert look(health, 600) is None
    health.answers = False
    assert look(health, HEAD_SECONDS / 2) is None
    health.answers = True
    assert look(health, 600) is None
    health.answers = False
    assert "head of the cluster has not answered for 60 s" in (look(health, 600) or "")


def test_a_driver_that_was_stopped_for_an_hour_does_not_give_the_head_up(health: Any) -> None:
    health.answers = False
    assert look(health, 7200, step=3600) is None


def test_other_nodes_may_go_but_not_the_drivers_own(health: Any) -> None:
    health.nodes = [node("mine"), node("other", alive=False)]
    assert look(health, 60) is None
    health.nodes = [node("mine", alive=False), node("other")]
    assert "lost the node that this command runs on" in (look(health, 60) or "")
