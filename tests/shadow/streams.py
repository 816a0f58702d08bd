"""Streams of the shadow device: what one reads that another writes, it has to wait for.

All is computed at once and in order, so nothing goes wrong here; a clock for each stream tells what
could.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from shadow import waits
from torch import Tensor


class Stream:
    """A stream, and how far each stream was when this one last waited for it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.clock: Counter[Stream] = Counter()

    def wait_stream(self, other: "Stream") -> None:
        self.clock |= other.clock

    def synchronize(self) -> None:
        waits.note("waiting for a stream")


class Event:
    """An event. The loop waits for those of updates long done, which costs the device nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, stream: Stream | None = None) -> None: ...

    def synchronize(self) -> None: ...


FIRST: Final = Stream()
_current = threading.local()

_written: dict[int, tuple[Stream, int]] = {}
"""By the place in memory: the stream that wrote there last, and when by its clock."""
_users: dict[int, set[Stream]] = {}
"""By the place in memory: the streams that may use it, where one beside the first made it."""


def current(*_: Any) -> Stream:
    stream: Stream = getattr(_current, "stream", FIRST)
    return stream


@contextmanager
def within(stream: Stream) -> Iterator[None]:
    before = current()
    _current.stream = stream
    try:
        yield
    finally:
        _current.stream = before


def forget() -> None:
    """Forget what was written: the memory is another trial's."""
    _written.clear()
    _users.clear()


def record_use(tensor: Tensor, stream: Stream) -> None:
    """Allow a stream the memory of a tensor that another stream has made."""
    _users.setdefault(_memory(tensor), set()).add(stream)


def record(reads: Iterable[Tensor], writes: Iterable[Tensor], makes: Iterable[Tensor]) -> None:
    """Record what an operation on the current stream does to tensors.

    Raises:
        RuntimeError: another stream may not have written yet what this one reads, or may give the
            memory away while this one reads it.
    """
    stream = current()
    for tensor in (*reads, *writes):
        memory = _memory(tensor)
        writer, time = _written.get(memory, (stream, 0))
        if writer is not stream and stream.clock[writer] < time:
            raise RuntimeError(
                f"a stream reads what another writes, without waiting: {waits.place()}"
            )
        if stream not in _users.get(memory, {stream}):
            raise RuntimeError(f"a stream uses another's memory, unrecorded: {waits.place()}")
    stream.clock[stream] += 1
    for tensor in makes:
        _users.pop(_memory(tensor), None)
        if stream is not FIRST:
            _users[_memory(tensor)] = {stream}
    for tensor in (*writes, *makes):
        _written[_memory(tensor)] = (stream, stream.clock[stream])


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
