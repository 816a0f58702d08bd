"""Ray Tune with its MLflowLoggerCallback, and how long the callback takes.

    python -m benchmarks.baselines.ray_mlflow sqlite:////tmp/mlflow.db TRIALS REPORTS METRICS

The last line of the output is JSON: the seconds spent in the callback.
"""

import json
import os
import sys
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


def main(uri: str, trials: int, reports: int, metrics: int) -> None:
    """Run the experiment."""
    callback = Timed(tracking_uri=uri, experiment_name=f"ray-{time.time_ns()}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        results = tune.Tuner(
            train,
            param_space={axis: tune.uniform(0.1, 1.0) for axis in AXES}
            | {"reports": reports, "metrics": metrics},
            tune_config=tune.TuneConfig(num_samples=trials),
            run_config=tune.RunConfig(
                name="tracked", storage_path=folder, callbacks=[callback], verbose=0
            ),
        ).fit()
    if results.errors:
        raise RuntimeError(f"{len(results.errors)} trials failed: {results.errors[0]}")
    print(json.dumps({"seconds": callback.seconds}))


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    main(sys.argv[1], *map(int, sys.argv[2:]))
