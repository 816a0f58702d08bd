"""Ray Tune with random search over trials that train nothing and report three times.

    python -m benchmarks.baselines.bare_tune 40

The last line of the output is JSON: when the first trial started and when each ended.
"""

import json
import os
import sys
import tempfile
import time
from typing import Any

from ray import tune

REPORTS = 3


def train(config: dict[str, float]) -> None:
    """Report three times, as the tutorial's trainable functions do."""
    for _ in range(REPORTS):
        tune.report({"loss": config["a"]})


class Times(tune.Callback):
    """Notes when trials start and end."""

    def __init__(self) -> None:
        self.started: float | None = None
        self.ended: list[float] = []

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Note the first start."""
        self.started = self.started or time.time()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Note an end."""
        self.ended.append(time.time())


def main(trials: int) -> None:
    """Run the experiment."""
    times = Times()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        results = tune.Tuner(
            train,
            param_space={axis: tune.uniform(0.1, 1.0) for axis in "abcdef"},
            tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials),
            run_config=tune.RunConfig(
                name="bare", storage_path=folder, callbacks=[times], verbose=0
            ),
        ).fit()
    if results.errors:
        raise RuntimeError(f"{len(results.errors)} trials failed: {results.errors[0]}")
    print(json.dumps({"started": times.started, "ended": times.ended}))


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    main(int(sys.argv[1]))
