"""What a trial costs besides its training: thousands of trials that train nothing.

Ours is `hsweep run` as a user types it (planning, Ray, record, MLflow), in a process
of its own. Time counts from the first trial's start to the last one's end, on both sides. A trial
ended when that was recorded. The driver's memory is its resident set, looked at five times a
second.
"""

import bisect
import itertools
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import click

from benchmarks.pairs import (
    Pairing,
    Quantity,
    conclude,
    environment,
    in_process,
    in_turn,
    measured,
    show,
)

SWEEP: Final = Path(__file__).with_name("overhead_sweep.py")
STUDY: Final = "overhead"
THOUSAND: Final = 1000
_LOOK_SECONDS: Final = 0.2
_LONGEST_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Course:
    """How a run of many trials went.

    Attributes:
        started: when the first trial started, s.
        ended: when each ended, ascending, s.
        memory: the driver's memory at that moment, MB.
        computed: CPU seconds that the driver had taken by then; empty where not looked at.
        seconds: of the whole command; 0 where only the trials were timed.
        facts: whatever else is known.
    """

    started: float
    ended: tuple[float, ...]
    memory: tuple[float, ...]
    computed: tuple[float, ...] = ()
    seconds: float = 0.0
    facts: dict[str, Any] | None = None

    @property
    def rate(self) -> float:
        """Trials a second, from the first start to the last end."""
        return len(self.ended) / (self.ended[-1] - self.started)

    def parts(self, size: int) -> list[float]:
        """Return seconds a trial in each ``size`` trials, of those that are whole.

        The first counts from the end of the first trial: it leaves the start of processes out.
        """
        return _a_trial(self.ended, size)

    def computed_parts(self, size: int) -> list[float]:
        """Return the driver's CPU seconds a trial in each ``size`` trials, as in ``parts``."""
        return _a_trial(self.computed, size)

    def memory_at(self, size: int) -> list[float]:
        """Return the driver's memory when each ``size`` trials had ended, MB."""
        return [self.memory[number] for number in range(size - 1, len(self.memory), size)]


def _a_trial(seconds: Sequence[float], size: int) -> list[float]:
    marks = [0, *range(size - 1, len(seconds), size)]
    return [
        (seconds[end] - seconds[begin]) / (end - begin) for begin, end in itertools.pairwise(marks)
    ]


def run_ours(trials: int, *options: str) -> Course:
    """Run our study in a process of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        command = [
            *(sys.executable, "-m", "hsweep", "run", str(SWEEP), "--home", str(home)),
            *("--study", STUDY, "--no-reuse", "--set", f"num_points={trials}", *options),
        ]
        log = Path(folder) / "log"
        with log.open("w") as output:
            began = time.monotonic()
            process = subprocess.Popen(command, stdout=output, stderr=output)
            try:
                samples = _watched(process)
            finally:
                process.kill()
                process.wait()
        seconds = time.monotonic() - began
        if process.returncode != 0:
            tail = log.read_text()[-3000:]
            raise RuntimeError(f"hsweep run ended with {process.returncode}:\n{tail}")
        return _course(home, samples, seconds)


@dataclass(frozen=True, slots=True)
class _Sample:
    """The driver at a moment (s): its memory (MB) and the CPU seconds it has taken."""

    at: float
    memory: float
    computed: float


def _watched(process: "subprocess.Popen[bytes]") -> list[_Sample]:
    """Look at a process until it ends."""
    samples: list[_Sample] = []
    deadline = time.monotonic() + _LONGEST_SECONDS
    folder = Path(f"/proc/{process.pid}")
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done within {_LONGEST_SECONDS:g} s")
        try:
            pages = int((folder / "statm").read_text().split()[1])
            # The name, in brackets, may hold anything; user and system time stand 11 behind it.
            ticks = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
        except (OSError, IndexError):
            break
        samples.append(
            _Sample(
                at=time.time(),
                memory=pages * resource.getpagesize() / 1e6,
                computed=sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"),
            )
        )
        time.sleep(_LOOK_SECONDS)
    process.wait(_LONGEST_SECONDS)
    return samples


def _course(home: Path, samples: Sequence[_Sample], seconds: float) -> Course:
    from hsweep.design.trial import TrialStatus
    from hsweep.record.journal import Journal

    started: float | None = None
    ended: list[float] = []
    reports = 0
    with Journal(home / "studies" / STUDY / "journal.db", read_only=True) as journal:
        for entry in journal.log():
            if entry.kind == "report":
                reports += 1
                continue
            status = TrialStatus(entry.payload["status"])
            if status is TrialStatus.RUNNING:
                started = started or entry.time
            elif status is TrialStatus.FINISHED:
                ended.append(entry.time)
    assert started is not None
    times = [sample.at for sample in samples]
    then = [samples[bisect.bisect_left(times, end, hi=len(times) - 1)] for end in ended]
    facts = {
        "reports": reports,
        "peak_mb": round(max(sample.memory for sample in samples), 1),
        "driver_cpu_seconds": samples[-1].computed,
        "seconds_before_the_first_trial": round(started - times[0], 1),
        "seconds_after_the_last_trial": round(times[0] + seconds - ended[-1], 1),
    }
    return Course(
        started=started,
        ended=tuple(ended),
        memory=tuple(sample.memory for sample in then),
        computed=tuple(sample.computed for sample in then),
        seconds=seconds,
        facts=facts,
    )


def run_bare(trials: int, kind: str) -> Course:
    """Run Ray Tune alone, in a process of its own."""
    found = in_process(["-m", "benchmarks.baselines.bare_tune", str(trials), "--kind", kind]).result
    ends, memory = zip(*found["ended"], strict=True)
    return Course(found["started"], ends, memory)


@click.command("overhead")
@measured(pairs=3)
@click.option("--trials", type=click.IntRange(2), default=3000, show_default=True,
              help="Trials of the long study, whose growth is looked at, once a pair.")  # fmt: skip
def command(pairs: int, quick: bool, strict: bool, trials: int) -> None:
    """Measure trials that train nothing beside bare Ray Tune."""
    about = environment()
    ours, few, some, size = (6, 2, 6, 3) if quick else (1000, 40, 100, THOUSAND)
    pairings = [_paired("trials of 3 reports", ours, few, "function", pairs, bar=3.0)]
    if quick:
        trials = 2 * size
    else:
        pairings += [
            _paired("processes reused", ours, some, "function-reuse", 1, bar=None),
            _paired("class, processes reused", ours, some, "class-reuse", 1, bar=None),
        ]
    long = [run_ours(trials) for _ in range(pairs)]
    holds = show("overhead", pairings, about, quantities=_growth(long, size))
    conclude(holds, strict=strict)


def _paired(
    name: str, ours: int, theirs: int, kind: str, pairs: int, *, bar: float | None
) -> Pairing:
    facts: dict[str, Any] = {"our_trials": ours, "their_trials": theirs, "load": []}

    def ours_once() -> float:
        facts["load"].append(round(os.getloadavg()[0], 2))
        course = run_ours(ours)
        facts["ours"] = course.facts
        facts["our_memory_mb"] = [round(course.memory[0], 1), round(course.memory[-1], 1)]
        return course.rate

    def theirs_once() -> float:
        course = run_bare(theirs, kind)
        facts["their_memory_mb"] = [round(course.memory[0], 1), round(course.memory[-1], 1)]
        return course.rate

    return Pairing(
        name=f"{name}: {ours} of ours, {theirs} of theirs",
        ours="hsweep run",
        theirs=f"Ray Tune, {kind}",
        unit="trials/s",
        is_better="more",
        pairs=in_turn(ours_once, theirs_once, pairs),
        bar=bar,
        facts=facts,
    )


def _growth(courses: Sequence[Course], size: int) -> list[Quantity]:
    """Return how time and memory a trial changed over a run: medians over several runs.

    A run lasts half a minute, in which the machine's own speed may change by a third.
    """
    number = len(courses[0].ended)
    rows = [
        _median(f"{number} trials", [one.rate for one in courses], "trials/s", is_better="more"),
        _median(
            f"time of the last {size} of {number} over the first",
            [_last_over_first(one.parts(size)) for one in courses],
            bar=1.2,
            milliseconds_a_trial=[_rounded(1e3, one.parts(size)) for one in courses],
        ),
        _median(
            "the driver's CPU time of those over that of these",
            [_last_over_first(one.computed_parts(size)) for one in courses],
            bar=1.2,
            milliseconds_a_trial=[_rounded(1e3, one.computed_parts(size)) for one in courses],
        ),
        _median(
            "driver's memory at the last over that at the first",
            [_last_over_first(one.memory_at(size)) for one in courses],
            bar=1.2,
            mb=[_rounded(1.0, one.memory_at(size)) for one in courses],
        ),
        _median(
            "driver's memory at most",
            [(one.facts or {})["peak_mb"] for one in courses],
            "MB",
            runs=[one.facts for one in courses],
        ),
    ]
    if number >= 2 * size:
        grown = [1e3 * (one.memory_at(size)[-1] - one.memory_at(size)[0]) for one in courses]
        a_trial = [kilobytes / (number - size) for kilobytes in grown]
        rows.append(_median(f"driver's memory a trial, after the first {size}", a_trial, "kB"))
    return rows


def _last_over_first(values: Sequence[float]) -> float:
    # A few short trials take less than the clock of processes can tell.
    return values[-1] / values[0] if values[0] else math.nan


def _rounded(times: float, values: Sequence[float]) -> list[float]:
    return [round(times * one, 2) for one in values]


def _median(
    name: str,
    values: Sequence[float],
    unit: str = "x",
    *,
    is_better: Literal["less", "more"] = "less",
    bar: float | None = None,
    **facts: Any,
) -> Quantity:
    return Quantity(
        name,
        statistics.median(values),
        unit,
        bar=bar,
        is_better=is_better,
        facts={"each": [round(one, 3) for one in values], **facts},
    )
