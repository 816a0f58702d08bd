"""Models whose weights are spread over the processes of a trial (FSDP2).

Each process holds its share of every weight, gradient and moment; the weights of a block are
gathered when it is their turn (``torch.distributed.fsdp.fully_shard``). Checkpoints hold the whole
state, so they say nothing of how many processes there were.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from hsweep.training.batches import mapped
from hsweep.training.world import World


def shard(model: nn.Module, device: torch.device, world: World) -> None:
    """Spread a model, wherever it is, over the devices of the processes, block by block."""
    mesh = distributed.device_mesh.init_device_mesh(device.type, (world.size,))
    for block in blocks(model):
        fully_shard(block, mesh=mesh)
    # Its own weights too are given back after a pass, so that parameters are always the shares.
    fully_shard(model, mesh=mesh, reshard_after_forward=True)


def blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that are parts of a list or a sequence and have parts themselves, without
    those that hold others of them."""
    is_list = isinstance(model, nn.ModuleList | nn.Sequential)
    for child in model.children():
        inner = list(blocks(child))
        if inner:
            yield from inner
        elif is_list and any(child.children()) and any(True for _ in child.parameters()):
            yield child


def gathered(state: Mapping[str, Any], world: World) -> dict[str, Any]:
    """Return a state with whole tensors, on the CPU; every process calls this, and rank 0 alone is
    given them."""

    def whole(leaf: Any) -> Any:
        if not isinstance(leaf, DTensor):
            return leaf
        full = leaf.full_tensor()
        return full.cpu() if world.rank == 0 else None

    gathered_state: dict[str, Any] = mapped(dict(state), whole)
    return gathered_state


def shares_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]
) -> dict[str, Any]:
    """Return this process's shares of whole states of model and optimizer."""
    now = model.state_dict()
    weights = {name: _like(value, now[name]) for name, value in saved["model"].items()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    moments = {
        number: {
            name: _like(value, parameters[number]) if name != "step" else value
            for name, value in moments_of.items()
        }
        for number, moments_of in saved["optimizer"]["state"].items()
    }
    return {"model": weights, "optimizer": {**saved["optimizer"], "state": moments}}


def _like(value: Any, other: Tensor) -> Any:
    if not isinstance(other, DTensor) or getattr(value, "shape", None) != other.shape:
        return value
    on_device = value.to(other.device)
    return distribute_tensor(on_device, other.device_mesh, other.placements, src_data_rank=None)
