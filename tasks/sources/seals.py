"""Hashes of what the cache keeps, taken when it is made and compared when asked for."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tasks.base import DataError
from tasks.sources.digest import files_digest, folder_digest

_NAME: Final = ".sha256"
"""Hidden file with the hash of all the others beside it."""


@dataclass(slots=True)
class Inspection:
    """What a look into the cache showed.

    Attributes:
        made_anew: what differed from its hash, or had none, and was made again.
        found_whole: what did not differ, so that it is read once.
    """

    made_anew: list[Path] = field(default_factory=list)
    found_whole: set[Path] = field(default_factory=set)


_INSPECTION: ContextVar[Inspection | None] = ContextVar("inspection of the cache", default=None)


@contextmanager
def inspecting() -> Iterator[Inspection]:
    """Have whatever of the cache is used within the ``with``, in this thread, read whole, compared
    with the hash taken when it was made, and made again where the two differ.

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
    inspection = _INSPECTION.get()
    if inspection is not None:
        inspection.made_anew.append(path)


def seal_folder(folder: Path) -> None:
    """Write down the hash of a folder's files.

    Raises:
        OSError: the file with the hash cannot be written.
        DataError: a file cannot be read, or there is none.
    """
    (folder / _NAME).write_text(folder_digest(folder), "ascii")


def is_whole(folder: Path) -> bool:
    """Return whether there is such a folder and, while ``inspecting``, whether its files are those
    that were sealed."""
    inspection = _INSPECTION.get()
    if inspection is None or folder in inspection.found_whole:
        return folder.is_dir()
    try:
        whole = folder_digest(folder) == _read(folder / _NAME)
    except DataError:  # missing, empty or unreadable
        return False
    if whole:
        inspection.found_whole.add(folder)
    return whole


def are_whole(files: Sequence[Path], seal: Path) -> bool:
    """Return whether files that another library keeps in the cache are what they were at first.

    The first call writes their hash into ``seal``; later ones compare while ``inspecting``.

    Args:
        files: in an order that does not change.
        seal: where their hash is kept.

    Raises:
        DataError: a file cannot be read.
    """
    inspection, known = _INSPECTION.get(), _read(seal)
    if known is None:
        unfinished = seal.with_name(f"{seal.name}.{os.getpid()}")
        try:
            unfinished.write_text(_digest(files), "ascii")
            unfinished.replace(seal)
        except OSError:  # a cache that others filled may be read-only
            return True
    elif inspection is not None and seal not in inspection.found_whole:
        if _digest(files) != known:
            return False
        inspection.found_whole.add(seal)
    return True


def _digest(files: Sequence[Path]) -> str:
    return "-".join(files_digest(path.parent, [path]) for path in files)


def _read(seal: Path) -> str | None:
    try:
        return seal.read_text("ascii")
    except (OSError, ValueError):
        return None
