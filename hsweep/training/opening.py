"""A trial made ready to train: its data, its model, and what a checkpoint remembers."""

from collections.abc import Callable
from contextlib import nullcontext

import torch

from hsweep.design.recipe import Recipe
from hsweep.design.trial import Assignment, Trial
from hsweep.training.memory import fitting
from hsweep.training.micro_batches import Autocast
from hsweep.training.optimizers import build_optimizer
from hsweep.training.process_state import seed_all
from hsweep.training.trial_state import Opened, TrialState
from tasks.base import TaskData


def open_trial(assignment: Assignment, device: torch.device, clock: Callable[[], float]) -> Opened:
    """Open a trial's data, build its model, and go on from its newest checkpoint if it has one.

    Raises:
        DoesNotFitError: memory does not suffice for the data or the model.
        StorageError: checkpoints cannot be looked for.
    """
    trial, recipe = assignment.trial, assignment.trial.recipe
    with fitting("the data"):
        data = data_of(trial, device)
    with fitting("the model"):
        seed_all(trial.seeds.init)
        model = trial.built[1].build().to(device)
        data.warm_start(model)
        state = TrialState(model, build_optimizer(model, recipe), assignment, clock)
        state.restore(device)
    return Opened(data, model, state, autocast_of(recipe, device), device)


def data_of(trial: Trial, device: torch.device) -> TaskData:
    return trial.built[0].open(
        data_seed=trial.seeds.data,
        sampling_seed=trial.seeds.sampling,
        batch_size=trial.recipe.batch_size,
        device=device,
    )


def autocast_of(recipe: Recipe, device: torch.device) -> Autocast:
    """Return what losses and evaluations of a recipe are computed under."""
    if recipe.precision == "bfloat16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    # Autocast that is switched off takes its time all the same.
    return nullcontext()
