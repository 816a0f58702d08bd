"""Models of one shape whose weights lie in common tensors, trained by one program.

Every parameter of K models is one tensor with K rows, of which each model sees its own; so are the
moments of their optimizers. Their losses and gradients are computed by ``torch.func.vmap`` of the
task's loss, their updates by one optimizer. Nothing passes from one row to another: the gradient of
a sum of losses is each loss's own, clipping is by row, and optimizers work number by number.
"""

import functools
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from hsweep.training.batches import leaves, with_tensors
from hsweep.training.memory import is_out_of_memory
from hsweep.training.optimizers import step_at
from hsweep.training.precision import Autocast
from tasks.base import Batch, TaskData

_LEAST_NORM: Final = 1e-6
"""Added to a norm that is divided by, as ``torch.nn.utils.clip_grad_norm_`` does."""

_STEP: Final = "step"
"""The part of an optimizer's state that counts updates, the same for all rows."""

_PLAIN_ATTENTION: Final = functools.partial(sdpa_kernel, SDPBackend.MATH)


class CannotStackError(Exception):
    """Trials have to be trained separately; the message says why."""


class Member(NamedTuple):
    """A model in training, on its device, and its optimizer (see ``build_optimizer``)."""

    model: nn.Module
    optimizer: torch.optim.Optimizer


class Stack:
    """K models in common tensors.

    The parameters of each model become views of its rows, and stay so; ``share_state`` gives each
    optimizer views of what is remembered of them.

    Args:
        members: of one structure and one recipe, after equally many updates.
        data: whose loss is that of all (see ``tasks.base.Stackable``).
        autocast: under which losses are computed.

    Raises:
        CannotStackError: the models differ in more than the values of their weights.
    """

    def __init__(self, members: Sequence[Member], data: TaskData, autocast: Autocast) -> None:
        self._members = list(members)
        self._autocast = autocast
        self._loss = _Loss(data, members[0].model)
        is_on_cpu = next(members[0].model.parameters()).device.type == "cpu"
        # The CPU's fused kernel cannot be asked for several models' attention at once.
        self._attention = _PLAIN_ATTENTION if is_on_cpu else nullcontext
        self._named = [dict(member.model.named_parameters()) for member in members]
        _check_alike(self._named)
        self._trained: dict[str, nn.Parameter] = {}
        self._fixed: dict[str, Tensor] = {}
        for name, first in self._named[0].items():
            rows = torch.stack([each[name].detach() for each in self._named])
            if first.requires_grad:
                self._trained[name] = nn.Parameter(rows)
            else:
                self._fixed[name] = rows
            for number, each in enumerate(self._named):
                each[name].data = rows[number]
        self._common: dict[str, Tensor] = {}
        self._stack_buffers()
        self._optimizer = self._joint_optimizer()

    @property
    def buffers(self) -> list[Tensor]:
        """What the models' losses read beside trained weights and batches."""
        return [*self._common.values(), *self._fixed.values()]

    def gradients(self, batches: Sequence[Batch]) -> Tensor:
        """Compute every model's gradient, and return their losses, (K,), from a batch of each.

        Raises:
            CannotStackError: batches that differ in shape.
            RuntimeError, MemoryError: memory does not suffice, or whatever the loss raises.
        """

        def loss_of(weights: dict[str, Tensor], tensors: list[Tensor]) -> Tensor:
            named = {f"model.{name}": each for name, each in (weights | self._common).items()}
            found: Tensor = functional_call(self._loss, named, (with_tensors(batches[0], tensors),))
            return found

        self.clear()
        tensors = _stacked(batches)
        with self._attention(), self._autocast:
            losses = vmap(loss_of, randomness="error")(self._trained | self._fixed, tensors)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        return losses.detach()

    def norms(self) -> Tensor:
        """Return the norm of each model's gradient, (K,)."""
        parts = [each.reshape(len(self._members), -1).norm(dim=1) for each in self._gradients()]
        found: Tensor = torch.stack(parts).norm(dim=0)
        return found

    def clip(self, most: float) -> Tensor:
        """Scale the gradient of every model whose norm is above ``most`` down to that norm; return
        the norms before, (K,)."""
        norms = self.norms()
        factors = (most / (norms + _LEAST_NORM)).clamp(max=1.0)
        for gradient in self._gradients():
            gradient.mul_(factors.view(-1, *[1] * (gradient.ndim - 1)))
        return norms

    def update(self, lr: float) -> None:
        step_at(self._optimizer, lr)

    def clear(self) -> None:
        for rows in self._trained.values():
            rows.grad = None

    def gradient_of(self, number: int) -> dict[str, Tensor]:
        """Return the gradient of one model by parameter, without those that take no part."""
        pairs = ((name, rows.grad) for name, rows in self._trained.items())
        return {name: gradient[number] for name, gradient in pairs if gradient is not None}

    def _gradients(self) -> list[Tensor]:
        return [rows.grad for rows in self._trained.values() if rows.grad is not None]

    def share_state(self) -> None:
        """Let the members' optimizers remember what they would after separate updates."""
        for number, (member, named) in enumerate(zip(self._members, self._named, strict=True)):
            for name, rows in self._trained.items():
                state = self._optimizer.state.get(rows, {})
                if state:
                    own = {part: v if part == _STEP else v[number] for part, v in state.items()}
                    member.optimizer.state[named[name]] = own
            groups = zip(member.optimizer.param_groups, self._optimizer.param_groups, strict=True)
            for group, common in groups:
                group["lr"] = common["lr"]

    def _stack_buffers(self) -> None:
        """Stack what models hold beside parameters, but for what is the same in all."""
        named = [dict(member.model.named_buffers()) for member in self._members]
        _check_alike(named)
        for name, first in named[0].items():
            if all(torch.equal(first, each[name]) for each in named[1:]):
                self._common[name] = first.clone()
            else:
                self._fixed[name] = torch.stack([each[name] for each in named])

    def _joint_optimizer(self) -> torch.optim.Optimizer:
        """Return one optimizer for the rows, which goes on from the members' states."""
        first = self._members[0].optimizer
        rows = {id(self._named[0][name]): common for name, common in self._trained.items()}
        kind: Any = type(first)
        joint: torch.optim.Optimizer = kind(
            [
                {**group, "params": [rows[id(own)] for own in group["params"]]}
                for group in first.param_groups
            ]
        )
        for name, common in self._trained.items():
            pairs = zip(self._members, self._named, strict=True)
            states = [member.optimizer.state.get(named[name], {}) for member, named in pairs]
            if any(state.keys() != states[0].keys() for state in states):
                raise CannotStackError("some of them were updated and others not")
            if states[0]:
                joint.state[common] = {
                    part: value if part == _STEP else torch.stack([each[part] for each in states])
                    for part, value in states[0].items()
                }
        return joint


def _stacked(batches: Sequence[Batch]) -> list[Tensor]:
    """Return the tensors of batches of one structure, each (K, ...)."""
    columns = []
    try:
        for each in zip(*map(leaves, batches), strict=True):
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
        return self._data.loss(self.model, batch)


def _check_alike(models: Sequence[Mapping[str, Tensor]]) -> None:
    outlines = [
        {name: (each.shape, each.dtype, each.requires_grad) for name, each in named.items()}
        for named in models
    ]
    if any(outline != outlines[0] for outline in outlines):
        raise CannotStackError("their models are of different structure")
