"""Data sets that a process keeps for its next trial, within bounds, and as they were made.

A worker trains many trials, most of them on the same few data sets. The last ones stay in memory,
least recently used first to go, up to a number of sets a function and an amount of memory for all.

They are handed out without a copy. A model that writes into its input changes a data set that the
next trial would use; torch counts such changes, so a set that differs from what was made is made
again, and a trial learns the same in a process of its own and in one that trained others before.
(What is written through ``Tensor.data`` or an array that shares the memory is not counted.)
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import update_wrapper
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeVar, cast

from torch import Tensor

HOST_BYTES: Final = 1 << 29
"""Of the host's memory for all data sets, the one made last not counted."""

DEVICE_BYTES: Final = 1 << 28
"""The same of accelerators, where a trial's memory is planned without what others left."""

P = ParamSpec("P")
T = TypeVar("T")


class _Result(NamedTuple):
    dataset: Any
    versions: tuple[int, ...]
    host_bytes: int
    device_bytes: int


_RESULTS: Final[OrderedDict[tuple[Any, ...], _Result]] = OrderedDict()
"""Those of all functions, least recently used first."""
_LOCK: Final = threading.Lock()


class KeepLast(Generic[P, T]):
    """A function of hashable arguments whose last results stay in memory.

    Args:
        make: makes a data set; may be called by several threads at once.
        limit: results of it that stay in memory, at most.
    """

    def __init__(self, make: Callable[P, T], limit: int) -> None:
        update_wrapper(self, make)
        self._make = make
        self._limit = limit

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result for these arguments; made if there is none, or it was written into."""
        key = (self, args, tuple(sorted(kwargs.items())))
        with _LOCK:
            result = _RESULTS.get(key)
            if result is not None and _versions(result.dataset) == result.versions:
                _RESULTS.move_to_end(key)
                return cast(T, result.dataset)
        dataset = self._make(*args, **kwargs)
        sizes = [0, 0]
        for tensor in {
            part.untyped_storage().data_ptr(): part for part in _tensors(dataset)
        }.values():
            sizes[tensor.device.type != "cpu"] += tensor.untyped_storage().nbytes()
        with _LOCK:
            _RESULTS.pop(key, None)
            _forget_beyond("host_bytes", HOST_BYTES)
            _forget_beyond("device_bytes", DEVICE_BYTES)
            _RESULTS[key] = _Result(dataset, _versions(dataset), *sizes)
            self._forget_all_but(self._limit)
        return dataset

    def cache_clear(self) -> None:
        """Forget all results of this function."""
        with _LOCK:
            self._forget_all_but(0)

    def _forget_all_but(self, limit: int) -> None:
        keys = [key for key in _RESULTS if key[0] is self]
        for key in keys[: max(0, len(keys) - limit)]:
            del _RESULTS[key]


def keep_last(limit: int) -> Callable[[Callable[P, T]], KeepLast[P, T]]:
    """Keep the last ``limit`` results of a function of hashable arguments (see the module)."""
    return lambda make: KeepLast(make, limit)


def _forget_beyond(field: str, limit: int) -> None:
    """Forget the oldest results until all of them take at most so many bytes of a memory."""
    while sum(getattr(result, field) for result in _RESULTS.values()) > limit:
        del _RESULTS[next(key for key, result in _RESULTS.items() if getattr(result, field))]


def _versions(dataset: Any) -> tuple[int, ...]:
    """Return how often each tensor of a data set was written into."""
    return tuple(tensor._version for tensor in _tensors(dataset))


def _tensors(value: Any, depth: int = 4) -> Iterator[Tensor]:
    """Yield the tensors in tuples, lists, dictionaries and attributes, always in the same order."""
    if isinstance(value, Tensor):
        yield value
    elif depth:
        parts = value if isinstance(value, tuple | list) else getattr(value, "__dict__", {})
        parts = value if isinstance(value, dict) else parts
        for part in parts.values() if isinstance(parts, dict) else parts:
            yield from _tensors(part, depth - 1)
