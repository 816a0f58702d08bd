"""A trial made ready to train: its data, its model, and what a checkpoint remembers."""

from collections.abc import Callable

import torch
from torch import nn

from hsweep.design.recipe import Recipe
from hsweep.design.trial import Assignment, Trial
from hsweep.errors import UserError
from hsweep.training.averaging import average_of
from hsweep.training.batch_norm import has_batch_statistics
from hsweep.training.division import start_equal
from hsweep.training.memory import fitting
from hsweep.training.memory_format import with_channels_last
from hsweep.training.optimizers import build_optimizer
from hsweep.training.precision import autocast_of, scaler_of
from hsweep.training.process_state import seed_all
from hsweep.training.trial_state import Opened, TrialState
from hsweep.training.world import ALONE, World
from tasks.base import FurtherEvaluated, TaskData


def open_trial(
    assignment: Assignment,
    device: torch.device,
    clock: Callable[[], float],
    world: World = ALONE,
) -> Opened:
    """Open a trial's data, build its model, and go on from its newest checkpoint if it has one.

    Raises:
        DoesNotFitError: memory does not suffice for the data or the model.
        StorageError: checkpoints cannot be looked for.
        UserError: several processes, and a compiled model with batch norm; or sharded weights, and
            a task that fine-tunes copies of the model.
    """
    trial, recipe = assignment.trial, assignment.trial.recipe
    with fitting("the data"):
        data = data_of(trial, device)
    with fitting("the model"):
        seed_all(trial.seeds.init)
        model = _placed(trial.built[1].build(), data, recipe, device, world)
        data.warm_start(model)
        if recipe.channels_last:
            with_channels_last(model)
        state = TrialState(
            model,
            build_optimizer(model, recipe),
            assignment,
            clock,
            world,
            average=average_of(model, recipe),
            scaler=scaler_of(recipe, device),
        )
        state.restore(device)
    return Opened(data, model, state, autocast_of(recipe, device), device, world)


def _placed(
    model: nn.Module, data: TaskData, recipe: Recipe, device: torch.device, world: World
) -> nn.Module:
    """Return the model on the device: the whole of it, or this process's share."""
    if world.size == 1:
        return model.to(device)
    if recipe.compile != "off" and has_batch_statistics(model):
        raise UserError(
            f"batch norm takes its statistics over all {world.size} processes, which a compiled "
            f"model does not: leave out compile={recipe.compile!r}, or train with one process"
        )
    if recipe.sharding == "none":
        model = model.to(device)
        start_equal(model, world)
        return model
    if isinstance(data, FurtherEvaluated):
        raise UserError(
            "a task that trains copies of the model at its reports needs the whole model in each "
            'process; leave out sharding="full"'
        )
    from hsweep.training.sharding import shard

    # Sharded first: the whole model need not fit the device.
    start_equal(model, world)
    shard(model, device, world)
    return model.to(device)


def data_of(trial: Trial, device: torch.device) -> TaskData:
    return trial.built[0].open(
        data_seed=trial.seeds.data,
        sampling_seed=trial.seeds.sampling,
        batch_size=trial.recipe.batch_size,
        device=device,
    )
