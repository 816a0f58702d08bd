"""When a command looks for garbage: objects that hold each other and that nothing else holds.

Half of a command's time can be imports, and Python looks through all that was imported again and
again meanwhile, of which nothing is garbage.
"""

import atexit
import contextlib
import gc
from collections.abc import Iterator
from typing import Final

_USUAL: Final = gc.get_threshold()
_FEW_SEARCHES: Final = (100_000, 20, 100)


def search_less() -> None:
    """Let this process, which is going to import much, look for garbage seldom, and not at its end:
    an interpreter that ends looks several times, and its memory goes with it anyway."""
    gc.set_threshold(*_FEW_SEARCHES)
    atexit.register(gc.freeze)


def search_as_usual() -> None:
    """Look for garbage as Python does, but not among what is there by now.

    What training in this process leaves may hold tensors: much memory in few objects. Where seldom
    was not asked for, nothing changes: the process is not ours.
    """
    if gc.get_threshold() == _FEW_SEARCHES:
        gc.freeze()
        gc.set_threshold(*_USUAL)


@contextlib.contextmanager
def unsearched() -> Iterator[None]:
    """Let no thread look for garbage meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
