"""Checkpoints: where they lie, how they are written and which one counts.

A checkpoint is one file named ``<unit>-<attempt>-<digest>.pt`` under its trial's folder, on any
file system that pyarrow reaches (a local or shared folder, an object store). It is written under a
temporary name and renamed, and its name carries a digest of its content, so a half-written or
damaged file is never mistaken for a whole one. The newest valid one wins. An attempt reads what
earlier attempts left and removes only what is not newer than itself, so that a worker believed
dead cannot destroy its successor's work.
"""

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from hsweep.errors import UserError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_NAME: Final = re.compile(r"(\d{9})-(\d{5})-([0-9a-f]{16})\.pt")
_KEPT: Final = 2


@dataclass(frozen=True, slots=True, order=True)
class _Entry:
    unit: int
    attempt: int
    digest: str

    @property
    def name(self) -> str:
        return f"{self.unit:09d}-{self.attempt:05d}-{self.digest}.pt"


class CheckpointStore:
    """One trial's checkpoints.

    Args:
        root: folder or URI that holds every trial's checkpoints.
        key: the trial.
        attempt: this attempt's number.
    """

    def __init__(self, root: str, key: str, attempt: int) -> None:
        self._files, base = file_system(root)
        self._folder = f"{base}/{key}"
        self._attempt = attempt

    def save(self, unit: int, state: Mapping[str, Any]) -> None:
        """Write a checkpoint, then remove older ones but the last before it.

        Args:
            unit: budget units done.
            state: tensors, numbers, strings, lists and dictionaries.
        """
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        content = buffer.getvalue()
        entry = _Entry(unit, self._attempt, _digest(content))
        self._files.create_dir(self._folder, recursive=True)
        temporary = f"{self._folder}/.{entry.name}.tmp"
        with self._files.open_output_stream(temporary) as stream:
            stream.write(content)
        self._files.move(temporary, f"{self._folder}/{entry.name}")
        # Files ahead of this one are damaged, or another attempt's: not what it supersedes.
        superseded = [e for e in self._entries() if e.attempt <= self._attempt and e <= entry]
        for old in superseded[:-_KEPT]:
            self._files.delete_file(f"{self._folder}/{old.name}")

    def newest(self, device: torch.device) -> dict[str, Any] | None:
        """Return the newest valid checkpoint, None if there is none.

        A file whose content does not match its name is passed over for the one before it.
        """
        for entry in reversed(self._entries()):
            if entry.attempt > self._attempt:
                continue
            with self._files.open_input_stream(f"{self._folder}/{entry.name}") as stream:
                content = stream.read()
            if _digest(content) != entry.digest:
                continue
            loaded: dict[str, Any] = torch.load(
                io.BytesIO(content), map_location=device, weights_only=True
            )
            return loaded
        return None

    def _entries(self) -> list[_Entry]:
        from pyarrow.fs import FileSelector

        found = self._files.get_file_info(FileSelector(self._folder, allow_not_found=True))
        matches = (_NAME.fullmatch(info.base_name) for info in found)
        return sorted(_Entry(int(match[1]), int(match[2]), match[3]) for match in matches if match)

    def remove(self) -> None:
        """Remove every checkpoint of the trial."""
        from pyarrow.fs import FileType

        if self._files.get_file_info(self._folder).type is FileType.Directory:
            self._files.delete_dir(self._folder)


def file_system(root: str) -> "tuple[FileSystem, str]":
    """Return the file system of a folder or URI, and the path on it.

    Raises:
        UserError: a URI that pyarrow cannot use.
    """
    from pyarrow import ArrowInvalid
    from pyarrow.fs import FileSystem

    try:
        files, path = FileSystem.from_uri(root)
    except (ArrowInvalid, OSError) as error:
        raise UserError(
            f"the storage {root!r} cannot be used ({error}); give an absolute folder that every "
            "node sees, or a URI such as s3://bucket/folder"
        ) from error
    return files, str(path).rstrip("/")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
