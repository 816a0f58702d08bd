"""When Python's garbage collector runs."""

import atexit
import contextlib
import gc
from collections.abc import Iterator
from typing import Final

_USUAL: Final = gc.get_threshold()
_RARE: Final = (100_000, 20, 100)


def collect_rarely() -> None:
    """Let this process, which is going to import much, look for garbage seldom, and not at its end.

    Half of a command's time can be imports, a fifth of which Python looks for garbage where there
    is none.
    """
    gc.set_threshold(*_RARE)
    atexit.register(gc.freeze)


def collect_as_usual() -> None:
    """Look for garbage as Python does, but not among what is there by now.

    What training in this process leaves may hold tensors: much memory in few objects. In a program
    of the user's nothing changes.
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
