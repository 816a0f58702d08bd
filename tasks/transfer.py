"""Batches on their way to the training device."""

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on the device.

    From the CPU to CUDA it is copied out of pinned memory while both go on: from other memory the
    caller would wait until the device has done all that it was asked for before.
    """
    if tensor.device.type == "cpu" and device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
