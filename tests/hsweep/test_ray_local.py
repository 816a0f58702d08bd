"""The Ray that a command starts before it has planned, and how it is ended."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cli_process import Workplace
from tiny_studies import new_study

from hsweep.errors import ROOT
from hsweep.paths import Home
from hsweep.python import load
from hsweep.ray_tune.environment import prepare_ray
from hsweep.record.lease import holding
from hsweep.record.provenance import usable_cores

prepare_ray()

from hsweep.ray_tune.local import MOST_EARLY  # noqa: E402

SWEEP = """
import os
import sys

os.environ["CHOSEN"] = {chosen!r}
sys.path.append({shelf!r})

import on_a_shelf

from hsweep import Sweep, grid, steps


def train(point, run):
    # By its name alone, in a process that has not loaded the sweep file.
    import on_a_shelf as again

    run.report(1, seen=float(os.environ["CHOSEN"]), shelf=float(again.NUMBER))


SWEEP = Sweep(
    name="chosen", space=grid(lr=[0.1]), train=train, metric="seen", goal="max", budget=steps(1)
)
"""

KEPT = """
import time

import psutil

from hsweep.python import load
from hsweep.ray_tune.environment import prepare_ray
prepare_ray()
from hsweep.ray_tune.local import shut_down, start_local
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

start_local({})
cores = int(ray.cluster_resources()["CPU"])
early = {each.pid for each in psutil.Process().children(recursive=True)}
group = placement_group([{"CPU": 1}] * cores)
group.wait()
time.sleep(3)  # Tune is as long at other things between the cores and the process


@ray.remote(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group))
class Actor:
    def pid(self):
        import os

        return os.getpid()


print(ray.get(Actor.remote().pid.remote()) in early)
shut_down()
"""

ENDING = """
import threading
from hsweep.python import load
from hsweep.ray_tune.environment import prepare_ray
prepare_ray()
from hsweep.ray_tune.local import shut_down, start_local
import gc
import ray
start_local({})
cycles = [[ray.ObjectRef.from_random()] for _ in range(20_000)]
for cycle in cycles:
    cycle.append(cycle)
gc.set_threshold(50, 2, 2)
closing = threading.Thread(target=shut_down)
closing.start()
while closing.is_alive():
    # One is forgotten, and garbage looked for by whoever makes objects.
    cycle = cycles.pop() if cycles else None
    made = [[] for _ in range(2000)]
print("still here")
"""


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    (tmp_path / "outside").mkdir()
    workplace = Workplace(tmp_path / "outside")
    yield workplace
    workplace.close()


def left_of(workplace: Workplace) -> list[psutil.Process]:
    """Processes that have begun in the workplace, as all of a Ray do that is started there, and
    that are not about to end: a busy system takes a while to end one that was killed."""
    processes = [
        process
        for process in psutil.process_iter(["cwd"])
        if process.info["cwd"] == str(workplace.root)
    ]
    _, alive = psutil.wait_procs(processes, timeout=10)
    return list(alive)


def test_workers_have_what_the_sweep_file_sets_although_ray_starts_before_it_is_planned(
    workplace: Workplace,
) -> None:
    shelf = workplace.root / "shelf"
    shelf.mkdir()
    (shelf / "on_a_shelf.py").write_text("NUMBER = 3\n")
    workplace.sweep.write_text(SWEEP.format(chosen="7", shelf=str(shelf)))
    workplace.run("run", "outside.py", "--no-dashboard", "--study", "mine")
    (row,) = load("mine", workplace.home).trials.to_dict("records")
    assert (row["seen"], row["shelf"]) == (7.0, 3.0)


def test_a_study_that_is_over_needs_no_ray_and_leaves_none(workplace: Workplace) -> None:
    workplace.let_go()
    workplace.run("run", "outside.py", "--runner", "inline", "--study", "mine")
    for _ in range(3):
        driver = workplace.run("resume", "mine")
        assert "there is nothing to train" in driver.stdout()
        assert left_of(workplace) == []


@pytest.mark.skipif(usable_cores() > MOST_EARLY, reason="so many cores get no early processes")
def test_processes_that_wait_for_their_first_trial_are_kept_until_it_comes() -> None:
    done = subprocess.run([sys.executable, "-c", KEPT], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        ("SWEEP = 3\n", (), "defines SWEEP as 3"),
        ("", (), "defines no SWEEP"),
        (None, ("--preset", "lang"), "unknown preset 'lang'"),
        (None, ("--set", "wdth=2"), "unknown setting 'wdth'"),
        (None, ("--set", "width="), "not of the form NAME=VALUE"),
        (None, ("--study", "../x"), "a study's name starts with"),
        (None, ("--study", "held"), "is being run by process"),
    ],
)
def test_what_needs_no_ray_is_refused_before_one_starts(
    workplace: Workplace, source: str | None, options: tuple[str, ...], told: str
) -> None:
    if source is not None:
        workplace.sweep.write_text(source)
    with holding(new_study(Home(workplace.home), "held").paths):
        driver = workplace.start("run", "outside.py", *options)
        assert driver.wait() == 2
    assert told in driver.stderr()
    assert "starting Ray" not in driver.stderr()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("OwnModel(point.width", "OwnModel(-point.width", "has no trial: 3 points were skipped"),
        ("waits_at=10", "unreadable=True", "cannot be read"),
    ],
)
def test_a_refused_plan_leaves_no_process(
    workplace: Workplace, old: str, new: str, told: str
) -> None:
    workplace.sweep.write_text(workplace.sweep.read_text().replace(old, new))
    driver = workplace.start("run", "outside.py", "--no-dashboard")
    assert driver.wait() == 2
    assert told in driver.stderr()
    assert "starting Ray" in driver.stderr()
    assert left_of(workplace) == []


def test_ray_ends_beside_a_thread_that_looks_for_garbage() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "still here\n"), done.stderr


@pytest.mark.parametrize("variable", ["HOME", "TMPDIR"])
def test_a_folder_that_ray_cannot_use_is_named(variable: str, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 25)
    if variable == "TMPDIR":
        folder.mkdir()
    program = (
        "import os\n"
        f"os.environ.pop('RAY_TMPDIR', None); os.environ[{variable!r}] = {str(folder)!r}\n"
        "from hsweep.ray_tune.environment import prepare_ray\n"
        "prepare_ray()\n"
        "from hsweep.errors import UserError\n"
        "from hsweep.ray_tune.local import start_local\n"
        "try: start_local({})\n"
        "except UserError as error: print(error)\n"
    )
    if variable == "HOME":
        (tmp_path / "file").touch()
        program = program.replace(str(folder), str(tmp_path / "file"))
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("a local Ray does not start: ")
    remedy = "shorter path in RAY_TMPDIR" if variable == "TMPDIR" else "Ray writes to HOME ("
    assert remedy in ended.stdout
