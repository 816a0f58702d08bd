"""What needs a Ray of its own: two nodes, and a memory monitor that kills."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from hsweep.workspace import ROOT

TESTS = Path(__file__).resolve().parents[1]


def run(program: str, folder: Path) -> dict[str, Any]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, str(TESTS / "ray_programs.py"), program, str(folder)],
        env={**own, "PYTHONPATH": f"{ROOT}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


@pytest.mark.slow
def test_a_sweep_on_two_nodes_uses_both(tmp_path: Path) -> None:
    found = run("two_nodes", tmp_path)
    assert found["slots"] == 2
    assert found["statuses"] == ["finished"] * 4
    assert len(found["nodes"]) == 2
    assert found["reason"] is None
    # The file that showed that every node sees the storage is gone.
    assert not list((tmp_path / "shared").glob(".seen-by-all-*"))


@pytest.mark.slow
@pytest.mark.skipif(
    psutil.virtual_memory().available < 6 * 2**30, reason="needs 6 GB of free memory"
)
def test_a_trial_killed_by_rays_memory_monitor_fails_alone(tmp_path: Path) -> None:
    found = run("memory", tmp_path)
    assert found["statuses"] == ["finished", "failed", "finished"]
    assert found["attempts"] == [1, 2, 1]
    assert "running low on memory" in found["why"]
    assert found["reason"] is None
