"""The files of final weights that a study keeps, one a trial."""

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hsweep.paths import WEIGHTS_HEADER, weights_file
from hsweep.training.storage import file_system, saying_why

_NAME: Final = re.compile(r"(t[0-9a-f]{20})-(\d{5})\.safetensors")

_BLOCK: Final = 1 << 24

File = tuple[str, int]
"""What names a file: the trial, and the attempt that wrote it (0: another study's)."""


class WeightsFolder:
    """The weights below a folder or URI.

    Its methods raise a StorageError where the storage does not work.

    Raises:
        UserError: a URI that pyarrow cannot use.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._files, self._folder = file_system(root)

    def sizes(self) -> dict[File, int]:
        """Return the bytes of each file that is whole."""
        from pyarrow.fs import FileSelector

        with self._saying_why("read"):
            selector = FileSelector(self._folder, allow_not_found=True)
            found = self._files.get_file_info(selector)
        named = ((_NAME.fullmatch(info.base_name), info) for info in found)
        return {(match[1], int(match[2])): info.size for match, info in named if match}

    def remove(self, file: File) -> None:
        """Remove a file, if it is there; one that cannot be removed costs only space."""
        with contextlib.suppress(OSError):
            self._files.delete_file(f"{self._folder}/{weights_file(*file)}")

    @contextlib.contextmanager
    def local(self, file: File) -> Iterator[Path]:
        """Give a file a path on this machine, for as long as the block lasts."""
        path = f"{self._folder}/{weights_file(*file)}"
        if "://" not in self.root:
            yield Path(path)
            return
        with tempfile.TemporaryDirectory() as folder:
            copied = Path(folder) / weights_file(*file)
            self._copy(self, path, str(copied.parent), weights_file(*file), local=True)
            yield copied

    def take(self, other: "WeightsFolder", file: File, to: File) -> None:
        """Copy a file of another folder, under another name."""
        source = f"{other._folder}/{weights_file(*file)}"
        self._copy(other, source, self._folder, weights_file(*to))

    def _copy(
        self, source: "WeightsFolder", path: str, folder: str, name: str, *, local: bool = False
    ) -> None:
        from pyarrow.fs import LocalFileSystem

        files = LocalFileSystem() if local else self._files
        temporary = f"{folder}/.{name}.tmp"
        with self._saying_why("copied"):
            files.create_dir(folder, recursive=True)
            with (
                source._files.open_input_stream(path) as content,
                files.open_output_stream(temporary) as copy,
            ):
                while block := content.read(_BLOCK):
                    copy.write(block)
            files.move(temporary, f"{folder}/{name}")

    def _saying_why(self, done: str) -> contextlib.AbstractContextManager[None]:
        return saying_why(f"weights in {self._folder}", done)


def header_of(file: Path) -> dict[str, Any]:
    """Return what a file of weights says that they are."""
    from safetensors import safe_open

    with safe_open(file, "pt") as content:
        found: dict[str, Any] = json.loads(content.metadata()[WEIGHTS_HEADER])
    return found
