"""Where checkpoints, weights and copies of records lie: any file system that pyarrow reaches.

Every call ends: what gives no answer is left to its thread after a time limit. What a store on
another machine refuses is tried again for two minutes, so that a short outage costs a delay.
Credentials come from the environment (keys, a profile, the machine's role) and are never written.
"""

import contextlib
import errno
import functools
import re
import time
import uuid
from collections.abc import Callable
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hsweep.errors import UserError
from hsweep.terminal import print_step
from hsweep.threads import in_thread

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

Result = TypeVar("Result")

_ANSWER_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 10.0
"""Whoever waits longer for an answer is told."""
_BYTES_A_SECOND: Final = 2_000_000
"""A call gets the time above, and one second more for so many bytes."""
_PATIENCE_SECONDS: Final = 120.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 16.0
_PUTS_WHOLE: Final = ("s3", "gcs", "abfs")
"""File systems in which a file is there once it is whole, so that it needs no renaming."""
_LASTING: Final = re.compile(
    r"ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_|SIGNATURE|TOKEN|HTTP status 40[0-7]"
)
"""Errors of object stores that trying again does not mend."""
_DETAILS: Final = re.compile(r" \(Request ID.*|; Details: .*", re.DOTALL)
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
    """A folder or URI that cannot be used here. Where a study starts that is the user's
    mistake, and in its trials a failure of the storage, which could be used there."""


@functools.cache
def file_system(root: str) -> "tuple[FileSystem, str]":
    """Return the file system of a folder or URI, and the path on it.

    Raises:
        UnusableStorageError: a URI that pyarrow cannot use.
    """
    from pyarrow import ArrowInvalid
    from pyarrow.fs import FileSystem

    try:
        files, path = _within("the storage", _ANSWER_SECONDS, lambda: FileSystem.from_uri(root))
        if not path:
            raise ArrowInvalid("it names no bucket")
    except (ArrowInvalid, OSError) as error:
        raise UnusableStorageError(
            f"the storage {root!r} cannot be used ({error}); give an absolute folder that every "
            "node sees, or a URI such as s3://bucket/folder"
        ) from error
    return files, str(path).rstrip("/")


class Store:
    """The files below a folder or URI: a file is there whole, or it is not there.

    Its methods raise a StorageError where the storage does not work.

    Args:
        root: the folder or URI.
        folder: its folder that is meant.
        subject: what lies there, in messages.
        patience: seconds for which a store on another machine is tried again.

    Attributes:
        path: of the folder on its file system.
        trouble: why a call had to be tried again, for who cares to say it; empty otherwise.

    Raises:
        UnusableStorageError: a URI that pyarrow cannot use.
    """

    def __init__(
        self,
        root: str,
        folder: str = "",
        *,
        subject: str = "files",
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self.root, self.subject = root, subject
        self._files, path = file_system(root)
        self.path = f"{path}/{folder}".rstrip("/")
        self._patience = patience if self._files.type_name != "local" else 0.0
        self.trouble = ""

    def write(self, name: str, content: bytes) -> None:
        """Write a file; where that fails, what was there before stays."""
        folder, _, last = f"{self.path}/{name}".rpartition("/")
        self._call("written", lambda: self._put(folder, last, content), len(content))

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is none."""

        def opened() -> Any:
            try:
                # Not a stream, which asks an object store for many small parts.
                return self._files.open_input_file(f"{self.path}/{name}")
            except FileNotFoundError:
                return None

        file = self._call("read", opened)
        if file is None:
            return None
        with file:
            size: int = file.size()
            content: bytes = self._call("read", lambda: file.read_at(size, 0), size)
            return content

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the size in bytes of each file in a folder, by name."""
        return {info.base_name: info.size for info in self._infos(folder) if info.is_file}

    def folders(self) -> list[str]:
        return [info.base_name for info in self._infos("") if not info.is_file]

    def remove(self, name: str) -> None:
        """Remove a file if it exists; a file that cannot be removed costs only space."""
        with contextlib.suppress(OSError):
            _within(
                self.path, _ANSWER_SECONDS, lambda: self._files.delete_file(f"{self.path}/{name}")
            )

    def remove_folder(self, name: str = "") -> None:
        """Remove a folder with all that it holds, if it exists."""
        from pyarrow.fs import FileType

        path = self._path(name)

        def delete() -> None:
            if self._files.get_file_info(path).type is FileType.Directory:
                self._files.delete_dir(path)

        self._call("removed", delete)

    def check_writable(self) -> None:
        """Write a small file, read it and remove it.

        Raises:
            UnusableStorageError: this cannot be done here.
        """
        name, content = f".written-by-hsweep-{uuid.uuid4().hex[:8]}", b"hsweep"
        try:
            self.write(name, content)
            if self.read(name) != content:
                raise StorageError("what was written there cannot be read back")
            self.remove(name)
        except StorageError as error:
            remedy = "make it a folder with space that can be written to"
            if self._files.type_name != "local":
                remedy = (
                    "see to it that the bucket exists, that this machine reaches it and that its "
                    "credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the "
                    "machine's role) may write there"
                )
            raise UnusableStorageError(
                f"the storage {self.root!r} cannot be written to ({error.__cause__ or error}); "
                f"{remedy}, or give another --storage"
            ) from error

    def _path(self, folder: str) -> str:
        return f"{self.path}/{folder}".rstrip("/")

    def _infos(self, folder: str) -> "list[FileInfo]":
        from pyarrow.fs import FileSelector

        selector = FileSelector(self._path(folder), allow_not_found=True)
        infos: list[FileInfo] = self._call("read", lambda: self._files.get_file_info(selector))
        return infos

    def _put(self, folder: str, name: str, content: bytes) -> None:
        puts_whole = self._files.type_name in _PUTS_WHOLE
        draft = f"{folder}/{name}" if puts_whole else f"{folder}/.{name}.tmp"
        try:
            if not puts_whole:
                self._files.create_dir(folder, recursive=True)
            with self._files.open_output_stream(draft) as stream:
                stream.write(content)
            if not puts_whole:
                self._files.move(draft, f"{folder}/{name}")
        except OSError:
            if not puts_whole:
                with contextlib.suppress(OSError):
                    self._files.delete_file(draft)
            raise

    def _call(self, participle: str, action: Callable[[], Result], num_bytes: int = 0) -> Result:
        """Return what an action returns, which may be tried again: within a time limit, and its
        OSError as a StorageError with the reason and the remedy."""
        limit, pause = _ANSWER_SECONDS + num_bytes / _BYTES_A_SECOND, _FIRST_PAUSE
        until = time.monotonic() + self._patience
        while True:
            try:
                return _within(self.path, limit, action)
            except OSError as error:
                what = f"{self.subject} in {self.path} cannot be {participle}"
                if _LASTING.search(str(error)) or time.monotonic() + pause > until:
                    advice = _ADVICE.get(error.errno or 0, "see to it that the storage works")
                    raise StorageError(f"{what} ({error}); {advice}, then resume") from error
                self.trouble = f"{what} and are tried again ({_DETAILS.sub('', str(error))})"
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _within(what: str, seconds: float, action: Callable[[], Result]) -> Result:
    """Return what an action of a storage returns; TimeoutError where it takes longer, which its
    thread may."""
    answer = in_thread("storage", action)
    silent = min(seconds, _SILENT_SECONDS)
    if not wait([answer], silent).done and silent < seconds:
        print_step(f"{what} has given no answer for {silent:.0f} s; waiting up to {seconds:.0f} s")
        wait([answer], seconds - silent)
    if not answer.done():
        raise TimeoutError(f"no answer within {seconds:.0f} s")
    return answer.result()
