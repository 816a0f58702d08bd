"""What is wrong on CUDA alone, for the shadow device to find."""

from collections.abc import Callable, Mapping
from typing import Final

import torch
from shadow.device import CUDA

from tasks.sampling import to_device


def two_devices() -> None:
    torch.ones(3, device=CUDA) + torch.ones(3)


def generator_of_the_cpu() -> None:
    torch.rand(3, device=CUDA, generator=torch.Generator())


def numbers_without_a_copy() -> None:
    torch.ones(3, device=CUDA).numpy()


def index_of_another_device() -> None:
    torch.ones(3)[torch.arange(2, device=CUDA)]


def stream_that_does_not_wait() -> None:
    tensor = torch.ones(3, device=CUDA)
    with torch.cuda.stream(torch.cuda.Stream()):
        tensor + 1


def memory_of_another_stream() -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor = torch.ones(3, device=CUDA)
    torch.cuda.current_stream().wait_stream(stream)
    tensor + 1


def number_read() -> None:
    float(torch.ones((), device=CUDA))


def numbers_read() -> None:
    torch.ones(3, device=CUDA).tolist()


def copy_of_pageable_memory() -> None:
    torch.ones(3).to(CUDA, non_blocking=True)


def copy_into_a_tensor() -> None:
    torch.ones(3, device=CUDA).copy_(torch.ones(3))


def tensor_of_numbers() -> None:
    torch.tensor([1.0, 2.0], device=CUDA)


def mask() -> None:
    tensor = torch.ones(3, device=CUDA)
    tensor[tensor > 0]


def index_of_the_cpu() -> None:
    torch.ones(3, device=CUDA)[torch.arange(2)]


def nothing() -> None:
    """Wait for nothing: what is in pinned memory, and what each stream may read."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        tensor = to_device(torch.ones(3), CUDA)
    torch.cuda.current_stream().wait_stream(stream)
    tensor.record_stream(torch.cuda.current_stream())  # type: ignore[arg-type]
    torch.where(tensor > 0, tensor, 1.0).sum()


REFUSED: Final[Mapping[str, tuple[Callable[[], None], str]]] = {
    "two devices": (two_devices, "of CUDA and of the CPU"),
    "generator": (generator_of_the_cpu, "a generator of the CPU"),
    "numpy": (numbers_without_a_copy, "numpy() is not supported"),
    "index": (index_of_another_device, "of CUDA and of the CPU"),
    "stream": (stream_that_does_not_wait, "without waiting"),
    "memory": (memory_of_another_stream, "another's memory"),
}
"""Functions that raise, and a part of the message."""

WAITING: Final[Mapping[str, tuple[Callable[[], None], int]]] = {
    "item": (number_read, 1),
    "tolist": (numbers_read, 1),
    "pageable": (copy_of_pageable_memory, 1),
    "copy_": (copy_into_a_tensor, 1),
    "torch.tensor": (tensor_of_numbers, 1),
    "mask": (mask, 1),
    "CPU index": (index_of_the_cpu, 1),
    "nothing": (nothing, 0),
}
"""Functions that wait for the device, and how often."""


def fault_seen(name: str) -> dict[str, object]:
    """Return the error and the waits of a function."""
    from shadow import waits

    function = (REFUSED.get(name) or WAITING[name])[0]
    waits.take()
    error = ""
    try:
        function()
    except Exception as raised:
        error = str(raised)
    return {"error": error, "waits": [what for _, what in waits.take().elements()]}
