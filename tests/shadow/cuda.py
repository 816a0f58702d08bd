"""``torch.cuda`` as it would be with one device."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from shadow import streams, waits
from shadow.device import CUDA, ShadowMode, ShadowTensor, pinned
from torch import Tensor
from torch.optim.optimizer import _foreach_supported_types

_BYTES: Final = 1 << 30
_GENERATOR: Final = torch.zeros(16, dtype=torch.uint8)
_CUDA: Final[dict[str, Any]] = {
    "_lazy_init": lambda: None,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "is_bf16_supported": lambda including_emulation=True: True,
    "manual_seed": lambda seed: None,
    "manual_seed_all": lambda seed: None,
    "get_rng_state": lambda device=None: _GENERATOR,
    "set_rng_state": lambda state, device=None: None,
    "Stream": streams.Stream,
    "Event": streams.Event,
    "current_stream": streams.current,
    "stream": streams.within,
    "is_current_stream_capturing": lambda: False,
}
_ACCELERATOR: Final[dict[str, Any]] = {
    "is_available": lambda: True,
    "current_accelerator": lambda check_available=False: CUDA,
    "current_device_index": lambda: 0,
    "set_device_index": lambda index: None,
    "synchronize": lambda device=None: waits.note("waiting for the device"),
    "empty_cache": lambda: None,
    "reset_peak_memory_stats": lambda device=None: None,
    "max_memory_reserved": lambda device=None: _BYTES,
}


@contextmanager
def shadow_cuda() -> Iterator[None]:
    """Have torch work with the shadow device, in a process that does nothing else."""
    for name, value in _CUDA.items():
        setattr(torch.cuda, name, value)
    for name, value in _ACCELERATOR.items():
        setattr(torch.accelerator, name, value)
    Tensor.pin_memory = pinned  # type: ignore[assignment, method-assign]
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False  # type: ignore[no-untyped-call]
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    # So that its optimizers compute with all parameters together, as they do on a real device.
    _foreach_supported_types.append(ShadowTensor)
    run = threading.Thread.run

    def run_shadowed(thread: threading.Thread) -> None:
        with ShadowMode():
            run(thread)

    threading.Thread.run = run_shadowed  # type: ignore[method-assign]
    # Tensors of numbers are made on the CPU and then copied, and gradients computed in this thread.
    torch._C._set_only_lift_cpu_tensors(True)
    with torch.autograd.set_multithreading_enabled(False), ShadowMode():
        yield
