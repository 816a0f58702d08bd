"""Nests of tensors (batches, arguments, states), walked by one function; and batches made ready on
the device while it computes the update before, and no further ahead."""

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from hsweep.errors import UserError, shown
from hsweep.training.devices import is_out_of_memory
from tasks.base import Batch, Divisible, TaskData

Parts = Sequence[tuple[Batch, float]]
"""Parts of a batch, each with its share of the batch's loss."""

_AHEAD: Final = 2
"""Updates that may wait for the device: it always has the next."""
_PLAIN: Final = (bool, int, float, type(None))


def mapped(nest: Any, change: Callable[[Any], Any]) -> Any:
    """Return a nest of dictionaries, lists, tuples and dataclasses with every leaf changed."""
    if isinstance(nest, dict):
        copied = copy.copy(nest)  # and what a dictionary of weights has beside its items
        for name, value in nest.items():
            copied[name] = mapped(value, change)
        return copied
    if isinstance(nest, tuple | list):
        values = [mapped(value, change) for value in nest]
        return type(nest)(*values) if hasattr(nest, "_fields") else type(nest)(values)
    if dataclasses.is_dataclass(nest) and not isinstance(nest, type):
        names = [field.name for field in dataclasses.fields(nest) if field.init]
        return dataclasses.replace(nest, **{n: mapped(getattr(nest, n), change) for n in names})
    return change(nest)


def leaves(nest: Any) -> list[Any]:
    """Return the values of a nest that are no collections, in a fixed order."""
    values: list[Any] = []

    def collect(leaf: Any) -> Any:
        values.append(leaf)
        return leaf

    mapped(nest, collect)
    return values


def moved(nest: Any, device: torch.device) -> Any:
    return mapped(nest, lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf)


def rows_of(nest: Any, rows: slice | Tensor) -> Any:
    """Return these rows (a slice, or int64 indices) of every tensor of a nest."""
    return mapped(nest, lambda leaf: leaf[rows] if isinstance(leaf, Tensor) and leaf.ndim else leaf)


def num_examples(nest: Any) -> int | None:
    """Return the common first dimension of a nest's tensors.

    None where the tensors differ in it, or the nest holds an object of unknown length.
    """
    sizes: set[int | None] = set()
    for leaf in leaves(nest):
        if not isinstance(leaf, Tensor):
            sizes |= set() if isinstance(leaf, _PLAIN) else {None}
        elif leaf.ndim:
            sizes.add(len(leaf))
    return sizes.pop() if len(sizes) == 1 else None


def parts_of(data: TaskData, batch: Batch, at_once: int) -> Parts:
    """Return the parts of a batch, each of at most ``at_once`` examples and with its share of the
    loss.

    Data that are ``tasks.base.Divisible`` divide the batch themselves. Otherwise its tensors are
    cut along their common first dimension, and shares are in proportion to the numbers of examples.
    A batch without a common first dimension stays whole.
    """
    if isinstance(data, Divisible):
        return data.parts(batch, at_once)
    size = num_examples(batch)
    if size is None:
        return [(batch, 1.0)]
    return [
        (rows_of(batch, slice(start, start + at_once)), min(at_once, size - start) / size)
        for start in range(0, size, at_once)
    ]


def part_alone(value: Any) -> Any:
    """Copy a tensor that is a part of a larger one to the CPU; return any other value unchanged."""
    is_strided = isinstance(value, Tensor) and value.layout is torch.strided
    is_part = is_strided and value.untyped_storage().nbytes() > value.nbytes
    return value.detach().to("cpu", copy=True) if is_part else value


def plain_tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a model's state, those that share their numbers once.

    Raises:
        UserError: the model's state holds something that is no tensor.
    """
    tensors: dict[str, Tensor] = {}
    known = set()
    for name, value in mapped(dict(state), part_alone).items():
        if not isinstance(value, Tensor):
            raise UserError(
                f"the state of a model whose weights are kept is made of tensors; {name!r} is "
                f'{shown(value)}. Make it a buffer, or leave keep="none"'
            )
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        if place not in known or not value.data_ptr():
            known.add(place)
            tensors[name] = value.contiguous()
    return tensors


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
