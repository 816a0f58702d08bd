"""The lease of a study: one process at a time writes its log, and others can ask which.

A process takes a study by beginning the next segment of its log, which only one process can. It
then shows every few seconds that it lives. If it does not, because its machine is gone or it was
frozen, another process may take the study. A process that wakes up after that finds a segment
behind its own, and ends; what it wrote meanwhile does not count. Neither locks of the file system
nor clocks of two machines have to be right.
"""

import contextlib
import errno
import json
import os
import platform
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from hsweep.errors import FencedError, UserError
from hsweep.files import cause, write_json
from hsweep.paths import StudyPaths
from hsweep.record.log import begin_segment, owner_of, segment_file, segment_files
from hsweep.terminal import print_step

BEAT_SECONDS: Final = 5.0
LEASE_SECONDS: Final = 30.0
"""A process on another machine that has shown no sign of life for so long has lost the study."""
_LOOK_SECONDS: Final = 1.0
_PROBED_BYTES: Final = 4096
_SILENT_SECONDS: Final = 60.0
"""After so long without a sign of life readers take a process on another machine for dead."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that holds a study, or held it.

    Attributes:
        id: of this one time that it holds it.
        machine: tells a boot of a machine and the processes that a container sees from others.
        started: when the process began, in clock ticks since the machine did.
    """

    id: str
    pid: int
    host: str
    machine: str
    started: int

    @classmethod
    def this_process(cls) -> "Owner":
        pid = os.getpid()
        return cls(uuid.uuid4().hex, pid, platform.node(), _machine(), _started(pid))

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Owner | None":
        """Return the owner that a segment or a note names; None if it names none."""
        with contextlib.suppress(KeyError, TypeError):
            return cls(**{column.name: content[column.name] for column in fields(cls)})
        return None

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine, which can be asked for."""
        return (self.host, self.machine) == (platform.node(), _machine())

    @property
    def lives(self) -> bool:
        """Whether the process is alive, which must be one of this machine."""
        return _started(self.pid) == self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Holder:
    """The note of the process that holds a study, or held it last.

    Attributes:
        owner: the process; None if there is no note, or it cannot be read.
        beat: number of its signs of life.
        time: of the last one, in seconds since the epoch, as its machine has it.
        since: when it began, in seconds since the epoch.
        is_released: whether it no longer holds the study.
        seconds_left: until all is trained, as estimated at ``time``; None where that is not known.
    """

    owner: Owner | None = None
    beat: int = 0
    time: float = 0.0
    since: float | None = None
    is_released: bool = False
    seconds_left: float | None = None


def read_holder(paths: StudyPaths) -> Holder:
    """Return the note of the process that holds a study; an empty one if it cannot be read."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        content = json.loads(paths.holder.read_text("utf-8"))
        return Holder(**content | {"owner": Owner.of(content["owner"])})
    return Holder()


def is_held(paths: StudyPaths) -> bool:
    """Whether a living process holds a study, by all that can be told at once; never raises."""
    holder = read_holder(paths)
    if holder.owner is None or holder.is_released:
        return False
    if holder.owner.is_here:
        return holder.owner.lives
    return time.time() - holder.time < _SILENT_SECONDS


def is_held_elsewhere(paths: StudyPaths) -> bool:
    """Whether a process of another machine holds a study, as ``is_held``."""
    owner = read_holder(paths).owner
    return is_held(paths) and owner is not None and not owner.is_here


class Lease:
    """A study that this process holds; see ``holding``.

    Attributes:
        number: of the segment of the log that this process writes.
        seconds_left: until all is trained, for those who ask; None where that is not known.
        lost: called from a thread of its own when another process has taken the study.
    """

    def __init__(self, paths: StudyPaths, owner: Owner, number: int) -> None:
        self.number = number
        self.seconds_left: float | None = None
        self.lost: Callable[[FencedError], object] = lambda _error: None
        self._paths, self._owner = paths, owner
        self._since, self._beats, self._last_beat = time.time(), 0, _boot_time()
        self._is_lost = False
        self._file = os.open(segment_file(paths.journal, number), os.O_RDONLY | os.O_CLOEXEC)
        self._flushed = 0
        self._lock, self._released = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._show_life, name="hsweep-lease", daemon=True)

    def start(self) -> None:
        """Show that this process lives, from now on.

        Raises:
            OSError: it cannot be written.
        """
        self.beat()
        self._thread.start()

    def beat(self) -> None:
        """Flush the log to the disk, and show that this process lives.

        Raises:
            FencedError: another process has taken the study.
            OSError: it cannot be written.
        """
        with self._lock:
            if self._released.is_set():
                raise FencedError(f"this process no longer holds the study {self._paths.name!r}")
            self._look()
            began, size = _boot_time(), os.fstat(self._file).st_size
            if size > self._flushed:
                os.fsync(self._file)
            self._write_note()
            # Again: a directory that this process has changed is not listed from a cache.
            self._look()
            self._flushed, self._last_beat = size, began

    def check(self, *, at_once: bool = False) -> None:
        """Make sure that the study is still this process's: where another may have taken it since
        the last sign of life, or ``at_once``.

        Raises:
            FencedError: another process has taken the study.
        """
        if at_once or self._is_lost or _boot_time() - self._last_beat > LEASE_SECONDS / 2:
            self._look()

    def release(self) -> None:
        """Let others have the study."""
        with self._lock, contextlib.suppress(OSError, FencedError):
            self._released.set()
            self._look()
            os.fsync(self._file)
            self._write_note()
        os.close(self._file)

    def _look(self) -> None:
        if segment_files(self._paths.journal)[self.number :]:
            self._is_lost = True
            owner = Owner.of(owner_of(segment_file(self._paths.journal, self.number + 1)))
            raise FencedError(
                f"another driver has taken the study {self._paths.name!r} over: "
                f"{owner or 'another process'}; this one showed no sign of life for "
                f"{LEASE_SECONDS:.0f} s, and ends. What it has recorded since does not count"
            )

    def _write_note(self) -> None:
        self._beats += 1
        note = Holder(
            owner=self._owner,
            beat=self._beats,
            time=time.time(),
            since=self._since,
            is_released=self._released.is_set(),
            seconds_left=self.seconds_left,
        )
        write_json(self._paths.holder, asdict(note))

    def _show_life(self) -> None:
        while not self._released.wait(BEAT_SECONDS):
            # Where it cannot be written, that is tried again.
            with contextlib.suppress(OSError):
                try:
                    self.beat()
                except FencedError as error:
                    self.lost(error)
                    return


@contextlib.contextmanager
def holding(paths: StudyPaths) -> Iterator[Lease]:
    """Hold a study for this process.

    Raises:
        UserError: another process holds it, or the study's folder cannot be written to.
    """
    lease = _take(paths)
    try:
        lease.start()
        yield lease
    finally:
        lease.release()


def _take(paths: StudyPaths) -> Lease:
    last = segment_files(paths.journal)[-1:]
    refuse_held(paths)
    number, owner = int(last[0].stem) + 1 if last else 1, Owner.this_process()
    try:
        paths.journal.mkdir(exist_ok=True)
        begin_segment(paths.journal, number, asdict(owner))
        return Lease(paths, owner, number)
    except FileExistsError:
        raise _held_by(paths, _last_owner(paths)) from None
    except OSError as error:
        raise _not_writable(paths, error) from error


def refuse_held(paths: StudyPaths) -> None:
    """Refuse a study that a living process holds, or whose folder cannot be written to.

    To see whether a process on another machine lives takes as long as a lease.

    Raises:
        UserError: it is held, or cannot be written to.
    """
    try:
        if not paths.root.is_dir():  # a study that was deleted
            raise FileNotFoundError(errno.ENOENT, "it is not there", str(paths.root))
        with tempfile.TemporaryFile("wb", dir=paths.root) as file:
            file.write(bytes(_PROBED_BYTES))
    except OSError as error:
        raise _not_writable(paths, error) from error
    # It may have begun its segment, and not have made its note yet.
    owner, holder = _last_owner(paths), read_holder(paths)
    is_released = holder.owner == owner and holder.is_released
    if owner is None or is_released or (owner, holder) in _dead:
        return
    if owner.is_here:
        if not owner.lives:
            return
    else:
        print_step(
            f"{paths.name} was last run by {owner}: waiting up to {LEASE_SECONDS:.0f} s for a sign "
            "of life"
        )
        later = _changed(paths, holder)
        if later is None:
            _dead.add((owner, holder))
            print_step(f"{owner} gives no sign of life: taking {paths.name} over")
        if later is None or later.is_released:
            return
    raise _held_by(paths, owner)


_dead: Final[set[tuple[Owner, Holder]]] = set()
"""Processes that gave no sign of life, and their last: it takes time to see that."""


def _changed(paths: StudyPaths, holder: Holder) -> Holder | None:
    """Return the note of a study's holder once it is another; None if it stays for a lease."""
    end = _boot_time() + LEASE_SECONDS
    while True:
        # Before the note is read: this process may be frozen as well.
        is_over = _boot_time() >= end
        if (later := read_holder(paths)) != holder:
            return later
        if is_over:
            return None
        time.sleep(_LOOK_SECONDS)


def _not_writable(paths: StudyPaths, error: OSError) -> UserError:
    return UserError(
        f"the study {paths.name!r} cannot be run or changed: its folder {paths.root} cannot be "
        f"written to ({cause(error)}). Make it writable or free some space and try again; "
        "`hsweep show`, `analyze` and `export` read it as it is"
    )


def _held_by(paths: StudyPaths, owner: Owner | None) -> UserError:
    return UserError(
        f"the study {paths.name!r} is being run by {owner or 'another process'}; wait for it, or "
        "stop it there"
    )


def _last_owner(paths: StudyPaths) -> Owner | None:
    """Return who began the last segment of a study's log; where that cannot be read, who made the
    last note."""
    with contextlib.suppress(OSError):
        for segment in segment_files(paths.journal)[-1:]:
            return Owner.of(owner_of(segment)) or read_holder(paths).owner
    return None


def _boot_time() -> float:
    """Return seconds that also pass while this process or its machine is frozen."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"


def _started(pid: int) -> int:
    """Return when a process of this machine began, in clock ticks; -1 if it does not live.

    Read from the kernel: by the clock it would change with the clock.
    """
    with contextlib.suppress(OSError):
        state, *columns = (
            Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        )
        return -1 if state in "ZX" else int(columns[18])
    return -1
