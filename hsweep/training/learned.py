"""What a trial of this project's own loop learns, as its checkpoints and final weights hold it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from hsweep.design.configuration import encoded
from hsweep.design.trial import Assignment, Report
from hsweep.training.averaging import Average
from hsweep.training.weights import plain_tensors, write_weights
from hsweep.training.world import World


class Learned:
    """All that changes while a model trains, but for its reports.

    Neither the schedule nor the random generators are part of it: both are functions of the step.

    Attributes:
        average: of the weights, where the recipe has one; None for none.
        scaler: of the loss, where the recipe has one; None for none.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        average: Average | None = None,
        scaler: torch.amp.GradScaler | None = None,
        *,
        world: World,
        is_sharded: bool,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.average, self.scaler = average, scaler
        parts = {"model": model, "optimizer": optimizer, "average": average, "scaler": scaler}
        self._parts: dict[str, Any] = {
            name: part for name, part in parts.items() if part is not None
        }
        self._world, self._is_sharded = world, is_sharded

    @property
    def evaluated(self) -> nn.Module:
        """The model that reports are about: the average of the weights where there is one."""
        return self.model if self.average is None else self.average.module

    def contents(self) -> dict[str, Any]:
        """Return what a checkpoint holds of it, with whole tensors in rank 0."""
        return self._whole({name: part.state_dict() for name, part in self._parts.items()})

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take up what a checkpoint holds."""
        if self._is_sharded:
            from hsweep.training.sharding import shares_of

            saved = {**saved, **shares_of(self.model, self.optimizer, saved)}
        for name, part in self._parts.items():
            part.load_state_dict(saved[name])

    def fits(self, saved: Mapping[str, Any]) -> bool:
        """Whether a checkpoint is one of this model and optimizer.

        Raises:
            KeyError, TypeError, AttributeError: it is none of this kind at all.
        """
        groups = [len(group["params"]) for group in saved["optimizer"]["param_groups"]]
        return (
            self._parts.keys() <= saved.keys()
            and _shapes(saved["model"]) == _shapes(self.model.state_dict())
            and groups == [len(group["params"]) for group in self.optimizer.param_groups]
        )

    def keep_weights(self, assignment: Assignment, report: Report) -> None:
        """Write the final weights, where the study keeps them and this report is the last.

        Raises:
            StorageError: they cannot be written, so the trial has not come to its end.
        """
        if not assignment.weights or not report.is_last or report.diverged_at is not None:
            return
        state = self._whole(self.evaluated.state_dict())
        if self._world.rank == 0:
            trial = assignment.trial
            header = trial.result_at(report) | {"model": encoded(trial.model)}
            tensors = plain_tensors(state)
            write_weights(assignment.weights, trial.key, assignment.attempt, tensors, header)

    def _whole(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state with whole tensors, in rank 0."""
        if not self._is_sharded:
            return state
        from hsweep.training.sharding import gathered

        return gathered(state, self._world)


def _shapes(weights: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "shape", None) for name, value in weights.items()}
