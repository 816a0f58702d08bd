"""Ends all processes that a training function or a script has started, with their trial.

This module is also a program, the watcher, which runs beside each trial and imports nothing but the
standard library::

    python -I -S leftovers.py WORKER_PID MARK

Its standard input comes from the worker: a line says that all is done. When the worker dies without
one, the watcher kills the trial's other processes.

A process that runs another program is known by the mark in its environment, and a fork of the
worker by the worker's end of that pipe, which only forks have. So a program that was started with
an environment without the mark is not found; nor is anything without ``/proc``.

Ray can end the children of a worker that dies, but only on clusters that were started so, only
those with a living parent where the driver dies as well, and it makes workers ignore how their
children end, so that no training could start another program and learn of its success.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

MARK_VARIABLE: Final = "HSWEEP_TRIAL"
"""In the environment of all processes of a trial: its folder, and the rank."""

_HELPERS: Final = (
    b"resource_tracker",
    b"multiprocessing.forkserver",
    b"_inductor/compile_worker",
    b"wandb-core",
)
"""In the command lines of processes that libraries start once for a process, and that end with
it."""

_AGAIN_SECONDS: Final = 0.02
_ENDING_SECONDS: Final = 10.0
"""How long a killed process may take to be gone: it may hang in the kernel."""


class Leftovers:
    """The processes that a trial starts from here on: ended by ``close``, or with this process.

    Attributes:
        mark: for the environment of each program that the trial starts.
    """

    def __init__(self, folder: Path, rank: int = 0) -> None:
        self.mark = _mark(folder, rank)
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), self.mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        assert self._watcher.stdin is not None
        self._pipe = self._watcher.stdin
        self._since = _start_of(self._watcher.pid)

    @property
    def are_left(self) -> bool:
        return bool(self._running())

    def signal(self, number: int) -> None:
        _signal(self._running(), number)

    def _running(self) -> set[int]:
        link = _link(f"/proc/self/fd/{self._pipe.fileno()}")
        return _pids_of(self.mark, link, self._since, with_helpers=False)

    def close(self) -> None:
        """Kill the processes that are left.

        Raises:
            OSError: a process cannot be killed; the message names all such.
        """
        with self._watcher:  # closes the pipe, and waits for the watcher's first process
            try:
                _end_all(self._running)
            finally:
                with contextlib.suppress(BrokenPipeError):  # it was killed
                    self._pipe.write(b"\n")


def end_leftovers(folder: Path, rank: int = 0) -> None:
    """Kill every program on this machine that an earlier attempt of a trial has left.

    Raises:
        OSError: a program cannot be killed; the message names all such.
    """
    _end_all(lambda: _pids_of(_mark(folder, rank), "", 0, with_helpers=True))


def _mark(folder: Path, rank: int) -> str:
    return f"{folder.resolve()}:{rank}"


def main() -> None:
    worker, mark, control = int(sys.argv[1]), sys.argv[2], sys.stdin.fileno()
    watched, since = [control], _start_of(os.getpid())
    try:
        watched.append(os.pidfd_open(worker))
    except ProcessLookupError:
        watched = []  # it is gone already
    except (AttributeError, OSError):
        pass  # there is no such thing here, and standard input alone tells
    # Not a child of the worker's: Ray kills those of a worker that it ends.
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ready = select.select(watched, [], [])[0] if watched else []
    if control not in ready or not os.read(control, 1):
        link = _link(f"/proc/self/fd/{control}")
        _end_all(lambda: _pids_of(mark, link, since, with_helpers=True))


def _end_all(running: Callable[[], set[int]]) -> None:
    """Kill the processes that are running until none is."""
    pids: set[int] = set()
    deadline = time.monotonic() + _ENDING_SECONDS
    while True:
        before, pids = pids, running()
        if not pids:
            return
        # A process that was seen only once may be a program of the worker's own, about to begin.
        _signal(pids & before, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise OSError(f"processes of the training cannot be killed: {sorted(pids)}")
        time.sleep(_AGAIN_SECONDS)


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _pids_of(mark: str, link: str, since: int, *, with_helpers: bool) -> set[int]:
    """Return the ids of the trial's processes that started at ``since`` or later."""
    pids = set()
    marked = f"{MARK_VARIABLE}={mark}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        # Another user's, or it has ended meanwhile.
        with contextlib.suppress(OSError):
            if pid == os.getpid() or _start_of(pid) < since:
                continue
            is_its = marked in (process / "environ").read_bytes().split(b"\0")
            if is_its or (
                link and any(_link(str(opened)) == link for opened in (process / "fd").iterdir())
            ):
                command = (process / "cmdline").read_bytes()
                if mark.encode() in command:
                    continue  # the watcher, whose standard input is the other end of the pipe
                if with_helpers or not any(name in command for name in _HELPERS):
                    pids.add(pid)
    return pids


def _start_of(pid: int) -> int:
    """Return when a process started, in the system's own unit; 0 where there is no ``/proc``.
    OSError if it has ended."""
    if not Path("/proc/self").exists():
        return 0
    # "pid (name) state ...", and the name may hold anything.
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


if __name__ == "__main__":
    main()
