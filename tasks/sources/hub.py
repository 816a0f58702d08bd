"""Data sets in the layouts of the Hugging Face hub: local folders, and downloads when allowed."""

import errno
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.fields import Rule
from tasks.base import DataError
from tasks.sources.cache import CACHE_VARIABLE, cache_folder
from tasks.sources.digest import files_digest, folder_digest, folder_outline, sampled_digest

if TYPE_CHECKING:
    from datasets import DatasetDict

HUB_VARIABLE = "HSWEEP_HUB"
ROOT_VARIABLE = "HSWEEP_DATA"

_UNWRITABLE = (errno.EROFS, errno.ENOSPC, errno.EDQUOT)
_REFUSED = (errno.EACCES, errno.EPERM)
_PATTERN_MARKS = ("*", "?", "[", "]")


class _UnwritableError(DataError):
    """The cache cannot be written, so making it again is no remedy."""


def data_root() -> Path | None:
    """Return the folder that HSWEEP_DATA names, None without one."""
    root = os.environ.get(ROOT_VARIABLE)
    return Path(root).expanduser() if root else None


def downloads_allowed() -> bool:
    """Return whether names may be downloaded from the hub: whether HSWEEP_HUB is 1."""
    return os.environ.get(HUB_VARIABLE) == "1"


def downloaded(name: str) -> Path:
    """Return the folder in which the datasets library keeps a data set of the hub that it has
    downloaded; there may be none."""
    import datasets
    from datasets.naming import camelcase_to_snakecase

    *namespace, last = name.split("/")
    kept_as = "___".join([*namespace, camelcase_to_snakecase(last)])
    return Path(datasets.config.HF_DATASETS_CACHE) / kept_as


def resolved(data: str) -> str:
    """Return ``data`` as an absolute path if such a folder exists, else unchanged.

    A name that is no path is looked for under the folder that HSWEEP_DATA names, whole and by its
    last part, also in lower case: there ``cifar10`` serves ``uoft-cs/cifar10``. Tasks resolve at
    construction, because workers run in other folders and environments.
    """
    path = Path(data).expanduser()
    if path.exists():
        return str(path.resolve())
    if root := data_root():
        for name in (data, path.name, path.name.lower()):
            below = root / name
            # A name leads to what lies under the root, never out of it.
            if ".." not in Path(name).parts and below.exists():
                return str(below.resolve())
    return data


def place(*installed: str) -> Rule:
    """Return the rule of where data lie: a folder, a hub name, or a name among ``installed``."""
    choices = ", ".join([*map(repr, installed), "a folder or a hub name"])

    def rule(name: str, value: Any) -> str:
        if not value:
            raise ValueError(f"{name} must be {choices}, not empty")
        return str(value if value in installed else resolved(value))

    return rule


def local_folder(data: str) -> Path | None:
    """Return the folder that ``data`` names, or None where the hub is meant and allowed.

    Raises:
        DataError: there is no such folder and downloads are not turned on, or it is a file.
    """
    path = Path(data).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise DataError(f"data must be a folder, and {data!r} is a file; give its folder")
    if not downloads_allowed():
        raise DataError(
            f"data must be an existing folder, unless downloads are turned on: {data!r} does not "
            f"exist; give a local path, put it under the folder that {ROOT_VARIABLE} names, or set "
            f"{HUB_VARIABLE}=1 to have that name downloaded from the Hugging Face hub"
        )
    return None


def load_splits(data: str, config: str | None = None) -> "DatasetDict":
    """Return every split of the data set in the folder ``data``, or of that name on the hub.

    Rows are read from disk when asked for.

    Raises:
        DataError: it is missing, downloads are not turned on, or it cannot be read.
    """
    folder = local_folder(data)
    return _load_splits(data, config, None if folder is None else folder_digest(folder))


def content_digest(data: str, config: str | None = None) -> str:
    """Return a hash of the data set's files: for a folder its own, else those downloaded.

    Raises:
        DataError: as ``load_splits``.
    """
    folder = local_folder(data)
    if folder is not None:
        return folder_digest(folder)
    files = _files(load_splits(data, config))
    return "-".join(files_digest(path.parent, [path]) for path in files)


def outline_digest(data: str) -> str:
    """Return a hash of the names and sizes of the data set's files and of samples of them.

    Raises:
        DataError: as ``load_splits``.
    """
    folder = local_folder(data)
    if folder is not None:
        return folder_outline(folder)
    return sampled_digest({path.name: path for path in _files(load_splits(data))})


@functools.lru_cache(maxsize=8)
def _load_splits(data: str, config: str | None, digest: str | None) -> "DatasetDict":
    if digest is None:
        return _converted(data, config, None)
    # A folder's converted rows are kept by content, so data that change are never mistaken.
    cache = cache_folder() / "datasets" / digest[:16]
    was_there = cache.exists()
    try:
        return _converted(data, config, cache)
    except _UnwritableError:
        raise
    except DataError:
        if not was_there:
            raise
    # The rows that were converted before may be damaged.
    return _converted(data, config, cache, again=True)


def _converted(
    data: str, config: str | None, cache: Path | None, *, again: bool = False
) -> "DatasetDict":
    import datasets

    options = {"download_mode": "force_redownload"} if again else {}
    cache_dir = None if cache is None else str(cache)
    try:
        with progress_bars_off():
            return datasets.load_dataset(data, config, cache_dir=cache_dir, **options)
    except Exception as error:  # the library raises a different kind for every reader and fault
        raise _unusable(data, config, error) from error


@contextmanager
def progress_bars_off() -> Iterator[None]:
    """Keep the datasets library's own progress bars from being shown."""
    import datasets

    quiet = datasets.utils.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not quiet:
            datasets.enable_progress_bars()


def _unusable(data: str, config: str | None, error: Exception) -> DataError:
    """Return what to say of a data set that the datasets library refuses."""
    from datasets.exceptions import DatasetGenerationError

    cause = error.__cause__ if isinstance(error, DatasetGenerationError) else None
    for fault in (error, cause):
        if isinstance(fault, OSError) and (
            fault.errno in _UNWRITABLE
            or (fault.errno in _REFUSED and str(cache_folder()) in str(fault.filename))
        ):
            return _UnwritableError(
                f"cannot write {fault.filename or cache_folder()}: {fault.strerror}; free some "
                f"space, or set {CACHE_VARIABLE} to a folder that can be written"
            )
    named = "" if config is None else f" (configuration {config!r})"
    reason = " ".join(f"{error} {cause or ''}".split())
    remedy = "check that it is laid out as on the Hugging Face hub"
    if any(mark in data for mark in _PATTERN_MARKS):
        remedy = (
            f"the library takes {' '.join(_PATTERN_MARKS)} in a path for patterns: move or link "
            "the folder to a path without them"
        )
    return DataError(f"the datasets library cannot load {data!r}{named}: {reason}; {remedy}")


def _files(splits: "DatasetDict") -> list[Path]:
    names = {entry["filename"] for split in splits.values() for entry in split.cache_files}
    return [Path(name) for name in sorted(names)]
