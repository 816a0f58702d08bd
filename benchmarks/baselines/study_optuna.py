"""The head-count study as a user of Optuna writes it, with as many processes as trials at once.

The recipe of Optuna's documentation for several processes on one machine: a study in a journal
file that they share, and a pool of processes that each call ``optimize``. The grid is enqueued, so
that every point is trained once. It trains our own fast model and logs nothing to MLflow: what it
records is in Optuna's journal alone. That is the strict choice, not what most would write.
"""

from multiprocessing import Pool
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from benchmarks.baselines.fast_training import Training
from benchmarks.baselines.study_data import NAMES, Grid, options, write_results


def shared_study(out: Path) -> optuna.Study:
    """Return the study that all processes share."""
    storage = JournalStorage(JournalFileBackend(str(out / "journal.log")))
    return optuna.create_study(
        study_name="head_count",
        storage=storage,
        sampler=optuna.samplers.RandomSampler(seed=0),
        load_if_exists=True,
    )


def run_optimization(grid: Grid) -> None:
    """Train what is still waiting in the queue."""
    torch.set_num_threads(1)
    study = shared_study(grid.out)

    def objective(trial: optuna.Trial) -> float:
        chosen = {
            "heads": trial.suggest_categorical("heads", grid.heads),
            "seq_len": trial.suggest_categorical("seq_len", grid.lengths),
            "seed": trial.suggest_categorical("seed", list(range(grid.seeds))),
        }
        training = Training(grid.data, epochs=grid.epochs, **chosen)
        metrics: dict[str, float] = {}
        for epoch in range(grid.epochs):
            metrics = training.epoch()
            trial.report(metrics["nmse"], epoch)
        trial.set_user_attr("train_nmse", metrics["train_nmse"])
        return metrics["nmse"]

    def stop_when_empty(study: optuna.Study, _trial: Any) -> None:
        if not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            study.stop()

    study.optimize(objective, callbacks=[stop_when_empty])


def main() -> None:
    """Run the grid."""
    grid = options()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = shared_study(grid.out)
    for heads in grid.heads:
        for seq_len in grid.lengths:
            for seed in range(grid.seeds):
                study.enqueue_trial({"heads": heads, "seq_len": seq_len, "seed": seed})
    with Pool(processes=grid.processes) as pool:
        pool.map(run_optimization, [grid] * grid.processes)
    write_results(
        grid.out,
        (
            {**{name: trial.params[name] for name in NAMES}, "nmse": trial.value}
            for trial in study.trials
        ),
    )


if __name__ == "__main__":
    main()
