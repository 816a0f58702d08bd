"""A study of 100,000 trials: how long it takes to be analysed and reported, shown and listed."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from benchmarks.pairs import (
    Pairing,
    Quantity,
    conclude,
    environment,
    in_turn,
    measured,
    show,
)

BASELINE: Final = "benchmarks.baselines.analysis"
SECONDS: Final = 60.0
MEGABYTES: Final = 2000.0
SHOW_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ran:
    """A process that came to its end.

    Attributes:
        seconds: from its start to its end.
        cpu_seconds: that it computed, which other processes lengthen less.
        peak_mb: most memory that it held.
    """

    seconds: float
    cpu_seconds: float
    peak_mb: float


def run(arguments: Sequence[str]) -> Ran:
    """Run Python with ``arguments`` in a process of its own.

    Raises:
        RuntimeError: it failed; the message holds the end of what it printed.
    """
    with tempfile.TemporaryFile("w+") as output:
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, *arguments], stdout=output, stderr=output)
        _, code, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(code)
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"{' '.join(arguments)} failed:\n{output.read()[-3000:]}")
    return Ran(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


@click.command("analysis")
@measured(pairs=3)
@click.option("--trials", type=click.IntRange(20, 100_000), help="[default: 100,000]")
@click.option("--reports", type=click.IntRange(5), default=20, show_default=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(["transition", "lean"]))
@click.option("--home", "folder", type=click.Path(path_type=Path),
              help="Where the made-up studies are kept for another time.")  # fmt: skip
def command(
    pairs: int,
    quick: bool,
    strict: bool,
    trials: int | None,
    reports: int,
    kinds: tuple[str, ...],
    folder: Path | None,
) -> None:
    """Measure how long a very large study takes to be analysed, reported, shown and listed."""
    began = environment()
    trials = trials or (120 if quick else 100_000)
    found: list[Pairing] = []
    quantities: list[Quantity] = []
    with _home(folder) as home:
        for kind in kinds or ("transition", "lean"):
            name = f"{kind}-{trials}"
            study = _study(home, kind, trials, reports, name)
            pairing, rows = _measure(home, study, kind, 1 if quick else pairs)
            found.append(pairing)
            quantities += rows
    limits = not quick and trials == 100_000
    shown = quantities if limits else [_without_bar(row) for row in quantities]
    conclude(show("analysis", found, began, quantities=shown), strict=strict)


@contextmanager
def _home(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def _study(home: Path, kind: str, trials: int, reports: int, name: str) -> Path:
    """Write the study and its exported tables, unless they are there; return its folder."""
    folder = home / "studies" / name
    if not (folder / "reports.parquet").exists():
        shutil.rmtree(folder, ignore_errors=True)
        # In a process of its own: what this one holds counts as memory of those that it begins.
        run(["-m", "benchmarks.large_studies", str(home), kind, str(trials), str(reports), name])
    return folder


def _measure(home: Path, study: Path, kind: str, pairs: int) -> tuple[Pairing, list[Quantity]]:
    metric, axes = (
        ("nmse", ["heads", "seq_len"])
        if kind == "transition"
        else ("top1", ["heads", "depth", "head_dim"])
    )
    place = ["--home", str(home)]
    analyse = ["-m", "hsweep", "analyze", study.name, "--report", *place]
    runs: dict[str, list[Ran]] = {"ours": [], "theirs": [], "show": [], "list": []}

    def timed(name: str, arguments: Sequence[str]) -> float:
        runs[name].append(run(arguments))
        return runs[name][-1].seconds

    with tempfile.TemporaryDirectory() as out:
        tables = [str(study / f"{name}.parquet") for name in ("trials", "reports")]
        plain = ["-m", BASELINE, *tables, out, "--metric", metric, "--axes", *axes]
        taken = in_turn(lambda: timed("ours", analyse), lambda: timed("theirs", plain), pairs)
        for _ in range(max(3, pairs)):
            timed("show", ["-m", "hsweep", "show", study.name, *place])
            timed("list", ["-m", "hsweep", "list", *place])
    page = (study / "report.html").stat().st_size / 1e6
    pairing = Pairing(
        name=f"{kind}: analysis, from the record to answer and report",
        ours="hsweep analyze --report",
        theirs="pandas, scipy, matplotlib",
        unit="s",
        is_better="less",
        pairs=taken,
        facts={
            name: {
                "cpu_seconds": [round(each.cpu_seconds, 2) for each in found],
                "peak_mb": [round(each.peak_mb) for each in found],
            }
            for name, found in runs.items()
        },
    )
    rows = [
        Quantity(
            f"{kind}: analyse and report, fastest of {pairs}",
            min(ours for ours, _ in taken),
            "s",
            SECONDS,
        ),
        Quantity(
            f"{kind}: memory of it", max(each.peak_mb for each in runs["ours"]), "MB", MEGABYTES
        ),
        *(
            Quantity(
                f"{kind}: hsweep {name}, fastest of {len(runs[name])}",
                min(each.seconds for each in runs[name]),
                "s",
                SHOW_SECONDS,
                facts={"cpu_seconds": [round(each.cpu_seconds, 2) for each in runs[name]]},
            )
            for name in ("show", "list")
        ),
        Quantity(f"{kind}: size of the report", page, "MB"),
    ]
    return pairing, rows


def _without_bar(row: Quantity) -> Quantity:
    return Quantity(row.name, row.value, row.unit, None, row.is_better, row.facts)
