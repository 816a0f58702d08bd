"""When a command looks for garbage: objects that hold each other and that nothing else holds.

Half of a command's time can be imports, and Python looks through all that was imported again and
again meanwhile, of which nothing is garbage.
"""

import atexit
import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from typing import Final

_USUAL: Final = gc.get_threshold()
_FEW_SEARCHES: Final = (100_000, 20, 100)
_exit_code: int | None = None


def search_less() -> None:
    """Let this process, which is going to import much, look for garbage seldom, and not at its
    end."""
    gc.set_threshold(*_FEW_SEARCHES)
    # Registered first, it runs last.
    atexit.register(_leave_memory)


@contextlib.contextmanager
def exit_code_known() -> Iterator[None]:
    """Note the exit code of a command that searches less, so that its process can end at once."""
    global _exit_code
    try:
        yield
    except SystemExit as ended:
        _exit_code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise


def _leave_memory() -> None:
    """End the process and leave its memory to the system: an interpreter that ends searches it
    several times, and compiled libraries print what they then find left over."""
    if _exit_code is None:
        gc.freeze()
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(_exit_code)


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
