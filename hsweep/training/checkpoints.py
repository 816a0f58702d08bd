"""Checkpoints: where they lie, how they are written and which one counts.

A checkpoint is one file named ``<unit>-<attempt>-<digest>.pt`` under its trial's folder, on any
file system that pyarrow reaches (a local or shared folder, an object store); of one within a unit
the name begins with ``<unit>.<step>``, the steps since that unit. It is written under a
temporary name and renamed, and its name carries a digest of its content, so a half-written or
damaged file is never mistaken for a whole one. The newest valid one wins. An attempt reads what
earlier attempts left and removes only what is not newer than itself, so that a worker believed
dead cannot destroy its successor's work.
"""

import contextlib
import hashlib
import io
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from hsweep.training.batches import mapped, part_alone
from hsweep.training.devices import is_out_of_memory
from hsweep.training.storage import Store

_NAME: Final = re.compile(r"\d{9}(?:\.\d{9})?-(?P<attempt>\d{5})-[0-9a-f]{16}\.pt")
_TEMPORARY: Final = re.compile(r"\.\d{9}(?:\.\d{9})?-(\d{5})-[0-9a-f]{16}\.pt\.tmp")
_KEPT: Final = 2

THREAD_NAME: Final = "checkpoint"
"""Beginning of the names of threads that write checkpoints during training."""

LAST_ATTEMPT: Final = 99_999
"""A store with this attempt reads the checkpoints of all attempts."""


class NewestCheckpoint(NamedTuple):
    """A trial's newest valid checkpoint.

    Attributes:
        unit: budget units done; 0 without a checkpoint.
        state: the contents; None without a checkpoint.
        damaged: units of newer checkpoints that cannot be used, the newest first."""

    unit: int
    state: dict[str, Any] | None
    damaged: tuple[int, ...]


class CheckpointStore:
    """The checkpoints of the trial ``key`` below a folder or URI, as an attempt sees them.

    The checkpoint of the unit ``branch_point`` is kept as well as the newest: a longer training
    goes on from it.

    Its methods raise a StorageError where the storage does not work.

    Attributes:
        write_seconds: duration of the last write without its packing; 0 before the first.

    Raises:
        UnusableStorageError: a URI that pyarrow cannot use.
    """

    def __init__(self, root: str, key: str, attempt: int, branch_point: int = 0) -> None:
        self._files = Store(root, key, subject="checkpoints")
        self._branch_point = branch_point
        self._attempt = attempt
        self._pending: Future[None] | None = None
        self.write_seconds = 0.0

    def save(
        self, unit: int, state: Mapping[str, Any], *, step: int = 0, beside: bool = False
    ) -> None:
        """Write a checkpoint once the write before it is done, then remove older ones but the last
        before it.

        The state is packed into bytes before this returns, so training may go on changing it.

        Args:
            step: how many steps of the next unit are done.
            beside: whether a thread writes the bytes, for which a process that exits normally
                waits. Its error is raised by the next ``save``, ``check`` or ``wait``.

        Raises:
            StorageError: it cannot be written; earlier ones are as they were.
        """
        self.wait()
        content = packed(state)
        if beside:
            pool = ThreadPoolExecutor(1, THREAD_NAME)
            self._pending = pool.submit(self._write, unit, content, step)
            pool.shutdown(wait=False)
        else:
            self._write(unit, content, step)

    def check(self) -> None:
        """Raise the error of a failed write, without waiting for a pending one."""
        if not self.is_writing:
            self.wait()

    @property
    def is_writing(self) -> bool:
        return self._pending is not None and not self._pending.done()

    def trouble(self) -> str:
        """Return why a call has had to be tried again since this was asked last; empty if none
        has."""
        trouble, self._files.trouble = self._files.trouble, ""
        return trouble

    def wait(self, seconds: float | None = None) -> None:
        """Return when nothing is being written, or after some seconds."""
        pending, self._pending = self._pending, None
        if pending is not None and wait([pending], seconds).done:
            pending.result()

    def _write(self, unit: int, content: bytes, step: int) -> None:
        position = f"{unit:09d}.{step:09d}" if step else f"{unit:09d}"
        name = f"{position}-{self._attempt:05d}-{_digest(content)}.pt"
        started = time.perf_counter()
        try:
            self._files.write(name, content)
            # What cannot be removed costs only space.
            with contextlib.suppress(OSError):
                self._remove_superseded(name)
        finally:
            self.write_seconds = time.perf_counter() - started

    def _remove_superseded(self, newest: str) -> None:
        # Files ahead of this one are damaged, or another attempt's: not what it supersedes.
        names = self._files.sizes()
        older = [name for name in _checkpoints(names, self._attempt) if name <= newest]
        for name in older[:-_KEPT]:
            if _position(name) != (self._branch_point, 0):
                self._files.remove(name)
        # What an earlier attempt was writing when it died.
        for name in names:
            match = _TEMPORARY.fullmatch(name)
            if match and int(match[1]) < self._attempt:
                self._files.remove(name)

    def search(
        self,
        is_usable: Callable[[dict[str, Any]], bool] | None = None,
        through: int | None = None,
    ) -> NewestCheckpoint:
        """Return the newest valid checkpoint up to the end of the unit ``through``, its tensors on
        the CPU.

        A checkpoint is invalid if its content does not match its name, if it holds anything but
        plain data (loading never runs code), or if ``is_usable`` is false of its state.

        Raises:
            StorageError: the folder or a file in it cannot be read.
        """
        damaged: list[int] = []
        for name in reversed(_checkpoints(self._files.sizes(), self._attempt)):
            unit = _position(name)[0]
            if through is not None and _position(name) > (through, 0):
                continue
            content = self._files.read(name)
            if content is None:
                # A later attempt has superseded it meanwhile.
                continue
            state = _loaded(content, name)
            if state is not None and (is_usable is None or is_usable(state)):
                return NewestCheckpoint(unit, state, tuple(damaged))
            damaged.append(unit)
        return NewestCheckpoint(0, None, tuple(damaged))

    def units(self) -> list[int]:
        """Return the units at whose end the checkpoints lie that are there, valid or not,
        ascending."""
        positions = map(_position, _checkpoints(self._files.sizes()))
        return [unit for unit, step in positions if not step]

    def remove(self) -> None:
        self._files.remove_folder()

    def remove_but_branch_point(self) -> None:
        for name in _checkpoints(self._files.sizes()):
            if _position(name) != (self._branch_point, 0):
                self._files.remove(name)


def packed(state: Mapping[str, Any]) -> bytes:
    """Return the content of a checkpoint file, which shares nothing with the state.

    A tensor that is a part of a larger one is packed without the rest of it.
    """
    buffer = io.BytesIO()
    torch.save(mapped(dict(state), part_alone), buffer)
    # Not a view of it: Python 3.12.1 crashes where a failed save leaves one in a circle of objects.
    return buffer.getvalue()


def from_packed(content: bytes) -> Any:
    """Return the state that ``packed`` packed, its tensors on the CPU; loading never runs code.

    The caller moves weights and moments to their device. An optimizer's count of updates
    belongs on the CPU: from a device it would be read back at every update, parameter by parameter.
    """
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def files_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Return the content of a file, or of all files below a folder, by path."""
    is_one = checkpoint.is_file()
    folder = checkpoint.parent if is_one else checkpoint
    return {
        str(file.relative_to(folder)): torch.from_numpy(np.fromfile(file, np.uint8))
        for file in ([checkpoint] if is_one else sorted(folder.rglob("*")))
        if file.is_file()
    }


def holds_files(saved: Mapping[str, Any]) -> bool:
    """Whether a checkpoint consists of files, as a training function writes them.

    Raises:
        KeyError: the checkpoint is of another kind.
    """
    return isinstance(saved["files"], dict) and "is_one_file" in saved


def write_files(saved: Mapping[str, Any], folder: Path) -> Path:
    """Write the files of a checkpoint into a folder; return the folder, or the file where the
    checkpoint was a single file."""
    for name, content in saved["files"].items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.numpy().data)
    return folder / next(iter(saved["files"])) if saved["is_one_file"] else folder


def _checkpoints(names: Iterable[str], attempt: int = LAST_ATTEMPT) -> list[str]:
    """Return the names of checkpoints up to an attempt, the oldest first."""
    matches = filter(None, map(_NAME.fullmatch, sorted(names)))
    return [match[0] for match in matches if int(match["attempt"]) <= attempt]


def _position(name: str) -> tuple[int, int]:
    """Return the unit and the steps after it of which a checkpoint is."""
    unit, _, step = name.partition("-")[0].partition(".")
    return int(unit), int(step or 0)


def _loaded(content: bytes, name: str) -> dict[str, Any] | None:
    """Return the state in a file; None if the content does not match the file's name or is not
    plain data."""
    if f"-{_digest(content)}." not in name:
        return None
    try:
        state = from_packed(content)
    except (UnpicklingError, EOFError, ValueError, KeyError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        return None
    return state if isinstance(state, dict) else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
