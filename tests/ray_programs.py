"""Programs that need a Ray of their own; each runs in a process of its own.

python -c "import ray_programs; ray_programs.main()" PROGRAM FOLDER

The folder of a script counts as the user's, and this one has folders of hsweep's names.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hsweep.ray_tune.environment import prepare_ray

prepare_ray()

import psutil  # noqa: E402
import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from tiny import TinyData, TinyTask, tiny_sweep  # noqa: E402
from tiny_runs import coordinating  # noqa: E402

from hsweep import Point, Recipe, Sweep, epochs, grid  # noqa: E402
from hsweep.design.trial import Resources  # noqa: E402
from hsweep.errors import UserError  # noqa: E402
from hsweep.ray_tune.runner import RayRunner  # noqa: E402
from hsweep.record.journal_reader import JournalReader  # noqa: E402
from hsweep.training.run import Run  # noqa: E402

TESTS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class NodeNotingTask(TinyTask):
    """Leaves a file that names the node it was opened on."""

    def open(self, **settings: Any) -> TinyData:
        node = ray.get_runtime_context().get_node_id()
        (self._traces() / f"{len(list(self._traces().iterdir()))}-{node}").touch()
        return super().open(**settings)


@dataclass(frozen=True)
class HungryTask(TinyTask):
    """Takes memory, a little at every update, until it is killed."""

    def before_update(self, number: int) -> None:
        taken = []
        while True:
            taken.append(bytearray(64 * 2**20))
            for page in range(0, len(taken[-1]), 4096):
                taken[-1][page] = 1


def two_nodes(folder: Path) -> dict[str, Any]:
    """Run on a cluster of two nodes with one processor each."""
    traces = folder / "traces"
    traces.mkdir()
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3, 4]),
        # They end before a second process is there unless the first trials wait for each other.
        task=NodeNotingTask(waits_at=1, folder=str(traces)),
        resources=Resources(cpus=1),
    )
    runner = RayRunner(scratch=str(folder / "shared"), address=cluster.address, sweep_folder=TESTS)
    runner.connect()
    with coordinating(sweep, folder / "study") as coordinator:
        trials = coordinator.planned_trials()
        runner.check({trial.key: trial.resources for trial in trials})
        runner.check_nodes(trials[0])
        slots = runner.slots(Resources(cpus=1))
        go = threading.Thread(target=lambda: (waiting(traces, 2), (traces / "go").touch()))
        go.start()
        runner.run(coordinator)
        go.join()
        statuses = [row.status for row in coordinator.journal.trials()]
        reason = coordinator.stop_reason
    refusal = ""
    try:
        runner.check({"t1": Resources(processes=2)})
    except UserError as error:
        refusal = str(error)
    spread = spread_sweep(folder)
    with coordinating(spread, folder / "spread") as coordinator:
        runner.check({trial.key: trial.resources for trial in coordinator.planned_trials()})
        runner.run(coordinator)
        [row] = coordinator.journal.trials()
    runner.close()
    cluster.shutdown()
    nodes = sorted({trace.name.partition("-")[2] for trace in traces.glob("[0-9]*-*")})
    ranks = sorted(trace.name.split("-")[1:] for trace in folder.glob("rank-*"))
    return {
        **{"slots": slots, "statuses": statuses, "nodes": nodes, "reason": reason},
        **{"refusal": refusal, "spread": [row.status, row.metrics.get("ranks")], "ranks": ranks},
    }


@dataclass(frozen=True)
class CountingRanks:
    """Leaves a file for each rank that names its node, and reports how many there are."""

    folder: str

    def __call__(self, point: Point, run: Run) -> None:
        import torch

        node = ray.get_runtime_context().get_node_id()
        (Path(self.folder) / f"rank-{run.rank}-{node}").touch()
        number = torch.ones(())
        torch.distributed.all_reduce(number)
        run.report(1, ranks=float(number))


def spread_sweep(folder: Path) -> Sweep:
    """Return a sweep of one trial, whose processes may run on several nodes."""
    return Sweep(
        name="spread",
        description="a trial on two nodes",
        space=grid(width=[1]),
        train=CountingRanks(str(folder)),
        metric="ranks",
        goal="max",
        budget=epochs(1),
        resources=Resources(processes=2, spread=True),
    )


UNSEEN = ("unshare", "--map-root-user", "--pid", "--fork", "--mount-proc")
"""Runs a command that sees no process of this machine, as on another."""
ONE_STEP = """
from hsweep import Sweep, grid, steps


def train(point, run):
    run.report(1, loss=point.x)


SWEEP = Sweep(
    name="one", space=grid(x=[1.0]), train=train, metric="loss", goal="min", budget=steps(1)
)
"""
IN_TURN = """
import time
from pathlib import Path

from hsweep import Resources, Sweep, grid, steps

FOLDER = Path({folder!r})


def train(point, run):
    (FOLDER / f"{name}-{{point.x}}").touch()
    while not (FOLDER / "go-{name}").exists():
        time.sleep(0.01)
    run.report(1, loss=point.x)


SWEEP = Sweep(
    name="{name}", space=grid(x=[1.0, 2.0, 3.0, 4.0]), train=train, metric="loss", goal="min",
    budget=steps(1), resources=Resources(cpus=1),
)
"""
BARE_SITE = """
import sys

class Without:
    def find_spec(name, *_):
        if name.partition(".")[0] == "hsweep":
            raise ModuleNotFoundError("No module named 'hsweep'")

sys.meta_path.insert(0, Without)
"""


def python_without_hsweep(folder: Path) -> Path:
    """Make a Python that has all that this one has but hsweep."""
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "all.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (packages / "sitecustomize.py").write_text(BARE_SITE)
    return folder / "bin" / "python"


def bare_node(folder: Path) -> dict[str, Any]:
    """Start a study on a cluster with a node that lacks hsweep, and from outside of the cluster."""
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    python = python_without_hsweep(folder / "bare")
    node = start_node(python, cluster.address, 1)
    until(lambda: len(cluster.global_state._live_node_ids()) == 2)
    (folder / "sweep.py").write_text(ONE_STEP)
    command = [sys.executable, "-m", "hsweep", "run", "sweep.py", "--address", cluster.address]
    found: dict[str, Any] = {}
    for name, before in (("bare", ()), ("elsewhere", UNSEEN)):
        done = subprocess.run(
            [*before, *command, "--home", "home"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        found[name] = done.returncode, done.stderr
    kill_node(node)
    cluster.shutdown()
    return {**found, "recorded": [path.name for path in folder.glob("home/studies/*")]}


def priorities(folder: Path) -> dict[str, Any]:
    """Run two studies on a cluster of two processors, the more urgent one second."""
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    traces = folder / "traces"
    traces.mkdir()
    drivers = {}

    def start(name: str, priority: int) -> None:
        (folder / f"{name}.py").write_text(IN_TURN.format(name=name, folder=str(traces)))
        command = [sys.executable, "-m", "hsweep", "run", f"{name}.py", "--home", "home"]
        command += ["--address", cluster.address, "--priority", str(priority)]
        with (folder / f"{name}.out").open("w") as out:
            drivers[name] = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)

    def begun() -> list[str]:
        """The studies whose trials have begun, in their order."""
        order = sorted(traces.glob("*-*.0"), key=lambda trace: trace.stat().st_mtime_ns)
        return [trace.name.partition("-")[0] for trace in order]

    start("first", 0)
    until(lambda: begun() == ["first"] * 2)
    start("second", 5)
    shared = "the cluster is shared with second-quick"
    until(lambda: shared in (folder / "first.out").read_text())
    (traces / "go-first").touch()
    until(lambda: begun() == ["first"] * 2 + ["second"] * 2)
    (traces / "go-second").touch()
    codes = [driver.wait() for driver in drivers.values()]
    attempts = []
    for name in drivers:
        with JournalReader(folder / f"home/studies/{name}-quick/journal") as journal:
            attempts += [(row.status, row.attempt) for row in journal.trials()]
    cluster.shutdown()
    return {"codes": codes, "begun": begun(), "attempts": attempts}


def memory(folder: Path) -> dict[str, Any]:
    """Run beside a trial that takes memory until Ray's memory monitor kills it."""
    memory = psutil.virtual_memory()
    allowed = (memory.total - memory.available + 3 * 2**30) / memory.total
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={
            "worker_process_setup_hook": "hsweep.workspace.set_up_worker",
            "env_vars": {"PYTHONPATH": f"{TESTS.parent}:{TESTS}"},
        },
        _system_config={"memory_usage_threshold": allowed, "memory_monitor_refresh_ms": 100},
    )
    sweep = tiny_sweep(
        space=grid(width=[1, 2, 3]),
        task=lambda point: HungryTask() if point.width == 2 else TinyTask(),
        max_failures=1,
    )
    # One at a time, or the monitor may choose a bystander.
    runner = RayRunner(scratch=str(folder / "ray"), max_concurrent=1)
    with coordinating(sweep, folder / "study") as coordinator:
        runner.run(coordinator)
        rows = coordinator.journal.trials()
        reason = coordinator.stop_reason
    runner.close()
    return {
        "statuses": [row.status for row in rows],
        "attempts": [row.attempt for row in rows],
        "why": rows[1].reason,
        "reason": reason,
    }


def waiting_sweep(traces: Path, widths: list[int]) -> Sweep:
    """Return a sweep whose trials wait in the middle of their third epoch."""
    return tiny_sweep(
        space=grid(width=widths, dropout=[0.3]),
        task=TinyTask(waits_at=10, folder=str(traces)),
        recipe=Recipe(lr=0.05, batch_size=8),
        budget=epochs(4),
        checkpoint_seconds=0.0,
        max_failures=0,
    )


def waiting(traces: Path, number: int) -> None:
    """Return once so many processes wait."""
    until(lambda: len(list(traces.glob("waiting-*"))) >= number)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(is_so: Callable[[], bool]) -> None:
    """Return once something is so, or after two minutes."""
    deadline = time.monotonic() + 120
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.05)


def node_lost(folder: Path) -> dict[str, Any]:
    """Lose one of two nodes while a trial waits on each."""
    traces = folder / "traces"
    traces.mkdir()
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    lost = cluster.add_node(num_cpus=1)

    def lose() -> None:
        waiting(traces, 2)
        # Both have reported twice; what has not arrived yet would be reported again.
        with JournalReader(folder / "study" / "journal") as journal:
            until(lambda: len(list(journal.reports())) >= 4)
        cluster.remove_node(lost, allow_graceful=False)
        # Its processes notice that a little later, and might finish until then.
        pids = [int(trace.name.partition("-")[2]) for trace in traces.glob("waiting-*")]
        until(lambda: not all(map(is_alive, pids)))
        (traces / "go").touch()

    runner = RayRunner(scratch=str(folder / "shared"), address=cluster.address, sweep_folder=TESTS)
    runner.connect()
    loser = threading.Thread(target=lose)
    loser.start()
    with coordinating(waiting_sweep(traces, [1, 2, 3]), folder / "study") as coordinator:
        runner.run(coordinator)
        rows = coordinator.journal.trials()
        reports = [(each.key, each.unit, each.attempt) for each in coordinator.journal.reports()]
        reason = coordinator.stop_reason
    loser.join()
    runner.close()
    cluster.shutdown()
    return {
        "rows": [(row.key, row.status, row.attempt, row.failures) for row in rows],
        "reports": reports,
        "reason": reason,
    }


def nodes_come_and_go(folder: Path) -> dict[str, Any]:
    """Begin on a cluster without processors; let nodes join while trials wait, one of them without
    hsweep, and lose one."""
    traces = folder / "traces"
    traces.mkdir()
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    runner = RayRunner(
        scratch=str(folder / "shared"), address=cluster.address, sweep_folder=TESTS, patience=120
    )
    runner.connect()
    said: list[str] = []
    running: list[int] = []
    bare_python = python_without_hsweep(folder / "bare")
    with coordinating(waiting_sweep(traces, [1, 2, 3, 4]), folder / "study") as coordinator:
        trials = coordinator.planned_trials()
        nodes = [start_node(sys.executable, cluster.address, 1)]
        runner.check({trial.key: trial.resources for trial in trials})
        runner.check_nodes(trials[0])
        coordinator.observer = SaidObserver(said)

        def change() -> None:
            for number in (1, 2):
                waiting(traces, number)
                running.append(len(coordinator.table.running))
                if number == 1:
                    nodes.append(start_node(sys.executable, cluster.address, 1))
            nodes.append(start_node(bare_python, cluster.address, 1))
            until(lambda: any("gets no trials" in line for line in said))
            until(lambda: len(list(coordinator.journal.reports())) >= 4)
            kill_node(nodes[0])
            until(lambda: any("has gone" in line for line in said))
            (traces / "go").touch()

        changing = threading.Thread(target=change)
        changing.start()
        runner.run(coordinator)
        changing.join()
        rows = coordinator.journal.trials()
        reason = coordinator.stop_reason
        left_out = coordinator.journal.meta("left_out")
    runner.close()
    for node in nodes:
        kill_node(node)
    cluster.shutdown()
    return {
        "rows": [(row.status, row.failures) for row in rows],
        **{"said": said, "running": running, "reason": reason, "left_out": left_out},
    }


class SaidObserver:
    """Keeps what is said of nodes."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def said(self, line: str) -> None:
        self._said.append(line)

    def started(self, *_: object) -> None: ...

    def reported(self, *_: object) -> None: ...

    def ended(self, *_: object) -> None: ...


def start_node(python: str | Path, address: str, cpus: int) -> subprocess.Popen[bytes]:
    start = [python, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    return subprocess.Popen([*start, f"--address={address}", f"--num-cpus={cpus}"])


def kill_node(node: subprocess.Popen[bytes]) -> None:
    """Kill a node and all that runs on it, if it has not ended."""
    if node.poll() is None:
        for process in [
            psutil.Process(node.pid),
            *psutil.Process(node.pid).children(recursive=True),
        ]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        node.wait()


def elsewhere(folder: Path) -> dict[str, Any]:
    """Kill a trial's process where two nodes have room for it."""
    traces = folder / "traces"
    traces.mkdir()
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)

    def kill() -> None:
        waiting(traces, 1)
        [trace] = traces.glob("waiting-*")
        os.kill(int(trace.name.partition("-")[2]), signal.SIGKILL)
        (traces / "go").touch()

    sweep = tiny_sweep(
        space=grid(width=[1]),
        task=NodeNotingTask(waits_at=6, folder=str(traces)),
        resources=Resources(cpus=1),
        max_failures=1,
    )
    runner = RayRunner(scratch=str(folder / "shared"), address=cluster.address, sweep_folder=TESTS)
    runner.connect()
    killer = threading.Thread(target=kill)
    killer.start()
    with coordinating(sweep, folder / "study") as coordinator:
        runner.run(coordinator)
        [row] = coordinator.journal.trials()
    killer.join()
    runner.close()
    cluster.shutdown()
    opened = [trace.name.partition("-") for trace in traces.glob("*-*")]
    nodes = [node for number, _, node in opened if number.isdigit()]
    return {"status": row.status, "failures": row.failures, "nodes": nodes}


def ray_dies(folder: Path, process: str) -> dict[str, Any]:
    """Kill a process of the local Ray while a trial waits."""
    traces = folder / "traces"
    traces.mkdir()
    runner = RayRunner(scratch=str(folder / "ray"), sweep_folder=TESTS, max_concurrent=1)
    runner.connect()
    [killed] = ray._private.worker._global_node.all_processes[process]

    def kill() -> None:
        waiting(traces, 1)
        os.kill(killed.process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with coordinating(waiting_sweep(traces, [1, 2]), folder / "study") as coordinator:
        runner.run(coordinator)
        reason = coordinator.stop_reason
    killer.join()
    runner.close()
    return {"reason": reason}


def raylet_dies(folder: Path) -> dict[str, Any]:
    """Kill the local Ray's node process."""
    return ray_dies(folder, "raylet")


def head_dies(folder: Path) -> dict[str, Any]:
    """Kill the local Ray's head process."""
    return ray_dies(folder, "gcs_server")


PROGRAMS = (
    two_nodes,
    bare_node,
    nodes_come_and_go,
    priorities,
    memory,
    node_lost,
    elsewhere,
    raylet_dies,
    head_dies,
)


def main() -> None:
    """Run the program of this name and write what it found."""
    program = {each.__name__: each for each in PROGRAMS}[sys.argv[1]]
    found = program(Path(sys.argv[2]))
    (Path(sys.argv[2]) / "found.json").write_text(json.dumps(found))
