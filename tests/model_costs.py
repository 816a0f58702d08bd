"""What a model really costs, measured on the built model."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from models.base import ModelConfig


def flops_and_output(model: nn.Module, *inputs: Tensor) -> tuple[int, Tensor]:
    """Return what torch's counter counts, and the output; only on meta tensors does the counter
    see fused attention."""
    with FlopCounterMode(display=False) as counter:
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
    """Return the most bytes alive at once in two AdamW steps, as the training loop takes them.

    Tensors are fake ones on the CPU, which have sizes and no content: the kernels chosen and what
    they keep are the CPU's, and a model of any size is measured in seconds.

    Args:
        config: the model, built on the meta device.
        batch: makes one batch; called where its tensors become fake ones.
        loss: the scalar training loss.
        bfloat16: whether to compute under bfloat16 autocast.
    """
    with torch.device("meta"):
        built = config.build()
    had = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with FakeTensorMode(), _LiveBytes() as live:
            model = built._apply(lambda t: torch.empty(t.shape, dtype=t.dtype, device="cpu"))
            for tensor in (*model.parameters(), *model.buffers()):
                live.note(tensor)
            optimizer = torch.optim.AdamW(model.parameters())
            for _ in range(2):
                with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                    value = loss(model, batch())
                optimizer.zero_grad(set_to_none=True)
                value.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            return live.peak
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(had)
