"""What a model really costs, measured on the built model."""

import weakref
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from hsweep.design.recipe import Recipe
from hsweep.training.optimizers import build_optimizer
from models.base import ModelConfig
from models.meta_build import build_on_meta


def _attention_flops(
    query: torch.Size, key: torch.Size, value: torch.Size, *_: Any, **__: Any
) -> int:
    return int(sdpa_flop_count(query, key, value))


_LEFT_OUT_BY_TORCH: Final = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops
}
"""torch has a formula for fused attention and gives it to the kernels of every device but this."""


def flops_and_output(model: nn.Module, *inputs: Tensor) -> tuple[int, Tensor]:
    """Return what torch's counter counts in a forward pass, and the output.

    A small model is best counted on the CPU: the kernels take less time than working out on the
    meta device, in Python, which shapes they would return.
    """
    counting = FlopCounterMode(display=False, custom_mapping=_LEFT_OUT_BY_TORCH)
    with torch.no_grad(), counting as counter:
        output: Tensor = model(*inputs)
    return int(counter.get_total_flops()), output


def flops_of(model: nn.Module, *inputs: Tensor) -> int:
    """Return what torch's counter counts."""
    return flops_and_output(model, *inputs)[0]


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


class _LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors alive, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[int, int] = {}
        self._now = 0
        self.peak = 0

    def note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        identity = int(storage._cdata)
        if identity not in self._sizes:
            self._sizes[identity] = storage.nbytes()
            self._now += storage.nbytes()
            self.peak = max(self.peak, self._now)
            weakref.finalize(storage, self._forget, identity)

    def _forget(self, identity: int) -> None:
        self._now -= self._sizes.pop(identity)

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if operator is torch.ops.prim.device.default:
            # Asked several times of every tensor, which the mode below would be called for.
            return args[0].fake_device
        results = operator(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            if isinstance(result, Tensor):
                self.note(result)
        return results


def peak_training_bytes(
    config: ModelConfig,
    batch: Callable[[], tuple[Tensor, ...]],
    loss: Callable[[nn.Module, tuple[Tensor, ...]], Tensor],
    *,
    bfloat16: bool = False,
) -> int:
    """Return the most bytes alive at once in a training step, as the training loop takes it.

    Steps had been taken before: every parameter has AdamW's moments, and its gradient until it
    gets another. Tensors are fake ones on the CPU, which have sizes and no content: the kernels
    chosen and what they keep are the CPU's, and a model of any size is measured in seconds.

    Args:
        config: the model, built on the meta device.
        batch: makes one batch; called where its tensors become fake ones.
        loss: the scalar training loss.
        bfloat16: whether to compute under bfloat16 autocast.
    """
    built = build_on_meta(config)
    had = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with FakeTensorMode():
            model = built._apply(lambda t: torch.empty(t.shape, dtype=t.dtype, device="cpu"))
            with _LiveBytes() as live:
                for tensor in (*model.parameters(), *model.buffers()):
                    live.note(tensor)
                optimizer = build_optimizer(model, Recipe(optimizer="adamw"))
                # What the step before leaves alive does not depend on its loss.
                for parameter in model.parameters():
                    parameter.grad = torch.empty_like(parameter)
                optimizer.step()
                with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                    value = loss(model, batch())
                optimizer.zero_grad(set_to_none=True)
                value.backward()  # type: ignore[no-untyped-call]
                return live.peak
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(had)
