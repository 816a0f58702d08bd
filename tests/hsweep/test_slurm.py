"""Studies on a real SLURM: several users, time limits, other nodes, nodes that join and go."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from slurm_cluster import USERS, SlurmCluster, missing, slurm_cluster, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(missing()), reason=f"needs SLURM here: {missing()}"),
]
PATIENCE = 900.0

SWEEP = '''
"""Trials of minutes."""

import json
import os
import time

from hsweep import Resources, Sweep, epochs, grid


def train(point, run):
    start = 0
    if run.checkpoint:
        start = int((run.checkpoint / "unit").read_text())
    for unit in range(start + 1, run.budget + 1):
        time.sleep(0.5)
        folder = run.folder / "checkpoint"
        folder.mkdir(exist_ok=True)
        (folder / "unit").write_text(str(unit))
        with open(f"{os.environ['HOME']}/trace", "a") as trace:
            name = f"{os.environ['SLURM_JOB_ID']} {os.environ['SLURMD_NODENAME']}"
            trace.write(f"{point.width} {unit} {name}\\n")
        run.report(unit, checkpoint=folder, score=point.width * unit)


SWEEP = Sweep(
    name="slow",
    space=grid(width=list(range(1, NUMBER + 1))),
    train=train,
    metric="score",
    goal="max",
    budget=epochs(200),
    resources=Resources(cpus=1),
    checkpoint_seconds=1.0,
)
'''


class User:
    """Somebody with a folder, a sweep of so many trials and a home on a cluster."""

    def __init__(self, cluster: SlurmCluster, name: str, trials: int) -> None:
        self.cluster, self.name = cluster, name
        self.folder = cluster.shared / f"{name}-{trials}"
        self.folder.mkdir()
        (self.folder / "slow.py").write_text(SWEEP.replace("NUMBER", str(trials)))
        for path in (self.folder, self.folder / "slow.py"):
            os.chown(path, USERS[name], USERS[name])

    def run(self, *words: object) -> str:
        """Run a command on the first node, in the user's folder."""
        done = self.cluster.on(
            *("n1", "env", "-C", self.folder, *words),
            user=self.name,
            HOME=str(self.folder),
            HSWEEP_HOME=str(self.folder / "home"),
            OMP_NUM_THREADS="1",
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, *words: object) -> int:
        """Submit the sweep; return the number of the job."""
        said = self.run("hsweep", "submit", "slurm", "slow.py", "--no-check", *words)
        return int(said.split()[1])

    def study(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.run("hsweep", "show", "slow-quick", "--json"))
        return content

    def output(self) -> str:
        files = sorted((self.folder / "home" / "slurm" / "slow-quick").glob("*.out"))
        return "\n".join(file.read_text() for file in files)

    def trace(self) -> list[list[str]]:
        """Return of each unit that was trained its trial, the unit, the node's job and the node."""
        file = self.folder / "trace"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def check(self, trials: int) -> None:
        """Each trial has ended once, and what was trained twice is what was not in a checkpoint."""
        study = self.study()
        assert study["state"] == "complete", self.output()
        rows = study["trials_list"]
        assert [row["status"] for row in rows] == ["finished"] * trials, self.output()
        assert sorted(row["score"] for row in rows) == [200 * (n + 1) for n in range(trials)]
        units = Counter((width, unit) for width, unit, *_ in self.trace())
        assert len(units) == 200 * trials
        assert not (self.folder / "home" / "studies" / "slow-quick" / "cluster.json").exists()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


def clean(cluster: SlurmCluster) -> None:
    """Wait until no job is left, and nothing of Ray on any node."""
    until(lambda: cluster.run("squeue", "-h") == "", "an empty queue", PATIENCE)

    def left() -> list[str]:
        pids = [pid for node in cluster.nodes for pid in cluster.processes(node)]
        names = [psutil.Process(pid).name() for pid in pids if psutil.pid_exists(pid)]
        return [name for name in names if not name.startswith("slurm")]

    until(lambda: left() == [], "nodes on which nothing is left")


def test_two_users_jobs_share_nodes_meet_their_time_limits_and_go_on_elsewhere(
    cluster: SlurmCluster,
) -> None:
    users = [User(cluster, name, 4) for name in USERS]
    how = ("--nodes", 2, "--cpus-per-node", 1, "--time", 4, "--grace", "20s")
    jobs = [user.submit(*how, "--", "--nodelist=n1,n2") for user in users]
    assert "SLURM job" in users[0].run("hsweep", "show", "slow-quick")
    for job in jobs:
        until(lambda job=job: cluster.job(job)["Restarts"] == "1", "a limit", PATIENCE)
        cluster.run("scontrol", "update", f"JobId={job}", "ReqNodeList=n2,n3")
    clean(cluster)
    for user, job in zip(users, jobs, strict=True):
        user.check(4)
        assert user.output().count("SIGTERM, with 20 s to end") >= 1
        nodes = {node for *_, node in user.trace()}
        assert nodes == {"n1", "n2", "n3"}, user.trace()
        assert {number for _, _, number, _ in user.trace()} == {str(job)}
        shown = user.run("hsweep", "show", "slow-quick")
        assert f"SLURM job {job} is not in the queue" in shown
    # On every node each user's Ray had a folder that is closed to others, and it is gone.
    assert "ray-" not in cluster.on("n2", "ls", "/tmp").stdout


def test_jobs_that_join_and_are_killed_cost_what_is_not_in_a_checkpoint(
    cluster: SlurmCluster,
) -> None:
    user, rng = User(cluster, "first", 5), random.Random(36)
    user.submit("--nodes", 1, "--cpus-per-node", 1, "--", "--nodelist=n1")
    words = "hsweep join slow-quick"
    user.run("sbatch", "--array=1-4", "-c1", "--requeue", "-ojoin.%a", "--wrap", words)
    until(lambda: {"n2", "n3"} & {node for *_, node in user.trace()} != set(), "help", 120)
    for _ in range(3):
        names = cluster.run("squeue", "-h", "-n", "wrap", "-t", "R", "-o", "%i").split()
        seen = len(user.trace())
        if names:
            cluster.run("scancel", "--signal=KILL", "--full", rng.choice(names))
        until(lambda seen=seen: len(user.trace()) > seen + 10, "trials that go on", PATIENCE)
    until(lambda: user.study()["state"] == "complete", "the end", PATIENCE)
    clean(cluster)
    user.check(5)


def test_a_job_that_is_taken_out_of_the_queue_stays_out(cluster: SlurmCluster) -> None:
    user = User(cluster, "second", 2)
    job = user.submit("--nodes", 1, "--cpus-per-node", 1, "--grace", "5s")
    until(lambda: len(user.trace()) > 2, "training", 120)
    cluster.run("scancel", job)
    clean(cluster)
    assert cluster.job(job)["JobState"] == "CANCELLED"
    assert user.study()["state"] == "interrupted"
