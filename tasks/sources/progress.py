"""Progress of what takes long, for a listener."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, int, int], None]
"""Called with what is made (a plural), how many there are, and how many there will be."""

_LISTENER: ContextVar[Listener | None] = ContextVar("progress listener", default=None)


@contextmanager
def progress_to(listener: Listener) -> Iterator[None]:
    """Report all progress made inside the ``with``, in this thread, to ``listener``."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def report_progress(unit: str, done: int, total: int, *, interval: int = 1) -> None:
    """Tell the listener, if there is one, how many of ``total`` things are made.

    It is told when all are made, and whenever ``done`` is a multiple of ``interval``.

    Args:
        unit: what the things are, a plural such as ``images``.
        done: how many are made.
        total: how many there will be.
        interval: things from one message to the next.
    """
    listener = _LISTENER.get()
    if listener is not None and (done % interval == 0 or done == total):
        listener(unit, done, total)
