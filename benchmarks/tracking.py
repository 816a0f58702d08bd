"""Metrics into MLflow beside Ray's callback, and what tracking costs the training.

Speed: our side delivers the record of a finished study, each trial's run created, its parameters
and tags set and its end noted; the other side is Ray Tune with its MLflowLoggerCallback, of which
only the time inside the callback counts. Neither side's import of MLflow counts. Counted are the
metrics that the trials reported. Ray's callback also writes numbers of its own as metrics (times,
the iteration, the process id, the configuration once more at each report); a second row counts
those on its side, and still only the reported ones on ours.

Cost: the tracker of a study serves trials of 10 s, two at once with 20 reports each, and the CPU
time of its thread is set beside the time that its cores had for training: where every core trains,
tracking slows training by that share. Importing MLflow and opening the store, once a run, stands in
a row of its own. Then whole studies run with tracking and without, in turn, from the first trial's
start to the last one's end; on a machine that others use such times vary by more than tracking
costs, as two runs without tracking show.
"""

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

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

STUDY_SWEEP: Final = Path(__file__).with_name("idle_sweep.py")
_START_SECONDS: Final = 180.0


@click.command("tracking")
@measured(pairs=3)
@click.option("--part", type=click.Choice(["all", "speed", "cost", "studies"]), default="all",
              show_default=True, help="What to measure.")  # fmt: skip
def command(pairs: int, quick: bool, strict: bool, part: str) -> None:
    """Measure metrics a second into MLflow, and what tracking costs the training."""
    about = environment()
    pairings: list[Pairing] = []
    quantities: list[Quantity] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if part in ("all", "speed"):
            pairings += _speed(folder, 1 if quick else pairs, quick)
        if part in ("all", "cost"):
            quantities += _live(folder, quick)
        if part in ("all", "studies"):
            quantities += _studies(folder, 1 if quick else pairs, quick)
    holds = show("tracking", pairings, about, quantities=quantities)
    conclude(holds, strict=strict)


def _speed(folder: Path, pairs: int, quick: bool) -> list[Pairing]:
    empty = _empty_store(folder)
    file = Path(shutil.copy(empty, folder / "direct.db"))
    found = _compared("SQLite", f"sqlite:///{file}", pairs, quick)
    with _server(Path(shutil.copy(empty, folder / "served.db"))) as uri:
        found += _compared("a server over HTTP", uri, pairs, quick)
    return found


def _compared(where: str, uri: str, pairs: int, quick: bool) -> list[Pairing]:
    ours, theirs, reports = (40, 2, 20) if not quick else (2, 1, 2)
    facts: dict[str, Any] = {
        "our_trials": ours, "their_trials": theirs, "reports_a_trial": reports,
        "metrics_a_report": 4, "load": [],
    }  # fmt: skip
    their_rows: list[float] = []

    def our_rate() -> float:
        facts["load"].append(round(os.getloadavg()[0], 2))
        sizes = ["--trials", str(ours), "--reports", str(reports)]
        content = in_process(["-m", "benchmarks.delivery", uri, *sizes]).result
        return float(content["metrics"] / content["seconds"])

    def their_rate() -> float:
        sizes = ["--trials", str(theirs), "--reports", str(reports)]
        content = in_process(["-m", "benchmarks.baselines.ray_mlflow", uri, *sizes]).result
        their_rows.append(content["rows"] / content["seconds"])
        return float(content["metrics"] / content["seconds"])

    rates = in_turn(our_rate, their_rate, pairs)
    other = "Ray's MLflowLoggerCallback"
    return [
        Pairing(
            name=f"reported metrics into {where}",
            ours="hsweep",
            theirs=other,
            unit="metrics/s",
            is_better="more",
            pairs=rates,
            bar=20.0,
            facts=facts,
        ),
        Pairing(
            name=f"into {where}, Ray's own numbers counted",
            ours="hsweep",
            theirs=other,
            unit="metrics/s",
            is_better="more",
            pairs=tuple((ours, rows) for (ours, _), rows in zip(rates, their_rows, strict=True)),
        ),
    ]


def _live(folder: Path, quick: bool) -> list[Quantity]:
    """Return what the tracker computes beside a study of trials of 10 s."""
    file = Path(shutil.copy(_empty_store(folder), folder / "live.db"))
    sizes = ["--live", "1", "--trials", "2"] if quick else ["--live", "10", "--trials", "12"]
    found = in_process(["-m", "benchmarks.delivery", f"sqlite:///{file}", *sizes]).result
    cores = len(os.sched_getaffinity(0))
    share = found["delivering_cpu_seconds"] / (cores * found["seconds"])
    return [
        Quantity("CPU time of tracking, of all cores, trials of 10 s", 100 * share, "%", bar=2.0,
                 facts=found),
        Quantity("CPU time to import MLflow and open the store, once a run",
                 found["connecting_cpu_seconds"], "s"),
    ]  # fmt: skip


def _studies(folder: Path, pairs: int, quick: bool) -> list[Quantity]:
    epochs = 3
    options = ["--set", "heads=1,2", "--set", "replicates=2", "--set", "seq_len=32"]
    if not quick:
        epochs = int(in_process(["-m", "benchmarks.idle"]).result["epochs"])
        options = ["--set", "heads=2,3,4,5", "--set", "replicates=6", "--set", "seq_len=32"]
    store = _empty_store(folder)
    number = 0
    shares: list[float] = []
    facts: dict[str, Any] = {"epochs": epochs, "load": [], "runs": []}

    def timed(which: str) -> float:
        nonlocal number
        number += 1
        home = folder / f"home-{number}"
        (home / "mlflow").mkdir(parents=True)
        shutil.copy(store, home / "mlflow" / "mlflow.db")
        facts["load"].append(round(os.getloadavg()[0], 2))
        file, spans = folder / f"facts-{number}.json", folder / f"spans-{number}"
        spans.mkdir()
        in_process(
            [
                *("-m", "benchmarks.clocked_run", str(file), which, str(STUDY_SWEEP)),
                *("--home", str(home), "--study", "cost", "--no-reuse"),
                *("--set", f"epochs={epochs}", *options),
            ],
            variables={"HSWEEP_SPANS": str(spans)},
        )
        seconds = _training_seconds(home)
        content = json.loads(file.read_text())
        content["worker_seconds"] = sum(
            json.loads(path.read_text().splitlines()[-1])[-1] for path in spans.iterdir()
        )
        facts["runs"].append({"which": which, "seconds": round(seconds, 2), **content})
        if which == "with":
            shares.append(content["tracker_seconds"] / content["worker_seconds"])
        return seconds

    slower = [with_it / without - 1 for with_it, without in in_turn(
        lambda: timed("with"), lambda: timed("without"), pairs
    )]  # fmt: skip
    same = [a / b - 1 for a, b in in_turn(
        lambda: timed("without"), lambda: timed("without"), 1 if quick else max(1, pairs - 1)
    )]  # fmt: skip
    facts["noise_percent"] = [round(100 * each, 2) for each in same]
    facts["pairs_percent"] = [round(100 * each, 2) for each in slower]
    return [
        Quantity("the tracker's CPU time beside that of the workers, start included",
                 100 * max(shares), "%",
                 facts={"all": [round(100 * share, 3) for share in shares]}),
        Quantity("training time with tracking over without, median of pairs",
                 100 * statistics.median(slower), "% more", facts=facts),
        Quantity("the same of two runs without tracking (noise), largest",
                 100 * max(map(abs, same)), "%"),
    ]  # fmt: skip


def _training_seconds(home: Path) -> float:
    from hsweep.record.journal import Journal

    with Journal(home / "studies" / "cost" / "journal.db", read_only=True) as journal:
        times = [entry.time for entry in journal.log()]
    return times[-1] - times[0]


def _empty_store(folder: Path) -> Path:
    """Return a SQLite store without a run: making its tables takes seconds, once a machine."""
    file = folder / "empty.db"
    if not file.exists():
        program = (
            "import sys; from hsweep.tracking.store import initialise_database;"
            "from hsweep.tracking.target import TrackingTarget;"
            "initialise_database(TrackingTarget('sqlite:///' + sys.argv[1], None, 'none'))"
        )
        in_process(["-c", program, str(file)])
    return file


@contextmanager
def _server(file: Path) -> Iterator[str]:
    """Serve a SQLite store over HTTP on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    artifacts = (file.parent / "artifacts").as_uri()
    log = file.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "mlflow", "server", "--port", str(port)),
                *("--workers", "1", "--backend-store-uri", f"sqlite:///{file}"),
                *("--artifacts-destination", artifacts),
            ],
            env={
                **os.environ,
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                "MLFLOW_DISABLE_TELEMETRY": "true",
            },
            cwd=file.parent,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        uri = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not _answers(uri):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start:\n{log.read_text()[-2000:]}")
                time.sleep(0.2)
            yield uri
        finally:
            os.killpg(process.pid, 15)
            process.wait(60)


def _answers(uri: str) -> bool:
    try:
        with urllib.request.urlopen(f"{uri}/health", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(command())
