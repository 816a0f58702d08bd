"""A trial made ready to train: its data, its model, and what a checkpoint remembers."""

from collections.abc import Callable

import torch

from hsweep.design.trial import Assignment, Trial
from hsweep.training.averaging import average_of
from hsweep.training.memory import fitting
from hsweep.training.memory_format import with_channels_last
from hsweep.training.optimizers import build_optimizer
from hsweep.training.precision import autocast_of, scaler_of
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
        if recipe.channels_last:
            with_channels_last(model)
        state = TrialState(
            model,
            build_optimizer(model, recipe),
            assignment,
            clock,
            average=average_of(model, recipe),
            scaler=scaler_of(recipe, device),
        )
        state.restore(device)
    return Opened(data, model, state, autocast_of(recipe, device), device)


def data_of(trial: Trial, device: torch.device) -> TaskData:
    return trial.built[0].open(
        data_seed=trial.seeds.data,
        sampling_seed=trial.seeds.sampling,
        batch_size=trial.recipe.batch_size,
        device=device,
    )
