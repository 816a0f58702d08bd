"""The lock of a study: one process runs it, and others can ask which.

The operating system holds the lock for the process, so it ends with the process, however that
ends; the note of who holds it is for people and may be old, missing or garbled.
"""

import contextlib
import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator

from filelock import FileLock, Timeout

from hsweep.errors import UserError
from hsweep.files import write_json
from hsweep.paths import StudyPaths

LOCK_SECONDS = 0.5


class StudyLock:
    """The lock of the study in a folder."""

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the study for this process; the lock of a dead process does not count.

        Raises:
            UserError: another process holds it, or the study's folder cannot be written to.
        """
        lock = FileLock(self._paths.lock)
        try:
            # A process that asks whether the study runs holds the lock for an instant, too.
            lock.acquire(timeout=LOCK_SECONDS)
        except Timeout:
            raise UserError(
                f"the study {self._paths.name!r} is being run by {self._holder()}; wait for it, or "
                "stop it"
            ) from None
        except (OSError, NotImplementedError) as error:
            raise self._not_writable(error) from error
        try:
            self._sign()
            yield
        finally:
            with contextlib.suppress(OSError):
                self._paths.holder.unlink(missing_ok=True)
            lock.release()

    def _sign(self) -> None:
        try:
            write_json(
                self._paths.holder,
                {"pid": os.getpid(), "host": platform.node(), "since": time.time()},
            )
        except OSError as error:
            raise self._not_writable(error) from error

    def _not_writable(self, error: Exception) -> UserError:
        why = getattr(error, "strerror", None) or str(error)
        return UserError(
            f"the study {self._paths.name!r} cannot be run or changed: its folder "
            f"{self._paths.root} cannot be written to ({why}). Make it writable or free some "
            "space and try again; `hsweep show`, `analyze` and `export` read it as it is"
        )

    def is_held(self) -> bool:
        """Whether a living process holds the study; never raises, and leaves nothing behind."""
        try:
            # Reading is enough to ask, so a study on read-only storage can be asked about.
            file = os.open(self._paths.lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(file)
        return False

    def _holder(self) -> str:
        try:
            holder = json.loads(self._paths.holder.read_text())
            pid, host = int(holder["pid"]), str(holder["host"])
        except (OSError, ValueError, KeyError, TypeError):
            return f"another process (which one is not noted; {_find_by_hand(self._paths)})"
        if host == platform.node() and not _is_alive(pid):
            return (
                f"something that process {pid} on {host} started before it ended "
                f"({_find_by_hand(self._paths)})"
            )
        return f"process {pid} on {host}"


def _find_by_hand(paths: StudyPaths) -> str:
    return f"`fuser {paths.lock}` finds it"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
