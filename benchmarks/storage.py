"""The copy of a study in an object store: what it takes from training, and how soon it goes on.

The store is a server of S3 (moto) in this process; what is measured is in others. What copying
takes from training is the time that the driver's process computes more, with a large study on
record and reports at a pace that many workers make, than without a storage.
"""

import itertools
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.pairs import Quantity, environment, in_process, in_turn, measured, show
from hsweep.paths import below

SWEEP: Final = "benchmarks/storage_sweep.py"
STUDY: Final = "resumed"
MOST_SHARE: Final = 1.0
"""Per cent of the machine's cores."""
MOST_SECONDS: Final = 30.0
REPORTS_A_SECOND: Final = 20
_KEYS: Final = {
    "AWS_ACCESS_KEY_ID": "benchmark",
    "AWS_SECRET_ACCESS_KEY": "benchmark",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def object_store() -> Iterator[str]:
    """Serve a bucket on this machine; yield the URI of a folder in it."""
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    s3_backends["123456789012"]["aws"].create_bucket("bucket", "us-east-1")
    host, port = server.get_host_and_port()
    try:
        query = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
        yield f"s3://bucket/hsweep?{query}"
    finally:
        server.stop()


def record(home: str, trials: str, seconds: str, storage: str) -> None:
    """Record reports of a study for some seconds, with a copy in a storage or, if that is empty,
    without; print the seconds computed meanwhile, and the longest that a report took."""
    from rich.console import Console

    from benchmarks.large_studies import write_study
    from hsweep.design.trial import Report
    from hsweep.paths import Home
    from hsweep.record.mirror import mirroring

    study = write_study(Home(Path(home)).create(), "lean", int(trials), 20, "copied")
    study.manifest = replace(study.manifest, storage=storage or None)
    with study.writer() as journal, mirroring(study, journal, {}, Console(stderr=True)):
        key = journal.trials()[0].key
        began, computed, longest = time.monotonic(), time.process_time(), 0.0
        for number in range(int(float(seconds) * REPORTS_A_SECOND)):
            time.sleep(max(0.0, began + number / REPORTS_A_SECOND - time.monotonic()))
            at = time.perf_counter()
            report = Report(100 + number, number, {"top1": 0.5, "loss": 0.5}, 1.0, is_last=False)
            journal.record(key, 1, report)
            longest = max(longest, time.perf_counter() - at)
        computed = time.process_time() - computed
        problem = journal.lease.copy_problem if journal.lease is not None else ""
    print(json.dumps({"computed": computed, "longest": longest, "problem": problem}))


def taken_from_training(storage: str, pairs: int, trials: int, seconds: float) -> list[Quantity]:
    """Measure how much more a driver computes that copies its record, in turn."""
    longest: list[float] = []
    numbers = itertools.count()

    def computed(place: str) -> float:
        with tempfile.TemporaryDirectory() as home:
            words = ("-m", "benchmarks.storage", home, str(trials), str(seconds), place)
            result = in_process(words, variables=_KEYS).result
        assert not result["problem"], result
        longest.extend([1000 * result["longest"]] if place else [])
        return float(result["computed"])

    values = in_turn(
        lambda: computed(below(storage, f"{next(numbers)}")), lambda: computed(""), pairs
    )
    core_seconds = seconds * len(os.sched_getaffinity(0))
    shares = sorted(100 * (ours - theirs) / core_seconds for ours, theirs in values)
    name = f"{trials:,} trials on record, {REPORTS_A_SECOND} reports/s"
    facts: dict[str, Any] = {"computed": values, "shares": shares, "seconds": seconds}
    return [
        Quantity(
            f"copying: of the cores' time, {name}", shares[len(shares) // 2], "%", MOST_SHARE,
            facts=facts,
        ),
        Quantity("copying: longest time that a report took", max(longest), "ms"),
    ]  # fmt: skip


def resumed(storage: str, trials: int, seconds: float) -> list[Quantity]:
    """Measure from the command that goes on with a study from its copy to the next report; before
    that it has trained for some seconds."""
    import pyarrow.parquet as pq

    from hsweep.record.mirror import stored_studies

    options = ("--no-dashboard", "--tracking-uri")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        store = f"sqlite:///{folder / 'mlflow.db'}"
        for verb, home, budget, rest in (
            ("run", "lost", seconds, (SWEEP, "--storage", storage, "--set", f"num_points={trials}",
                             "--no-reuse", "--study", STUDY)),
            ("resume", "other", 5.0, (STUDY, "--from", storage)),
        ):  # fmt: skip
            began = time.time()
            # It ends while some are left, and soon after it has gone on.
            where = ("--home", str(folder / home), "--time-budget", f"{budget:g}s")
            ended = in_process(
                ["-m", "hsweep", verb, *rest, *where, *options, store], variables=_KEYS
            )
        [study] = stored_studies(storage)
        table = pq.read_table(folder / "other" / "studies" / STUDY / "reports.parquet")
    times = [moment for moment in table["time"].to_pylist() if moment > began]
    # Of a few trials none may be left.
    first = min(times, default=began + ended.seconds) - began
    facts = {**ended.facts(), "reports": len(table), "new_reports": len(times), "status": study}
    name = f"resume --from of {trials:,} trials, to its first report"
    return [Quantity(name, first, "s", MOST_SECONDS, facts=facts)]


@click.command("storage")
@measured(pairs=3)
def command(pairs: int, quick: bool, strict: bool) -> None:
    """Measure what copying a study into an object store takes, and going on from there."""
    about = environment()
    os.environ |= _KEYS
    trials, seconds = (20, 3.0) if quick else (10_000, 60.0)
    with object_store() as storage:
        rows = taken_from_training(storage, 1 if quick else pairs, trials, seconds)
        rows += resumed(below(storage, "resumed"), *((100, 120.0) if quick else (10_000, 30.0)))
    show("storage", [], about, quantities=rows, strict=strict)


if __name__ == "__main__":
    record(*sys.argv[1:])
