"""What a trial costs besides its training: thousands of trials that train nothing.

Ours is `hsweep run` as a user types it (planning, Ray, record, MLflow), in a process of its own.
Time counts from the first trial's start to the last one's end, on both sides.
"""

import itertools
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.pairs import (
    Pairing,
    Quantity,
    environment,
    in_process,
    in_turn,
    measured,
    show,
)

SWEEP: Final = "benchmarks/overhead_sweep.py"
STUDY: Final = "overhead"
THOUSAND: Final = 1000
MOST_GROWTH: Final = 1.2


@dataclass(frozen=True, slots=True)
class Course:
    """How a run of many trials went.

    Attributes:
        started: when the first trial started, s.
        ended: when each ended, ascending, s.
        facts: what the whole command took.
    """

    started: float
    ended: tuple[float, ...]
    facts: dict[str, float]

    @property
    def rate(self) -> float:
        """Trials a second, from the first start to the last end."""
        return len(self.ended) / (self.ended[-1] - self.started)

    def parts(self, size: int) -> list[float]:
        """Return seconds a trial in each ``size`` trials, of those that are whole.

        The first counts from the end of the first trial: it leaves the start of processes out.
        """
        marks = [0, *range(size - 1, len(self.ended), size)]
        return [
            (self.ended[end] - self.ended[begin]) / (end - begin)
            for begin, end in itertools.pairwise(marks)
        ]


def run_ours(trials: int, *options: str) -> Course:
    """Run our study in a process of its own; its times are those of its table of reports."""
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        ended = in_process(
            [
                *("-m", "hsweep", "run", SWEEP, "--home", home, "--study", STUDY, "--no-reuse"),
                *("--set", f"num_points={trials}", *options),
            ]
        )
        table = pq.read_table(Path(home) / "studies" / STUDY / "reports.parquet")
    ends: dict[str, float] = {}
    started = float("inf")
    for report in table.select(["key", "time", "wall_seconds"]).to_pylist():
        started = min(started, report["time"] - report["wall_seconds"])
        ends[report["key"]] = max(report["time"], ends.get(report["key"], 0.0))
    facts = {"seconds": round(ended.seconds, 1), "reports": len(table), **ended.facts()}
    return Course(started, tuple(sorted(ends.values())), facts)


def run_bare(trials: int) -> Course:
    """Run Ray Tune alone, in a process of its own."""
    ended = in_process(["-m", "benchmarks.baselines.bare_tune", str(trials)])
    return Course(ended.result["started"], tuple(ended.result["ended"]), ended.facts())


@click.command("overhead")
@measured(pairs=3)
@click.option("--trials", type=click.IntRange(2), default=3000, show_default=True,
              help="Trials of the long study, whose growth is looked at, once a pair.")  # fmt: skip
def command(pairs: int, quick: bool, strict: bool, trials: int) -> None:
    """Measure trials that train nothing beside bare Ray Tune."""
    about = environment()
    ours, theirs, size = (6, 2, 3) if quick else (1000, 40, THOUSAND)
    trials = 2 * size if quick else trials
    courses: dict[str, list[Course]] = {"ours": [], "theirs": []}
    facts: dict[str, Any] = {"load": []}

    def rate(side: str) -> float:
        facts["load"].append(round(os.getloadavg()[0], 2))
        courses[side].append(run_ours(ours) if side == "ours" else run_bare(theirs))
        return courses[side][-1].rate

    rates = in_turn(lambda: rate("ours"), lambda: rate("theirs"), pairs)
    facts |= {side: [one.facts for one in runs] for side, runs in courses.items()}
    pairing = Pairing(
        name=f"trials of 3 reports: {ours} of ours, {theirs} of theirs",
        ours="hsweep run",
        theirs="Ray Tune, function trainable",
        unit="trials/s",
        is_better="more",
        pairs=rates,
        bar=3.0,
        facts=facts,
    )
    long = [run_ours(trials) for _ in range(pairs)]
    rows = growth(courses["ours"], long, size)
    show("overhead", [pairing], about, quantities=rows, strict=strict)


def growth(short: Sequence[Course], long: Sequence[Course], size: int) -> list[Quantity]:
    """Return how time and memory grow over a long run: medians over several runs.

    A run lasts half a minute, in which the machine's own speed may change by a third.
    """
    number = len(long[0].ended)
    parts = [one.parts(size) for one in long]
    peaks = [statistics.median(one.facts["peak_mb"] for one in runs) for runs in (short, long)]
    return [
        Quantity(
            f"{number} trials",
            statistics.median(one.rate for one in long),
            "trials/s",
            is_better="more",
            facts={"runs": [one.facts for one in long]},
        ),
        Quantity(
            f"time of the last {size} of {number} over the first",
            statistics.median(part[-1] / part[0] for part in parts),
            "x",
            MOST_GROWTH,
            facts={"milliseconds": [[round(1e3 * one, 2) for one in part] for part in parts]},
        ),
        Quantity(
            f"driver's memory at most, {number} trials over {len(short[0].ended)}",
            peaks[1] / peaks[0],
            "x",
            MOST_GROWTH,
            facts={"mb": peaks},
        ),
    ]
