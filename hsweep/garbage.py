"""Settings of Python's garbage collector."""

import atexit
import contextlib
import gc
from collections.abc import Iterator
from typing import Final

_USUAL: Final = gc.get_threshold()
_RARE: Final = (100_000, 20, 100)


def collect_rarely() -> None:
    """Let Python look for garbage seldom in this process, and not at its end.

    Half of a command's time can be imports, and Python spends a fifth of that looking for garbage
    where there is none.
    """
    gc.set_threshold(*_RARE)
    atexit.register(gc.freeze)


def collect_as_usual() -> None:
    """Look for garbage at Python's usual rate, but not among the objects that exist by now.

    Garbage of training in this process may hold tensors: much memory in few objects. In a user's
    own program nothing changes.
    """
    if gc.get_threshold() == _RARE:
        gc.freeze()
        gc.set_threshold(*_USUAL)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Turn the garbage collector off for the length of the ``with`` block, in all threads."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
