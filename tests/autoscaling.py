"""A cluster that adds nodes by itself, and commands beside it.

unshare ... python tests/autoscaling.py VERSION FOLDER: Ray's nodes for tests of its autoscaler, of
that version. They listen at fixed ports, and lack a file of defaults: so they get a network,
processes and a view of Ray's package of their own.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import ray

HEAD: Final = f"{'f' * 51}00000"
"""The id that Ray's nodes for tests expect of their head."""
SWEEP: Final = """
import time
from pathlib import Path

from hsweep import Resources, Sweep, grid, steps

TRACES = Path({traces!r})


def train(point, run):
    (TRACES / str(point.x)).touch()
    # One node has room for two.
    while len(list(TRACES.iterdir())) < 3:
        time.sleep(0.05)
    run.report(1, loss=point.x)


SWEEP = Sweep(
    name="grown", space=grid(x=[1.0, 2.0, 3.0, 4.0]), train=train, metric="loss", goal="min",
    budget=steps(1), resources=Resources(cpus=1),
)
"""


def configuration(version: str) -> dict[str, Any]:
    """A head without processors, and up to three nodes of two."""
    types = {
        "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "two": {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 3},
    }
    provider: dict[str, Any] = {
        "type": "fake_multinode",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    }
    if version == "2":
        provider |= {"launch_multiple": True, "head_node_id": HEAD}
    lists = [
        *(f"{place}setup_commands" for place in ("", "head_", "worker_")),
        *("initialization_commands", "head_start_ray_commands", "worker_start_ray_commands"),
        *("cluster_synced_files", "rsync_exclude", "rsync_filter"),
    ]
    return {
        **{"cluster_name": "fake", "max_workers": 8, "idle_timeout_minutes": 5},
        **{"upscaling_speed": 100.0, "provider": provider, "available_node_types": types},
        **{"head_node_type": "ray.head.default", "auth": {}, "docker": {}, "file_mounts": {}},
        **{"file_mounts_sync_continuously": False, **{name: [] for name in lists}},
    }


def start_head(version: str, folder: Path) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    file = folder / "cluster.json"
    file.write_text(json.dumps(configuration(version)))
    package = Path(ray.__file__).parent / "autoscaler/_private/fake_multi_node"
    shutil.copytree(package, folder / "fake")
    shutil.copy(file, folder / "fake" / "example.yaml")
    subprocess.run(["mount", "--bind", folder / "fake", package], check=True)
    os.environ |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "of-this-cluster-alone",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
    }
    own = {"RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD, "RAY_CLOUD_INSTANCE_ID": HEAD}
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--num-cpus=0"]
    subprocess.run(
        [
            *(*start, f"--autoscaling-config={file}", "--disable-usage-stats"),
            *("--node-ip-address=127.0.0.1", "--port=6379", "--include-dashboard=false"),
            f"--temp-dir={folder}/ray",
        ],
        env={**os.environ, "RAY_enable_autoscaler_v2": "1", **own} if version == "2" else None,
        check=True,
    )


def main(version: str, folder: Path) -> None:
    start_head(version, folder)
    traces = folder / "traces"
    traces.mkdir()
    (folder / "sweep.py").write_text(SWEEP.format(traces=str(traces)))
    command = [sys.executable, "-m", "hsweep", "run", "sweep.py", "--address", "127.0.0.1:6379"]
    found = {}
    for name, options in (
        ("grown", ("--wait", "2m")),
        ("spread", ("--wait-for-nodes", "3", "--study", "spread")),
        ("too large", ("--wait", "3s", "--set", "cpus=3", "--study", "large")),
    ):
        done = subprocess.run(
            [*command, "--home", "home", *options],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        found[name] = done.returncode, done.stdout, done.stderr
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
