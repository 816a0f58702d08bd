"""The lease of a study: one process at a time writes its log, and others can ask which.

A process takes a study by beginning the next segment of its log, which only one process can. It
then shows every few seconds that it lives. If it does not, because its machine is gone or it was
frozen, another process may take the study. A process that wakes up after that finds a segment
behind its own, and ends; what it wrote meanwhile does not count. Neither locks of the file system
nor clocks of two machines have to be right.
"""

import contextlib
import json
import os
import platform
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
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
_SILENT_SECONDS: Final = 60.0
"""After so long without a sign of life readers take a process on another machine for dead."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds a study, or held it last, by its own note.

    Attributes:
        id: of this one time that it holds the study.
        machine: tells a boot of a machine and the processes that a container sees from others.
        started: when the process began, in clock ticks since the machine did.
        since: when it took the study, in seconds since the epoch.
        beat: number of its signs of life.
        time: of the last one, in seconds since the epoch, as its machine has it.
        seconds_left: until all is trained, as estimated then; None where that is not known.
        copy_problem: why the study's copy in its storage is not up to date; empty if it is.
        is_released: whether it has let the study go.
    """

    id: str
    pid: int
    host: str
    machine: str
    started: int
    since: float
    beat: int
    time: float
    seconds_left: float | None = None
    copy_problem: str = ""
    is_released: bool = False

    @classmethod
    def this_process(cls) -> "Holder":
        pid, now = os.getpid(), time.time()
        machine = platform.node(), _machine()
        return cls(uuid.uuid4().hex, pid, *machine, _started(pid), since=now, beat=0, time=now)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Holder | None":
        """Return the process that a segment or a note names; None if it names none."""
        with contextlib.suppress(TypeError):
            return cls(**content)
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


def read_holder(paths: StudyPaths) -> Holder | None:
    """Return the last note of a process that holds a study; None if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return Holder.of(json.loads(paths.holder.read_text("utf-8")))
    return None


def is_held(paths: StudyPaths) -> bool:
    """Whether a living process holds a study, by all that can be told at once; never raises."""
    holder = read_holder(paths)
    if holder is None or holder.is_released:
        return False
    return holder.lives if holder.is_here else time.time() - holder.time < _SILENT_SECONDS


class Lease:
    """A study that this process holds; see ``holding``.

    Attributes:
        number: of the segment of the log that this process writes.
        seconds_left, copy_problem: what ``Holder`` says of them, for those who ask.
        lost: called from another thread when another process has taken the study.
        confirm: makes sure that all that is on record by now is safe, and still this process's;
            raises what ``beat`` raises.
    """

    def __init__(self, paths: StudyPaths, holder: Holder, number: int) -> None:
        self.number = number
        self.seconds_left: float | None = None
        self.copy_problem = ""
        self.lost: Callable[[FencedError], object] = lambda _error: None
        self._paths, self._holder = paths, holder
        self._last_beat = _boot_time()
        self._end: FencedError | None = None
        self.confirm: Callable[[], object] = self.beat
        self._lock, self._released = threading.Lock(), threading.Event()

    def beat(self, *, is_last: bool = False) -> None:
        """Flush the log to the disk, and show that this process lives, or lets the study go.

        Raises:
            FencedError: another process has taken the study, or this one has let it go.
            OSError: it cannot be written.
        """
        with self._lock:
            self._look()
            began = _boot_time()
            with segment_file(self._paths.journal, self.number).open("rb") as segment:
                os.fsync(segment.fileno())
            self._holder = replace(
                self._holder,
                beat=self._holder.beat + 1,
                time=time.time(),
                seconds_left=self.seconds_left,
                copy_problem=self.copy_problem,
                is_released=is_last,
            )
            write_json(self._paths.holder, asdict(self._holder))
            # Again: a directory that this process has changed is not listed from a cache.
            self._look()
            self._last_beat = began
            if is_last:
                gone = f"this process no longer holds the study {self._paths.name!r}"
                self._end = FencedError(gone)
                self._released.set()

    def check(self, *, at_once: bool = False) -> None:
        """Make sure that the study is still this process's: where another may have taken it since
        the last sign of life, or ``at_once``; FencedError if one has."""
        if at_once or self._end or _boot_time() - self._last_beat > LEASE_SECONDS / 2:
            self._look()

    def fence(self, error: FencedError) -> None:
        """End this process's hold: another one goes on with a copy of the study."""
        self._end = error
        self.lost(error)

    def _look(self) -> None:
        if self._end is None and not segment_file(self._paths.journal, self.number).exists():
            self._end = FencedError(
                f"the folder of the study {self._paths.name!r} has been deleted or moved "
                f"({self._paths.root}), and this driver ends. Put it back and resume the study; "
                "where it is gone, so is what was recorded there: a study with --storage resumes "
                "from its copy, any other has to be run again"
            )
        if self._end is None and segment_files(self._paths.journal)[self.number :]:
            self._end = FencedError(
                f"another driver has taken the study {self._paths.name!r} over: "
                f"{_last_holder(self._paths) or 'another process'}; this one showed no sign of "
                f"life for {LEASE_SECONDS:.0f} s, and ends. What it recorded since does not count"
            )
        if self._end is not None:
            raise self._end

    def show_life(self) -> None:
        """Show every few seconds that this process lives, until the study is let go or lost."""
        while not self._released.wait(BEAT_SECONDS):
            try:
                self.beat()
            except FencedError as error:
                self.lost(error)
                return
            except OSError:
                continue  # it is tried again


@contextlib.contextmanager
def holding(paths: StudyPaths) -> Iterator[Lease]:
    """Hold a study for this process; UserError if another process holds it, or the study's folder
    cannot be written to."""
    last, holder = segment_files(paths.journal)[-1:], Holder.this_process()
    refuse_held(paths)
    number = int(last[0].stem) + 1 if last else 1
    try:
        paths.journal.mkdir(exist_ok=True)
        begin_segment(paths.journal, number, asdict(holder))
    except FileExistsError:
        raise _held_by(paths, _last_holder(paths)) from None
    except OSError as error:
        raise _not_writable(paths, error) from error
    lease = Lease(paths, holder, number)
    try:
        lease.beat()
        threading.Thread(target=lease.show_life, name="hsweep-lease", daemon=True).start()
        yield lease
    finally:
        with contextlib.suppress(OSError, FencedError):
            lease.beat(is_last=True)


def refuse_held(paths: StudyPaths, refresh: Callable[[], object] = lambda: None) -> None:
    """Refuse a study that a living process holds, or whose folder cannot be written to.

    To see whether a process on another machine lives takes as long as a lease.

    Args:
        refresh: called before the note of its holder is read, which it may write.

    Raises:
        UserError: it is held, or cannot be written to.
    """
    try:
        with tempfile.NamedTemporaryFile("wb", dir=paths.root) as file:
            file.write(bytes(4096))
    except OSError as error:
        raise _not_writable(paths, error) from error
    refresh()
    holder = _last_holder(paths)
    if holder is None or holder.is_released or holder in _dead:
        return
    if holder.is_here:
        if holder.lives:
            raise _held_by(paths, holder)
        return
    print_step(
        f"{paths.name} was last run by {holder}: waiting up to {LEASE_SECONDS:.0f} s for a sign of "
        "life"
    )
    later = _changed(paths, holder, refresh)
    if later is not None and not later.is_released:
        raise _held_by(paths, later)
    if later is None:
        _dead.add(holder)
        print_step(f"{holder} gives no sign of life: taking {paths.name} over")


_dead: Final[set[Holder]] = set()
"""The last notes of processes that gave no sign of life after them: it takes time to see that."""


def _changed(paths: StudyPaths, holder: Holder, refresh: Callable[[], object]) -> Holder | None:
    """Return the note of a study's holder once it is another; None if it stays for a lease."""
    end = _boot_time() + LEASE_SECONDS
    while True:
        # Before the note is read: this process may be frozen as well.
        is_over = _boot_time() >= end
        refresh()
        if (later := _last_holder(paths)) != holder:
            return later
        if is_over:
            return None
        time.sleep(_LOOK_SECONDS)


def _last_holder(paths: StudyPaths) -> Holder | None:
    """Return who began the last segment of a study's log, by its note if it has made one yet; where
    the segment cannot be read, who made the last note."""
    note = read_holder(paths)
    with contextlib.suppress(OSError):
        for segment in segment_files(paths.journal)[-1:]:
            owner = Holder.of(owner_of(segment))
            return note if owner is None or (note and note.id == owner.id) else owner
    return note


def _not_writable(paths: StudyPaths, error: OSError) -> UserError:
    return UserError(
        f"the study {paths.name!r} cannot be run or changed: its folder {paths.root} cannot be "
        f"written to ({cause(error)}). Make it writable or free some space and try again; "
        "`hsweep show`, `analyze` and `export` read it as it is"
    )


def _held_by(paths: StudyPaths, holder: Holder | None) -> UserError:
    last = f", whose last sign of life was at {time.ctime(holder.time)}" if holder else ""
    return UserError(
        f"the study {paths.name!r} is being run by {holder or 'another process'}{last}; wait for "
        "it, or stop it there"
    )


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
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        state, *columns = text.rpartition(")")[2].split()
        return -1 if state in "ZX" else int(columns[18])
    return -1
