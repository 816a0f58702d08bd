"""Data sets that a process keeps for its next trial, within bounds, and as they were made.

A worker trains many trials, most of them on the same few data sets. What was made or read last is
kept in memory, least recently used first to go, up to a number of sets a task and an amount of
memory for all of them.

What is handed out is not copied. A model that writes into its input changes a data set that the
next trial would be given; torch counts such changes, so a set that differs from what was made is
made again, and a trial learns the same in a process of its own and in one that trained others
before. (What is written through ``Tensor.data`` or an array that shares the memory is not counted.)
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from functools import update_wrapper
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeVar, cast

from torch import Tensor

HOST_BYTES: Final = 1 << 29
"""Of the host's memory for what is kept, the set made last not counted."""

DEVICE_BYTES: Final = 1 << 28
"""The same of accelerators, where a trial's memory is planned without what others left."""

P = ParamSpec("P")
T = TypeVar("T")


class _Entry(NamedTuple):
    made: Any
    versions: tuple[int, ...]
    host_bytes: int
    device_bytes: int


class Kept(Generic[P, T]):
    """A function of hashable arguments whose last results are kept.

    Args:
        make: makes a data set; may be called by several threads at once.
        most: results that are kept.
    """

    def __init__(self, make: Callable[P, T], most: int) -> None:
        update_wrapper(self, make)
        self._make = make
        self._most = most

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result kept for these arguments; made if there is none, or it was changed."""
        key = (self, args, tuple(sorted(kwargs.items())))
        entry = _SHELF.find(key)
        if entry is None:
            made = self._make(*args, **kwargs)
            entry = _SHELF.put(key, made)
            _SHELF.trim(self, self._most)
        return cast(T, entry.made)

    def cache_clear(self) -> None:
        """Forget what is kept of this function."""
        _SHELF.trim(self, 0)


def kept(most: int) -> Callable[[Callable[P, T]], Kept[P, T]]:
    """Keep the last ``most`` results of a function of hashable arguments (see the module)."""

    def decorate(make: Callable[P, T]) -> Kept[P, T]:
        return Kept(make, most)

    return decorate


class _Shelf:
    """All that a process keeps, least recently used first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[Any, ...], _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: tuple[Any, ...]) -> _Entry | None:
        """Return what is kept, None if nothing is or it is no longer as it was made."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if _versions(entry.made) != entry.versions:
                del self._entries[key]
                return None
            self._entries.move_to_end(key)
            return entry

    def put(self, key: tuple[Any, ...], made: Any) -> _Entry:
        """Keep something, and let go of what was used longest ago where memory is used up."""
        sizes = [0, 0]
        for tensor in _distinct(made):
            sizes[tensor.device.type != "cpu"] += tensor.untyped_storage().nbytes()
        entry = _Entry(made, _versions(made), *sizes)
        with self._lock:
            self._entries.pop(key, None)
            bounds = (("host_bytes", HOST_BYTES), ("device_bytes", DEVICE_BYTES))
            for field, most in bounds:
                while sum(getattr(each, field) for each in self._entries.values()) > most:
                    del self._entries[self._oldest_with(field)]
            self._entries[key] = entry
        return entry

    def trim(self, function: Hashable, most: int) -> None:
        """Let go of all but the last ``most`` results of a function."""
        with self._lock:
            keys = [key for key in self._entries if key[0] is function]
            for key in keys[: max(0, len(keys) - most)]:
                del self._entries[key]

    def _oldest_with(self, field: str) -> tuple[Any, ...]:
        return next(key for key, entry in self._entries.items() if getattr(entry, field))


_SHELF: Final = _Shelf()


def _versions(made: Any) -> tuple[int, ...]:
    """Return how often each tensor of a data set was written into."""
    return tuple(tensor._version for tensor in _tensors(made))


def _distinct(made: Any) -> Iterator[Tensor]:
    """Yield one tensor of each storage."""
    seen = set()
    for tensor in _tensors(made):
        place = tensor.untyped_storage().data_ptr()
        if place not in seen:
            seen.add(place)
            yield tensor


def _tensors(value: Any, depth: int = 4) -> Iterator[Tensor]:
    """Yield the tensors in tuples, lists, dictionaries and attributes, always in the same order."""
    if isinstance(value, Tensor):
        yield value
    elif depth:
        if isinstance(value, dict):
            parts = list(value.values())
        elif isinstance(value, (tuple, list)):
            parts = list(value)
        else:
            parts = list(vars(value).values()) if hasattr(value, "__dict__") else []
        for part in parts:
            yield from _tensors(part, depth - 1)
