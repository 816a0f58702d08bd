"""Batches made ready on the device while it computes the update before, and no further ahead."""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor

from hsweep.training.batches import leaves
from tasks.base import Batch

_AHEAD: Final = 2
"""Updates that may be asked for before one of them is done: the device always has the next."""


def prefetched(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Return the same batches, on CUDA each made ready while the update before it is computed.

    On the CPU there is nothing that would go on meanwhile, so they come as they are.
    """
    return Prefetched(batches, device) if device.type == "cuda" else batches


class Pace:
    """How far the host may run ahead of a device: what updates it asks for lies in a queue.

    Without it nothing but the length of the device's queue would hold the host back: batches made
    ahead would fill the memory where an update is a single replay of a graph, and a training's
    seconds would count what was asked for, not what was done. On the CPU nothing is queued.
    """

    def __init__(self, device: torch.device) -> None:
        self._streams: Any = torch.get_device_module(device) if device.type != "cpu" else None
        self._asked_for: deque[Any] = deque()

    def keep(self) -> None:
        """Note that an update was asked for, and wait until all but the last few are done."""
        if self._streams is None:
            return
        event = self._streams.Event()
        event.record()
        self._asked_for.append(event)
        if len(self._asked_for) > _AHEAD:
            self._asked_for.popleft().synchronize()


class Prefetched(Iterator[Batch]):
    """Batches, one of which is always made ready ahead, on a stream of its own.

    What the task does for the next batch (copies from pinned memory, gathering, augmentation) is
    queued on that stream before the caller queues its update, so the device does both at once.
    The batch of a step is a function of the step, so to make one ahead changes nothing. An error
    in making it is raised when it is asked for, not before.
    """

    def __init__(self, batches: Iterator[Batch], device: torch.device) -> None:
        self._batches = batches
        self._device = device
        # On the CPU its streams do nothing.
        self._streams: Any = torch.get_device_module(device)
        self._stream = self._streams.Stream()
        self._ready: deque[Batch] = deque()
        self._error: Exception | None = None

    def __next__(self) -> Batch:
        if not self._ready and self._error is None:
            self._make_ready()
        if not self._ready:
            error, self._error = self._error, None
            assert error is not None
            raise error
        batch = self._ready.popleft()
        current = self._streams.current_stream()
        current.wait_stream(self._stream)
        for each in leaves(batch):
            if isinstance(each, Tensor) and each.is_cuda:
                each.record_stream(current)  # its memory is not given away before it was used
        self._make_ready()
        return batch

    def _make_ready(self) -> None:
        # What the task reads may have been written by the updates so far.
        self._stream.wait_stream(self._streams.current_stream())
        try:
            with self._streams.stream(self._stream):
                self._ready.append(next(self._batches))
        except Exception as error:
            self._error = error
