"""The lock of a study: one process runs it, and others can ask which.

The operating system holds the lock for the process, so it ends with the process, however that
ends; the note of who holds it is for people and may be old, missing or garbled.
"""

import contextlib
import errno
import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from filelock import FileLock, Timeout

from hsweep.errors import UserError
from hsweep.files import cause, write_json
from hsweep.paths import StudyPaths

LOCK_SECONDS: Final = 0.5


@contextlib.contextmanager
def holding(paths: StudyPaths) -> Iterator[None]:
    """Hold a study for this process; the lock of a dead process does not count.

    Raises:
        UserError: another process holds it, or the study's folder cannot be written to.
    """
    lock = FileLock(paths.lock)
    try:
        if not paths.root.is_dir():  # which the lock would make, of a study that was deleted
            raise FileNotFoundError(errno.ENOENT, "it is not there", str(paths.root))
        # A process that asks whether the study runs holds the lock for an instant, too.
        lock.acquire(timeout=LOCK_SECONDS)
        write_json(
            paths.holder, {"pid": os.getpid(), "host": platform.node(), "since": time.time()}
        )
    except Timeout:
        raise UserError(
            f"the study {paths.name!r} is being run by {read_holder(paths).process} (`fuser "
            f"{paths.lock}` finds it); wait for it, or stop it"
        ) from None
    except (OSError, NotImplementedError) as error:
        lock.release()
        raise UserError(
            f"the study {paths.name!r} cannot be run or changed: its folder {paths.root} cannot be "
            f"written to ({cause(error)}). Make it writable or free some space and try again; "
            "`hsweep show`, `analyze` and `export` read it as it is"
        ) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            paths.holder.unlink(missing_ok=True)
        lock.release()


def is_held(paths: StudyPaths) -> bool:
    """Whether a living process holds a study; never raises, and leaves nothing behind."""
    try:
        # Reading is enough to ask, so a study on read-only storage can be asked about.
        file = os.open(paths.lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # Shared: others may ask at the same time, and none takes another one for the holder.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(file)
    return False


def note_time_left(paths: StudyPaths, seconds: float | None) -> None:
    """Let the process that holds a study note how long its run is likely to take still."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        holder = json.loads(paths.holder.read_text("utf-8"))
        write_json(paths.holder, {**holder, "seconds_left": seconds, "noted": time.time()})


@dataclass(frozen=True, slots=True)
class Holder:
    """The note of the process that runs a study.

    Attributes:
        process: its id and its host.
        since: when it began, in seconds since the epoch; None where that is not known.
        seconds_left: until all is trained, at the time of asking; None where that is not known.
    """

    process: str = "another process"
    since: float | None = None
    seconds_left: float | None = None


def read_holder(paths: StudyPaths) -> Holder:
    """Return the note of the process that runs a study; an empty one if it cannot be read."""
    try:
        holder = json.loads(paths.holder.read_text("utf-8"))
        seconds = holder.get("seconds_left")
        if seconds is not None:
            seconds = max(0.0, seconds - max(0.0, time.time() - holder["noted"]))
        process = f"process {holder['pid']} on {holder['host']}"
        return Holder(process, float(holder["since"]), seconds)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Holder()
