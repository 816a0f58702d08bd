"""A study, made up, delivered from its record to MLflow; how long that takes.

    python -m benchmarks.delivery sqlite:////tmp/mlflow.db --trials 40 --reports 20

The last line of the output is JSON: the metrics the trials reported, and the seconds from the first
request to the last answer (``import mlflow`` is over before).

With ``--live 10`` the reports come in as those of trials of 10 s do, two trials at once, while the
tracker of a running study delivers them: then the JSON has the CPU seconds of its thread, those for
import and connection apart, and the seconds that the study took.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from hsweep.design.trial import Report, TrialStatus
from hsweep.record.journal import Journal, TrialRow
from hsweep.tracking import tracker
from hsweep.tracking.delivery import Delivery
from hsweep.tracking.names import STUDY_ID
from hsweep.tracking.store import connect
from hsweep.tracking.study import TrackedStudy
from hsweep.tracking.target import TrackingTarget
from hsweep.tracking.tracker import Tracker

STUDY: Final = TrackedStudy("made-up", {STUDY_ID: "made-up"}, "metric_0")
AXES = "abcdef"
COUNTS = {"num_params": 10, "flops_per_example": 20, "train_memory_bytes": 30}


def make_record(path: Path, trials: int, reports: int, metrics: int, seconds: float = 0.0) -> None:
    """Write the record of a study whose trials have all finished, trained two at once.

    Args:
        path: of the record.
        trials: how many.
        reports: of each trial.
        metrics: of each report.
        seconds: that each trial takes.
    """
    with Journal(path, create=True) as journal:
        keys = [f"{number:020x}" for number in range(trials)]
        journal.add_trials(
            TrialRow(key, n, dict.fromkeys(AXES, n / trials), n % 3, "", reports, COUNTS)
            for n, key in enumerate(keys)
        )
        for first in range(0, trials, 2):
            pair = keys[first : first + 2]
            for key in pair:
                journal.begin_attempt(key)
            for unit in range(1, reports + 1):
                time.sleep(seconds / reports)
                for key in pair:
                    values = {f"metric_{n}": 1 / (unit + n) for n in range(metrics)}
                    is_last = unit == reports
                    journal.record(
                        key,
                        1,
                        Report(unit, 10 * unit, values, 0.5 * unit, is_last),
                        values["metric_0"],
                        TrialStatus.FINISHED if is_last else TrialStatus.RUNNING,
                    )


class Clocked(Tracker):
    """A tracker, its thread with a watch."""

    connecting = 0.0
    all_in_all = 0.0

    def _serve(self) -> None:
        super()._serve()
        Clocked.all_in_all = time.thread_time()


class ClockedDelivery(Delivery):
    """A connection that knows what it took to make it."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        before = time.thread_time()
        super().__init__(*arguments, **more)
        Clocked.connecting += time.thread_time() - before


def deliver_live(
    path: Path, target: TrackingTarget, trials: int, reports: int, metrics: int, seconds: float
) -> dict[str, float]:
    """Record a study at its pace beside its tracker, and return what that computed."""
    vars(tracker)["Delivery"] = ClockedDelivery
    make_record(path, 0, reports, metrics)
    serving = Clocked(path, target, STUDY)
    began = time.perf_counter()
    serving.start()
    make_record(path, trials, reports, metrics, seconds)
    taken = time.perf_counter() - began
    summary = serving.close(wait_seconds=120)
    if not summary.is_complete:
        raise RuntimeError(f"not all was delivered: {summary}")
    return {
        "seconds": taken,
        "connecting_cpu_seconds": Clocked.connecting,
        "delivering_cpu_seconds": Clocked.all_in_all - Clocked.connecting,
    }


def main() -> None:
    """Make the record and deliver it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("uri")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--reports", type=int, default=20)
    parser.add_argument("--metrics", type=int, default=4)
    parser.add_argument("--live", type=float, metavar="SECONDS", help="How long a trial takes.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        target = TrackingTarget(asked.uri, None, f"ours-{time.time_ns()}")
        if asked.live is not None:
            sizes = asked.trials, asked.reports, asked.metrics
            print(json.dumps(deliver_live(path, target, *sizes, asked.live)))
            return
        make_record(path, asked.trials, asked.reports, asked.metrics)
        connect(target)
        began = time.perf_counter()
        summary = Tracker(path, target, STUDY).sync()
        seconds = time.perf_counter() - began
    if not summary.is_complete:
        raise RuntimeError(f"not all was delivered: {summary}")
    metrics = asked.trials * asked.reports * asked.metrics
    print(json.dumps({"metrics": metrics, "seconds": seconds}))


if __name__ == "__main__":
    main()
