"""Data sets in the layouts of the Hugging Face hub: local folders, and downloads when allowed."""

import functools
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.base import DataError
from tasks.sources.cache import cache_folder
from tasks.sources.digest import files_digest, folder_digest, listing_digest

if TYPE_CHECKING:
    from datasets import DatasetDict

HUB_VARIABLE = "HSWEEP_HUB"
ROOT_VARIABLE = "HSWEEP_DATA"


def data_root() -> Path | None:
    """Return the folder that HSWEEP_DATA names, None without one."""
    root = os.environ.get(ROOT_VARIABLE)
    return Path(root).expanduser() if root else None


def downloads_allowed() -> bool:
    """Return whether names may be downloaded from the hub: whether HSWEEP_HUB is 1."""
    return os.environ.get(HUB_VARIABLE) == "1"


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
            found = root / name
            if found.exists():
                return str(found.resolve())
    return data


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
    names = {
        Path(entry["filename"])
        for split in load_splits(data, config).values()
        for entry in split.cache_files
    }
    return "-".join(files_digest(path.parent, [path]) for path in sorted(names))


def size_digest(data: str) -> str:
    """Return a hash of the names and sizes of the data set's files, which are not read.

    Raises:
        DataError: as ``load_splits``.
    """
    folder = local_folder(data)
    if folder is not None:
        return listing_digest(folder)
    paths = [
        Path(entry["filename"])
        for split in load_splits(data).values()
        for entry in split.cache_files
    ]
    sizes = sorted({(path.name, path.stat().st_size) for path in paths})
    return hashlib.sha256(repr(sizes).encode()).hexdigest()


@functools.lru_cache(maxsize=8)
def _load_splits(data: str, config: str | None, digest: str | None) -> "DatasetDict":
    import datasets

    # A folder's converted rows are kept by content, so data that change are never mistaken.
    cache = None if digest is None else str(cache_folder() / "datasets" / digest[:16])
    quiet = datasets.utils.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        splits = datasets.load_dataset(data, config, cache_dir=cache)
    except Exception as error:  # the library raises a different kind for every reader and fault
        named = "" if config is None else f" (configuration {config!r})"
        cause = "" if error.__cause__ is None else f" {error.__cause__}"
        raise DataError(
            f"the datasets library cannot load {data!r}{named}: {error}{cause}; check that it is "
            "laid out as on the Hugging Face hub"
        ) from error
    finally:
        if not quiet:
            datasets.enable_progress_bars()
    return splits
