"""Checkpoints written beside training, by one thread that lives as long as the write."""

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from hsweep.training.checkpoints import CheckpointStore, StorageError
from hsweep.training.memory import is_out_of_memory

THREAD_NAME: Final = "checkpoint"


class BackgroundWriter:
    """Writes one trial's checkpoints, one at a time, here or beside what goes on here.

    The state is copied before it is written beside, so training may go on changing it. What comes
    of a write is told to whoever asks next: ``check``, ``wait``, or the next write.

    Args:
        store: where they are written.

    Attributes:
        seconds: that the last write took, its copy left out; 0 before the first.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.seconds = 0.0

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written beside."""
        return self._thread is not None and self._thread.is_alive()

    def write(self, unit: int, state: Mapping[str, Any]) -> None:
        """Write a checkpoint after the one under way; return when it is on disk.

        Raises:
            StorageError: it, or the one under way, cannot be written.
        """
        self.wait()
        self._write(unit, state)
        self._tell()

    def begin(self, unit: int, state: Mapping[str, Any]) -> None:
        """Begin to write a checkpoint, once the one under way is on disk.

        Where memory does not suffice for a copy, it is written here.

        Raises:
            StorageError: the one under way cannot be written.
        """
        self.wait()
        copy = _copied_if_there_is_room(state)
        if copy is None:
            self.write(unit, state)
            return
        # Not a daemon: a process that ends in good order finishes what it has begun.
        self._thread = threading.Thread(target=self._write, args=(unit, copy), name=THREAD_NAME)
        self._thread.start()

    def check(self) -> None:
        """Tell of a write that has failed by now, without waiting.

        Raises:
            StorageError: it cannot be written.
        """
        if not self.is_writing:
            self._tell()

    def wait(self) -> None:
        """Return when nothing is being written any more.

        Raises:
            StorageError: what was being written cannot be.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._tell()

    def settle(self) -> None:
        """Return when nothing is being written any more, whatever came of it."""
        with contextlib.suppress(StorageError):
            self.wait()

    def _write(self, unit: int, state: Mapping[str, Any]) -> None:
        started = time.perf_counter()
        try:
            self._store.save(unit, state)
        except BaseException as error:
            self._error = error
        self.seconds = time.perf_counter() - started

    def _tell(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


def _copied_if_there_is_room(state: Mapping[str, Any]) -> Any:
    try:
        return copied(state)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def copied(state: Any) -> Any:
    """Return a copy of dictionaries, lists and tensors that shares nothing that changes.

    Tensors are copied to the host's memory. What shares storage goes on sharing it, and what is one
    object stays one, so that the copy is written as the state itself would be.
    """
    return _copied(state, {})


def _copied(value: Any, done: dict[int, Any]) -> Any:
    if isinstance(value, Tensor):
        return _copied_tensor(value, done)
    if not isinstance(value, (dict, list, tuple)):
        return value
    known = done.get(id(value))
    if known is not None:
        return known
    copy: Any
    if isinstance(value, dict):
        copy = type(value)()
        if hasattr(value, "__dict__"):  # a module's weights have the versions of its parts there
            vars(copy).update(vars(value))
        copy.update((name, _copied(part, done)) for name, part in value.items())
    elif isinstance(value, list):
        copy = [_copied(part, done) for part in value]
    else:
        parts = [_copied(part, done) for part in value]
        # One without tensors is left as it is: it may be shared with others.
        if all(one is other for one, other in zip(parts, value, strict=True)):
            return value
        copy = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    done[id(value)] = copy
    return copy


def _copied_tensor(tensor: Tensor, done: dict[int, Any]) -> Tensor:
    with torch.no_grad():
        if type(tensor) is not Tensor and type(tensor) is not torch.nn.Parameter:
            return tensor.detach().cpu().clone()
        storage = tensor.untyped_storage()
        shared = done.get(storage._cdata)
        if shared is None:
            is_here = tensor.device.type == "cpu"
            shared = storage.clone() if is_here else storage.cpu()  # type: ignore[no-untyped-call]
            done[storage._cdata] = shared
        copy = torch.empty(0, dtype=tensor.dtype)
        return copy.set_(shared, tensor.storage_offset(), tensor.shape, tensor.stride())
