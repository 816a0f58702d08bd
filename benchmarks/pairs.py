"""Two sides measured in turn: the ratio of every pair, the bar, one table and one line of JSON.

A time alone says little on a machine that others use too. The two sides of a pair run right after
one another, so what slows the machine down slows both, and the median of the pairs' ratios stands.
"""

import contextlib
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import click
import psutil

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("torch", "ray", "mlflow", "optuna", "timm", "transformers", "numpy", "pyarrow")


@dataclass(frozen=True, slots=True)
class Pairing:
    """Our side beside another, measured in turn.

    Attributes:
        name: what was measured.
        ours: what our side is.
        theirs: what the other side is.
        unit: unit of both values.
        is_better: whether less or more of it is better.
        pairs: value of our side and of the other, of each pair.
        bar: least ratio to reach; ``None`` where there is none.
        facts: whatever else belongs to the figures, JSON-ready.
    """

    name: str
    ours: str
    theirs: str
    unit: str
    is_better: Literal["less", "more"]
    pairs: tuple[tuple[float, float], ...]
    bar: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError(f"{self.name}: there must be at least one pair")
        for pair in self.pairs:
            if not all(math.isfinite(value) and value > 0 for value in pair):
                raise ValueError(f"{self.name}: both values must be above 0, these are {pair}")

    @property
    def ratios(self) -> tuple[float, ...]:
        """How many times better our side is, in each pair."""
        if self.is_better == "less":
            return tuple(theirs / ours for ours, theirs in self.pairs)
        return tuple(ours / theirs for ours, theirs in self.pairs)

    @property
    def ratio(self) -> float:
        """Median of the pairs' ratios; above 1, our side is better."""
        return statistics.median(self.ratios)

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest ratio of a pair."""
        return min(self.ratios), max(self.ratios)

    @property
    def holds(self) -> bool:
        """Whether the bar is reached, or there is none."""
        return self.bar is None or self.ratio >= self.bar

    def to_json(self) -> dict[str, Any]:
        """Return the pairing as plain JSON content."""
        figures = {"ratio": self.ratio, "range": self.range, "holds": self.holds}
        return {**asdict(self), **figures}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure whose bar is no ratio of two sides (a share, a size, a time with a fixed limit).

    Attributes:
        name: what was measured.
        value: its value.
        unit: its unit.
        bar: most it may be where less is better, least it must be where more is.
        is_better: whether less or more of it is better.
        facts: whatever else belongs to the figure, JSON-ready.
    """

    name: str
    value: float
    unit: str
    bar: float | None = None
    is_better: Literal["less", "more"] = "less"
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the bar is reached, or there is none."""
        if self.bar is None:
            return True
        return self.value <= self.bar if self.is_better == "less" else self.value >= self.bar

    def to_json(self) -> dict[str, Any]:
        """Return the quantity as plain JSON content."""
        return {**asdict(self), "holds": self.holds}


def in_turn(
    ours: Callable[[], float], theirs: Callable[[], float], pairs: int
) -> tuple[tuple[float, float], ...]:
    """Measure both sides ``pairs`` times, one right after the other.

    The second pair begins with the other side, so that neither always comes first.

    Args:
        ours: measures our side once and returns the value.
        theirs: the same for the other side.
        pairs: how many pairs.

    Returns:
        The value of our side and of the other, of each pair.
    """
    if pairs < 1:
        raise ValueError(f"there must be at least 1 pair, not {pairs}")
    values = []
    for number in range(pairs):
        if number % 2 == 0:
            our_value, their_value = ours(), theirs()
        else:
            their_value, our_value = theirs(), ours()
        values.append((our_value, their_value))
    return tuple(values)


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that came to its end.

    Attributes:
        seconds: from its start to its end.
        cpu_seconds: computed by it and by its children that it waited for.
        peak_mb: the most memory that it or one of them held, MB.
        output: what it printed on standard output.
    """

    seconds: float
    cpu_seconds: float
    peak_mb: float
    output: str

    @property
    def result(self) -> dict[str, Any]:
        """JSON object on the last line of the output."""
        found: dict[str, Any] = json.loads(self.output.strip().splitlines()[-1])
        return found

    def facts(self) -> dict[str, float]:
        """Return what it took beside the time by the clock, rounded."""
        return {"cpu_seconds": round(self.cpu_seconds, 2), "peak_mb": round(self.peak_mb, 1)}


def in_process(arguments: Sequence[str], *, variables: Mapping[str, str] | None = None) -> Ended:
    """Run Python with ``arguments`` in a process of its own at the root of the tree.

    Args:
        arguments: what follows ``python`` (``["-m", "benchmarks.baselines.x", ...]``).
        variables: set in its environment, beside our own.

    Raises:
        RuntimeError: it failed; the message holds the end of what it printed.
    """
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as output,
        tempfile.TemporaryFile("w+", encoding="utf-8") as messages,
    ):
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})},
            stdout=output,
            stderr=messages,
            encoding="utf-8",
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (output, messages):
            file.seek(0)
            texts.append(file.read())
    if process.returncode != 0:
        tail = "\n".join(texts).strip()[-3000:]
        raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}:\n{tail}")
    return Ended(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, texts[0])


def environment() -> dict[str, Any]:
    """Return what the figures depend on: versions, processor, cores, memory, threads, load."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    about = Path("/proc/cpuinfo")
    lines = about.read_text("utf-8").splitlines() if about.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "versions": versions,
        "cpu": next(models, platform.processor() or "unknown"),
        "cores": len(psutil.Process().cpu_affinity() or []),
        "memory_gb": round(psutil.virtual_memory().total / 1024**3, 1),
        "omp_threads": os.environ.get("OMP_NUM_THREADS", "not set"),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def show(
    title: str,
    pairings: Sequence[Pairing],
    environment: Mapping[str, Any],
    *,
    quantities: Sequence[Quantity] = (),
    strict: bool = False,
) -> None:
    """Print what was measured: one table, then one line of JSON.

    Args:
        title: name of the benchmark.
        pairings: what was measured beside another side.
        environment: from :func:`environment`, taken before the first measurement.
        quantities: figures whose bar is no ratio.
        strict: end the process with 1 if a bar is missed.
    """
    rows: list[Pairing | Quantity] = [*pairings, *quantities]
    holds = all(row.holds for row in rows)
    click.echo(f"{title}: {_described(environment)}\n")
    click.echo(HEADER)
    for line in table_rows([row.to_json() for row in rows]):
        click.echo(line)
    click.echo()
    click.echo(
        json.dumps(
            {
                "benchmark": title,
                "holds": holds,
                "environment": dict(environment),
                "pairings": [pairing.to_json() for pairing in pairings],
                "quantities": [quantity.to_json() for quantity in quantities],
            },
            default=str,
        )
    )
    if strict and not holds:
        sys.exit(1)


HEADER = "| measured | ours | theirs | ratio | range | bar | |\n|" + " --- |" * 7


def table_rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the table for rows as :meth:`Pairing.to_json` gives them."""
    return [_pairing_row(row) if "pairs" in row else _quantity_row(row) for row in rows]


def _pairing_row(row: Mapping[str, Any]) -> str:
    ours, theirs = (
        statistics.median(pair[side] for pair in row["pairs"]) for side in (0, 1)
    )  # fmt: skip
    unit, (low, high) = row["unit"], row["range"]
    bar = "" if row["bar"] is None else f"at least {row['bar']:g}x"
    return (
        f"| {row['name']} | {row['ours']}: {ours:.4g} {unit} | {row['theirs']}: {theirs:.4g} {unit}"
        f" | {_times(row['ratio'])} | {_times(low)} to {_times(high)} ({len(row['pairs'])})"
        f" | {bar} | {'' if row['holds'] else 'missed'} |"
    )


def _quantity_row(row: Mapping[str, Any]) -> str:
    unit = f" {row['unit']}" if row["unit"] else ""
    bar = ""
    if row["bar"] is not None:
        bar = f"{'at most' if row['is_better'] == 'less' else 'at least'} {row['bar']:g}{unit}"
    mark = "" if row["holds"] else "missed"
    return f"| {row['name']} | {row['value']:.4g}{unit} | | | | {bar} | {mark} |"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.1f}x"


def _described(environment: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return (
        f"{environment['cpu']}, {environment['cores']} cores, {environment['memory_gb']} GB,"
        f" OMP threads: {environment['omp_threads']},"
        f" load average at the start: {environment['load_average'][0]}; {versions}"
    )


def measured(pairs: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a click command the options that every benchmark has.

    Args:
        pairs: how many pairs it measures unless told.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        number = click.option(
            "--pairs",
            type=click.IntRange(1),
            default=pairs,
            show_default=True,
            help="How often both sides are measured, in turn.",
        )
        tiny = click.option("--quick", is_flag=True, help="See that it works: tiny, no claims.")
        bars = click.option("--strict", is_flag=True, help="Exit with 1 if a bar is missed.")
        return number(tiny(bars(command)))

    return decorate
