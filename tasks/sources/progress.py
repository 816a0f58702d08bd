"""How far something that takes long has got, for listeners."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, int, int], None]
"""Called with what is made (a plural), how many there are, and how many there will be."""

_LISTENER: ContextVar[Listener | None] = ContextVar("progress listener", default=None)


@contextmanager
def telling(listener: Listener) -> Iterator[None]:
    """Have ``listener`` told of all progress made inside the ``with``, in this thread."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def tell(what: str, done: int, wanted: int) -> None:
    """Tell the listener, if there is one, that ``done`` of ``wanted`` are made."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(what, done, wanted)
