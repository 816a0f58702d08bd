"""Batches made ready on the device while it computes the update before, and no further ahead."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import Tensor

from hsweep.training.batches import leaves
from hsweep.training.memory import is_out_of_memory
from tasks.base import Batch

_AHEAD: Final = 2
"""Updates that may wait for the device: it always has the next."""


def prefetched(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Return the same batches; on a device with streams each is prepared during the update before
    it.

    On the CPU preparing would not overlap with the update, so the batches are returned unchanged.
    """
    has_streams = device.type != "cpu" and hasattr(torch.get_device_module(device), "Stream")
    return made_ahead(batches, device) if has_streams else batches


def made_ahead(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Yield the same batches, each made while the one before it is used, on a stream of its own.

    What the task does for the next batch (copies from pinned memory, gathering, augmentation) is
    queued on that stream before the caller queues its update, so the device does both at once.
    The batch of a step is a function of the step, so to make one ahead changes nothing. An error
    in making it is raised in its place, not before.
    """
    streams: Any = torch.get_device_module(device)  # on the CPU its streams do nothing
    stream = streams.Stream()

    def make() -> Batch:
        # What the task reads may have been written by the updates so far.
        stream.wait_stream(streams.current_stream())
        try:
            with streams.stream(stream):
                return next(batches)
        except Exception as error:
            # A traceback holds what was made of the batch, which an update needs the memory of.
            return error.with_traceback(None) if is_out_of_memory(error) else error

    following = make()
    while not isinstance(following, Exception):
        batch, current = following, streams.current_stream()
        current.wait_stream(stream)
        for leaf in leaves(batch):
            if isinstance(leaf, Tensor) and leaf.device.type != "cpu":
                leaf.record_stream(current)  # its memory is not given away before it was used
        following = make()
        yield batch
    if not isinstance(following, StopIteration):
        raise following


def queue_limit(device: torch.device) -> Callable[[], None]:
    """Return a function to call after each queued update: it waits until all updates but the last
    few are done.

    Otherwise only the length of the device's queue would hold the host back: batches made ahead
    would fill the memory where an update is a single replay of a graph, and the seconds of a
    training would count updates that are not done yet. On the CPU nothing is queued.
    """
    streams: Any = torch.get_device_module(device) if device.type != "cpu" else None
    queued: deque[Any] = deque()

    def wait() -> None:
        if streams is None:
            return
        event = streams.Event()
        event.record()
        queued.append(event)
        if len(queued) > _AHEAD:
            queued.popleft().synchronize()

    return wait
