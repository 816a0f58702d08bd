"""Hashes that tell whether a task still learns from the same data."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tasks.base import DataError, is_in_key

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PLACES: Final = 256
_PLACE_BYTES: Final = 1 << 14


def definition_digest(
    task: "DataclassInstance", version: str, *content: str, leave_out: Iterable[str] = ()
) -> str:
    """Return the hash of a task's class name, its fields, a version and hashes of its data.

    Fields that are declared as ``tasks.base.not_in_key`` are left out.

    Args:
        task: a frozen task whose fields are plain values.
        version: to be changed with the code that makes data out of these fields.
        content: hashes of the data behind the task, if there is any.
        leave_out: further fields that do not change these data.
    """
    ignored = set(leave_out)
    fields = {
        field.name: getattr(task, field.name)
        for field in dataclasses.fields(task)
        if is_in_key(field) and field.name not in ignored
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
            raise _unreadable(path, error) from error
        name = path.relative_to(root).as_posix()
        total.update(repr((name, stat.st_size, content)).encode())
    return total.hexdigest()


def folder_outline(folder: Path) -> str:
    """Return the ``sampled_digest`` of all files below ``folder``, hidden ones left out: for
    folders too large to read again and again.

    Raises:
        DataError: the folder holds no file, or one cannot be read.
    """
    files = _visible_files(folder)
    return sampled_digest({path.relative_to(folder).as_posix(): path for path in files})


def sampled_digest(files: Mapping[str, Path]) -> str:
    """Return the hash of the name and size of each file, and of what is read at 256 places.

    The places are evenly spaced over all bytes of all files, each 16 KiB long, the first and the
    last bytes among them: whatever changes all of a data set changes the hash.

    Args:
        files: by the names that count.

    Raises:
        DataError: a file cannot be read.
    """
    total = hashlib.sha256()
    try:
        sizes = [(name, files[name].stat().st_size) for name in sorted(files)]
        total.update(repr(sizes).encode())
        last = max(0, sum(size for _, size in sizes) - 1)
        places = sorted({last * number // (_PLACES - 1) for number in range(_PLACES)})
        begin = 0
        for name, size in sizes:
            inside = [place - begin for place in places if begin <= place < begin + size]
            if inside:
                with files[name].open("rb") as file:
                    for place in inside:
                        file.seek(min(place, max(0, size - _PLACE_BYTES)))
                        total.update(file.read(_PLACE_BYTES))
            begin += size
    except OSError as error:
        raise _unreadable(error.filename, error) from error
    return total.hexdigest()


def _unreadable(path: object, error: OSError) -> DataError:
    return DataError(f"cannot read {path}: {error}; check the file and its rights")


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
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
