"""A finished study, made up, delivered from its record to MLflow; how long that takes.

    python -m benchmarks.delivery sqlite:////tmp/mlflow.db --trials 40 --reports 20

The last line of the output is JSON: the metrics the trials reported, and the seconds from the first
request to the last answer (``import mlflow`` is over before).
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from hsweep.design.trial import Report, TrialStatus
from hsweep.record.journal import Journal, TrialRow
from hsweep.tracking.store import connect
from hsweep.tracking.target import TrackingTarget
from hsweep.tracking.tracker import sync

AXES = "abcdef"
COUNTS = {"num_params": 10, "flops_per_example": 20, "train_memory_bytes": 30}


def make_record(path: Path, trials: int, reports: int, metrics: int) -> None:
    """Write the record of a study whose trials have all finished, trained two at once."""
    with Journal(path, create=True, is_copied=False) as journal:
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


def main() -> None:
    """Make the record and deliver it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("uri")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--reports", type=int, default=20)
    parser.add_argument("--metrics", type=int, default=4)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        make_record(path, asked.trials, asked.reports, asked.metrics)
        target = TrackingTarget(asked.uri, None, f"ours-{time.time_ns()}")
        connect(target)
        began = time.perf_counter()
        summary = sync(path, target, study="made-up", tags={}, metric="metric_0")
        seconds = time.perf_counter() - began
    if not summary.is_complete:
        raise RuntimeError(f"not all was delivered: {summary}")
    metrics = asked.trials * asked.reports * asked.metrics
    print(json.dumps({"metrics": metrics, "seconds": seconds}))


if __name__ == "__main__":
    main()
