"""What becomes of memory that training frees on the CPU: it is kept for the next update.

The C library gives large pieces back to the system as they are freed, and each update asks for them
again: the system then clears every page anew, which can take as long as the computing. With glibc
they can be kept (mallopt(3), as PyTorch's own advice for training on CPUs is); elsewhere nothing is
changed.
"""

import ctypes
import functools
import os
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Parameters of mallopt, by glibc's malloc.h."""
_LARGEST_PIECE: Final = 32 * 2**20
"""Bytes: glibc takes no more than this. Larger pieces are given back all the same."""
_NEVER: Final = 2**31 - 1
_CHOSEN_BY_USER: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def reuse_freed_memory() -> None:
    """Keep what this process frees from now on; give back what it has freed until now.

    Called before each trial, so that a small one does not hold what a large one needed.
    """
    library = _library()
    if library is not None:
        library.malloc_trim(0)


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Return the C library, told to keep memory; None where it cannot be, or the user has chosen
    otherwise."""
    if any(name in os.environ for name in _CHOSEN_BY_USER):
        return None
    library = ctypes.CDLL(None)
    if not (hasattr(library, "mallopt") and hasattr(library, "malloc_trim")):
        return None
    library.mallopt(_MMAP_THRESHOLD, _LARGEST_PIECE)
    library.mallopt(_TRIM_THRESHOLD, _NEVER)
    return library
