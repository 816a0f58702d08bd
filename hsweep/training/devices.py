"""The device of a trial, whoever made it: CUDA and ROCm (which torch calls ``cuda``), XPU, Apple's.

What is particular to CUDA stays so by name: graphs, and the limit of a share of a device.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

import torch

_CONTEXT_BYTES: Final = 2**30
"""What a process takes of a device beside its tensors: CUDA's context and kernels."""


def device_of(gpus: float) -> torch.device:
    """Return where a trial with so many devices trains. Without an accelerator in this torch, the
    error that CUDA is not there comes with the first use."""
    if not gpus:
        return torch.device("cpu")
    return torch.device((torch.accelerator.current_accelerator() or torch.device("cuda")).type)


def is_used(device: torch.device) -> bool:
    """Whether torch uses a device in this process. A script may have one that this torch lacks, and
    to ask a device that is not in use would take memory there."""
    if device.type == "cpu" or torch.accelerator.current_accelerator() is None:
        return False
    module = torch.get_device_module(device)
    return not hasattr(module, "is_initialized") or bool(module.is_initialized())


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed torch's global random generators of the CPU and of this device.

    ``torch.manual_seed`` would seed all devices of the machine, which a trial on the CPU leaves
    alone, and keep the call stack as text for each kind of device that is not there.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def wait_for(device: torch.device) -> None:
    """Wait until the device has done all that it was asked for."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@contextlib.contextmanager
def within_share(gpus: float, device: torch.device) -> Iterator[None]:
    """Limit torch's memory on CUDA to a trial's share of a device, if it has less than one; the
    whole is there afterwards.

    Its neighbours then have theirs, however much it asks for. What a process takes beside its
    tensors counts, but never more than half the share.
    """
    if device.type != "cuda" or gpus >= 1:
        yield
        return
    context = _CONTEXT_BYTES / torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(max(gpus - context, gpus / 2))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
