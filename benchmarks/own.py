"""What a trial of a user's own function costs beside calling the function."""

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

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
from benchmarks.studies import ends_in, log_of, reports_in

if TYPE_CHECKING:
    from hsweep.record.rows import LogRow

SWEEP: Final = Path(__file__).with_name("own_sweep.py")
TRIAL_SECONDS: Final = 10.0
UNITS: Final = 100
REPORTS: Final = 10_000
_MOST_OVERHEAD: Final = 0.02
_REPORTS_A_SECOND: Final = 1000.0


@click.command("own")
@measured(pairs=3)
def command(pairs: int, quick: bool, strict: bool) -> None:
    """Measure a trial of one's own function beside the function, and how fast it can report."""
    about = environment()
    units, reports, seconds = (10, 100, 0.2) if quick else (UNITS, REPORTS, TRIAL_SECONDS)
    updates = _updates_for(seconds / units)
    facts: dict[str, Any] = {"updates": updates, "reports": units, "load": []}
    outside: list[float] = []

    def in_study() -> float:
        facts["load"].append(round(os.getloadavg()[0], 2))
        log = _log("ray", [f"steps={units}", f"updates={updates}", "replicates=2"])
        first, second = ends_in(log)
        outside.append(second - first - reports_in(log)[-1].payload["metrics"]["own_seconds"])
        return second - first

    found = in_turn(in_study, lambda: _called(units, updates)["seconds"], pairs)
    pairing = Pairing(
        name=f"a function of {seconds:g} s with {units} reports and {units // 10} checkpoints",
        ours="as a trial, the trial before it over",
        theirs="called",
        unit="s",
        is_better="less",
        pairs=found,
        bar=None if quick else 1 / (1 + _MOST_OVERHEAD),
        facts=facts,
    )
    rates = [
        Quantity(
            name=f"{reports:,} reports of one trial until the last is on record, {runner}",
            value=_rate(runner, reports),
            unit="reports a second",
            bar=None if quick else _REPORTS_A_SECOND,
            is_better="more",
        )
        for runner in ("ray", "inline")
    ]
    rest = Quantity(
        name="of such a trial, what is not the function's own time (median)",
        value=median(outside),
        unit="s",
    )
    conclude(show("own", [pairing], about, quantities=[rest, *rates]), strict=strict)


def _called(units: int, updates: int) -> dict[str, float]:
    arguments = ["-m", "benchmarks.own_sweep", str(units), str(updates)]
    return in_process(arguments, variables={"OMP_NUM_THREADS": "1"}).result


def _updates_for(seconds: float) -> int:
    """Return how many updates take so long here."""
    sample = 500
    return max(1, round(sample * seconds / (_called(10, sample)["cpu_seconds"] / 10)))


def _rate(runner: str, reports: int) -> float:
    reported = [entry.time for entry in reports_in(_log(runner, [f"steps={reports}"]))]
    assert len(reported) == reports
    return (reports - 1) / (reported[-1] - reported[0])


def _log(runner: str, settings: Sequence[str]) -> "list[LogRow]":
    """Run the study in a process of its own, one trial at a time."""
    options = ["--runner", runner, *(["--max-concurrent", "1"] if runner == "ray" else [])]
    return log_of(SWEEP, settings, options, {"OMP_NUM_THREADS": "1"})
