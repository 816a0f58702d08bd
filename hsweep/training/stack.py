"""Models of one shape whose weights lie in common tensors, trained by one program.

Every parameter of K models is one tensor with K rows, of which each model sees its own; so are the
moments of their optimizers. Their losses and gradients are computed by ``torch.func.vmap`` of the
task's loss, their updates by one optimizer for all that share a recipe. Nothing passes from one row
to another: the gradient of a sum of losses is each loss's own, clipping is by row, and optimizers
work number by number.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from hsweep.design.recipe import Recipe
from hsweep.training.memory import is_out_of_memory, release
from tasks.base import Batch, TaskData

_STEP: Final = "step"
"""The part of an optimizer's state that counts updates, the same for all rows."""

_LEAST_NORM: Final = 1e-6
"""Added to a norm that is divided by, as ``torch.nn.utils.clip_grad_norm_`` does."""


_PLAIN_ATTENTION: Final = functools.partial(sdpa_kernel, SDPBackend.MATH)


class CannotTrainTogetherError(Exception):
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
        optimizer: made by ``hsweep.training.train.build_optimizer``.
        recipe: its rates may be its own, the rest is common to all.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    recipe: Recipe


class _Row(NamedTuple):
    """A part of the stack that is updated by one group of the common optimizer."""

    name: str
    rows: slice
    parameter: Tensor


class Stack:
    """K models and their optimizers, in common tensors until ``release_members``.

    While they are in the stack, the parameters of each model are views of its rows, and
    ``state_dict`` of a model or an optimizer gives copies of its own part alone.

    Args:
        members: of one structure, after equally many updates; equal recipes next to one another.
        data: whose loss is that of all (see ``tasks.base.Stackable``).
        autocast: under which losses are computed.
        at_once: of how many models losses and gradients are computed at once at most.

    Attributes:
        at_once: halved where memory does not suffice.

    Raises:
        CannotTrainTogetherError: the models differ in more than the values of their weights.
    """

    def __init__(
        self,
        members: Sequence[Member],
        data: TaskData,
        autocast: AbstractContextManager[object, bool | None],
        at_once: int | None = None,
    ) -> None:
        self.at_once = min(at_once or len(members), len(members))
        self._members = list(members)
        self._autocast = autocast
        self._data = data
        self._loss = _Loss(data, members[0].model)
        self._device = next(members[0].model.parameters()).device
        # The CPU's fused kernel cannot be asked for several models' attention at once.
        self._attention = _PLAIN_ATTENTION if self._device.type == "cpu" else nullcontext
        named = [dict(member.model.named_parameters()) for member in members]
        _check_alike([_outline(each) for each in named])
        self._trained: dict[str, Tensor] = {}
        self._fixed: dict[str, Tensor] = {}
        for name, first in named[0].items():
            tensor = torch.stack([each[name].detach() for each in named])
            if first.requires_grad:
                self._trained[name] = tensor.requires_grad_()
            else:
                self._fixed[name] = tensor
            for number, each in enumerate(named):
                each[name].data = tensor.detach()[number]
        self._common: dict[str, Tensor] = {}
        self._stack_buffers()
        self._gradients: dict[str, Tensor | None] = {}
        self._names = {id(parameter): name for each in named for name, parameter in each.items()}
        self._rows: list[_Row] = []
        self._groups: list[tuple[Recipe, dict[str, Any]]] = []
        self._optimizer = self._common_optimizer()
        self._hooks = [
            hook for number in range(len(members)) for hook in self._copying_hooks(number)
        ]

    def __len__(self) -> int:
        return len(self._members)

    @property
    def buffers(self) -> list[Tensor]:
        """What the models' losses read beside trained weights and batches."""
        return [*self._common.values(), *self._fixed.values()]

    def gradients(self, batches: Sequence[Batch]) -> Tensor:
        """Compute every model's gradient, and return their losses, (K,).

        Args:
            batches: one for each model, or one for all.

        Raises:
            CannotTrainTogetherError: batches that differ in shape.
            RuntimeError, MemoryError: not even one model at once fits (see
                ``hsweep.training.memory.is_out_of_memory``), or whatever the loss raises.
        """
        stacked = _stacked(batches)
        while True:
            try:
                return self._computed(stacked, is_shared=len(batches) == 1)
            except (RuntimeError, MemoryError) as error:
                if self.at_once == 1 or not is_out_of_memory(error):
                    raise
            # Here and not above, where the error's traceback still holds what was computed.
            self.clear()
            self.at_once = (self.at_once + 1) // 2
            release(self._device)

    def clip(self, most: float) -> None:
        """Scale the gradient of every model whose norm is above ``most`` down to that norm."""
        found = [gradient for gradient in self._gradients.values() if gradient is not None]
        if not found:
            return
        count = len(self._members)
        norms = torch.stack([gradient.view(count, -1).norm(dim=1) for gradient in found])
        factors = (most / (norms.norm(dim=0) + _LEAST_NORM)).clamp(max=1.0)
        for gradient in found:
            gradient.mul_(factors.view(-1, *[1] * (gradient.ndim - 1)))

    def update(self, step: int, num_steps: int) -> None:
        """Update every model by its gradient, at its recipe's learning rate.

        Args:
            step: the update's number, from 0.
            num_steps: updates of the whole training.
        """
        for recipe, group in self._groups:
            group["lr"] = recipe.lr_at(step, num_steps)
        for row in self._rows:
            gradient = self._gradients.get(row.name)
            row.parameter.grad = None if gradient is None else gradient[row.rows]
        self._optimizer.step()

    def clear(self) -> None:
        """Drop the gradients."""
        self._gradients = {}
        for row in self._rows:
            row.parameter.grad = None

    def gradient_of(self, number: int) -> dict[str, Tensor]:
        """Return the gradient of one model by parameter, without those that take no part."""
        return {
            name: gradient[number]
            for name, gradient in self._gradients.items()
            if gradient is not None
        }

    def release_members(self) -> None:
        """Give every optimizer its own state back; the models keep their views."""
        for hook in self._hooks:
            hook.remove()
        self.clear()
        for number, member in enumerate(self._members):
            for parameter, state in self._states_of(number):
                member.optimizer.state[parameter] = state

    def _computed(self, batch: "_Stacked", *, is_shared: bool) -> Tensor:
        count = len(self._members)
        if self.at_once == count:
            losses, gradients = self._part(slice(0, count), batch, is_shared=is_shared)
            self._gradients = dict(zip(self._trained, gradients, strict=True))
            return losses
        kept: list[Tensor] = []
        self._gradients = dict.fromkeys(self._trained)
        for start in range(0, count, self.at_once):
            rows = slice(start, min(start + self.at_once, count))
            part = batch if is_shared else batch.part(rows)
            losses, gradients = self._part(rows, part, is_shared=is_shared)
            kept.append(losses)
            for (name, whole), gradient in zip(self._trained.items(), gradients, strict=True):
                if gradient is None:
                    continue
                into = self._gradients[name]
                if into is None:
                    into = self._gradients[name] = torch.empty_like(whole, requires_grad=False)
                into[rows] = gradient
        return torch.cat(kept)

    def _part(
        self, rows: slice, batch: "_Stacked", *, is_shared: bool
    ) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        """Return the losses and gradients of the models of some rows."""
        if rows.stop - rows.start == 1:
            tensors = batch.tensors if is_shared else [each[0] for each in batch.tensors]
            return self._of_one(rows.start, batch.rebuilt(tensors))
        is_whole = rows == slice(0, len(self._members))
        trained, fixed = self._trained, self._fixed
        if not is_whole:
            trained = {n: each.detach()[rows].requires_grad_() for n, each in trained.items()}
            fixed = {n: each[rows] for n, each in fixed.items()}

        def loss_of(weights: dict[str, Tensor], tensors: list[Tensor]) -> Tensor:
            named = {f"model.{name}": each for name, each in (weights | self._common).items()}
            found: Tensor = functional_call(self._loss, named, (batch.rebuilt(tensors),))
            return found

        every = vmap(loss_of, in_dims=(0, None if is_shared else 0), randomness="error")
        with self._attention(), self._autocast:
            losses = every(trained | fixed, batch.tensors)
        found = torch.autograd.grad(losses.sum(), list(trained.values()), allow_unused=True)
        # Fused optimizers read numbers as they lie in memory.
        return losses.detach(), tuple(None if g is None else g.contiguous() for g in found)

    def _of_one(self, number: int, batch: Batch) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        """Return the loss and gradients of one model, as of a stack of one: itself, for its weights
        are views of its row."""
        loss, gradients = own_gradients(
            self._data, self._members[number].model, self._autocast, batch
        )
        rows = (gradients.get(name) for name in self._trained)
        return loss[None], tuple(None if row is None else row.contiguous()[None] for row in rows)

    def _stack_buffers(self) -> None:
        """Stack what models hold beside parameters, but for what is the same in all."""
        named = [dict(member.model.named_buffers()) for member in self._members]
        _check_alike([_outline(each) for each in named])
        for name, first in named[0].items():
            if all(torch.equal(first, each[name]) for each in named[1:]):
                self._common[name] = first.clone()
            else:
                self._fixed[name] = torch.stack([each[name] for each in named])

    def _common_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimizer of all, with the settings and moments of the members' own."""
        groups: list[dict[str, Any]] = []
        moments: list[tuple[Tensor, dict[str, Any]]] = []
        start = 0
        for recipe, alike in itertools.groupby(self._members, key=lambda member: member.recipe):
            block = list(alike)
            rows = slice(start, start + len(block))
            start = rows.stop
            for own in zip(*(member.optimizer.param_groups for member in block), strict=True):
                parameters = []
                for each in zip(*(group["params"] for group in own), strict=True):
                    name = self._names[id(each[0])]
                    row = _Row(name, rows, self._trained[name].detach()[rows])
                    self._rows.append(row)
                    parameters.append(row.parameter)
                    states = [
                        member.optimizer.state.get(parameter, {})
                        for member, parameter in zip(block, each, strict=True)
                    ]
                    moments.append((row.parameter, _stacked_state(states)))
                settings = {name: value for name, value in own[0].items() if name != "params"}
                groups.append({**settings, "params": parameters})
                self._groups.append((recipe, groups[-1]))
        kind: Any = type(self._members[0].optimizer)
        optimizer: torch.optim.Optimizer = kind(groups)
        # The optimizer has groups of its own now.
        self._groups = [
            (recipe, group)
            for (recipe, _), group in zip(self._groups, optimizer.param_groups, strict=True)
        ]
        for parameter, state in moments:
            if state:
                optimizer.state[parameter] = state
        for member in self._members:
            member.optimizer.state.clear()
        return optimizer

    def _states_of(self, number: int) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        """Yield one model's parameters and the optimizer's state of each, as views."""
        parameters = dict(self._members[number].model.named_parameters())
        for row in self._rows:
            if row.rows.start <= number < row.rows.stop:
                state = self._optimizer.state.get(row.parameter, {})
                own = number - row.rows.start
                yield (
                    parameters[row.name],
                    {
                        part: value.clone()
                        if part == _STEP
                        else value[own]
                        if isinstance(value, Tensor)
                        else value
                        for part, value in state.items()
                    },
                )

    def _copying_hooks(self, number: int) -> Iterator[Any]:
        """Let a model's and an optimizer's ``state_dict`` give copies of its rows alone."""
        member = self._members[number]

        def copy_weights(
            module: nn.Module,  # noqa: ARG001
            state: dict[str, Any],
            prefix: str,  # noqa: ARG001
            metadata: dict[str, Any],  # noqa: ARG001
        ) -> None:
            for name, value in state.items():
                if isinstance(value, Tensor):
                    state[name] = value.detach().clone()

        def with_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
            order = [p for group in optimizer.param_groups for p in group["params"]]
            places = {id(parameter): place for place, parameter in enumerate(order)}
            groups = (group for recipe, group in self._groups if recipe == member.recipe)
            found = {
                places[id(parameter)]: {
                    part: value.clone() if isinstance(value, Tensor) else value
                    for part, value in own.items()
                }
                for parameter, own in self._states_of(number)
                if own
            }
            return {
                **state,
                "state": dict(sorted(found.items())),
                "param_groups": [
                    {**saved, "lr": group["lr"]}
                    for saved, group in zip(state["param_groups"], groups, strict=True)
                ],
            }

        model: Any = member.model
        yield model.register_state_dict_post_hook(copy_weights)
        yield member.optimizer.register_state_dict_post_hook(with_state)


def own_gradients(
    data: TaskData,
    model: nn.Module,
    autocast: AbstractContextManager[object, bool | None],
    batch: Batch,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return a model's loss and its gradient by parameter, as they are when it is trained alone."""
    named = {name: each for name, each in model.named_parameters() if each.requires_grad}
    with autocast:
        loss = data.loss(model, batch)
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    pairs = zip(named, found, strict=True)
    return loss.detach(), {name: each for name, each in pairs if each is not None}


class _Loss(nn.Module):
    """A task's loss of a model, as one module."""

    def __init__(self, data: TaskData, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._data = data

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss, a scalar."""
        return self._data.loss(self.model, batch)


class _Stacked(NamedTuple):
    """Batches of one structure as one.

    Attributes:
        tensors: those of the batches, each (K, ...), or those of one batch for all.
        template: a batch of that structure.
    """

    tensors: list[Tensor]
    template: Batch

    def rebuilt(self, tensors: Sequence[Tensor]) -> Batch:
        """Return a batch of the structure with these tensors."""
        return _filled(self.template, iter(tensors))

    def part(self, rows: slice) -> "_Stacked":
        """Return the batches of some models."""
        return _Stacked([each[rows] for each in self.tensors], self.template)


def _stacked(batches: Sequence[Batch]) -> _Stacked:
    if len(batches) == 1:
        return _Stacked(
            [each for each in leaves(batches[0]) if isinstance(each, Tensor)], batches[0]
        )
    columns = []
    try:
        for each in zip(*(leaves(batch) for batch in batches), strict=True):
            if isinstance(each[0], Tensor):
                columns.append(torch.stack(each))
            elif any(other != each[0] for other in each):
                raise CannotTrainTogetherError("their batches differ in more than tensors")
    except (RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise CannotTrainTogetherError(f"their batches differ in shape ({error})") from error
    return _Stacked(columns, batches[0])


def leaves(batch: Batch) -> Iterator[Any]:
    """Yield the tensors of a batch and whatever else is no collection, in a fixed order."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from leaves(value)
    elif isinstance(batch, tuple | list):
        for value in batch:
            yield from leaves(value)
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        for field in dataclasses.fields(batch):
            yield from leaves(getattr(batch, field.name))
    else:
        yield batch


def _filled(batch: Any, tensors: Iterator[Tensor]) -> Any:
    """Return ``batch`` with other tensors, in the order of ``leaves``."""
    if isinstance(batch, Tensor):
        return next(tensors)
    if isinstance(batch, dict):
        return {name: _filled(value, tensors) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        values = [_filled(value, tensors) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        changes = {
            field.name: _filled(getattr(batch, field.name), tensors)
            for field in dataclasses.fields(batch)
        }
        return dataclasses.replace(batch, **changes)
    return batch


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


def _outline(named: dict[str, Any]) -> dict[str, Any]:
    return {name: (each.shape, each.dtype, each.requires_grad) for name, each in named.items()}


def _check_alike(outlines: Sequence[dict[str, Any]]) -> None:
    if any(outline != outlines[0] for outline in outlines):
        raise CannotTrainTogetherError("their models are of different structure")
