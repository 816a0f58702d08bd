"""No process that a training function has started outlives its trial.

This module is also a program, which is started by path beside each trial and imports nothing but
the standard library::

    python -I -S leftovers.py WORKER_PID MARK

Its standard input is the worker's: a line says that all is done. When the worker dies without one,
the program kills what is left.

It finds a process that runs another program by the mark in its environment, and a fork of the
worker by the worker's end of that standard input, which only forks have. So a program that was
started with an environment without the mark is not found; nor is anything without ``/proc``.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Final

MARK_VARIABLE: Final = "HSWEEP_OWN_TRAINING"

_HELPERS: Final = (
    b"resource_tracker",
    b"multiprocessing.forkserver",
    b"_inductor/compile_worker",
    b"wandb-core",
)
"""In the command lines of what libraries start for a process as a whole, and which ends with it."""

_AGAIN_SECONDS: Final = 0.02
_ENDING_SECONDS: Final = 10.0


class Leftovers:
    """The processes that a function starts from here on: ended by ``end``, or with this process."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), self._mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        self._since = _start_of(self._watcher.pid)
        os.environ[MARK_VARIABLE] = self._mark

    def end(self) -> None:
        """Kill what is left.

        Raises:
            OSError: something cannot be killed; names the processes.
        """
        os.environ.pop(MARK_VARIABLE, None)
        with self._watcher as watcher:  # closes the pipe, and waits for the one it leaves its place
            assert watcher.stdin is not None
            try:
                _end_all(self._mark, watcher.stdin.fileno(), self._since, with_helpers=False)
            finally:
                with contextlib.suppress(BrokenPipeError):  # it was killed
                    watcher.stdin.write(b"\n")


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
        _end_all(mark, control, since, with_helpers=True)


def _end_all(mark: str, pipe: int, since: int, *, with_helpers: bool) -> None:
    """Kill the processes with the mark or the pipe, until there are none."""
    link = _link(f"/proc/self/fd/{pipe}")
    found: set[int] = set()
    deadline = time.monotonic() + _ENDING_SECONDS
    while True:
        before, found = found, _found(mark, link, since, with_helpers=with_helpers)
        if not found:
            return
        # Seen once it may be a program of the worker's own, about to begin.
        for pid in found & before:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise OSError(f"processes of the training function cannot be killed: {sorted(found)}")
        time.sleep(_AGAIN_SECONDS)


def _found(mark: str, link: str, since: int, *, with_helpers: bool) -> set[int]:
    """Return the processes of the function; ``since`` spares looking into older ones."""
    found = set()
    marked = f"{MARK_VARIABLE}={mark}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        # Another user's, or it has ended meanwhile.
        with contextlib.suppress(OSError):
            if pid == os.getpid() or _start_of(pid) < since:
                continue
            is_its = marked in (process / "environ").read_bytes().split(b"\0")
            if is_its or any(_link(str(each)) == link for each in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes()
                if mark.encode() in command:
                    continue  # the watcher, whose standard input is the other end of the pipe
                if with_helpers or not any(name in command for name in _HELPERS):
                    found.add(pid)
    return found


def _start_of(pid: int) -> int:
    """Return when a process started, in the system's own unit; 0 where it does not say.

    Raises:
        OSError: it has ended.
    """
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
