"""A node of Ray on this machine, which ends with its object, and how it finds the Ray of a running
study: by a note in the study's folder.

``python -m hsweep.clusters.node HOST:PORT`` joins the head at that address until one of them ends.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hsweep.errors import UserError
from hsweep.files import replacing
from hsweep.paths import StudyPaths
from hsweep.ray_tune.environment import DRIVERS_PATIENCE, PATIENCE, prepare_ray
from hsweep.record.provenance import usable_cores
from hsweep.terminal import warn
from hsweep.workspace import worker_environment

SECONDS_TO_END: Final = 15.0


class RayNode:
    """A ``ray start`` on this machine, with what its SLURM job has of it, if it is in one: the head
    at HOST:PORT, or a node that joins it.

    Attributes:
        log: the file for what Ray prints.
    """

    def __init__(self, address: str, *, is_head: bool = False) -> None:
        host, port = address.rsplit(":", 1)
        # A short path, since sockets lie there.
        place = os.environ.get("RAY_TMPDIR") or "/tmp"
        prefix = f"ray-{os.environ.get('SLURM_JOB_ID') or 'join'}-"
        self._folder = Path(tempfile.mkdtemp(dir=place, prefix=prefix))
        self.log = self._folder / "log"
        cpus = min(usable_cores(), int(os.environ.get("SLURM_CPUS_ON_NODE") or usable_cores()))
        words = [
            *("--block", "--disable-usage-stats", "--log-color=false", f"--num-cpus={cpus}"),
            # Ray opens its own folder to everybody.
            f"--temp-dir={self._folder / 'r'}",
            f"--node-ip-address={host if is_head else address_toward(host)}",
            f"--node-name={os.environ.get('SLURMD_NODENAME') or socket.gethostname()}",
            # Whichever are free: another Ray may run on this machine.
            *("--min-worker-port=0", "--max-worker-port=0"),
        ]
        if gpus := os.environ.get("SLURM_GPUS_ON_NODE"):
            words.append(f"--num-gpus={gpus}")
        if is_head:
            words += ["--head", f"--port={port}", f"--ray-client-server-port={free_port(host)}"]
            words.append("--include-dashboard=false")
        else:
            words.append(f"--address={address}")
        environment = {**os.environ, **worker_environment(None)}
        prepare_ray(environment, joins_cluster=True)
        if environment[PATIENCE] == DRIVERS_PATIENCE:  # without its head a node is of no use
            environment[PATIENCE] = "30"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def is_up(self) -> bool:
        """Whether all of Ray's processes here have started: it then writes a file, for its own
        commands."""
        return (self._folder / "r" / "ray_current_cluster").exists()

    def last_line(self) -> str:
        """Return the last line of the node's log."""
        lines = self.log.read_text("utf-8", errors="replace").split("\n")
        return ([line.strip() for line in lines if line.strip()] or [""])[-1]

    def end(self) -> None:
        """End Ray's processes on this machine and remove their files."""
        end(self.process)
        shutil.rmtree(self._folder, ignore_errors=True)


def end(
    process: "subprocess.Popen[bytes]",
    patience: float = SECONDS_TO_END,
    signal_number: int = signal.SIGTERM,
) -> None:
    """Ask the leader of a session to end; kill what is left of the session after a while."""
    process.send_signal(signal_number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def join(address: str) -> None:
    """Be a node of the Ray whose head is at an address until it has gone."""
    node = RayNode(address)
    try:
        if node.process.wait() and not node.is_up():
            warn(f"Ray does not start on this node: {node.last_line()}")
    finally:
        node.end()


@contextlib.contextmanager
def offering(paths: StudyPaths, address: str | None) -> Iterator[None]:
    """Let further machines of this user join the Ray at an address in the block, if any."""
    if address is None:
        yield
        return
    with replacing(paths.cluster) as temporary:
        temporary.touch(0o600)
        note = {"address": address, "token": os.environ.get("RAY_AUTH_TOKEN")}
        temporary.write_text(json.dumps(note), "utf-8")
    try:
        yield
    finally:
        paths.cluster.unlink(missing_ok=True)


def offer_of(paths: StudyPaths) -> tuple[str, str | None] | None:
    """Return HOST:PORT of the head of a study's Ray, and its token; None where none is offered,
    UserError where it is for somebody else."""
    try:
        note = json.loads(paths.cluster.read_text("utf-8"))
        return note["address"], note["token"]
    except PermissionError:
        raise UserError(f"{paths.cluster} is for the user who runs the study") from None
    except (OSError, ValueError):
        return None


def listens(address: str) -> bool:
    """Whether something listens at HOST:PORT."""
    host, port = address.rsplit(":", 1)
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5.0):
        return True
    return False


def looks(seconds: float, every: float = 0.2) -> Iterator[None]:
    """Yield every moment until the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(every)


def free_port(host: str) -> int:
    """Return a port of one of this machine's addresses that nothing uses."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def address_toward(host: str) -> str:
    """Return the address of this machine on the network of another host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # which sends nothing
        return str(probe.getsockname()[0])


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: sys.exit(0))
    join(sys.argv[1])
