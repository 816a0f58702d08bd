"""A study on a cluster that adds nodes by itself."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hsweep.errors import ROOT

TESTS = Path(__file__).resolve().parents[1]
APART = (
    *("unshare", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--mount-proc"),
    "--kill-child",
)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1", "2"])
def test_an_autoscaling_cluster_is_asked_for_nodes_before_and_while_trials_run(
    version: str, tmp_path: Path
) -> None:
    if shutil.which("ip") is None or subprocess.run([*APART, "true"], check=False).returncode:
        pytest.skip("needs user namespaces and ip")
    folder = tmp_path if len(str(tmp_path)) < 40 else Path(f"/tmp/hsweep-scaling-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    try:
        subprocess.run(
            [*APART, sys.executable, str(TESTS / "autoscaling.py"), version, str(folder)],
            env={**own, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            check=True,
        )
        found = json.loads((folder / "found.json").read_text())
        studies = [path.name for path in folder.glob("home/studies/*") if path.is_dir()]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    code, printed, told = found["grown"]
    assert code == 0, told
    assert "waiting up to 120 s for nodes: trial" in told
    assert "the largest node has 0 cpus" in told
    assert "4 finished" in printed
    # The one that came for the first trial holds two.
    assert " has joined" in printed
    code, printed, told = found["spread"]
    assert code == 0, told
    assert "waiting up to 600 s for nodes: 2 of 3 nodes (--wait-for-nodes) are there" in told
    assert "4 finished" in printed
    code, _, told = found["too large"]
    assert code == 2, told
    assert "needs 3 cpus and 0 gpus, but the largest node has 2 cpus" in told
    assert {*studies} == {"grown-quick", "spread"}
