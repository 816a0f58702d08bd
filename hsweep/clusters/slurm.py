"""The SLURM job that a study runs in: Ray on its nodes, and what the queue says of it."""

import contextlib
import functools
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from hsweep.clusters.node import SECONDS_TO_END, RayNode, address_toward, end, free_port, looks
from hsweep.errors import UserError
from hsweep.record.provenance import output_of
from hsweep.terminal import warn
from hsweep.workspace import worker_environment

NODE_SECONDS: Final = 120.0
"""How long a study waits for the nodes of its job before it starts without them."""
_HEAD_SECONDS: Final = 120.0
_ALONE: Final = "or give --address local for a Ray on this machine alone"
_NUM_ASKED: Final = 20
"""Jobs of a study that the queue is asked about, the last ones."""


@dataclass(frozen=True, slots=True)
class Job:
    """The job that this process is part of: its id, this node and its other nodes, by name."""

    number: int
    node: str
    others: tuple[str, ...]


@functools.cache
def this_job() -> Job | None:
    """Return the job that this process is part of, None outside one; UserError if this machine is
    none of its nodes, or the others cannot be reached."""
    number, node = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURMD_NODENAME")
    if not number.isdigit():
        return None
    if node is None:
        raise UserError(
            f"this is a shell of SLURM job {number} on none of its nodes; start the study there, "
            f"by `srun --overlap --nodes=1 --ntasks=1 --pty hsweep ...`, {_ALONE}"
        )
    if os.environ.get("SLURM_JOB_NUM_NODES", "1") == "1":
        return Job(int(number), node, ())
    names = output_of(("scontrol", "show", "hostnames", os.environ.get("SLURM_JOB_NODELIST", "")))
    if names is None or shutil.which("srun") is None:
        raise UserError(
            f"Ray cannot be started on all nodes of SLURM job {number}: scontrol and srun do not "
            f"work here; make them available, {_ALONE}"
        )
    return Job(int(number), node, tuple(name for name in names.split() if name != node))


class JobRay:
    """A Ray on the nodes of a job, with a token of its own and its head on this node."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._head: RayNode | None = None
        self._others: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start the head, and let the other nodes join it; return its address once it is up.
        UserError if it does not start."""
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        host = self._host()
        address = f"{host}:{free_port(host)}"
        self._head = RayNode(address, is_head=True)
        for _ in looks(_HEAD_SECONDS):
            if self._head.is_up() or self._head.process.poll() is not None:
                break
        if not self._head.is_up():
            raise UserError(f"Ray does not start on {self.job.node}: {self._head.last_line()}")
        if self.job.others:
            with self._head.log.open("ab") as log:
                self._others = self._start_others(address, log)
        return address

    def wait_for_nodes(self, names: Callable[[], Iterable[str]]) -> None:
        """Wait until all nodes of the job have joined; warn of those that do not.

        Args:
            names: returns the names of the nodes that are there.
        """
        missing = set(self.job.others)
        for _ in looks(NODE_SECONDS):
            missing -= set(names())
            if not missing or self._others is None or self._others.poll() is not None:
                break
        if missing and self._head is not None:
            warn(
                f"no Ray on {', '.join(sorted(missing))} of SLURM job {self.job.number}, so the "
                f"study starts without: {self._head.last_line()}"
            )

    def close(self) -> None:
        """End Ray on all nodes of the job."""
        if self._others is not None:
            # Each of them has to end its Ray and to remove its files. At SIGTERM srun kills them;
            # this one it passes on.
            end(self._others, 2 * SECONDS_TO_END, signal.SIGUSR1)
        if self._head is not None:
            self._head.end()

    def _start_others(self, address: str, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        number = len(self.job.others)
        options = [
            # Beside the step that this process may be, with all that the job has of each node.
            *("--overlap", "--mem=0", "--cpu-bind=none", f"--nodes={number}", f"--ntasks={number}"),
            *(f"--nodelist={','.join(self.job.others)}", "--export=ALL", "--input=none"),
            # A node that is lost costs its own trials alone.
            *("--no-kill", "--kill-on-bad-exit=0"),
        ]
        return subprocess.Popen(
            ["srun", *options, sys.executable, "-m", "hsweep.clusters.node", address],
            env={**os.environ, **worker_environment(None)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _host(self) -> str:
        """Return the address of this node on the network of the others, or of who submitted."""
        hosts = [*self.job.others[:1], os.environ.get("SLURM_SUBMIT_HOST"), self.job.node]
        for host in filter(None, hosts):
            with contextlib.suppress(OSError):
                if not (address := address_toward(host)).startswith("127."):
                    return address
        return "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Submissions:
    """The folder of the jobs that were submitted for a study: the script and output of each."""

    folder: Path

    def submit(self, script: Path) -> str:
        """Submit a script of the folder; return the id of the job, by which it is called then.
        UserError if sbatch refuses it, and has said why."""
        done = subprocess.run(
            ["sbatch", "--parsable", str(script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            raise UserError("the job was not submitted; sbatch says above why")
        job = done.stdout.split(";")[0].strip()
        script.rename(self.folder / f"{job}.sbatch")
        return job

    def jobs(self) -> list[str]:
        """Return the jobs' ids, the last one last."""
        names = (path.stem for path in self.folder.glob("*.sbatch"))
        return sorted((name for name in names if name.isdigit()), key=int)

    def queued(self) -> dict[str, str]:
        """Return how each job that is in the queue stands, in words."""
        if not (jobs := self.jobs()[-_NUM_ASKED:]):
            return {}
        form = "--format=%i|%T|%N|%M|%l|%r|%S"
        rows = output_of(("squeue", "--noheader", f"--jobs={','.join(jobs)}", form)) or ""
        stands = {}
        for row in rows.splitlines():
            job, state, nodes, time, limit, reason, start = row.split("|")
            where = f"on {nodes}, {time} of {limit}" if nodes else f"({reason})"
            when = "" if nodes or start == "N/A" else f", expected to start at {start}"
            stands[job] = f"{state.lower()} {where}{when}"
        return stands

    def lines(self) -> list[str]:
        """Return lines that say how the study's jobs stand; none where there are none."""
        lines = [f"SLURM job {job}: {stand}" for job, stand in self.queued().items()]
        return lines or [
            f"SLURM job {job} is not in the queue; its output: {self.folder / job}.out"
            for job in self.jobs()[-1:]
        ]
