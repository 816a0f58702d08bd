"""The head-count study as an expert of Ray Tune and MLflow writes it.

A class trainable whose processes are reused, the fast model, Tune's own files kept few, and one
call to MLflow for everything a trial has reported, in the driver, while the workers train.
"""

import os

# Read by Ray when it is imported.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "3600")

import time
from typing import Any

import ray
import torch
from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from ray import tune

from benchmarks.baselines.fast_training import Training
from benchmarks.baselines.study_data import NAMES, options, tune_space, write_tune_results


class Trial(tune.Trainable):
    """One trial; a step is an epoch."""

    def setup(self, config: dict[str, Any]) -> None:
        """Begin a trial."""
        torch.set_num_threads(1)
        chosen = {name: config[name] for name in NAMES}
        self.training = Training(config["data"], epochs=config["epochs"], **chosen)
        self.epochs = config["epochs"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial in the same process."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train an epoch."""
        metrics = self.training.epoch()
        return {**metrics, "done": self.iteration + 1 == self.epochs}


class LogToMlflow(tune.Callback):
    """Keeps what a trial reports, and sends it in one call when the trial ends."""

    def __init__(self, client: MlflowClient, experiment: str) -> None:
        self.client, self.experiment = client, experiment
        self.reported: dict[str, list[Metric]] = {}

    def on_trial_result(self, *, trial: Any, result: dict[str, Any], **_info: Any) -> None:
        """Keep a report."""
        now, step = int(1000 * time.time()), result["training_iteration"]
        self.reported.setdefault(trial.trial_id, []).extend(
            Metric(name, result[name], now, step)
            for name in ("running_loss", "nmse", "train_nmse")
            if name in result
        )

    def on_trial_complete(self, *, trial: Any, **_info: Any) -> None:
        """Log the whole trial."""
        run = self.client.create_run(self.experiment, run_name=trial.trial_id)
        self.client.log_batch(
            run.info.run_id,
            metrics=self.reported.pop(trial.trial_id),
            params=[Param(name, str(trial.config[name])) for name in NAMES],
        )
        self.client.set_terminated(run.info.run_id)


def main() -> None:
    """Run the grid."""
    grid = options()
    ray.init(address="local", num_cpus=grid.processes, include_dashboard=False, log_to_driver=False)
    client = MlflowClient(f"sqlite:///{grid.out.absolute() / 'mlflow.db'}")
    experiment = client.create_experiment(
        "head_count", artifact_location=(grid.out.absolute() / "artifacts").as_uri()
    )
    tuner = tune.Tuner(
        tune.with_resources(Trial, {"cpu": 1}),
        param_space=tune_space(grid),
        tune_config=tune.TuneConfig(reuse_actors=True),
        run_config=tune.RunConfig(
            name="head_count",
            storage_path=str(grid.out.absolute() / "ray"),
            callbacks=[LogToMlflow(client, experiment)],
            # Asked for by default of a class; this one has nothing to save.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            verbose=0,
        ),
    )
    write_tune_results(grid.out, tuner.fit())


if __name__ == "__main__":
    main()
