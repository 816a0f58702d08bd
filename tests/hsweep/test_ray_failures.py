"""Why an attempt ended: read from Ray's errors, and from what a process that hangs leaves."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny import tiny_sweep
from tiny_runs import assignment_of, planned

from hsweep.errors import ROOT
from hsweep.ray_tune.environment import prepare_ray
from hsweep.training.worker_queue import hang_file

prepare_ray()

import ray  # noqa: E402
from ray.exceptions import (  # noqa: E402
    ActorUnavailableError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    TaskPlacementGroupRemoved,
)

from hsweep.ray_tune.failures import Failure, failure_of, hang_trace  # noqa: E402
from hsweep.ray_tune.messages import Place  # noqa: E402
from hsweep.training.worker_queue import EndedProcess  # noqa: E402

TESTS = Path(__file__).resolve().parents[1]
PLACE = Place(node="n1", host="alpha", pid=77)
TRIAL = planned(tiny_sweep())[0]

HANGING = """
import ctypes, sys
from pathlib import Path
from hsweep.ray_tune.environment import prepare_ray
prepare_ray()
from hsweep.ray_tune.actor import TrialActor
from hsweep.training.worker_queue import HangWatch
from hsweep.training.worker_queue import WorkerQueue
from test_ray_failures import TRIAL, assigned

def hanging(assignment, channel):
    channel.begins()
    never_returns()

def never_returns():
    # Called without giving up the interpreter lock, so no thread of Python's runs any more.
    ctypes.PyDLL(None).sleep(600)

actor = object.__new__(TrialActor)
actor._logdir = sys.argv[1]
actor._queue = WorkerQueue(hanging, HangWatch(sys.argv[1]))
actor.give([assigned(Path(sys.argv[1]), report_timeout=0.5)])
actor.step()
"""


def assigned(folder: Path, report_timeout: float | None) -> Any:
    return replace(assignment_of(TRIAL, folder), report_timeout=report_timeout)


def failure(
    error: BaseException | None,
    *,
    assignment: Any = None,
    place: Place | None = PLACE,
    folder: str | None = None,
    was_silenced: bool = False,
    has_started: bool = True,
    is_node_alive: bool = True,
) -> Failure:
    process = EndedProcess(error, place, folder, was_silenced=was_silenced)
    assignment = assignment or assigned(Path("/nowhere"), 30.0)
    return failure_of(assignment, process, has_started=has_started, is_node_alive=is_node_alive)


def wrapped(cause: BaseException) -> RayActorError:
    error = RayActorError(error_msg=str(cause))
    error.__cause__ = cause
    return error


def died(text: str = "connection error code 2. End of file.", **more: Any) -> RayActorError:
    return RayActorError(error_msg=text, **more)


def test_a_process_that_hangs_without_giving_up_the_interpreter_ends_itself_and_says_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING, str(tmp_path)],
        env={"PYTHONPATH": f"{ROOT}:{TESTS}:{TESTS / 'hsweep'}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assignment = assigned(tmp_path, report_timeout=0.5)
    assert hang_trace(str(tmp_path), assignment, None)
    place = replace(PLACE, node="")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=str))
    found = failure(died(), assignment=assignment, place=place, folder=str(tmp_path))
    assert found.hung
    assert found.is_own_fault
    assert found.leaves_node
    first, *stack = found.text.splitlines()
    assert first.startswith("no report for 0.5 s (report_timeout): the process was ended ")
    assert "process 77 on alpha" in first
    assert re.search(r"; it was at <string>, line \d+, in never_returns$", first)
    assert any("worker_queue.py" in line and "in _error_of" in line for line in stack)


def test_a_process_that_reports_in_time_is_left_alone(tmp_path: Path) -> None:
    assignment = assigned(tmp_path, report_timeout=0.5)
    assert hang_trace(str(tmp_path), assignment, None) == ""
    hang_file(tmp_path, assignment).touch()  # watched, and in time
    assert hang_trace(str(tmp_path), assignment, None) == ""


def test_a_process_that_could_not_watch_itself_is_ended_by_the_driver() -> None:
    found = failure(died("killed by `ray.kill`"), was_silenced=True)
    assert found.is_own_fault
    assert "no report for 30 s (report_timeout): the process was ended" in found.text
    assert "it was stopped" in found.text


@pytest.mark.parametrize(
    ("error", "known", "says"),
    [
        (died("The actor died because its node has died. Node Id: 12"), {}, "the node was lost"),
        (died(), {"is_node_alive": False}, "the node was lost"),
        (died(preempted=True), {}, "the node was lost"),
        (ActorUnavailableError("rpc error", b"0" * 16), {}, "the process could not be reached"),
        (wrapped(TaskPlacementGroupRemoved()), {}, "the process could not be reached"),
        (died(), {"has_started": False, "place": None}, "the process died before the trial began"),
    ],
)
def test_a_lost_place_is_not_the_trials_fault(
    error: RayActorError, known: dict[str, Any], says: str
) -> None:
    found = failure(error, **known)
    assert not found.is_own_fault
    assert found.text.startswith(says)
    assert str(error) in found.text


@pytest.mark.parametrize(
    ("error", "says", "leaves_node"),
    [
        (wrapped(OutOfMemoryError("running low on memory")), "out of host memory", True),
        (died(), "the process died (process 77 on alpha): killed by a signal", True),
        (died("bad __init__", actor_init_failed=True), "bad __init__", False),
        (RayTaskError("step", "\x1b[31mValueError\x1b[0m: x", ValueError("x")), "Value", False),
        (None, "the worker failed, and Ray did not say how", False),
    ],
)
def test_what_a_trial_does_itself_counts_as_its_failure(
    error: BaseException | None, says: str, leaves_node: bool
) -> None:
    found = failure(error)
    assert found.is_own_fault
    assert found.text.startswith(says) or says in found.text
    assert found.leaves_node is leaves_node
    assert "\x1b" not in found.text


def test_what_ray_says_never_pushes_out_what_we_say() -> None:
    found = failure(died("x" * 100_000))
    assert len(found.text) < 8_000
    assert found.text.startswith("the process died")
