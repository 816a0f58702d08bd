"""Studies on a real SLURM: several users, time limits, other nodes, nodes that join and go."""

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import psutil
import pytest
from chaos.audit import audit_all, read_record
from chaos.fault_table import Fault
from slurm_cluster import USERS, SlurmCluster, missing, slurm_cluster, until

from hsweep.record.journal_reader import JournalReader

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(missing()), reason=f"needs SLURM here: {missing()}"),
]
PATIENCE: Final = 900.0
UNITS: Final = 200
NOTICES: Final = int(os.environ.get("CHAOS_NOTICES", "4"))
PACE: Final = 0.5
"""Seconds of a unit."""

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
        time.sleep(float(os.environ["PACE"]))
        folder = run.folder / "checkpoint"
        folder.mkdir(exist_ok=True)
        (folder / "unit").write_text(str(unit))
        with open(f"{os.environ['HOME']}/trace", "a") as trace:
            job, node = (os.environ.get(name) for name in ("SLURM_JOB_ID", "SLURMD_NODENAME"))
            trace.write(f"{point.width} {unit} {job} {node}\\n")
        run.report(unit, checkpoint=folder, score=point.width * unit)


SWEEP = Sweep(
    name="slow",
    space=grid(width=list(range(1, NUMBER + 1))),
    train=train,
    metric="score",
    goal="max",
    budget=epochs(UNITS),
    resources=Resources(cpus=1),
    checkpoint_seconds=1.0,
)
'''


class User:
    """Somebody with a folder, a sweep of so many trials and a home on a cluster."""

    def __init__(self, cluster: SlurmCluster, name: str, trials: int) -> None:
        self.cluster, self.name, self.trials = cluster, name, trials
        self.folder = cluster.shared / f"{name}-{trials}"
        self.folder.mkdir()
        sweep = SWEEP.replace("NUMBER", str(trials)).replace("UNITS", str(UNITS))
        (self.folder / "slow.py").write_text(sweep)
        for path in (self.folder, self.folder / "slow.py"):
            os.chown(path, USERS[name], USERS[name])

    def run(self, *words: object, **environment: str) -> str:
        """Run a command on the first node, in the user's folder."""
        variables = {
            "HOME": str(self.folder),
            "HSWEEP_HOME": str(self.folder / "home"),
            "OMP_NUM_THREADS": "1",
            "PACE": str(PACE),
            **environment,
        }
        done = self.cluster.on("n1", "env", "-C", self.folder, *words, user=self.name, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, *words: object) -> int:
        """Submit the sweep; return the number of the job."""
        said = self.run("hsweep", "submit", "slurm", "slow.py", "--no-check", *words)
        return int(said.split()[1])

    def show(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.run("hsweep", "show", "slow-quick", "--json"))
        return content

    def output(self) -> str:
        files = sorted((self.folder / "home" / "slurm" / "slow-quick").glob("*.out"))
        return "\n".join(file.read_text() for file in files)

    def trace(self) -> list[list[str]]:
        """Return of each unit that was trained its trial, the unit, the node's job and the node."""
        file = self.folder / "trace"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def settle(self, tried: Fault) -> None:
        """Hold the study, and what MLflow has of it, against one that ran by itself."""
        assert self.show()["state"] == "complete", self.output()
        calm = self.folder / "calm"
        words = "hsweep", "run", "slow.py", "--runner", "inline", "--no-check"
        self.run("mkdir", calm)
        self.run(*words, HOME=str(calm), HSWEEP_HOME=str(calm), PACE="0")
        homes = {"calm": calm, "tried": self.folder / "home"}
        studies = {name: home / "studies" / "slow-quick" for name, home in homes.items()}
        for study in studies.values():
            JournalReader(study / "journal").close()
        store = f"sqlite:///{self.folder}/home/mlflow/mlflow.db"
        endings = read_record(studies["calm"]).endings()
        assert len(endings) == self.trials
        tried.settle(audit_all(studies["tried"], endings, (), store))
        assert not (studies["tried"] / "cluster.json").exists()
        again = Counter(width for width, *_ in self.trace())
        tried.cost((number - UNITS) * PACE for number in again.values())


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
    cluster: SlurmCluster, fault: Callable[[str], Fault]
) -> None:
    tried = fault("SLURM: time limits of two users' jobs, queued again to other nodes")
    users = [User(cluster, name, 5) for name in USERS]
    how = ("--nodes", 2, "--cpus-per-node", 1, "--time", 3, "--grace", "20s")
    jobs = [user.submit(*how, "--", "--nodelist=n1,n2") for user in users]
    assert "SLURM job" in users[0].run("hsweep", "show", "slow-quick")
    for job in jobs:
        until(lambda job=job: cluster.job(job)["Restarts"] == "1", "a limit", PATIENCE)
        cluster.run("scontrol", "update", f"JobId={job}", "ReqNodeList=n2,n3")
    clean(cluster)
    for user, job in zip(users, jobs, strict=True):
        limits = user.output().count("SIGTERM, with 20 s to end")
        assert limits >= 2, user.output()
        tried.tries += limits
        user.settle(tried)
        assert {node for *_, node in user.trace()} == {"n1", "n2", "n3"}, user.trace()
        assert {number for _, _, number, _ in user.trace()} == {str(job)}
        shown = user.run("hsweep", "show", "slow-quick")
        assert f"SLURM job {job} is not in the queue" in shown
    # On every node each user's Ray had a folder that is closed to others, and it is gone.
    assert "ray-" not in cluster.on("n2", "ls", "/tmp").stdout


def test_jobs_that_join_and_are_killed_cost_what_is_not_in_a_checkpoint(
    cluster: SlurmCluster, rng: random.Random, fault: Callable[[str], Fault]
) -> None:
    tried = fault("SLURM: jobs that joined a study killed at random moments")
    user = User(cluster, "first", 6)
    user.submit("--nodes", 1, "--cpus-per-node", 1, "--", "--nodelist=n1")
    words = "hsweep join slow-quick"
    user.run("sbatch", "--array=1-4", "-c1", "--requeue", "-ojoin.%a", "--wrap", words)
    until(lambda: {"n2", "n3"} & {node for *_, node in user.trace()} != set(), "help", 120)
    for _ in range(3):
        names = cluster.run("squeue", "-h", "-n", "wrap", "-t", "R", "-o", "%i").split()
        if names:
            cluster.run("scancel", "--signal=KILL", "--full", rng.choice(names))
            tried.tries += 1
        seen = len(user.trace()) + rng.randrange(5, 40)
        until(lambda seen=seen: len(user.trace()) > seen, "trials that go on", PATIENCE)
    until(lambda: user.show()["state"] == "complete", "the end", PATIENCE)
    clean(cluster)
    user.settle(tried)


def test_a_job_that_is_taken_out_of_the_queue_stays_out(cluster: SlurmCluster) -> None:
    user = User(cluster, "second", 2)
    job = user.submit("--nodes", 1, "--cpus-per-node", 1, "--grace", "5s")
    until(lambda: len(user.trace()) > 2, "training", 120)
    cluster.run("scancel", job)
    clean(cluster)
    assert cluster.job(job)["JobState"] == "CANCELLED"
    assert user.show()["state"] == "interrupted"


def test_notices_in_the_first_minute_of_a_job(
    cluster: SlurmCluster, rng: random.Random, fault: Callable[[str], Fault]
) -> None:
    tried = fault("SLURM: preemption notice (SIGTERM) in the first minute of a job")
    user = User(cluster, "first", 3)
    how = "--no-check", "--nodes", "1", "--cpus-per-node", "1", "--dry-run"
    script = user.run("hsweep", "submit", "slurm", "slow.py", *how)
    output = user.folder / "out"
    script = re.sub(r"--output=\S+", f"--output={output}", script)
    (user.folder / "job").write_text(script.replace("code=$?\n", "code=$?; echo ended by $code\n"))
    for number in range(1, NOTICES + 1):
        job = int(user.run("sbatch", "--parsable", "job"))
        until(lambda job=job: cluster.job(job)["JobState"] == "RUNNING", "a start", PATIENCE)
        time.sleep(rng.uniform(0.0, 60.0))
        cluster.run("scancel", "--signal=TERM", "--batch", job)
        until(lambda job=job: cluster.job(job)["Restarts"] == "1", "a requeue", 120)
        cluster.run("scancel", job)
        clean(cluster)
        assert output.read_text().count("ended by 75") == number, output.read_text()
        tried.tries += 1
    home = user.folder / "home"
    how = "--no-check", "--runner", "inline", "--study", "slow-quick", "--home", str(home)
    user.run("hsweep", "run", "slow.py", *how, PACE="0")
    user.settle(tried)
