"""A folder as two machines see it on a network disk without locks: each through a mount of its own.

``python stale_mount.py FOLDER MOUNT SECONDS`` serves one, until it is unmounted. Names, sizes and
listings are as old as that many seconds, other than those that were changed through the same mount;
an append goes where the mount thinks that the file ends; locks are refused.
"""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def stale_mount(folder: Path, mount: Path, seconds: float) -> Iterator[Path]:
    """Show a folder at a mount, or skip the test where that is not possible."""
    try:
        import fuse  # noqa: F401
    except (ImportError, OSError):
        pytest.skip("a mount in Python needs fusepy and libfuse2")
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("mounting needs root and /dev/fuse")
    mount.mkdir()
    server = subprocess.Popen([sys.executable, __file__, str(folder), str(mount), str(seconds)])
    try:
        while not mount.is_mount():
            if server.poll() is not None:
                pytest.skip("FUSE does not work here")
            time.sleep(0.02)
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", mount], check=False)
        # It would serve on for a process that has its current folder there.
        server.kill()
        server.wait()


def _serve(folder: str, mount: str, seconds: float) -> None:
    from fuse import FUSE, FuseOSError, Operations

    class Stale(Operations):  # type: ignore[misc]
        def __init__(self) -> None:
            self._listings: dict[str, tuple[float, list[str]]] = {}

        def __call__(self, name: str, path: str | None, *arguments: Any) -> Any:
            try:
                # A file that was removed while it is open has no path.
                return getattr(self, name)(folder + (path or ""), *arguments)
            except OSError as error:
                raise FuseOSError(error.errno) from None
            except AttributeError:
                raise FuseOSError(errno.ENOSYS) from None

        def _forget(self, *paths: str) -> None:
            for path in paths:
                self._listings.pop(str(Path(path).parent), None)

        def readdir(self, path: str, _file: int) -> list[str]:
            when, names = self._listings.get(path, (-1e9, []))
            if time.monotonic() - when > seconds:
                names = [".", "..", *os.listdir(path)]  # noqa: PTH208
                self._listings[path] = time.monotonic(), names
            return names

        def getattr(self, path: str, file: int | None = None) -> dict[str, Any]:
            found = os.lstat(path) if file is None else os.fstat(file)
            names = ("mode", "nlink", "uid", "gid", "size", "atime", "mtime", "ctime")
            return {f"st_{name}": getattr(found, f"st_{name}") for name in names}

        def create(self, path: str, mode: int) -> int:
            self._forget(path)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

        def open(self, path: str, flags: int) -> int:
            return os.open(path, flags & ~os.O_APPEND)

        def read(self, _path: str, size: int, offset: int, file: int) -> bytes:
            return os.pread(file, size, offset)

        def write(self, _path: str, content: bytes, offset: int, file: int) -> int:
            return os.pwrite(file, content, offset)

        def truncate(self, path: str, length: int, _file: int | None = None) -> None:
            os.truncate(path, length)

        def flush(self, _path: str, _file: int) -> None:
            pass

        def fsync(self, _path: str, _data_only: int, file: int) -> None:
            os.fsync(file)

        def release(self, _path: str, file: int) -> None:
            os.close(file)

        def link(self, new: str, old: str) -> None:
            self._forget(new)
            os.link(folder + old, new)

        def rename(self, old: str, new: str) -> None:
            self._forget(old, folder + new)
            Path(old).rename(folder + new)

        def unlink(self, path: str) -> None:
            self._forget(path)
            Path(path).unlink()

        def mkdir(self, path: str, mode: int) -> None:
            self._forget(path)
            Path(path).mkdir(mode)

        def rmdir(self, path: str) -> None:
            self._forget(path)
            Path(path).rmdir()

        def readlink(self, path: str) -> str:
            return os.readlink(path)  # noqa: PTH115

        def symlink(self, new: str, target: str) -> None:
            self._forget(new)
            Path(new).symlink_to(target.removeprefix(folder))

        def chmod(self, path: str, mode: int) -> None:
            Path(path).chmod(mode)

        def utimens(self, path: str, times: tuple[float, float] | None = None) -> None:
            os.utime(path, times)

        def access(self, path: str, mode: int) -> None:
            if not os.access(path, mode):
                raise FuseOSError(errno.EACCES)

        def statfs(self, path: str) -> dict[str, int]:
            found = os.statvfs(path)
            names = ("bavail", "bfree", "blocks", "bsize", "favail", "ffree", "files", "frsize")
            return {f"f_{name}": getattr(found, f"f_{name}") for name in names}

        def lock(self, *_arguments: Any) -> None:
            raise FuseOSError(errno.ENOLCK)

    FUSE(
        Stale(),
        mount,
        foreground=True,
        hard_remove=True,
        attr_timeout=seconds,
        entry_timeout=seconds,
        negative_timeout=seconds,
    )


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], float(sys.argv[3]))
