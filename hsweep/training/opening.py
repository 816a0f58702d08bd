"""A trial made ready to train: its data, and all that changes while its model trains."""

import contextlib
import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from hsweep.design.recipe import Recipe
from hsweep.design.trial import Trial
from hsweep.errors import UserError
from hsweep.training.batches import plain_tensors
from hsweep.training.devices import fitting
from hsweep.training.division import start_equal
from hsweep.training.optimizers import build_optimizer
from hsweep.training.process_state import seed_all
from tasks.base import TaskData

if TYPE_CHECKING:
    from hsweep.training.trial_run import TrialRun

_NARROW: Final = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class TrainingSetup:
    """A trial ready to train.

    It holds everything that training changes, except the reports. The schedule and, at a report,
    the random generators are left out: both are functions of the step.

    Attributes:
        average: average of the weights; None if the recipe has none.
        scaler: scales the loss against vanishing gradients in float16; None for other precisions.
        autocast: context of losses and evaluations; it can be entered repeatedly.
        updates: what else a checkpoint holds that was written between two reports, until it is
            used.
    """

    def __init__(self, run: "TrialRun", data: TaskData, model: nn.Module) -> None:
        recipe = run.assignment.trial.recipe
        self.data, self.model = data, model
        self.optimizer = build_optimizer(model, recipe)
        self.average = None if recipe.ema is None else Average(model, recipe.ema)
        is_scaled = recipe.precision == "float16"
        self.scaler = torch.amp.GradScaler(run.device.type) if is_scaled else None
        self.autocast = autocast_of(recipe, run.device)
        self.updates: Mapping[str, Any] | None = None
        names = ("model", "optimizer", "average", "scaler")
        self._parts: dict[str, Any] = {
            name: part for name in names if (part := getattr(self, name)) is not None
        }

    @property
    def evaluated(self) -> nn.Module:
        """The model that is evaluated: the average of the weights if the recipe asks for one."""
        return self.model if self.average is None else self.average.module

    def contents(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load(self, saved: Mapping[str, Any]) -> None:
        for name, part in self._parts.items():
            part.load_state_dict(saved[name])

    def fits(self, saved: Mapping[str, Any]) -> bool:
        """Whether a checkpoint belongs to this model and optimizer.

        Raises:
            KeyError, TypeError, AttributeError: the checkpoint is of another kind.
        """
        groups = [len(group["params"]) for group in saved["optimizer"]["param_groups"]]
        return (
            self._parts.keys() <= saved.keys()
            and _shapes(saved["model"]) == _shapes(self.model.state_dict())
            and groups == [len(group["params"]) for group in self.optimizer.param_groups]
        )

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to keep once the trial has come to its end."""
        return plain_tensors(self.evaluated.state_dict())


class Average(nn.Module):
    """An exponential moving average of a model's weights, in a copy of it.

    It begins with the weights after the first update. Buffers are copied, not averaged: an average
    of indices would be no index, and running statistics are averages already. The numbers equal
    those of ``torch.optim.swa_utils.AveragedModel``, which keeps its counter on the device, so that
    each update would wait for the device.

    Args:
        model: as it is before the first update.
        decay: the share of the average that an update keeps, in (0, 1).

    Attributes:
        module: the copy.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.module = copy.deepcopy(model)
        self._decay = decay
        self._has_begun = False

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        average: list[Tensor] = [*self.module.parameters()]
        weights: list[Tensor] = [*model.parameters()]
        if self._has_begun:
            torch._foreach_lerp_(average, weights, 1 - self._decay)
        else:
            torch._foreach_copy_(average, weights)
            self._has_begun = True
        for average_buffer, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
            average_buffer.copy_(buffer)

    def get_extra_state(self) -> bool:
        return self._has_begun

    def set_extra_state(self, state: bool) -> None:
        self._has_begun = state


def open_trial(run: "TrialRun", data: TaskData | None = None) -> TrainingSetup:
    """Open a trial's data unless it is open, build its model, and go on from its newest checkpoint.

    Raises:
        DoesNotFitError: memory does not suffice for the data or the model.
        StorageError: checkpoints cannot be looked for, or final weights that one holds not be
            written.
        UserError: several processes, and a model with batch norm.
    """
    trial = run.assignment.trial
    if data is None:
        with fitting("the data"):
            data = data_of(trial, run.device)
    with fitting("the model"):
        seed_all(trial.seeds.init, run.device)
        model = trial.built[1].build().to(run.device)
        if trial.num_ranks > 1 and has_batch_statistics(model):
            raise UserError(
                "batch norm takes its statistics over a whole batch, of which each of "
                f"{trial.num_ranks} processes has a part; train with one process (processes=1, "
                "gpus at most 1), or replace batch norm"
            )
        start_equal(model, run.world)
        data.warm_start(model)
        setup = TrainingSetup(run, data, model)
        units = trial.budget.report_units()

        def is_usable(saved: Mapping[str, Any]) -> bool:
            reported = [row["unit"] for row in saved["history"]]
            return reported == units[: len(reported)] and setup.fits(saved)

        saved = run.restore(is_usable)
        if saved is not None:
            setup.load(saved)
            setup.updates = saved.get("updates")
            if run.is_over:
                # They are this attempt's only if it has written them.
                run.keep_weights(run.history[-1], setup.weights)
            run.keep_branch_point(setup.contents)
    return setup


def data_of(trial: Trial, device: torch.device) -> TaskData:
    return trial.built[0].open(
        data_seed=trial.seeds.data,
        sampling_seed=trial.seeds.sampling,
        batch_size=trial.recipe.batch_size,
        device=device,
    )


def autocast_of(
    recipe: Recipe, device: torch.device
) -> contextlib.AbstractContextManager[object, bool | None]:
    """Return the context in which losses and evaluations of a recipe are computed."""
    if recipe.precision in _NARROW:
        return torch.autocast(device.type, dtype=_NARROW[recipe.precision])
    # Autocast that is switched off takes its time all the same.
    return contextlib.nullcontext()


def has_batch_statistics(model: nn.Module) -> bool:
    """Whether a model normalises by the statistics of a batch, and keeps running ones."""
    return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules())


def _shapes(weights: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "shape", None) for name, value in weights.items()}
