"""Settings of Python's garbage collector."""

import atexit
import contextlib
import gc
import time
from collections.abc import Iterator
from typing import Final

_USUAL: Final = gc.get_threshold()
_SHARE: Final = 0.05
"""The part of training that looking for garbage between trials may take at most."""
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


class Collection:
    """Looks for garbage between trials of a process, where that is cheap beside their training.

    Cycles of references, as trainers with callbacks have, hold tensors in few objects: Python does
    not look for them until there are many. To look takes tenths of a second, as long as many small
    trials.
    """

    def __init__(self) -> None:
        self._trained = self._last_took = 0.0

    def after(self, seconds: float) -> None:
        """Collect behind a trial that took so long, if what was trained since the last time is
        worth it."""
        self._trained += seconds
        if self._last_took <= _SHARE * self._trained:
            begin = time.perf_counter()
            gc.collect()
            self._last_took, self._trained = time.perf_counter() - begin, 0.0


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
