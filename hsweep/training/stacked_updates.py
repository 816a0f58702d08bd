"""Updates of several models whose weights are rows of common tensors."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from hsweep.design.recipe import Recipe
from hsweep.training.stacked_batches import CannotTrainTogetherError
from hsweep.training.update import Update

_STEP: Final = "step"
"""The part of an optimizer's state that counts updates, the same for all rows."""


class Member(NamedTuple):
    """A model in training, and what trains it.

    Attributes:
        model: on the device.
        optimizer: made by ``hsweep.training.train.build_optimizer``.
        recipe: its rates may be its own, the rest is common to all.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    recipe: Recipe


class Block:
    """Neighbours in a stack that have one recipe, and so are updated at once.

    Args:
        members: of equal recipes, after equally many updates. What their optimizers remember is
            taken from them until ``give_back``.
        first: row of the first of them.
        weights: of all models of the stack by name, (K, ...).

    Attributes:
        rows: those of the members.

    Raises:
        CannotTrainTogetherError: they are at different updates.
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
        moments: dict[str, dict[str, Any]] = {}
        for own in zip(*(member.optimizer.param_groups for member in members), strict=True):
            parameters = []
            for each in zip(*(group["params"] for group in own), strict=True):
                name = names[id(each[0])]
                rows = nn.Parameter(weights[name].detach()[self.rows], requires_grad=False)
                self._parameters[name] = rows
                parameters.append(rows)
                states = (
                    member.optimizer.state.get(parameter, {})
                    for member, parameter in zip(members, each, strict=True)
                )
                moments[name] = _stacked_state(list(states))
            groups.append({**own[0], "params": parameters})
        kind: Any = type(members[0].optimizer)
        self._optimizer: torch.optim.Optimizer = kind(groups)
        for name, state in moments.items():
            if state:
                self._optimizer.state[self._parameters[name]] = state
        for member in members:
            member.optimizer.state.clear()
        every = nn.ParameterList(self._parameters.values())
        self._update = Update(every, self._optimizer, self._recipe)

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
        self._update.step(self._recipe.lr_at(step, num_steps))

    def clear(self) -> None:
        """Drop the gradients."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def give_back(self) -> None:
        """Let the members' optimizers remember what they would without the stack."""
        for number, member in enumerate(self._members):
            for parameter, state in self._states_of(number):
                member.optimizer.state[parameter] = state

    def copying_hooks(self) -> Iterator[Any]:
        """Let ``state_dict`` of the members' models and optimizers give copies of their rows alone.

        Yields:
            Handles whose ``remove`` ends that.
        """
        for number, member in enumerate(self._members):

            def with_state(
                optimizer: torch.optim.Optimizer, state: dict[str, Any], number: int = number
            ) -> dict[str, Any]:
                return self._copied(number, optimizer, state)

            model: Any = member.model
            yield model.register_state_dict_post_hook(_copy_weights)
            yield member.optimizer.register_state_dict_post_hook(with_state)

    def _states_of(self, number: int) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        """Yield a member's parameters and what is remembered of each, as views."""
        parameters = dict(self._members[number].model.named_parameters())
        for name, rows in self._parameters.items():
            state = self._optimizer.state.get(rows, {})
            if state:
                yield (
                    parameters[name],
                    {part: _row(part, value, number) for part, value in state.items()},
                )

    def _copied(
        self, number: int, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return an optimizer's ``state_dict`` with what is remembered here."""
        order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        places = {id(parameter): place for place, parameter in enumerate(order)}
        found = {
            places[id(parameter)]: {
                part: value.clone() if isinstance(value, Tensor) else value
                for part, value in own.items()
            }
            for parameter, own in self._states_of(number)
        }
        pairs = zip(state["param_groups"], self._optimizer.param_groups, strict=True)
        groups = [{**saved, "lr": group["lr"]} for saved, group in pairs]
        return {**state, "state": dict(sorted(found.items())), "param_groups": groups}


def _copy_weights(
    module: nn.Module,  # noqa: ARG001
    state: dict[str, Any],
    prefix: str,  # noqa: ARG001
    metadata: dict[str, Any],  # noqa: ARG001
) -> None:
    for name, value in state.items():
        if isinstance(value, Tensor):
            state[name] = value.detach().clone()


def _row(part: str, value: Any, number: int) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.clone() if part == _STEP else value[number]


def _stacked_state(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return an optimizer's state of one parameter of several models."""
    first = states[0]
    if any(state.keys() != first.keys() for state in states):
        raise CannotTrainTogetherError("some of them were updated and others not")
    stacked: dict[str, Any] = {}
    for part, value in first.items():
        values = [state[part] for state in states]
        if not isinstance(value, Tensor):
            stacked[part] = value
        elif part == _STEP:
            if any(float(each) != float(value) for each in values):
                raise CannotTrainTogetherError("they are at different updates")
            stacked[part] = value.clone()
        else:
            stacked[part] = torch.stack(values)
    return stacked
