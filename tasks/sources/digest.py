"""Hashes that tell whether a task still learns from the same data."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.base import DataError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_CHUNK_BYTES = 1 << 20


def definition_digest(
    task: "DataclassInstance", version: str, *content: str, leave_out: Iterable[str] = ()
) -> str:
    """Return the hash of a task's class name, its fields, a version and the given content hashes.

    Args:
        task: a frozen task whose fields are plain values.
        version: to be changed with the code that makes data out of these fields.
        content: hashes of the data behind the task, if there is any.
        leave_out: fields that do not change the data, such as where it lies.
    """
    ignored = set(leave_out)
    fields = {
        field.name: getattr(task, field.name)
        for field in dataclasses.fields(task)
        if field.name not in ignored
    }
    text = repr((type(task).__name__, version, sorted(fields.items()), content))
    return hashlib.sha256(text.encode()).hexdigest()


def folder_digest(folder: Path) -> str:
    """Return the hash of the relative name, size and content of every file below ``folder``.

    Hidden files and folders are left out. A file is read once per process while its size and
    modification time stay as they are.

    Raises:
        DataError: the folder holds no file, or one cannot be read.
    """
    return files_digest(folder, _visible_files(folder))


def files_digest(root: Path, files: Iterable[Path]) -> str:
    """Return the hash of the name relative to ``root``, size and content of each of ``files``.

    Raises:
        DataError: a file cannot be read.
    """
    total = hashlib.sha256()
    for path in files:
        try:
            stat = path.stat()
            content = _content_digest(path, stat.st_size, stat.st_mtime_ns)
        except OSError as error:
            raise DataError(
                f"cannot read {path}: {error}; check the file and its rights"
            ) from error
        name = path.relative_to(root).as_posix()
        total.update(repr((name, stat.st_size, content)).encode())
    return total.hexdigest()


def listing_digest(folder: Path) -> str:
    """Return the hash of the relative name and size of every file below ``folder``, unread.

    For folders too large to read again and again. Hidden files and folders are left out.

    Raises:
        DataError: the folder holds no file, or cannot be listed.
    """
    total = hashlib.sha256()
    for path in _visible_files(folder):
        total.update(repr((path.relative_to(folder).as_posix(), path.stat().st_size)).encode())
    return total.hexdigest()


def _visible_files(folder: Path) -> list[Path]:
    try:
        files = sorted(
            path
            for path in folder.rglob("*")
            if path.is_file()
            and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        )
    except OSError as error:
        raise DataError(f"cannot list {folder}: {error}; check the folder's rights") from error
    if not files:
        raise DataError(f"{folder} holds no files; give a folder with data in it")
    return files


@functools.lru_cache(maxsize=4096)
def _content_digest(path: Path, _size: int, _mtime_ns: int) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            total.update(chunk)
    return total.hexdigest()
