"""Metrics a second into MLflow (SQLite) beside Ray Tune's callback.

Our side is `hsweep sync` of a made-up finished study: each trial's run is created, its parameters
and tags set, its metrics logged and its end noted. What the command takes besides (imports, opening
the store) is taken out by the same command on a study of a few trials. The other side is Ray Tune
with its MLflowLoggerCallback, of which only the time inside the callback counts. Counted are the
metrics that the trials reported; a second row counts on its side the numbers of Ray's own, too,
which the callback writes as metrics (times, the iteration, the process id, the configuration).
"""

import os
import tempfile
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.pairs import Pairing, conclude, environment, in_process, in_turn, measured, show

THEIRS: Final = "Ray's MLflowLoggerCallback"
METRICS: Final = 2
"""Of each report of a made-up study; the other side reports as many."""


@click.command("tracking")
@measured(pairs=3)
def command(pairs: int, quick: bool, strict: bool) -> None:
    """Measure metrics a second into MLflow."""
    about = environment()
    few, many, theirs, reports = (2, 6, 1, 5) if quick else (4, 84, 2, 40)
    facts: dict[str, Any] = {
        "our_trials": many - few, "their_trials": theirs, "reports_a_trial": reports, "load": [],
    }  # fmt: skip
    their_rows: list[float] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for trials in (few, many):
            options = (str(folder), "lean", str(trials), str(reports), f"made-up-{trials}")
            in_process(["-m", "benchmarks.large_studies", *options])

        def delivery(trials: int) -> float:
            store = folder / f"{trials}-{len(facts['load'])}.db"
            where = ("--home", str(folder), "--tracking-uri", f"sqlite:///{store}")
            return in_process(["-m", "hsweep", "sync", f"made-up-{trials}", *where]).seconds

        def our_rate() -> float:
            facts["load"].append(round(os.getloadavg()[0], 2))
            return (many - few) * reports * METRICS / (delivery(many) - delivery(few))

        def their_rate() -> float:
            uri = f"sqlite:///{folder / 'theirs.db'}"
            sizes = ("--trials", str(theirs), "--reports", str(reports), "--metrics", str(METRICS))
            ended = in_process(["-m", "benchmarks.baselines.ray_mlflow", uri, *sizes]).result
            their_rows.append(ended["rows"] / ended["seconds"])
            return float(ended["metrics"] / ended["seconds"])

        rates = in_turn(our_rate, their_rate, 1 if quick else pairs)
    rows = tuple((ours, rows) for (ours, _), rows in zip(rates, their_rows, strict=True))
    bar = None if quick else 20.0
    pairings = [
        Pairing("reported metrics into SQLite", "hsweep sync", THEIRS, "metrics/s", "more", rates,
                bar, facts),
        Pairing("the same, Ray's own numbers counted", "hsweep sync", THEIRS, "metrics/s", "more",
                rows),
    ]  # fmt: skip
    conclude(show("tracking", pairings, about), strict=strict)
