"""What is made once and then read or memory-mapped, by any number of processes.

An entry of the cache is a folder.
"""

import hashlib
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from tasks.base import DataError

CACHE_VARIABLE: Final = "HSWEEP_CACHE"

Arrays: TypeAlias = dict[str, NDArray[Any]]


def cache_folder() -> Path:
    """Return the folder named by HSWEEP_CACHE, ``~/.cache/hsweep`` without it; made if missing.

    Raises:
        DataError: it cannot be made.
    """
    folder = Path(os.environ.get(CACHE_VARIABLE) or "~/.cache/hsweep").expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot make the cache folder {folder}: {error}; set {CACHE_VARIABLE} to a folder "
            "that can be written"
        ) from error
    return folder


def content_key(kind: str, *content: object) -> str:
    """Return the name of an entry of a kind that is made of ``content``."""
    digest = hashlib.sha256(repr((kind, *content)).encode()).hexdigest()
    return f"{kind}-{digest[:32]}"


def cached_folder(key: str, write: Callable[[Path], None]) -> Path:
    """Return the entry ``key`` of the cache folder, which ``write`` fills where it is missing.

    The lock spares processes that start together the same work; the rename alone keeps a half
    written entry from ever being seen, also where the file system does not honour locks.

    Args:
        key: names the entry, a file name that changes with whatever ``write`` depends on.
        write: called with an empty folder where there is no such entry.

    Raises:
        DataError: the cache folder cannot be written.
        ValueError: a key that is no plain file name.
    """
    if not key or not key.isprintable() or key.startswith(".") or Path(key).name != key:
        raise ValueError(f"an entry's key names a file in the cache folder, not {key!r}")
    entry = cache_folder() / key
    if not entry.is_dir():
        try:
            with FileLock(entry.with_name(f"{entry.name}.lock")):
                if not entry.is_dir():
                    _remove_unfinished(entry)
                    _fill(entry, write)
        except OSError as error:
            raise DataError(
                f"cannot write {entry}: {error}; free some space, or set {CACHE_VARIABLE} to "
                "another folder"
            ) from error
    return entry


def cached_arrays(key: str, make: Callable[[], Mapping[str, NDArray[Any]]]) -> Arrays:
    """Return the arrays that ``make`` makes by name, as ``cached_folder``; memory-mapped copy on
    write.

    Raises:
        DataError: the cache folder cannot be written, or an entry in it is damaged.
    """

    def write(folder: Path) -> None:
        for name, array in make().items():
            np.save(folder / f"{name}.npy", array)

    entry = cached_folder(key, write)
    try:
        return {path.stem: np.load(path, mmap_mode="c") for path in sorted(entry.glob("*.npy"))}
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{entry} is damaged ({error}); delete it to have it made again") from error


def cached_part(set_key: str, name: str, make: Callable[[], Mapping[str, NDArray[Any]]]) -> Arrays:
    """Return the arrays of one part of a set, cached until ``remove_parts``."""
    return cached_arrays(f"{set_key}-part-{name}", make)


def remove_parts(set_key: str) -> None:
    """Remove the parts of a set that is complete, and their locks."""
    for part in cache_folder().glob(f"{set_key}-part-*"):
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def _remove_unfinished(entry: Path) -> None:
    """Remove what processes of this machine that are gone have left of an entry."""
    beginning = f"{entry.name}.{platform.node()}-"
    for folder in entry.parent.iterdir():
        if folder.name.startswith(beginning) and folder.is_dir():
            process = folder.name.removeprefix(beginning).partition("-")[0]
            if process.isdigit() and not _is_running(int(process)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _fill(entry: Path, write: Callable[[Path], None]) -> None:
    # The name of the folder says whose it is.
    prefix = f"{entry.name}.{platform.node()}-{os.getpid()}-"
    with TemporaryDirectory(prefix=prefix, dir=entry.parent, ignore_cleanup_errors=True) as folder:
        try:
            write(Path(folder))
            Path(folder).replace(entry)
        except OSError:
            if not entry.is_dir():  # otherwise another process was first with the same content
                raise
