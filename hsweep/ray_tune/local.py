"""A Ray on this machine, which can be started before the resources of its trials are known."""

import atexit
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import ray

from hsweep.errors import UserError
from hsweep.garbage import no_collection
from hsweep.ray_tune.private import without_idle_helpers
from hsweep.record.provenance import usable_cores
from hsweep.threads import in_thread
from hsweep.training.world import with_variables

QUIET: Final[Mapping[str, Any]] = {"log_to_driver": False, "logging_level": logging.WARNING}
MOST_EARLY: Final = 8
"""Cores of a machine on which processes are started before there is work for them, one each."""
_IDLE_SECONDS: Final = 60
"""How long a process waits for work before Ray may end it. After a second, as by default, it would
be ended in the moment in which cores are set aside for the trial that it was started for."""


class StartingRay:
    """A Ray that starts in a thread of its own while this one does something else.

    The thread stays: Ray's processes end with the one that starts them.

    Args:
        environment: see ``start_local``.
    """

    unused: ClassVar["StartingRay | None"] = None
    """The Ray that was started last, until ``wait`` is called on it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # For good: nobody shall see them come and go in another thread.
        os.environ.update(_variables(environment))
        StartingRay.unused = self
        self._started = in_thread("starting Ray", lambda: start_local(environment), stays=True)

    def wait(self) -> None:
        """Wait until Ray has started.

        Raises:
            UserError: Ray does not start.
        """
        self._started.result()
        # Not before: an interrupt here ends the process in the middle of Ray's start.
        StartingRay.unused = None


def exit_without_ray(code: int) -> None:
    """End this process, and the processes of a Ray that starts for nothing; return where there is
    none.

    Ray's thread is in the middle of C++ code, which crashes when Python takes its interpreter down:
    the process ends after its ``atexit`` handlers instead.
    """
    if StartingRay.unused is None:
        return
    import psutil

    atexit.unregister(ray.shutdown)
    ours = str(Path(ray.__file__).parent)
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any(ours in word for word in process.cmdline()):
                process.suspend()  # it may be about to start others, which would outlive it
                for descendant in [*process.children(recursive=True), process]:
                    with contextlib.suppress(psutil.Error):
                        descendant.kill()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def start_local(environment: Mapping[str, str]) -> None:
    """Start a Ray whose processes take over this environment. It ends with the thread that calls
    this, if not before.

    They get it from here rather than from Ray (``runtime_env``), for which every process would
    wait a second, and could not be started before there is work for it.

    Raises:
        UserError: it does not start.
    """
    try:
        with with_variables(_variables(environment)), without_idle_helpers():
            ray.init(
                address="local",
                include_dashboard=False,
                dashboard_host="127.0.0.1",
                num_cpus=usable_cores(),
                **QUIET,
            )
    except Exception as error:  # Ray raises it itself, without a class of its own
        remedy = ""
        if "AF_UNIX" in str(error):
            remedy = ". Sockets lie there: name a folder of a shorter path in RAY_TMPDIR, as /tmp"
        elif isinstance(error, OSError):
            home = os.environ.get("HOME", "not set")
            remedy = (
                f". Ray writes to HOME ({home}) and to RAY_TMPDIR, else TMPDIR, else /tmp: name "
            )
            remedy += "folders there that can be written to, or use --runner inline"
        raise UserError(f"a local Ray does not start: {error}{remedy}") from error


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    # As many as cores wait for work, each with all that training imports: too much memory where
    # there are many cores.
    is_early = usable_cores() <= MOST_EARLY
    return {
        **environment,
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "RAY_preload_python_modules": "hsweep.ray_tune.preload",
        "RAY_prestart_worker_first_driver": str(int(is_early)),
        "RAY_idle_worker_killing_time_threshold_ms": str(_IDLE_SECONDS * 1000),
    }


def shut_down() -> None:
    """End the Ray of this process, if it has one."""
    if not ray.is_initialized():
        return
    # Ray ends the whole process, without a word, where an object of its own is forgotten in another
    # thread at this moment, as those in cycles are by whoever looks for garbage.
    with no_collection():
        ray.shutdown()
