"""Where checkpoints and weights lie: any file system that pyarrow reaches."""

import contextlib
import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hsweep.errors import UserError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_ADVICE: Final = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or have the quota raised",
    errno.EROFS: "mount it writable",
    errno.EACCES: "give yourself the right to read and write there",
    errno.EPERM: "give yourself the right to read and write there",
}


class StorageError(OSError):
    """A file of the study cannot be written or read; the message says where, why and what to do."""


class UnusableStorageError(StorageError, UserError):
    """A folder or URI that pyarrow cannot use here. Where a study starts that is the user's
    mistake, and in its trials a failure of the storage, which could be used there."""


def file_system(root: str) -> "tuple[FileSystem, str]":
    """Return the file system of a folder or URI, and the path on it.

    Raises:
        UnusableStorageError: a URI that pyarrow cannot use.
    """
    from pyarrow import ArrowInvalid
    from pyarrow.fs import FileSystem

    try:
        files, path = FileSystem.from_uri(root)
    except (ArrowInvalid, OSError) as error:
        raise UnusableStorageError(
            f"the storage {root!r} cannot be used ({error}); give an absolute folder that every "
            "node sees, or a URI such as s3://bucket/folder"
        ) from error
    return files, str(path).rstrip("/")


def write_whole(files: "FileSystem", folder: str, name: str, content: bytes) -> None:
    """Write a file under a temporary name, then rename it.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    temporary = f"{folder}/.{name}.tmp"
    try:
        files.create_dir(folder, recursive=True)
        with files.open_output_stream(temporary) as stream:
            stream.write(content)
        files.move(temporary, f"{folder}/{name}")
    except OSError:
        with contextlib.suppress(OSError):
            files.delete_file(temporary)
        raise


@contextlib.contextmanager
def saying_why(subject: str, participle: str) -> Iterator[None]:
    """Turn an OSError into a StorageError that gives the reason and the remedy: ``subject``
    ("weights in /folder") cannot be ``participle`` ("written")."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "see to it that the storage works")
        raise StorageError(
            f"{subject} cannot be {participle} ({error}); {advice}, then resume"
        ) from error
