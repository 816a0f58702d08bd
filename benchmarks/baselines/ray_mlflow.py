"""Ray Tune with its MLflowLoggerCallback, and how long the callback takes.

    python -m benchmarks.baselines.ray_mlflow sqlite:////tmp/mlflow.db --trials 2 --reports 20

The last line of the output is JSON: the metrics the trials reported, all rows of metrics that the
callback wrote (Tune's own numbers among them), and the seconds spent in the callback.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback

AXES = "abcdef"


def train(config: dict[str, Any]) -> None:
    """Report some metrics many times, as the tutorial's trainable functions do."""
    for unit in range(config["reports"]):
        tune.report({f"metric_{n}": config["a"] / (unit + n + 1) for n in range(config["metrics"])})


class Timed(MLflowLoggerCallback):
    """The callback with a watch."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.seconds = 0.0
        self.rows = 0

    @contextmanager
    def _watch(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began

    def log_trial_start(self, trial: Any) -> None:
        """Create the trial's run."""
        with self._watch():
            super().log_trial_start(trial)

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        """Log a result."""
        with self._watch():
            super().log_trial_result(iteration, trial, result)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        """End the trial's run."""
        with self._watch():
            super().log_trial_end(trial, failed)


def main() -> None:
    """Run the experiment."""
    parser = argparse.ArgumentParser()
    parser.add_argument("uri")
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--reports", type=int, default=20)
    parser.add_argument("--metrics", type=int, default=4)
    asked = parser.parse_args()
    callback = Timed(tracking_uri=asked.uri, experiment_name=f"ray-{time.time_ns()}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        results = tune.Tuner(
            train,
            param_space={axis: tune.uniform(0.1, 1.0) for axis in AXES}
            | {"reports": asked.reports, "metrics": asked.metrics},
            tune_config=tune.TuneConfig(num_samples=asked.trials),
            run_config=tune.RunConfig(
                name="tracked", storage_path=folder, callbacks=[callback], verbose=0
            ),
        ).fit()
    if results.errors:
        raise RuntimeError(f"{len(results.errors)} trials failed: {results.errors[0]}")
    print(
        json.dumps(
            {
                "metrics": asked.trials * asked.reports * asked.metrics,
                "rows": _rows(asked.uri, callback),
                "seconds": callback.seconds,
            }
        )
    )


def _rows(uri: str, callback: Timed) -> int:
    """Return how many rows of metrics there are in the runs that the callback made."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    return sum(
        len(client.get_metric_history(run_id, name))
        for run_id in callback._trial_runs.values()
        for name in client.get_run(run_id).data.metrics
    )


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    main()
