"""Checkpoints written beside training, by one thread that lives as long as the write."""

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from hsweep.training.checkpoints import CheckpointStore, packed

THREAD_NAME: Final = "checkpoint"


class BackgroundWriter:
    """Writes one trial's checkpoints, one at a time.

    The state is packed into bytes before a call returns, so training may go on changing it while
    the bytes are written. A write that failed raises at the next call.

    Args:
        store: where they are written.

    Attributes:
        seconds: that the last write took, its packing left out; 0 before the first.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.seconds = 0.0

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written beside training."""
        return self._thread is not None and self._thread.is_alive()

    def save(self, unit: int, state: Mapping[str, Any], *, beside: bool) -> None:
        """Write a checkpoint after the one under way.

        Args:
            unit: budget units done.
            state: see ``hsweep.training.checkpoints.packed``.
            beside: return at once and write in a thread; else return when it is on disk.

        Raises:
            StorageError: it, or the one under way, cannot be written.
        """
        self.wait()
        content = packed(state)
        if beside:
            # Not a daemon: a process that ends in good order finishes what it has started.
            self._thread = threading.Thread(
                target=self._write, args=(unit, content), name=THREAD_NAME
            )
            self._thread.start()
        else:
            self._write(unit, content)
            self.check()

    def check(self) -> None:
        """Raise if a write has failed by now, without waiting for one.

        Raises:
            StorageError: it cannot be written.
        """
        if not self.is_writing:
            error, self._error = self._error, None
            if error is not None:
                raise error

    def wait(self) -> None:
        """Return when nothing is being written any more.

        Raises:
            StorageError: what was being written cannot be.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def _write(self, unit: int, content: memoryview) -> None:
        started = time.perf_counter()
        try:
            self._store.save(unit, content)
        except BaseException as error:
            self._error = error
        self.seconds = time.perf_counter() - started
