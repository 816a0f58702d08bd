"""What a model really costs, measured on the built model."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


def params_by_group(model: nn.Module, prefixes: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Sum the parameters whose names start with a group's prefixes; each belongs to one group."""
    sums = dict.fromkeys(prefixes, 0)
    for name, parameter in model.named_parameters():
        (group,) = [key for key, starts in prefixes.items() if name.startswith(starts)]
        sums[group] += parameter.numel()
    return sums


def flops_of(model: nn.Module, *inputs: Tensor) -> int:
    """Return what torch's counter counts; only on meta tensors does it see fused attention."""
    with FlopCounterMode(display=False) as counter:
        model(*inputs)
    return int(counter.get_total_flops())


def bytes_kept_per_example(model: nn.Module, example: Tensor, *, bfloat16: bool = False) -> float:
    """Return the bytes autograd keeps for each example of a batch, parameters left out."""

    def kept(batch_size: int) -> int:
        own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        storages: dict[int, Tensor] = {}

        def pack(tensor: Tensor) -> Tensor:
            pointer = tensor.untyped_storage().data_ptr()
            if pointer not in own:
                storages[pointer] = tensor
            return tensor

        x = example.expand(batch_size, *example.shape[1:]).contiguous()
        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
            torch.autocast("cpu", torch.bfloat16, enabled=bfloat16),
        ):
            output = model(x)
        del output
        return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())

    # Two sizes, because what a batch shares (an input-free query, cast weights) is kept once.
    return (kept(8) - kept(4)) / 4
