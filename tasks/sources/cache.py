"""What is made once and then read or memory-mapped, by any number of processes.

An entry of the cache is a folder. The hash of its files is written into it when it is made, and
compared while ``inspect_cache``.
"""

import hashlib
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from tasks.base import DataError
from tasks.sources.digest import files_digest, folder_digest

CACHE_VARIABLE: Final = "HSWEEP_CACHE"
_SEAL: Final = ".sha256"
"""Hidden file with the hash of all the others beside it."""

Arrays: TypeAlias = dict[str, NDArray[np.generic]]


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
        write: called with an empty folder where there is no such entry, or it is damaged.

    Raises:
        DataError: the cache folder cannot be written.
        ValueError: a key that is no plain file name.
    """
    if not key or not key.isprintable() or key.startswith(".") or Path(key).name != key:
        raise ValueError(f"an entry's key names a file in the cache folder, not {key!r}")
    entry = cache_folder() / key
    if not _is_whole(entry):
        try:
            with FileLock(entry.with_name(f"{entry.name}.lock")):
                if not _is_whole(entry):
                    _clear(entry)
                    _fill(entry, write)
        except OSError as error:
            raise DataError(
                f"cannot write {entry}: {error}; free some space, or set {CACHE_VARIABLE} to "
                "another folder"
            ) from error
    return entry


def cached_arrays(key: str, make: Callable[[], Mapping[str, NDArray[np.generic]]]) -> Arrays:
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
        raise DataError(
            f"{entry} is damaged ({error}); delete it, or run `hsweep data prepare`, to have it "
            "made anew"
        ) from error


def cached_part(
    set_key: str, name: str, make: Callable[[], Mapping[str, NDArray[np.generic]]]
) -> Arrays:
    """Return the arrays of one part of a set, cached until ``remove_parts``."""
    return cached_arrays(f"{set_key}-part-{name}", make)


def remove_parts(set_key: str) -> None:
    """Remove the parts of a set that is complete, and their locks."""
    for part in cache_folder().glob(f"{set_key}-part-*"):
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


@dataclass(slots=True)
class Inspection:
    """The result of an inspection of the cache.

    Attributes:
        made_anew: entries that differed from their hash, or had none, and were made again.
        whole: entries that did not differ, so that each is read once.
    """

    made_anew: list[Path] = field(default_factory=list)
    whole: set[Path] = field(default_factory=set)


_INSPECTION: ContextVar[Inspection | None] = ContextVar("inspection of the cache", default=None)


@contextmanager
def inspect_cache() -> Iterator[Inspection]:
    """Have every entry of the cache that is used within the ``with``, in this thread, read whole,
    compared with the hash taken when it was made, and made again where the two differ.

    Outside, an entry is trusted as long as it can be read: hashing takes longer than mapping.
    """
    inspection = Inspection()
    before = _INSPECTION.set(inspection)
    try:
        yield inspection
    finally:
        _INSPECTION.reset(before)


def note_made_anew(path: Path) -> None:
    """Tell the inspection under way, if there is one, that ``path`` was damaged."""
    if inspection := _INSPECTION.get():
        inspection.made_anew.append(path)


def are_whole(files: Sequence[Path], seal: Path) -> bool:
    """Return whether the files of another library in the cache have the content that they had when
    this was first called for them.

    The first call writes their hash into ``seal``; later ones compare it while ``inspect_cache``.

    Raises:
        DataError: a file cannot be read.
    """

    def digest() -> str:
        return "-".join(files_digest(path.parent, [path]) for path in files)

    inspection, known = _INSPECTION.get(), _read(seal)
    if known is None:
        unfinished = seal.with_name(f"{seal.name}.{os.getpid()}")
        try:
            unfinished.write_text(digest(), "ascii")
            unfinished.replace(seal)
        except OSError:  # a cache that others filled may be read-only
            return True
    elif inspection is not None and seal not in inspection.whole:
        if digest() != known:
            return False
        inspection.whole.add(seal)
    return True


def _is_whole(entry: Path) -> bool:
    """Return whether there is such an entry and, while ``inspect_cache``, whether its files are
    those that it was made with."""
    inspection = _INSPECTION.get()
    if inspection is None or entry in inspection.whole:
        return entry.is_dir()
    try:
        whole = folder_digest(entry) == _read(entry / _SEAL)
    except DataError:  # missing, empty or unreadable
        return False
    if whole:
        inspection.whole.add(entry)
    return whole


def _read(seal: Path) -> str | None:
    try:
        return seal.read_text("ascii")
    except (OSError, ValueError):
        return None


def _clear(entry: Path) -> None:
    """Remove a damaged entry, and the unfinished ones of this machine's processes that are gone."""
    if entry.is_dir():
        with _temporary(entry) as damaged:
            entry.replace(damaged)  # in one step; whoever has mapped its files keeps them
        note_made_anew(entry)
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


def _temporary(entry: Path) -> TemporaryDirectory[str]:
    """Make an empty folder beside an entry that says whose it is."""
    prefix = f"{entry.name}.{platform.node()}-{os.getpid()}-"
    return TemporaryDirectory(prefix=prefix, dir=entry.parent, ignore_cleanup_errors=True)


def _fill(entry: Path, write: Callable[[Path], None]) -> None:
    with _temporary(entry) as name:
        folder = Path(name)
        try:
            write(folder)
            (folder / _SEAL).write_text(folder_digest(folder), "ascii")
            folder.replace(entry)
        except OSError:
            if not entry.is_dir():  # otherwise another process was first with the same content
                raise
