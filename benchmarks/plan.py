"""Planning: the sweeps that come with the tool, and ten thousand shapes.

Data are looked for in an empty folder, so that none are read: that takes what reading takes.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.pairs import (
    ROOT,
    Ended,
    Quantity,
    environment,
    in_process,
    measured,
    show,
)

HEAD_COUNT: Final = "benchmarks/head_count.py"
MANY: Final = ",".join(map(str, range(1, 101)))
"""Values of both of its axes that make ten thousand shapes."""
PRESET: Final = "paper"
MOST_SECONDS: Final = 20.0
"""For one sweep's preset."""
MOST_SECONDS_FOR_MANY: Final = 60.0


def planned(sweep: Path | str, *options: str) -> tuple[Ended, dict[str, Any]]:
    """Return what ``hsweep plan`` takes, and what it prints."""
    with tempfile.TemporaryDirectory(prefix="hsweep-plan-") as folder:
        places = ("--home", folder, "--data-root", folder)
        ended = in_process(["-m", "hsweep", "plan", str(sweep), *options, "--json", *places])
    return ended, json.loads(ended.output)


def row(sweep: Path | str, bar: float, times: int, *options: str) -> Quantity:
    """Return the time of a plan, the fastest of some."""
    load = round(os.getloadavg()[0], 2)
    runs = [planned(sweep, *options) for _ in range(times)]
    fastest, plan = min(runs, key=lambda run: run[0].seconds)
    totals = plan["totals"]
    name = f"{Path(sweep).stem}: {totals['points']} points, {totals['trials']} trials"
    if plan["data_problems"]:
        name += ", data not there"
    return Quantity(name, fastest.seconds, "s", bar, facts={**fastest.facts(), "load": load})


@click.command("plan")
@measured(pairs=1)
def command(pairs: int, quick: bool, strict: bool) -> None:
    """Measure how long plans take, each in a process of its own."""
    about = environment()
    if quick:
        rows = [row("sweeps/retrieval_heads.py", MOST_SECONDS, 1, "--preset", "smoke")]
    else:
        sweeps = sorted((ROOT / "sweeps").glob("[a-z]*.py"))
        rows = [row(sweep, MOST_SECONDS, pairs, "--preset", PRESET) for sweep in sweeps]
        many = ("--set", f"heads={MANY}", "--set", f"seq_len={MANY}", "--set", "replicates=1")
        rows.append(row(HEAD_COUNT, MOST_SECONDS_FOR_MANY, pairs, *many))
    show("plan", [], about, quantities=rows, strict=strict)
