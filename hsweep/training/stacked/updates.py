"""Updates of several models whose weights are rows of common tensors."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from hsweep.design.recipe import Recipe
from hsweep.training.optimizers import step_at

_STEP: Final = "step"
"""The part of an optimizer's state that counts updates, the same for all rows."""


class CannotStackError(Exception):
    """Trials have to be trained separately.

    Attributes:
        reason: why, for people.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"these trials are trained separately: {reason}")
        self.reason = reason


class Member(NamedTuple):
    """A model in training, and what trains it.

    Attributes:
        model: on the device.
        optimizer: made by ``hsweep.training.optimizers.build_optimizer``.
        recipe: its rates may be its own, the rest is common to all.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    recipe: Recipe


class Block:
    """Neighbours in a stack that have one recipe, and so are updated by one optimizer.

    Args:
        members: of equal recipes, after equally many updates.
        first: row of the first of them.
        weights: of all models of the stack by name, (K, ...).

    Attributes:
        rows: those of the members.

    Raises:
        CannotStackError: they are at different updates.
    """

    def __init__(
        self, members: Sequence[Member], first: int, weights: Mapping[str, Tensor]
    ) -> None:
        self.rows = slice(first, first + len(members))
        self._members = list(members)
        self._recipe = members[0].recipe
        self._parameters: dict[str, nn.Parameter] = {}
        names = {id(each): name for name, each in members[0].model.named_parameters()}
        groups = []
        states: dict[nn.Parameter, dict[str, Any]] = {}
        for own in zip(*(member.optimizer.param_groups for member in members), strict=True):
            parameters = []
            for each in zip(*(group["params"] for group in own), strict=True):
                name = names[id(each[0])]
                rows = nn.Parameter(weights[name][self.rows], requires_grad=False)
                self._parameters[name] = rows
                parameters.append(rows)
                pairs = zip(members, each, strict=True)
                states[rows] = _stacked_state([m.optimizer.state.get(p, {}) for m, p in pairs])
            groups.append({**own[0], "params": parameters})
        kind: Any = type(members[0].optimizer)
        self._optimizer: torch.optim.Optimizer = kind(groups)
        self._optimizer.state.update({rows: state for rows, state in states.items() if state})
        self.share_state()

    def update(self, gradients: Mapping[str, Tensor | None], step: int, num_steps: int) -> None:
        """Update the members at their recipe's learning rate.

        Args:
            gradients: of all models of the stack by name, (K, ...); None for what takes no part.
            step: the update's number, from 0.
            num_steps: updates of the whole training.
        """
        for name, parameter in self._parameters.items():
            gradient = gradients.get(name)
            parameter.grad = None if gradient is None else gradient[self.rows]
        step_at(self._optimizer, self._recipe.lr_at(step, num_steps))

    def clear(self) -> None:
        """Drop the gradients."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def share_state(self) -> None:
        """Give every member's optimizer its rows of what is remembered, as views."""
        for number, member in enumerate(self._members):
            parameters = dict(member.model.named_parameters())
            for name, rows in self._parameters.items():
                state = self._optimizer.state.get(rows, {})
                if state:
                    own = {part: _row(part, value, number) for part, value in state.items()}
                    member.optimizer.state[parameters[name]] = own
            for group, common in zip(
                member.optimizer.param_groups, self._optimizer.param_groups, strict=True
            ):
                group["lr"] = common["lr"]


def _row(part: str, value: Any, number: int) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.clone() if part == _STEP else value[number]


def _stacked_state(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return an optimizer's state of one parameter of several models."""
    first = states[0]
    if any(state.keys() != first.keys() for state in states):
        raise CannotStackError("some of them were updated and others not")
    stacked: dict[str, Any] = {}
    for part, value in first.items():
        values = [state[part] for state in states]
        if not isinstance(value, Tensor):
            stacked[part] = value
        elif part == _STEP:
            if any(float(each) != float(value) for each in values):
                raise CannotStackError("they are at different updates")
            stacked[part] = value.clone()
        else:
            stacked[part] = torch.stack(values)
    return stacked
