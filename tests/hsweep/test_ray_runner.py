"""The runner on Ray: the contract of every runner, and what only other processes can do."""

import contextlib
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from runner_contract import RunnerContract, expected
from tiny import TinyData, TinyTask, tiny_sweep
from tiny_runs import History, coordinating, histories, planned
from tiny_searches import adaptive, searching

from hsweep import Asha, Recipe, epochs, grid
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.runner import InlineRunner, Runner
from hsweep.design.trial import Assignment, Resources
from hsweep.errors import UserError
from hsweep.ray_tune.environment import prepare_ray
from hsweep.user_packages import add_user_packages, default_folders
from hsweep.workspace import load_sweep

prepare_ray()

import ray  # noqa: E402
from ray.air.execution._internal.actor_manager import RayActorManager  # noqa: E402
from ray.exceptions import ActorUnavailableError  # noqa: E402

from hsweep.ray_tune import nodes as ray_nodes  # noqa: E402
from hsweep.ray_tune import private as ray_private  # noqa: E402
from hsweep.ray_tune import runner as ray_runner  # noqa: E402
from hsweep.ray_tune import scheduler as ray_scheduler  # noqa: E402
from hsweep.ray_tune.runner import RayRunner  # noqa: E402
from hsweep.ray_tune.workers import Workers  # noqa: E402

__all__ = ["expected"]


@pytest.fixture
def runner(local_ray: None, tmp_path: Path) -> RayRunner:
    """A runner of one process at once, since each takes seconds to start; tests that need more set
    ``max_concurrent``."""
    return RayRunner(scratch=str(tmp_path / "ray"), max_concurrent=1)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


class TestRayRunner(RunnerContract):
    @pytest.fixture
    def runner(self, runner: RayRunner) -> RayRunner:
        runner.max_concurrent = 2
        return runner

    @pytest.mark.slow
    def test_a_record_that_breaks_ends_the_run_with_a_reason_and_keeps_the_trials_work(
        self, runner: Runner, tmp_path: Path, expected: dict[str, History]
    ) -> None:
        super().test_a_record_that_breaks_ends_the_run_with_a_reason_and_keeps_the_trials_work(
            runner, tmp_path, expected
        )


def kill_whoever_waits(
    coordinator: Coordinator, traces: Path, scratch: str, killed: list[str]
) -> None:
    """Kill the process that waits in a trial which has reported twice, and append its name to
    ``killed``; then let the trials go on. First remove Tune's files and put a file in place of
    their folder."""
    deadline = time.monotonic() + 120
    while not killed and time.monotonic() < deadline:
        # The record must have both reports before the process dies.
        running = list(coordinator.table.running.values())
        has_two_reports = any(row.unit == 2 for row in running)
        for trace in traces.glob("waiting-*") if has_two_reports else ():
            process = psutil.Process(int(trace.name.partition("-")[2]))
            # Between two reports the process has the name of its class for a moment.
            if (name := process.cmdline()[0]) != "ray::TrialActor":
                shutil.rmtree(scratch, ignore_errors=True)
                Path(scratch).touch()
                killed.append(name)
                process.kill()
        time.sleep(0.02)
    (traces / "go").touch()


def test_each_trial_has_its_own_fate_and_a_killed_one_goes_on_from_its_checkpoint(
    runner: RayRunner, tmp_path: Path, traces: Path
) -> None:
    """Two trials train undisturbed, one is killed, one fails once, one diverges."""
    (tmp_path / "once").mkdir()
    tasks = {
        2: TinyTask(waits_at=10, folder=str(traces)),
        4: TinyTask(raises_at=10, raises=1, folder=str(tmp_path / "once")),
        5: TinyTask(diverges_at=7),
    }
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3, 4, 5], dropout=[0.3]),
        task=lambda point: tasks.get(point.width, TinyTask()),
        recipe=Recipe(lr=0.05, batch_size=8),
        budget=epochs(4),
        max_failures=1,
        checkpoint_seconds=0.0,
    )
    killed: list[str] = []
    runner.max_concurrent = 2
    with coordinating(sweep, tmp_path / "study") as coordinator:
        arguments = (coordinator, traces, runner.scratch, killed)
        killer = threading.Thread(target=kill_whoever_waits, args=arguments)
        killer.start()
        runner.run(coordinator)
        assert coordinator.stop_reason is None
        rows = {row.point["width"]: row for row in coordinator.journal.trials()}
        attempts = [
            (entry.unit, entry.attempt)
            for entry in coordinator.journal.reports()
            if entry.key == rows[2].key
        ]
        (failure,) = (
            entry.payload["reason"]
            for entry in coordinator.journal.log_after(0, 10_000)
            if entry.key == rows[4].key and entry.kind == "status" and "failures" in entry.payload
        )
    assert re.match(
        r"RuntimeError: raised on purpose before update 10 at .*/tiny\.py:\d+\n", failure
    )
    assert "\x1b" not in failure
    killer.join()
    assert killed == ["ray::width=2 #0"], "processes are called after the trials they train"
    assert Path(runner.scratch).is_file(), "Tune's own files are not needed"
    assert {width: (row.status, row.attempt) for width, row in rows.items()} == {
        1: ("finished", 1), 2: ("finished", 2), 3: ("finished", 1), 4: ("finished", 2),
        5: ("diverged", 1),
    }  # fmt: skip
    assert "step 7" in rows[5].reason
    # Nothing before the checkpoint was trained again.
    assert attempts == [(1, 1), (2, 1), (3, 2), (4, 2)]
    with coordinating(sweep, tmp_path / "calm") as undisturbed:
        InlineRunner().run(undisturbed)
    assert histories(tmp_path / "study") == histories(tmp_path / "calm")


def test_a_local_ray_runs_no_process_that_nobody_listens_to(runner: RayRunner) -> None:
    runner.connect()
    words: set[str] = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended
            words |= {Path(word).name for word in process.cmdline()}
    assert "raylet" in words
    assert words.isdisjoint({"log_monitor.py", "monitor.py", "dashboard.py"})


@dataclass(frozen=True)
class NotingTask(TinyTask):
    """Leaves a file named by the process that opened the data and the cores that Ray gave it."""

    def open(self, **settings: Any) -> TinyData:
        resources = ray.get_runtime_context().get_assigned_resources()
        number = len(list(self._traces().iterdir()))
        (self._traces() / f"{number}-{os.getpid()}-{resources.get('CPU')}").touch()
        return super().open(**settings)


OWN_NET = """from dataclasses import dataclass
from models.wide_of_own import widened
from tiny import TinyModel

@dataclass(frozen=True)
class Net(TinyModel):
    def build(self):
        return widened(super().build())
"""
OWN_SWEEP = """from hsweep import grid
from models.net_of_own import Net
from tiny import tiny_sweep

SWEEP = tiny_sweep(space=grid(width=[1, 2, 3, 4]), model=lambda p: Net(p.width))
"""


def test_processes_are_reused_and_have_the_users_modules_and_what_each_trial_asked_for(
    runner: RayRunner, tmp_path: Path, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net_of_own.py").write_text(OWN_NET)
    (tmp_path / "models" / "wide_of_own.py").write_text("def widened(net):\n    return net\n")
    (tmp_path / "question.py").write_text(OWN_SWEEP)
    loaded = load_sweep(tmp_path / "question.py")
    runner.own_modules = tuple(loaded.own_modules())
    shutil.rmtree(tmp_path / "models")
    sweep = replace(
        loaded.sweep,
        task=NotingTask(folder=str(traces)),
        resources=lambda point: Resources(cpus=0.5 if point.width > 1 else 1),
    )
    with coordinating(sweep, tmp_path / "study") as coordinator:
        runner.run(coordinator)
        assert coordinator.stop_reason is None
        assert {row.status for row in coordinator.journal.trials()} == {"finished"}
    add_user_packages(default_folders())
    opened = [trace.name.split("-") for trace in traces.iterdir()]
    by_size = {size: [pid for _, pid, cpus in opened if cpus == size] for size in ("0.5", "1.0")}
    assert {size: len(pids) for size, pids in by_size.items()} == {"0.5": 3, "1.0": 1}
    assert len(set(by_size["0.5"])) == 1


def test_with_isolation_every_trial_has_a_process_of_its_own(
    runner: RayRunner, tmp_path: Path, traces: Path
) -> None:
    sweep = tiny_sweep(space=grid(width=[1, 2]), task=NotingTask(folder=str(traces)), isolate=True)
    with coordinating(sweep, tmp_path / "study") as coordinator:
        runner.run(coordinator)
        assert {row.status for row in coordinator.journal.trials()} == {"finished"}
    assert len({trace.name.split("-")[1] for trace in traces.iterdir()}) == 2


def test_an_adaptive_search_fills_the_slots_too(runner: RayRunner, tmp_path: Path) -> None:
    """Before the search starts its trials are unknown: only sample points of its space are."""
    runner.max_concurrent = None
    sweep = adaptive(3, resources=Resources(cpus=0.25))
    runner.connect()
    with searching(sweep, tmp_path / "study") as coordinator:
        runner.check({trial.key: trial.resources for trial in planned(sweep)})
        workers = Workers(coordinator)
        workers.roster.nodes = {node["NodeID"]: node for node in ray.nodes()}
        assert runner.num_workers(workers, None) == runner.slots(Resources(cpus=0.25)) > 1


def test_what_no_node_can_give_is_refused_before_the_start(runner: RayRunner) -> None:
    runner.check({"t1": Resources(cpus=1), "t2": Resources(cpus=0.5)})
    with pytest.raises(UserError, match=r"trial t2 needs 4096 cpus and 0 gpus.*largest node has"):
        runner.check({"t1": Resources(cpus=1), "t2": Resources(cpus=4096)})
    with pytest.raises(UserError, match=r"trial t3 needs 4096 cpus and 1 gpus.*--set gpus"):
        runner.check({"t3": Resources(cpus=4096, gpus=1)})


@pytest.mark.parametrize(
    ("available", "request_", "slots"),
    [
        ({"CPU": 4}, Resources(cpus=1), 4),
        ({"CPU": 4}, Resources(cpus=3), 1),
        ({"CPU": 4}, Resources(cpus=0.1), 40),
        ({"CPU": 0.3}, Resources(cpus=0.1), 3),
        ({"CPU": 8, "GPU": 2}, Resources(cpus=1, gpus=1), 2),
        ({"CPU": 1, "GPU": 2}, Resources(cpus=1, gpus=1), 1),
        # A share never spans two devices: 0.4 fits twice on each.
        ({"CPU": 8, "GPU": 2}, Resources(cpus=1, gpus=0.4), 4),
        ({"CPU": 8, "GPU": 4}, Resources(cpus=0, gpus=1), 4),
        ({"CPU": 8}, Resources(cpus=1, gpus=0.5), 0),
    ],
)
def test_slots_of_a_node(available: dict[str, float], request_: Resources, slots: int) -> None:
    assert ray_nodes.slots_of([available], request_) == slots


def test_a_storage_that_a_node_cannot_see_is_refused_naming_the_node(
    runner: RayRunner, tmp_path: Path
) -> None:
    """The node cannot see /proc/self/fd/N, a folder that this test process alone has open."""
    nodes = ray_nodes.alive_nodes()
    (tmp_path / "shared").mkdir()
    assert ray_nodes.problems_of(nodes, None, str(tmp_path / "shared" / "study" / "ray")) == {}
    assert list((tmp_path / "shared").iterdir()) == [], "a storage that all see is left clean"
    (tmp_path / "private").mkdir()
    descriptor = os.open(tmp_path / "private", os.O_RDONLY)
    private = f"/proc/self/fd/{descriptor}"
    if not Path(private).is_dir():
        pytest.skip("no /proc here")
    try:
        runner.address, runner.scratch = "auto", f"{private}/study/ray"
        told = rf"node \S+( \(\S+\))? does not see {private}; give --storage"
        with pytest.raises(UserError, match=told):
            runner.check_nodes(planned(tiny_sweep())[0])
    finally:
        os.close(descriptor)
    assert list((tmp_path / "private").iterdir()) == []


def test_a_cluster_that_cannot_be_reached_is_the_users_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def refuse(**settings: Any) -> None:
        assert settings["address"] == "10.255.255.1:6379"
        assert "num_cpus" not in settings
        raise Exception("timed out")  # as Ray does

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr(ray_runner, "problem_of_head", lambda _address: "")
    monkeypatch.setattr(ray_runner, "nodes_elsewhere", lambda _address: [])
    with pytest.raises(UserError, match=r"cluster at 10\.255\.255\.1:6379.*RAY_AUTH_TOKEN"):
        RayRunner(scratch=str(tmp_path), address="10.255.255.1:6379").connect()


def test_an_address_where_no_cluster_answers_is_told_soon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_private, "HEAD_SECONDS", 0.5)

    def refusal(address: str) -> str:
        with pytest.raises(UserError) as refused:
            RayRunner(scratch=str(tmp_path), address=address).connect()
        return str(refused.value)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert f"--address={address}: no cluster" in refusal(address)
        monkeypatch.setenv("RAY_ADDRESS", address)
        said = refusal(address)
    assert said.startswith(f"RAY_ADDRESS={address}: no cluster of this Ray version answers there")
    assert "(no answer within 0.5 s)" in said
    assert said.endswith("or unset RAY_ADDRESS: Ray then starts here")


@pytest.mark.parametrize("address", ["http://127.0.0.1:8265", "ray://127.0.0.1:10001"])
def test_the_address_of_another_service_of_ray_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(UserError, match=r"address of another service of Ray; give HOST:PORT"):
        RayRunner(scratch=str(tmp_path), address=address).connect()


@dataclass(frozen=True)
class CountingTask(TinyTask):
    """Leaves a file for every update."""

    def before_update(self, number: int) -> None:
        (self._traces() / f"{number}-{len(list(self._traces().glob(f'{number}-*')))}").touch()
        super().before_update(number)


def test_a_trial_that_waits_at_a_rung_goes_on_from_there_wherever_it_goes_on(
    runner: RayRunner, tmp_path: Path
) -> None:
    """A checkpoint is written only when the trial leaves a process, and no update is done twice."""
    for width in range(1, 7):
        (tmp_path / f"{width}").mkdir()
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3, 4, 5, 6]),
        task=lambda point: CountingTask(folder=str(tmp_path / f"{point.width}")),
        budget=epochs(4),
        early_stopping=Asha(grace=1, reduction_factor=2, min_survivors=2),
        checkpoint_seconds=1e9,
        resources=Resources(cpus=0.5),
    )
    runner.max_concurrent = 2
    with coordinating(sweep, tmp_path / "study") as coordinator:
        runner.run(coordinator)
        rows = coordinator.journal.trials()
    assert {row.status for row in rows} == {"finished", "stopped_early"}
    assert all("rung" in row.reason for row in rows if row.status == "stopped_early")
    assert any(row.attempt > 1 for row in rows), "no trial waited"
    for row in rows:
        traces = [trace.name for trace in (tmp_path / f"{row.point['width']}").iterdir()]
        # The last batch of the budget serves to measure the latency too.
        updates = sorted(int(name.partition("-")[0]) for name in traces if name[:3] != "16-")
        assert updates == list(range(1, min(15, 4 * row.unit) + 1))


@pytest.mark.slow
def test_a_process_out_of_reach_for_a_moment_costs_the_trial_nothing(
    monkeypatch: pytest.MonkeyPatch, runner: RayRunner, tmp_path: Path
) -> None:
    """A report is lost. The process may live on, but its later reports are ignored."""
    sweep = tiny_sweep(
        space=grid(width=[1, 2], dropout=[0.3]), budget=epochs(4), checkpoint_seconds=0.0,
        max_failures=0,
    )  # fmt: skip
    lost: list[Any] = []
    resolved = RayActorManager._actor_task_resolved

    def losing(self: Any, tracked_actor_task: Any, result: Any) -> None:
        messages = result.get("messages", []) if isinstance(result, dict) else []
        if not lost and any(getattr(message.event, "unit", 0) == 3 for message in messages):
            lost.append(messages)
            error = ActorUnavailableError("The actor is unavailable: socket closed", b"0" * 16)
            self._actor_task_failed(tracked_actor_task=tracked_actor_task, exception=error)
        else:
            resolved(self, tracked_actor_task, result)

    monkeypatch.setattr(RayActorManager, "_actor_task_resolved", losing)
    with coordinating(sweep, tmp_path / "study") as coordinator:
        runner.run(coordinator)
        rows = coordinator.journal.trials()
    assert len(lost) == 1
    assert sorted((row.status, row.attempt, row.failures) for row in rows) == [
        ("finished", 1, 0), ("finished", 2, 0),
    ]  # fmt: skip
    with coordinating(sweep, tmp_path / "calm") as undisturbed:
        InlineRunner().run(undisturbed)
    assert histories(tmp_path / "study") == histories(tmp_path / "calm")


@pytest.mark.slow
def test_a_process_that_dies_between_two_trials_is_held_against_neither(
    monkeypatch: pytest.MonkeyPatch, runner: RayRunner, tmp_path: Path, traces: Path
) -> None:
    sweep = tiny_sweep(
        space=grid(width=[1, 2]), task=NotingTask(folder=str(traces)), max_failures=0
    )
    next_assignment, killed = Coordinator.next_assignment, []

    def assign_and_kill(self: Coordinator, *arguments: Any) -> Assignment | None:
        assignment = next_assignment(self, *arguments)
        if assignment and not killed:
            for trace in traces.iterdir():
                killed.append(int(trace.name.split("-")[1]))
                os.kill(killed[0], signal.SIGKILL)
        return assignment

    monkeypatch.setattr(Coordinator, "next_assignment", assign_and_kill)
    with coordinating(sweep, tmp_path / "study") as coordinator:
        runner.run(coordinator)
        rows = coordinator.journal.trials()
    assert len(killed) == 1
    assert [(row.status, row.failures) for row in rows] == [("finished", 0)] * 2
    assert sorted(row.attempt for row in rows) == [1, 2]


def test_where_tune_cannot_write_at_all_the_study_pauses(runner: RayRunner, tmp_path: Path) -> None:
    Path(runner.scratch).touch()
    with coordinating(tiny_sweep(), tmp_path / "study") as coordinator:
        runner.run(coordinator)
        assert (coordinator.stop_reason or "").startswith("Ray ended the run: ")
        assert coordinator.is_in_trouble
        assert {row.status for row in coordinator.journal.trials()} == {"planned"}
    with coordinating(tiny_sweep(), tmp_path / "study") as coordinator:
        InlineRunner().run(coordinator)
        assert {row.status for row in coordinator.journal.trials()} == {"finished"}


@pytest.mark.slow
def test_a_trial_that_hangs_is_tried_again_and_the_others_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, runner: RayRunner, tmp_path: Path
) -> None:
    """One trial waits for ever; the process of another is stopped, so that it cannot notice that it
    hangs."""
    runner.max_concurrent = None
    monkeypatch.setattr(ray_scheduler, "GRACE_SECONDS", 3.0)
    tasks = {}
    for width in (2, 3):
        (tmp_path / f"{width}").mkdir()
        tasks[width] = TinyTask(waits_at=10, folder=str(tmp_path / f"{width}"))
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3, 4], dropout=[0.3]),
        task=lambda point: tasks.get(point.width, TinyTask()),
        recipe=Recipe(lr=0.05, batch_size=8),
        budget=epochs(4),
        # Where a machine is busy even a trial that is well may once be too late.
        max_failures=9,
        checkpoint_seconds=0.0,
        report_timeout=12.0,
    )

    def let_go_once_dead(width: int) -> None:
        traces = tmp_path / f"{width}"
        deadline = time.monotonic() + 150
        while not (waiting := list(traces.glob("waiting-*"))) and time.monotonic() < deadline:
            time.sleep(0.02)
        process = int(waiting[0].name.partition("-")[2])
        if width == 3:
            os.kill(process, signal.SIGSTOP)
        while psutil.pid_exists(process) and time.monotonic() < deadline:
            time.sleep(0.02)
        (traces / "go").touch()

    doorkeepers = [threading.Thread(target=let_go_once_dead, args=(width,)) for width in (2, 3)]
    for doorkeeper in doorkeepers:
        doorkeeper.start()
    with coordinating(sweep, tmp_path / "study") as coordinator:
        runner.run(coordinator)
        rows = {row.point["width"]: row for row in coordinator.journal.trials()}
        reasons = {
            row.key: " ".join(
                entry.payload.get("reason", "")
                for entry in coordinator.journal.log_after(0, 1_000_000)
                if entry.kind == "status" and entry.key == row.key
            )
            for row in rows.values()
        }
    for doorkeeper in doorkeepers:
        doorkeeper.join()
    assert coordinator.stop_reason is None
    assert [rows[width].status for width in (1, 2, 3, 4)] == ["finished"] * 4
    assert "no report for 12 s (report_timeout): the process was ended" in reasons[rows[2].key]
    assert "in before_update" in reasons[rows[2].key]
    assert "it did not say where it was: it was stopped" in reasons[rows[3].key]
    calm = tiny_sweep(space=sweep.space, recipe=sweep.recipe, budget=sweep.budget)
    with coordinating(calm, tmp_path / "calm") as undisturbed:
        InlineRunner().run(undisturbed)
    assert list(histories(tmp_path / "study").values()) == list(
        histories(tmp_path / "calm").values()
    )
