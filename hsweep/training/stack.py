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
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from hsweep.training.memory import is_out_of_memory, release
from hsweep.training.stacked_batches import CannotTrainTogetherError, StackedBatch, stacked
from hsweep.training.stacked_updates import Block, Member
from tasks.base import Batch, TaskData

_LEAST_NORM: Final = 1e-6
"""Added to a norm that is divided by, as ``torch.nn.utils.clip_grad_norm_`` does."""


_PLAIN_ATTENTION: Final = functools.partial(sdpa_kernel, SDPBackend.MATH)


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
        self._blocks: list[Block] = []
        for _, alike in itertools.groupby(self._members, key=lambda member: member.recipe):
            row = self._blocks[-1].rows.stop if self._blocks else 0
            self._blocks.append(Block(list(alike), row, self._trained))
        self._hooks = [hook for block in self._blocks for hook in block.copying_hooks()]

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
        together = stacked(batches)
        while True:
            try:
                return self._computed(together, is_shared=len(batches) == 1)
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

    def release_members(self) -> None:
        """Give every optimizer its own state back; the models keep their views."""
        for hook in self._hooks:
            hook.remove()
        self.clear()
        for block in self._blocks:
            block.give_back()

    def _computed(self, batch: StackedBatch, *, is_shared: bool) -> Tensor:
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
        self, rows: slice, batch: StackedBatch, *, is_shared: bool
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


def _outline(named: dict[str, Any]) -> dict[str, Any]:
    return {name: (each.shape, each.dtype, each.requires_grad) for name, each in named.items()}


def _check_alike(outlines: Sequence[dict[str, Any]]) -> None:
    if any(outline != outlines[0] for outline in outlines):
        raise CannotTrainTogetherError("their models are of different structure")
