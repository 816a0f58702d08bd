"""Runs one command line for a worker, and sees to it that nothing of it survives the worker.

It is started by path, in a process of its own, and imports nothing but the standard library::

    python -I -S supervisor.py WORKER_PID FOLDER COMMAND [ARGUMENT ...]

Standard input is the worker's: a line with a number asks for the end of the command, with so many
seconds' notice; its end, like the worker's own, asks for it at once. Standard output takes one line
of JSON when the command has started, and one when nothing of it is left (``is_all``: there can be
nothing that this process does not know of). Standard error is where the command writes.

On Linux it adopts what the command leaves behind (``PR_SET_CHILD_SUBREAPER``), so its children are
all there is of the command, also what has made itself a session of its own; elsewhere it knows the
command's process group only.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36

_ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})

_KILL_AGAIN_SECONDS: Final = 0.1
"""What is killed may just have started something else."""


def main() -> None:
    """Leave the worker's children, run the command, end all of it."""
    worker = int(sys.argv[1])
    worker_end = _open_worker(worker)
    # Not a child of the worker's: Ray kills those of a worker that it ends, and them alone.
    if os.fork():
        os._exit(0)
    adopts = sys.platform == "linux" and _prctl()(PR_SET_CHILD_SUBREAPER, 1) == 0
    signals = _pipe_of_signals()
    try:
        command = _start(sys.argv[2], sys.argv[3:])
    except OSError as error:
        _tell({"error": str(error)})
        return
    _tell({"supervisor": os.getpid()})
    status = _run(command.pid, signals, worker_end)
    command.returncode = 0  # it has been waited for
    _tell({"status": status, "is_all": adopts})


def _run(command: int, signals: int, worker_end: int | None) -> int:
    """Wait for the command's end, or for being asked to end it; return its wait status."""
    status: int | None = None
    deadline: float | None = None  # until which what was asked to end may take
    control = sys.stdin.fileno()
    watched = [signals, control, *([] if worker_end is None else [worker_end])]
    while True:
        reaped, is_empty = _reap()
        status = reaped.get(command, status)
        if is_empty and status is not None:
            return status
        now = time.monotonic()
        is_left_over = status is not None and deadline is None
        if is_left_over or (deadline is not None and now >= deadline):
            deadline = now
            _signal_all(command, signal.SIGKILL, with_group=status is None)
            timeout: float | None = _KILL_AGAIN_SECONDS
        else:
            timeout = None if deadline is None else deadline - now
        ready, _, _ = select.select(watched, [], [], timeout)
        asked = os.read(control, 64).strip() if control in ready else None
        if asked and deadline is None:
            _signal_all(command, signal.SIGTERM, with_group=True)
            deadline = time.monotonic() + float(asked)
        is_ended = signals in ready and not _ENDING.isdisjoint(os.read(signals, 4096))
        if is_ended or worker_end in ready or asked == b"":
            deadline = now
            watched = [signals]


def _start(folder: str, command: list[str]) -> "subprocess.Popen[bytes]":
    own_pid = os.getpid()
    prctl = _prctl()

    def die_with_supervisor() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != own_pid:
            os._exit(1)

    return subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        stderr=sys.stderr.fileno(),
        start_new_session=True,
        preexec_fn=die_with_supervisor,
    )


def _reap() -> tuple[dict[int, int], bool]:
    """Return the children that have died, with their wait status, and whether none is left."""
    reaped: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return reaped, True
        if pid == 0:
            return reaped, False
        reaped[pid] = status


def _signal_all(command: int, number: int, *, with_group: bool) -> None:
    """Signal the command's process group and all that descends from this process."""
    pids = _descendants()
    if with_group:
        # Not once the command has been waited for: its number may be another's by then. Its group
        # is among the descendants.
        _send(os.killpg, command, number)
        pids = [pid for pid in pids if _group(pid) != command]
    for pid in pids:
        _send(os.kill, pid, number)


def _descendants() -> list[int]:
    """Return the processes below this one; none where the system has no /proc."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # "pid (name) state parent ...", and the name may hold anything.
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(entry.name)] = int(fields[1])
    found = [os.getpid()]
    for parent in found:
        found += [pid for pid, its_parent in parents.items() if its_parent == parent]
    return found[1:]


def _send(send: Callable[[int, int], None], pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(pid, number)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return pid


def _open_worker(pid: int) -> int | None:
    """Return what becomes readable when the worker dies; None where the system has no such thing,
    and standard input alone tells."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        sys.exit(0)
    except (AttributeError, OSError):
        return None


def _pipe_of_signals() -> int:
    """Return a pipe that the numbers of signals come through: those that a child's death sends,
    and those that ask this process to end."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # Neither blocked nor ignored, as they may be in the worker, and so not in the command either.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *_ENDING):
        signal.signal(number, lambda *_: None)
    return reading


def _prctl() -> Callable[[int, int], int]:
    if sys.platform != "linux":
        return lambda _option, _value: 0
    call = ctypes.CDLL(None, use_errno=True).prctl
    return lambda option, value: int(call(option, value, 0, 0, 0))


def _tell(content: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the worker may be gone
        os.write(sys.stdout.fileno(), f"{json.dumps(content)}\n".encode())


if __name__ == "__main__":
    main()
