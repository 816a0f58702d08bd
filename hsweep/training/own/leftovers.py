"""No process that a training function has started outlives its trial.

This module is also a program, which is started by path beside each trial and imports nothing but
the standard library::

    python -I -S leftovers.py WORKER_PID MARK

Its standard input is the worker's: a line asks for the end of what the function has left running.
When the worker dies, it ends that unasked. Its standard output ends when nothing is left.

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

_HELPERS: Final = (b"resource_tracker", b"multiprocessing.forkserver", b"_inductor/compile_worker")
"""In the command lines of what libraries start for a process as a whole, and which ends with it."""

_AGAIN_SECONDS: Final = 0.02
_ENDING_SECONDS: Final = 10.0


class Leftovers:
    """The processes that a function starts from here on: ended by ``end``, or with this process."""

    def __init__(self) -> None:
        mark = uuid.uuid4().hex
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        os.environ[MARK_VARIABLE] = mark

    def end(self) -> None:
        """Kill what is left.

        Raises:
            OSError: something cannot be killed.
        """
        os.environ.pop(MARK_VARIABLE, None)
        with self._watcher:  # closes the pipes
            assert self._watcher.stdin is not None
            assert self._watcher.stdout is not None
            with contextlib.suppress(BrokenPipeError):  # it was killed
                self._watcher.stdin.write(b"\n")
            ended = select.poll()
            ended.register(self._watcher.stdout)
            if not ended.poll(_ENDING_SECONDS * 1000):
                raise OSError("processes that the training function has started cannot be killed")


def main() -> None:
    worker, mark, control = int(sys.argv[1]), sys.argv[2], sys.stdin.fileno()
    watched = [control]
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
    is_alive = control in ready and os.read(control, 1) != b""
    _end_all(worker, f"{MARK_VARIABLE}={mark}".encode(), is_alive=is_alive)


def _end_all(worker: int, mark: bytes, *, is_alive: bool) -> None:
    spared = {os.getpid(), worker} if is_alive else {os.getpid()}
    pipe = _link(Path(f"/proc/self/fd/{sys.stdin.fileno()}"))
    found: set[int] = set()
    while True:
        before, found = found, _of_worker(mark, pipe, with_helpers=not is_alive) - spared
        if not found:
            return
        # Seen once it may be a program of the worker's own, about to begin.
        for pid in found & before:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_AGAIN_SECONDS)


def _of_worker(mark: bytes, pipe: str, *, with_helpers: bool) -> set[int]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        # Another user's, or it has ended meanwhile.
        with contextlib.suppress(OSError):
            is_marked = mark in (process / "environ").read_bytes().split(b"\0")
            if is_marked or any(_link(each) == pipe for each in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes()
                if with_helpers or not any(name in command for name in _HELPERS):
                    found.add(int(process.name))
    return found


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


if __name__ == "__main__":
    main()
