"""Large sets made part by part, so that an interruption costs one part."""

import shutil
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from tasks.sources.cache import cache_folder, cached_arrays

Arrays = dict[str, NDArray[np.generic]]


def cached_part(
    set_key: str, name: str, make: Callable[[], Mapping[str, NDArray[np.generic]]]
) -> Arrays:
    """Return the arrays of one part, kept as in ``cached_arrays`` until ``remove_parts``.

    Args:
        set_key: names the whole set.
        name: names the part within it.
        make: called when there is no such part.

    Raises:
        DataError: the cache folder cannot be written, or the part is damaged.
    """
    return cached_arrays(f"{set_key}-part-{name}", make)


def remove_parts(set_key: str) -> None:
    """Remove the parts of a set that is complete, and their locks."""
    for part in cache_folder().glob(f"{set_key}-part-*"):
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)
