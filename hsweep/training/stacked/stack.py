"""Models of one shape whose weights lie in common tensors, trained by one program.

Every parameter of K models is one tensor with K rows, of which each model sees its own; so are the
moments of their optimizers. Their losses and gradients are computed by ``torch.func.vmap`` of the
task's loss, their updates by one optimizer for all that share a recipe. Nothing passes from one row
to another: the gradient of a sum of losses is each loss's own, clipping is by row, and optimizers
work number by number.
"""

import functools
import itertools
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from hsweep.training.batches import leaves, with_tensors
from hsweep.training.memory import is_out_of_memory, release
from hsweep.training.micro_batches import Autocast
from hsweep.training.stacked.updates import Block, CannotStackError, Member
from tasks.base import Batch, TaskData

_LEAST_NORM: Final = 1e-6
"""Added to a norm that is divided by, as ``torch.nn.utils.clip_grad_norm_`` does."""


_PLAIN_ATTENTION: Final = functools.partial(sdpa_kernel, SDPBackend.MATH)


class Stack:
    """K models in common tensors.

    The parameters of each model become views of its rows, and stay so; ``share_state`` gives each
    optimizer views of what is remembered of them.

    Args:
        members: of one structure, after equally many updates; equal recipes next to one another.
        data: whose loss is that of all (see ``tasks.base.Stackable``).
        autocast: under which losses are computed.

    Raises:
        CannotStackError: the models differ in more than the values of their weights.
    """

    def __init__(self, members: Sequence[Member], data: TaskData, autocast: Autocast) -> None:
        # Of so many models losses and gradients are computed at once; fewer if memory is scarce.
        self._at_once = len(members)
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
            (self._trained if first.requires_grad else self._fixed)[name] = tensor
            for number, each in enumerate(named):
                each[name].data = tensor[number]
        self._common: dict[str, Tensor] = {}
        self._stack_buffers()
        self._gradients: dict[str, Tensor | None] = {}
        self._blocks: list[Block] = []
        for _, alike in itertools.groupby(self._members, key=lambda member: member.recipe):
            row = self._blocks[-1].rows.stop if self._blocks else 0
            self._blocks.append(Block(list(alike), row, self._trained))

    @property
    def buffers(self) -> list[Tensor]:
        """What the models' losses read beside trained weights and batches."""
        return [*self._common.values(), *self._fixed.values()]

    def gradients(self, batches: Sequence[Batch]) -> Tensor:
        """Compute every model's gradient, and return their losses, (K,).

        Args:
            batches: one for each model, or one for all.

        Raises:
            CannotStackError: batches that differ in shape.
            RuntimeError, MemoryError: not even one model at once fits, or whatever the loss raises.
        """
        template, tensors = batches[0], _stacked(batches)
        while True:
            try:
                return self._computed(template, tensors, is_shared=len(batches) == 1)
            except (RuntimeError, MemoryError) as error:
                if self._at_once == 1 or not is_out_of_memory(error):
                    raise
            # Here and not above, where the error's traceback still holds what was computed.
            self.clear()
            self._at_once = (self._at_once + 1) // 2
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
        for block in self._blocks:
            block.update(self._gradients, step, num_steps)

    def clear(self) -> None:
        """Drop the gradients."""
        self._gradients = {}
        for block in self._blocks:
            block.clear()

    def gradient_of(self, number: int) -> dict[str, Tensor]:
        """Return the gradient of one model by parameter, without those that take no part."""
        return {
            name: gradient[number]
            for name, gradient in self._gradients.items()
            if gradient is not None
        }

    def share_state(self) -> None:
        """Let the members' optimizers remember what they would after separate updates."""
        for block in self._blocks:
            block.share_state()

    def _computed(self, template: Batch, tensors: list[Tensor], *, is_shared: bool) -> Tensor:
        losses, gradients = [], []
        for start in range(0, len(self._members), self._at_once):
            rows = slice(start, start + self._at_once)
            part = tensors if is_shared else [each[rows] for each in tensors]
            found = self._part(rows, template, part, is_shared=is_shared)
            losses.append(found[0])
            gradients.append(found[1])
        parts = zip(self._trained, zip(*gradients, strict=True), strict=True)
        self._gradients = {name: _joined(each) for name, each in parts}
        return torch.cat(losses)

    def _part(
        self, rows: slice, template: Batch, tensors: list[Tensor], *, is_shared: bool
    ) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        """Return the losses and gradients of the models of some rows."""
        trained = {name: each[rows].requires_grad_() for name, each in self._trained.items()}
        fixed = {name: each[rows] for name, each in self._fixed.items()}

        def loss_of(weights: dict[str, Tensor], tensors: list[Tensor]) -> Tensor:
            named = {f"model.{name}": each for name, each in (weights | self._common).items()}
            found: Tensor = functional_call(self._loss, named, (with_tensors(template, tensors),))
            return found

        every = vmap(loss_of, in_dims=(0, None if is_shared else 0), randomness="error")
        with self._attention(), self._autocast:
            losses = every(trained | fixed, tensors)
        found = torch.autograd.grad(losses.sum(), list(trained.values()), allow_unused=True)
        return losses.detach(), found

    def _stack_buffers(self) -> None:
        """Stack what models hold beside parameters, but for what is the same in all."""
        named = [dict(member.model.named_buffers()) for member in self._members]
        _check_alike([_outline(each) for each in named])
        for name, first in named[0].items():
            if all(torch.equal(first, each[name]) for each in named[1:]):
                self._common[name] = first.clone()
            else:
                self._fixed[name] = torch.stack([each[name] for each in named])


def _stacked(batches: Sequence[Batch]) -> list[Tensor]:
    """Return the tensors of batches of one structure, each (K, ...); of a single batch its own.

    Raises:
        CannotStackError: they differ in more than the values of their tensors.
    """
    if len(batches) == 1:
        return [each for each in leaves(batches[0]) if isinstance(each, Tensor)]
    columns = []
    try:
        for each in zip(*(leaves(batch) for batch in batches), strict=True):
            if isinstance(each[0], Tensor):
                columns.append(torch.stack(each))
            elif any(other != each[0] for other in each):
                raise CannotStackError("their batches differ in more than tensors")
    except (RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise CannotStackError(f"their batches differ in shape ({error})") from error
    return columns


def own_gradients(
    data: TaskData, model: nn.Module, autocast: Autocast, batch: Batch
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


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Return a gradient of all models, None for what takes no part."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    # Fused optimizers read numbers as they lie in memory.
    return torch.cat(found) if len(found) > 1 else found[0].contiguous()


def _outline(named: dict[str, Any]) -> dict[str, Any]:
    return {name: (each.shape, each.dtype, each.requires_grad) for name, each in named.items()}


def _check_alike(outlines: Sequence[dict[str, Any]]) -> None:
    if any(outline != outlines[0] for outline in outlines):
        raise CannotStackError("their models are of different structure")
