"""Training functions of one's own: one that trains well, and many that do not."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import psutil
import torch

from hsweep import Asha, Point, Run, StopTrial, Sweep, epochs, grid

DEADLINE_SECONDS = 300
"""Far above what anything here takes."""
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def own_sweep(**changes: Any) -> Sweep:
    """Return a sweep of ``Walk`` with ``changes``."""
    settings: dict[str, Any] = {
        "name": "walk",
        "space": grid(lr=[0.1, 0.2]),
        "train": Walk(),
        "metric": "loss",
        "goal": "min",
        "budget": epochs(6),
        "checkpoint_seconds": 0.0,
        "max_failures": 1,
    }
    return Sweep(**{**settings, **changes})


@dataclass(frozen=True)
class Walk:
    """Trains a number that depends on all that came before, and on the seeds.

    Attributes:
        keeps: what a report's checkpoint is.
        resumes: whether it goes on from its checkpoint.
        traces: where it leaves ``trained-UNIT`` for each unit, and looks for what it shall do: a
            file ``kill-UNIT`` there kills its process before the report of that unit, once;
            ``family-UNIT`` has it start processes there, once; with ``wait-UNIT`` it does so and
            then waits for ``go``.
    """

    keeps: Literal["folder", "file", "nothing"] = "folder"
    resumes: bool = True
    traces: str = ""

    def __call__(self, point: Point, run: Run) -> None:
        number, done = torch.zeros(()), 0
        if run.checkpoint is not None and self.resumes:
            file = run.checkpoint if self.keeps == "file" else run.checkpoint / "sub" / "state.pt"
            number, done = torch.load(file)
        for unit in range(done + 1, run.budget + 1):
            torch.manual_seed(run.seeds.sampling + unit)
            number = number * 0.9 + point.lr * torch.randn(())
            self._disturbed(unit)
            # Not even the file that is written next is what the next attempt may be given.
            file = run.folder / "sub" / "state.pt"
            file.parent.mkdir(exist_ok=True)
            torch.save((number, unit), file)
            checkpoint = {"folder": run.folder, "file": file, "nothing": None}[self.keeps]
            run.report(unit, checkpoint, loss=float(number), lr_now=point.lr / unit)

    def _disturbed(self, unit: int) -> None:
        if not self.traces:
            return
        traces = Path(self.traces)
        with (traces / f"trained-{unit}").open("a") as trace:
            trace.write("x")
        if (family := traces / f"family-{unit}").exists():
            family.unlink()
            start_family(traces)
        if (kill := traces / f"kill-{unit}").exists():
            kill.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if (traces / f"wait-{unit}").exists():
            start_family(traces)
            (traces / f"waiting-{os.getpid()}").touch()
            while not (traces / "go").exists():
                time.sleep(0.02)


def running(folder: Path) -> set[int]:
    """The numbers of the processes, told by files ``pid-NUMBER``, that have not ended."""
    pids = {int(file.name.partition("-")[2]) for file in folder.glob("pid-*")}
    return {pid for pid in pids if is_running(pid)}


def until(is_so: Callable[[], bool]) -> None:
    """Poll until something is so."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS} s"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def start_family(folder: Path) -> None:
    """Start processes that live on by themselves: a program, one in a session of its own, a fork
    and a fork's fork whose parent is gone. Return when all are there."""
    for has_own_session in (False, True):
        pid = os.posix_spawn(sys.executable, SLEEPER, os.environ, setsid=has_own_session)
        (folder / f"pid-{pid}").touch()
    for is_daemon in (False, True):
        child = os.fork()
        if child == 0:
            if is_daemon:
                os.setsid()
                if os.fork():
                    os._exit(0)
            (folder / f"pid-{os.getpid()}").touch()
            while True:
                signal.pause()
        if is_daemon:
            os.waitpid(child, 0)
    while len(list(folder.glob("pid-*"))) % 4:
        time.sleep(0.01)


@dataclass(frozen=True)
class Bad:
    """Trains one unit or none, and then does what its point says, in ``folder``."""

    folder: str

    def __call__(self, point: Point, run: Run) -> None:
        getattr(self, point.deed)(run)

    def does_not_report(self, run: Run) -> None:
        return

    def asks_for_a_seed(self, run: Run) -> None:
        run.seed  # type: ignore[attr-defined]  # noqa: B018

    def returns_early(self, run: Run) -> None:
        run.report(1, loss=1)
        run.report(2, loss=1)

    def goes_back(self, run: Run) -> None:
        run.report(2, loss=1)
        run.report(2, loss=1)

    def goes_beyond(self, run: Run) -> None:
        run.report(7, loss=1)

    def begins_at_zero(self, run: Run) -> None:
        run.report(0, loss=1)

    def counts_in_halves(self, run: Run) -> None:
        run.report(0.5, loss=1)  # type: ignore[arg-type]

    def counts_truth(self, run: Run) -> None:
        run.report(True, loss=1)

    def goes_on_after_the_end(self, run: Run) -> None:
        run.report(6, loss=1)
        run.report(7, loss=1)

    def tidies_up(self, run: Run) -> None:
        run.report(6, loss=1)
        (Path(self.folder) / "tidy").touch()

    def catches_a_refusal(self, run: Run) -> None:
        for unit in range(7):
            try:
                run.report(unit + 1, loss="low")  # type: ignore[arg-type]
            except Exception:
                continue

    def forgets_the_metric(self, run: Run) -> None:
        run.report(1, losss=1)

    def leaves_the_metric_out(self, run: Run) -> None:
        run.report(1, loss=None)

    def reports_a_vector(self, run: Run) -> None:
        run.report(1, loss=torch.ones(2))  # type: ignore[arg-type]

    def reports_an_axis(self, run: Run) -> None:
        run.report(1, loss=1, deed=1)

    def reports_a_column(self, run: Run) -> None:
        run.report(1, loss=1, wall_seconds=1)

    def reports_an_odd_name(self, run: Run) -> None:
        run.report(1, loss=1, **{"top\n5": 1.0})  # type: ignore[arg-type]

    def is_not_a_number(self, run: Run) -> None:
        run.report(1, loss=1, norm=float("nan"))  # another metric's is a hole
        run.report(2, loss=float("nan"), norm=1)

    def is_infinite(self, run: Run) -> None:
        run.report(1, loss=torch.tensor(float("inf")))  # type: ignore[arg-type]

    def raises(self, run: Run) -> None:
        run.report(1, loss=1)
        raise KeyError("heads")

    def exits(self, run: Run) -> None:
        sys.exit("no data")

    def interrupts(self, run: Run) -> None:
        raise KeyboardInterrupt

    def stops_by_itself(self, run: Run) -> None:
        run.report(1, loss=1)
        raise StopTrial

    def has_no_checkpoint(self, run: Run) -> None:
        run.report(1, run.folder / "none", loss=1)

    def prints_to_a_closed_pipe(self, run: Run) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w", buffering=1) as closed:
            print("epoch 1", file=closed)

    def reports_from_a_fork(self, run: Run) -> None:
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                run.report(1, loss=1)
            except Exception as error:
                os.write(writing, str(error).encode())
            return  # as a fork does whose author forgot that it goes on here
        os.close(writing)
        told = b""
        while part := os.read(reading, 4096):
            told += part
        raise RuntimeError(told.decode())

    def leaves_processes(self, run: Run) -> None:
        start_family(Path(self.folder))
        for unit in range(1, 7):
            run.report(unit, loss=1)

    def leaves_processes_and_raises(self, run: Run) -> None:
        start_family(Path(self.folder))
        raise RuntimeError("with a family")

    def takes_all_memory(self, run: Run) -> None:
        run.report(1, loss=1)
        bytearray(1 << 60)

    def changes_the_process(self, run: Run) -> None:
        run.report(1, loss=1)
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(3)
        torch.use_deterministic_algorithms(True)
        os.chdir(self.folder)
        run.report(6, loss=1)

    def hangs(self, run: Run) -> None:
        run.report(1, loss=1)
        waits_for_ever()


def waits_for_ever() -> None:
    threading.Event().wait()


def deeds() -> Iterator[str]:
    """All that can be done without hanging."""
    for name in vars(Bad):
        if name == "hangs":
            return
        if not name.startswith("_") and name != "folder":
            yield name


@dataclass(frozen=True)
class Stubborn:
    """Reports once, and takes its end as ``manner`` says; leaves ``ended`` in ``folder``."""

    manner: Literal["tidies", "catches_errors", "reports_on", "computes_on", "sleeps_on"]
    folder: str

    def __call__(self, point: Point, run: Run) -> None:
        while True:
            try:
                self._report(point, run)
            except BaseException:
                # An end that is forced may come between two reports.
                if self.manner not in ("reports_on", "sleeps_on"):
                    raise

    def _report(self, point: Point, run: Run) -> None:
        for unit in count(1):
            try:
                run.report(unit, loss=point.lr)
            except Exception:
                (Path(self.folder) / "caught").touch()
            except BaseException:
                if self.manner in ("tidies", "catches_errors"):
                    (Path(self.folder) / "ended").touch()
                    raise
                if self.manner == "sleeps_on":
                    time.sleep(5)
                while self.manner == "computes_on":
                    pass


def halving(**changes: Any) -> Sweep:
    """Return a sweep whose worse half is stopped at unit 2."""
    asha = Asha(grace=2, reduction_factor=2, min_survivors=1, decide="on_arrival")
    return own_sweep(space=grid(lr=[0.4, 0.3, 0.2, 0.1]), early_stopping=asha, **changes)


def one_after_another(histories: Mapping[str, list[Any]]) -> bool:
    """Whether each trial's reports are of units 1, 2, 3 and so on, each once."""
    return all(
        [unit for unit, *_ in history] == list(range(1, len(history) + 1))
        for history in histories.values()
    )


@dataclass(frozen=True)
class Troubled:
    """Walks, or does something bad, by the ``deed`` of its point.

    Attributes:
        folder: with a folder for each deed, where traces are left (see ``Walk``).
    """

    folder: str

    def __call__(self, point: Point, run: Run) -> None:
        traces = str(Path(self.folder, point.deed))
        if point.deed == "walks":
            Walk(traces=traces)(point, run)
        else:
            getattr(Bad(traces), point.deed)(run)
