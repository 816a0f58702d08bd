"""A trial made ready to train: its data, its model, and what a checkpoint remembers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from hsweep.design.recipe import Recipe
from hsweep.design.trial import Trial
from hsweep.errors import UserError
from hsweep.training.averaging import average_of
from hsweep.training.batch_norm import has_batch_statistics
from hsweep.training.division import start_equal
from hsweep.training.learned import Learned
from hsweep.training.memory import fitting
from hsweep.training.memory_format import with_channels_last
from hsweep.training.optimizers import build_optimizer
from hsweep.training.precision import Autocast, autocast_of, scaler_of
from hsweep.training.process_state import seed_all
from hsweep.training.world import World
from tasks.base import FurtherEvaluated, TaskData

if TYPE_CHECKING:
    from hsweep.training.trial_run import TrialRun


class Opened(NamedTuple):
    """A trial ready to train: its data, what it learns, and what its losses are computed under."""

    data: TaskData
    learned: Learned
    autocast: Autocast


def open_trial(run: "TrialRun", data: TaskData | None = None) -> Opened:
    """Open a trial's data (unless given), build its model, and go on from its newest checkpoint.

    Raises:
        DoesNotFitError: memory does not suffice for the data or the model.
        StorageError: checkpoints cannot be looked for, or final weights that one holds not be
            written.
        UserError: several processes, and a compiled model with batch norm; or sharded weights, and
            a task that fine-tunes copies of the model.
    """
    trial, recipe, state = run.assignment.trial, run.assignment.trial.recipe, run.state
    if data is None:
        with fitting("the data"):
            data = data_of(trial, run.device)
    with fitting("the model"):
        seed_all(trial.seeds.init)
        model = _placed(trial.built[1].build(), data, recipe, run.device, run.world)
        data.warm_start(model)
        if recipe.channels_last:
            with_channels_last(model)
        learned = Learned(
            model,
            build_optimizer(model, recipe),
            average_of(model, recipe),
            scaler_of(recipe, run.device),
            world=run.world,
            is_sharded=state.is_sharded,
        )
        units = trial.budget.report_units()

        def is_usable(saved: Mapping[str, Any]) -> bool:
            reported = [row["unit"] for row in saved["history"]]
            return reported == units[: len(reported)] and learned.fits(saved)

        saved = state.restore(is_usable)
        if saved is not None:
            learned.load(saved)
            # They are this attempt's only if it has written them.
            learned.keep_weights(run.assignment, state.history[-1])
            state.keep_branch_point(learned.contents)
    return Opened(data, learned, autocast_of(recipe, run.device))


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
