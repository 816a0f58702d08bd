"""The SLURM job that a study runs in: Ray on its nodes, and what the queue says of it."""

import contextlib
import functools
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hsweep.clusters.node import (
    HEAD_SECONDS,
    RayNode,
    address_toward,
    end,
    last_line,
    listens,
    looks,
)
from hsweep.errors import UserError
from hsweep.terminal import warn
from hsweep.workspace import worker_environment

NODE_SECONDS: Final = 120.0
"""How long a study waits for the nodes of its job before it starts without them."""
_COMMAND_SECONDS: Final = 20.0
_PORTS: Final = range(20_000, 32_000, 2)
"""Below those that the system hands out; each job has another of them, and the next one."""
_ALONE: Final = "or give --address local for a Ray on this machine alone"
_NUM_ASKED: Final = 20
"""Jobs of a study that the queue is asked about, the last ones."""


class CommandError(Exception):
    """A command of SLURM is missing, fails or does not answer; with the reason."""


def call(*words: str) -> str:
    """Return what a command of SLURM prints; CommandError if it fails."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise CommandError(f"there is no {words[0]} on this machine") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{words[0]}: {error}") from error
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise CommandError(f"{words[0]}: {said}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Job:
    """The job that this process is part of: its id, this node and its other nodes, by name."""

    number: int
    node: str
    others: tuple[str, ...]


@functools.cache
def this_job() -> Job | None:
    """Return the job that this process is part of; None outside one.

    Raises:
        UserError: this machine is none of its nodes, or the others cannot be reached.
    """
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
    try:
        names = call("scontrol", "show", "hostnames", os.environ.get("SLURM_JOB_NODELIST", ""))
        call("srun", "--version")
    except CommandError as error:
        raise UserError(
            f"Ray cannot be started on all nodes of SLURM job {number}: {error}; make SLURM's "
            f"commands available here, {_ALONE}"
        ) from error
    return Job(int(number), node, tuple(name for name in names.split() if name != node))


class JobRay:
    """A Ray on the nodes of a job, with a token of its own and its head on this node."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115
        self._head: RayNode | None = None
        self._others: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start the head, and let the other nodes join it; return its address once it listens.

        Raises:
            UserError: it does not start.
        """
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        address = _free_address(self._host(), self.job.number)
        self._head = RayNode(address, is_head=True)
        if self.job.others:
            self._others = self._start_others(address)
        for _ in looks(HEAD_SECONDS):
            if listens(address):
                return address
            if self._head.process.poll() is not None:
                break
        raise UserError(f"Ray does not start on {self.job.node}: {self._head.last_line()}")

    def wait_for_nodes(self, names: Callable[[], Iterable[str]]) -> None:
        """Wait until all nodes of the job have joined; warn of those that do not.

        Args:
            names: returns the names of the nodes that are there.
        """
        missing: set[str] = set()
        for _ in looks(NODE_SECONDS):
            missing = set(self.job.others) - set(names())
            if not missing or (self._others is not None and self._others.poll() is not None):
                break
        if missing:
            self._log.seek(0)
            warn(
                f"no Ray on {', '.join(sorted(missing))} of SLURM job {self.job.number}, so the "
                f"study starts without: {last_line(self._log.read().decode(errors='replace'))}"
            )

    def close(self) -> None:
        """End Ray on all nodes of the job."""
        if self._others is not None:
            end(self._others)
        if self._head is not None:
            self._head.end()

    def _start_others(self, address: str) -> "subprocess.Popen[bytes]":
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
            stdout=self._log,
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


def _free_address(host: str, job: int) -> str:
    for number in range(100):
        port = _PORTS[(job + number) % len(_PORTS)]
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind((host, port))
            other.bind((host, port + 1))
            return f"{host}:{port}"
    raise UserError(f"no port from {_PORTS[0]} on is free on this node for the head of Ray")


@dataclass(frozen=True, slots=True)
class Submissions:
    """The folder of the jobs that were submitted for a study: the script and output of each."""

    folder: Path

    def submit(self, script: Path) -> str:
        """Submit a script of the folder; return the id of the job, by which it is called then.

        Raises:
            UserError: with what sbatch says.
        """
        try:
            job = call("sbatch", "--parsable", str(script)).split(";")[0].strip()
        except CommandError as error:
            raise UserError(f"the job was not submitted: {error}") from error
        script.rename(self.folder / f"{job}.sbatch")
        return job

    def jobs(self) -> list[str]:
        """Return the jobs' ids, the last one last."""
        names = (path.stem for path in self.folder.glob("*.sbatch"))
        return sorted((name for name in names if name.isdigit()), key=int)

    def queued(self) -> dict[str, str]:
        """Return how each job that is in the queue stands, in words; CommandError where the queue
        cannot be asked."""
        jobs = self.jobs()[-_NUM_ASKED:]
        try:
            rows = call(
                *("squeue", "--noheader", "--format=%i|%T|%N|%M|%l|%r|%S"),
                f"--jobs={','.join(jobs)}",
            )
        except CommandError as error:
            if "Invalid job id" in str(error):  # of one alone that has left the queue
                return {}
            raise
        stands = {}
        for row in rows.splitlines() if jobs else ():
            job, state, nodes, time, limit, reason, start = row.split("|")
            where = f"on {nodes}, {time} of {limit}" if nodes else f"({reason})"
            when = "" if nodes or start == "N/A" else f", expected to start at {start}"
            stands[job] = f"{state.lower()} {where}{when}"
        return stands

    def lines(self) -> list[str]:
        """Return lines that say how the study's jobs stand; none where there are none."""
        if not (jobs := self.jobs()):
            return []
        try:
            queued = self.queued() or {
                jobs[-1]: f"not in the queue any more; its output: {self.folder / jobs[-1]}.out"
            }
        except CommandError as error:
            queued = {jobs[-1]: f"the queue cannot be asked ({error})"}
        return [f"SLURM job {job}: {stand}" for job, stand in queued.items()]
