"""Metrics a second into MLflow (SQLite) beside Ray Tune's callback.

Our side is `hsweep sync` of a made-up finished study: each trial's run is created, its parameters
and tags set, its metrics logged and its end noted. What the command takes besides (imports, opening
the store) is taken out by the same command on a study of a few trials. The other side is Ray Tune
with its MLflowLoggerCallback, of which only the time inside the callback counts. Counted are the
metrics that the trials reported, not the numbers of Ray's own that the callback writes as well.
"""

import itertools
import os
import tempfile
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.pairs import Pairing, environment, in_process, in_turn, measured, show

METRICS: Final = 2
"""Of each report of a made-up study; the other side reports as many."""


@click.command("tracking")
@measured(pairs=3)
def command(pairs: int, quick: bool, strict: bool) -> None:
    """Measure metrics a second into MLflow."""
    about = environment()
    few, many, theirs, reports = (2, 62, 1, 40) if quick else (4, 84, 2, 40)
    facts: dict[str, Any] = {
        "our_trials": many - few, "their_trials": theirs, "reports_a_trial": reports, "load": [],
    }  # fmt: skip
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for trials in (few, many):
            options = (str(folder), "lean", str(trials), str(reports), f"made-up-{trials}")
            in_process(["-m", "benchmarks.large_studies", *options])

        def delivery(trials: int) -> float:
            store = folder / f"{next(numbers)}.db"
            where = ("--home", str(folder), "--tracking-uri", f"sqlite:///{store}")
            return in_process(["-m", "hsweep", "sync", f"made-up-{trials}", *where]).seconds

        delivery(few)  # The first store of a machine has its tables made, which others copy.

        def our_rate() -> float:
            facts["load"].append(round(os.getloadavg()[0], 2))
            return (many - few) * reports * METRICS / (delivery(many) - delivery(few))

        def their_rate() -> float:
            uri = f"sqlite:///{folder / 'theirs.db'}"
            sizes = map(str, (theirs, reports, METRICS))
            ended = in_process(["-m", "benchmarks.baselines.ray_mlflow", uri, *sizes])
            return theirs * reports * METRICS / float(ended.result["seconds"])

        rates = in_turn(our_rate, their_rate, 1 if quick else pairs)
    pairing = Pairing(
        name="reported metrics into SQLite",
        ours="hsweep sync",
        theirs="Ray's MLflowLoggerCallback",
        unit="metrics/s",
        is_better="more",
        pairs=rates,
        bar=None if quick else 20.0,
        facts=facts,
    )
    show("tracking", [pairing], about, strict=strict)
