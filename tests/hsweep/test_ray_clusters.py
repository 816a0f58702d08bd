"""What needs a Ray of its own: several nodes, a memory monitor that kills, a Ray that dies."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray_programs import waiting_sweep
from tiny_runs import coordinating, histories, statuses

from hsweep.coordination.runner import InlineRunner
from hsweep.errors import ROOT

TESTS = Path(__file__).resolve().parents[1]
START = "import ray_programs; ray_programs.main()"


SEVERAL_MACHINES = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}
"""Lets nodes be started by Ray's command, which refuses where all listen to one machine alone."""


def run(program: str, folder: Path, variables: Mapping[str, str] = {}) -> dict[str, Any]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", START, program, str(folder)],
        env={
            **own,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{TESTS}",
            "OMP_NUM_THREADS": "1",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return {**found, "printed": done.stdout + done.stderr}


@pytest.mark.slow
def test_a_sweep_on_two_nodes_uses_both(tmp_path: Path) -> None:
    found = run("two_nodes", tmp_path)
    assert found["slots"] == 2
    assert found["statuses"] == ["finished"] * 4
    assert len(found["nodes"]) == 2
    assert found["reason"] is None
    # A trial of two processes has room on neither, and may run on both.
    assert "on one node, but the largest node has 1 cpus" in found["refusal"]
    assert "(--set spread=true)" in found["refusal"]
    assert found["spread"] == ["finished", 2.0]
    assert [rank for rank, _ in found["ranks"]] == ["0", "1"]
    assert sorted(node for _, node in found["ranks"]) == found["nodes"]
    # The file that showed that every node sees the storage is gone.
    assert not list((tmp_path / "shared").glob(".seen-by-all-*"))


@pytest.mark.slow
def test_no_study_begins_on_a_node_without_hsweep_or_from_outside_of_the_cluster(
    tmp_path: Path,
) -> None:
    found = run("bare_node", tmp_path, SEVERAL_MACHINES)
    code, told = found["bare"]
    assert code == 2, told
    host = socket.gethostname()
    assert f"node {host} (" in told
    assert ") lacks this command's hsweep (No module named 'hsweep'): install it" in told
    code, told = found["elsewhere"]
    if "unshare" not in told:  # as where user namespaces are forbidden
        assert code == 2, told
        assert "this machine is no node of that cluster; run the command on one (" in told
        assert "`ray job submit`" in told
    assert found["recorded"] == []


@pytest.mark.slow
@pytest.mark.skipif(
    psutil.virtual_memory().available < 6 * 2**30, reason="needs 6 GB of free memory"
)
def test_a_trial_killed_by_rays_memory_monitor_fails_alone(tmp_path: Path) -> None:
    found = run("memory", tmp_path)
    assert found["statuses"] == ["finished", "failed", "finished"]
    assert found["attempts"] == [1, 2, 1]
    assert found["why"].startswith("out of host memory: Ray's memory monitor ended the process")
    assert "let fewer trials run at once" in found["why"]
    assert "running low on memory" in found["why"]
    assert found["reason"] is None


def undisturbed(folder: Path, widths: list[int]) -> dict[str, Any]:
    """The histories of the same trials where nothing happens."""
    traces = folder / "calm-traces"
    traces.mkdir()
    (traces / "go").touch()
    with coordinating(waiting_sweep(traces, widths), folder / "calm") as coordinator:
        InlineRunner().run(coordinator)
    return histories(folder / "calm")


@pytest.mark.slow
def test_the_trials_of_a_lost_node_go_on_elsewhere_and_that_is_no_failure(tmp_path: Path) -> None:
    found = run("node_lost", tmp_path)
    assert "Last 20 lines of the Raylet logs" not in found["printed"]
    assert "has been marked dead" not in found["printed"]
    assert found["reason"] is None
    assert {(status, failures) for _, status, _, failures in found["rows"]} == {("finished", 0)}
    assert sorted(attempt for _, _, attempt, _ in found["rows"]) == [1, 1, 2]
    [moved] = [key for key, _, attempt, _ in found["rows"] if attempt == 2]
    # It went on from its checkpoint: nothing was reported twice, and nothing before it again.
    assert [(unit, attempt) for key, unit, attempt in found["reports"] if key == moved] == [
        (1, 1), (2, 1), (3, 2), (4, 2),
    ]  # fmt: skip
    calm = list(undisturbed(tmp_path, [1, 2, 3]).values())
    assert list(histories(tmp_path / "study").values()) == calm


@pytest.mark.slow
def test_as_many_trials_run_as_the_nodes_that_come_and_go_have_room_for(tmp_path: Path) -> None:
    found = run("nodes_come_and_go", tmp_path, SEVERAL_MACHINES)
    assert found["reason"] is None
    assert found["rows"] == [["finished", 0]] * 4
    assert found["running"] == [1, 2]
    joined, bare, lacks, gone = found["said"]
    assert joined.endswith(" has joined")
    assert bare.endswith(" has joined")
    assert "gets no trials: it lacks this command's hsweep" in lacks
    assert gone.endswith(" has gone")
    assert found["left_out"] == lacks
    assert "waiting up to 120 s for nodes: trial" in found["printed"]


@pytest.mark.slow
def test_a_study_of_higher_priority_gets_each_slot_that_another_ones_trial_leaves(
    tmp_path: Path,
) -> None:
    found = run("priorities", tmp_path)
    assert found["codes"] == [0, 0]
    assert found["begun"] == ["first"] * 2 + ["second"] * 4 + ["first"] * 2
    assert found["attempts"] == [["finished", 1]] * 8


@pytest.mark.slow
def test_a_trial_whose_process_died_goes_on_on_another_node(tmp_path: Path) -> None:
    found = run("elsewhere", tmp_path)
    assert (found["status"], found["failures"]) == ("finished", 1)
    first, second = found["nodes"]
    assert first != second


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "process"), [("raylet_dies", "raylet"), ("head_dies", "gcs_server")]
)
def test_when_ray_itself_dies_the_study_is_left_in_order_and_goes_on_without_it(
    program: str, process: str, tmp_path: Path
) -> None:
    found = run(program, tmp_path)
    assert found["reason"] == f"Ray ended the run: its process {process} on this machine has died"
    assert set(statuses(tmp_path / "study").values()) == {"planned"}
    (tmp_path / "traces" / "go").touch()
    with coordinating(waiting_sweep(tmp_path / "traces", [1, 2]), tmp_path / "study") as resumed:
        InlineRunner().run(resumed)
        rows = resumed.journal.trials()
    assert [(row.status, row.failures) for row in rows] == [("finished", 0)] * 2
    assert list(histories(tmp_path / "study").values()) == list(
        undisturbed(tmp_path, [1, 2]).values()
    )
