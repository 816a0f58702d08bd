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


def report_progress(what: str, done: int, total: int, *, every: int = 1) -> None:
    """Tell the listener, if there is one, that ``done`` of ``total`` are made; when a multiple of
    ``every`` is, or all are."""
    listener = _LISTENER.get()
    if listener is not None and (done % every == 0 or done == total):
        listener(what, done, total)
