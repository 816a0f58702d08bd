"""Ray Tune with random search over trials that train nothing and report three times.

    python -m benchmarks.baselines.bare_tune 40 --kind function

The last line of the output is JSON: when the first trial started, when each ended, and how much
memory this process had then.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from ray import tune

REPORTS = 3
KINDS = ("function", "function-reuse", "class-reuse")


def train(config: dict[str, float]) -> None:
    """Report three times, as the tutorial's trainable functions do."""
    for _ in range(REPORTS):
        tune.report({"loss": config["a"]})


class Train(tune.Trainable):
    """The same as a class that goes on with another trial in the same process."""

    def setup(self, config: dict[str, float]) -> None:
        """Begin."""
        self.config = config

    def step(self) -> dict[str, Any]:
        """Report."""
        return {"loss": self.config["a"], "done": self.iteration + 1 >= REPORTS}

    def reset_config(self, new_config: dict[str, float]) -> bool:
        """Begin another trial."""
        self.config = new_config
        return True


class Times(tune.Callback):
    """Notes when trials start and end."""

    def __init__(self) -> None:
        self.started: float | None = None
        self.ended: list[tuple[float, float]] = []

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Note the first start."""
        self.started = self.started or time.time()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Note an end, and this process's memory."""
        self.ended.append((time.time(), resident_mb()))


def resident_mb() -> float:
    """Return this process's resident memory, MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def main() -> None:
    """Run the experiment."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trials", type=int)
    parser.add_argument("--kind", choices=KINDS, default="function")
    asked = parser.parse_args()
    times = Times()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tuner = tune.Tuner(
            Train if asked.kind == "class-reuse" else train,
            param_space={axis: tune.uniform(0.1, 1.0) for axis in "abcdef"},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                num_samples=asked.trials,
                reuse_actors=asked.kind != "function",
            ),
            run_config=tune.RunConfig(
                name="bare",
                storage_path=folder,
                callbacks=[times],
                verbose=0,
                # Asked for by default of a class, which fails every trial that saves nothing.
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_at_end=False if asked.kind == "class-reuse" else None
                ),
            ),
        )
        results = tuner.fit()
    if results.errors:
        raise RuntimeError(f"{len(results.errors)} trials failed: {results.errors[0]}")
    print(json.dumps({"started": times.started, "ended": times.ended}))


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    main()
