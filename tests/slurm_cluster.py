"""A SLURM of three nodes on this machine, each with an address, a host name and a /tmp of its own.

Needs root, SLURM and munge, and nothing of them that runs already: keys, configuration, sockets and
state lie in a folder of the test. A node is a network namespace and what ``slurmd`` has mounted;
process table, disk and clock are this machine's. Jobs run as users that this machine has.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

PATIENCE: Final = 60.0
"""Seconds in which a daemon has to answer."""
_NEEDED: Final = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "nsenter", "unshare", "setpriv")
_NETWORK: Final = "10.98.0"
_BRIDGE: Final = "hslab0"
USERS: Final = {"first": 33, "second": 34}
"""Ids of users that every Debian has, of which none runs anything here."""

_CONFIGURATION: Final = """
ClusterName=lab
SlurmctldHost={host}({network}.254)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A job that is queued again waits for as long as its credentials hold.
AuthInfo=socket={root}/munge/socket,cred_expire=5
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool.%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=10
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
"""


def missing() -> str:
    """Return why there can be no such cluster here; empty if there can."""
    if os.geteuid() != 0:
        return "needs root, for namespaces"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    absent = [name for name in _NEEDED if shutil.which(name, path=path) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


class SlurmCluster:
    """A cluster of nodes n1, n2, ... with ``cpus`` processors each, in an empty folder."""

    def __init__(self, root: Path, nodes: int = 3, cpus: int = 2) -> None:
        self.root, self.cpus = root, cpus
        self.nodes = [f"n{number + 1}" for number in range(nodes)]
        self.shared = root / "shared"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {
            "SLURM_CONF": str(root / "slurm.conf"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
        }

    def start(self) -> None:
        self.root.chmod(0o755)
        for folder in ("munge", "state", "shared", *(f"spool.{node}" for node in self.nodes)):
            (self.root / folder).mkdir()
        (self.root / "munge").chmod(0o711)
        self.shared.chmod(0o1777)
        self._connect_nodes()
        self._configure()
        self._start_munge()
        self._start("slurmctld", ["slurmctld", "-D", "-c"])
        for node in self.nodes:
            self._start(node, [*self._inside(node), "bash", "-c", self._boot(node)])
        until(lambda: self.run("sinfo", "-h", "-o", "%t").strip() == "idle", "idle nodes")

    def stop(self) -> None:
        """End the daemons and all that still runs on the nodes, and remove the network."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.run("scancel", "--state=RUNNING,PENDING", "--hurry", "--full")
        for name in reversed(self._daemons):
            self._daemons[name].terminate()
        for daemon in self._daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
            daemon.wait()
        for number, node in enumerate(self.nodes, 1):
            while processes := self.processes(node):
                for process in processes:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                time.sleep(0.1)
            subprocess.run(["ip", "netns", "del", self._namespace(node)], check=False)
            # Its other end may outlive the namespace for a moment.
            subprocess.run(
                ["ip", "link", "del", f"hslabv{number}"], stderr=subprocess.DEVNULL, check=False
            )
        subprocess.run(["ip", "link", "del", _BRIDGE], check=False)

    def run(self, *words: object, user: str | None = None, **environment: str) -> str:
        """Run a command where the controller is, as root or a user; return its output."""
        become = _become(user)
        done = subprocess.run(
            [*become, *map(str, words)],
            env={**self.environment, **environment},
            cwd=self.shared,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise subprocess.CalledProcessError(
                done.returncode, done.args, done.stdout, done.stderr
            )
        return done.stdout

    def on(
        self, node: str, *words: object, user: str | None = None, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command on a node, beside its jobs, as somebody who is logged in there."""
        place = f"/proc/{self._daemons[node].pid}/ns"
        enter = ["nsenter", f"--mount={place}/mnt", f"--uts={place}/uts", *_become(user)]
        return subprocess.run(
            [*self._inside(node), *enter, "env", "-C", str(self.shared), *map(str, words)],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def job(self, number: int) -> dict[str, str]:
        """Return what the controller knows of a job."""
        words = self.run("scontrol", "show", "job", number, "-o").split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def processes(self, node: str) -> list[int]:
        """Return the processes on a node, the daemon among them."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self._namespace(node)],
            capture_output=True,
            text=True,
            check=False,
        )
        return [int(word) for word in listed.stdout.split()]

    def _connect_nodes(self) -> None:
        _ip(f"link add {_BRIDGE} type bridge")
        _ip(f"addr add {_NETWORK}.254/24 dev {_BRIDGE}")
        _ip(f"link set {_BRIDGE} up")
        for number, node in enumerate(self.nodes, 1):
            space, end = self._namespace(node), f"hslabv{number}"
            _ip(f"netns add {space}")
            _ip(f"link add {end} type veth peer name eth0 netns {space}")
            _ip(f"link set {end} master {_BRIDGE} up")
            _ip(f"-n {space} addr add {_NETWORK}.{number}/24 dev eth0")
            _ip(f"-n {space} link set eth0 up")
            _ip(f"-n {space} link set lo up")

    def _configure(self) -> None:
        host = socket.gethostname()
        lines = [_CONFIGURATION.format(host=host, network=_NETWORK, root=self.root)]
        for number, node in enumerate(self.nodes, 1):
            lines.append(
                f"NodeName={node} NodeHostname={node} NodeAddr={_NETWORK}.{number} "
                f"CPUs={self.cpus} RealMemory=8000 State=UNKNOWN\n"
            )
        named = f"Nodes={','.join(self.nodes)} MaxTime=INFINITE State=UP"
        lines.append(f"PartitionName=main {named} Default=YES PriorityTier=1\n")
        lines.append(f"PartitionName=urgent {named} PriorityTier=9\n")
        (self.root / "slurm.conf").write_text("".join(lines))
        hosts = [f"{_NETWORK}.{number} {node}\n" for number, node in enumerate(self.nodes, 1)]
        own = f"127.0.0.1 localhost\n{_NETWORK}.254 {host}\n"
        (self.root / "hosts").write_text("".join([own, *hosts]))

    def _start_munge(self) -> None:
        folder = self.root / "munge"
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        options = {
            **{"key-file": key, "socket": folder / "socket", "pid-file": folder / "pid"},
            **{"log-file": folder / "log", "seed-file": folder / "seed"},
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        self._start("munged", ["munged", "--foreground", "--force", *words])
        until((folder / "socket").exists, "munge's socket")

    def _boot(self, node: str) -> str:
        """Return the commands that make a node of a network namespace."""
        home = Path.home()
        lines = [
            "set -e",
            f"hostname {node}",
            f"mount --bind {self.root}/hosts /etc/hosts",
            # A /tmp of its own, in which the test's folder stays.
            f"mkdir -p /mnt/hslab && mount --bind {self.root} /mnt/hslab",
            "mount -t tmpfs -o mode=1777 tmpfs /tmp",
            f"mkdir -p {self.root} && mount --bind /mnt/hslab {self.root}",
        ]
        # Python and this project, where other users cannot look.
        needed = [Path(sys.executable).resolve(), Path(__file__).resolve()]
        hidden = {home / path.relative_to(home).parts[0] for path in needed if home in path.parents}
        for number, place in enumerate(hidden):
            lines.append(f"mkdir -p /mnt/hslab{number} && mount --bind {place} /mnt/hslab{number}")
        if hidden:
            lines.append(f"mount -t tmpfs -o mode=755 tmpfs {home}")
        for number, place in enumerate(hidden):
            lines.append(f"mkdir -p {place} && mount --bind /mnt/hslab{number} {place}")
        lines.append(f"exec slurmd -D -N {node}")
        return "\n".join(lines)

    def _inside(self, node: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self._namespace(node)}", "--"] + (
            ["unshare", "-m", "-u", "--"] if node not in self._daemons else []
        )

    def _namespace(self, node: str) -> str:
        return f"hslab-{node}"

    def _start(self, name: str, words: Sequence[str]) -> None:
        with (self.root / f"{name}.out").open("wb") as output:
            self._daemons[name] = subprocess.Popen(
                words, env=self.environment, stdout=output, stderr=output, cwd=self.root
            )


@contextlib.contextmanager
def slurm_cluster(root: Path, **size: int) -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(root, **size)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def until(is_so: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Return once something is so; fail when it is not within the time."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(subprocess.CalledProcessError):
            if is_so():
                return
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)


def _become(user: str | None) -> list[str]:
    if user is None:
        return []
    number = USERS[user]
    return ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", "--"]


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)
