"""Files that grow while they are read: missing still, cut off, truncated, or written again from the
start, after which they are read from the start again."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

BLOCK_BYTES: Final = 8 << 20
"""Bytes that are held at once: an earlier attempt may have written much."""

_COMPARED: Final = 256
"""Bytes at the start and before the end of what is read that tell whether a file was rewritten."""


class Row(NamedTuple):
    """Values that a script wrote at once, by key, and where they stand."""

    place: str
    values: Mapping[str, object]


class Rows(Protocol):
    """Rows written since the last look."""

    def new(self, *, whole: bool = False) -> Iterator[Row]:
        """Yield them; ``whole`` says that nothing more will be written and the last line is not
        cut off, so that it counts without its end."""
        ...


class GrowingFile:
    """How far a file that grows has been read, and whether it is still that file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        self._start = b""
        self._end = b""
        self._seen: tuple[int, int, int] | None = None

    def has_news(self) -> bool:
        """Whether there is something to read; goes back to the start where it was rewritten.

        Raises:
            OSError: the file cannot be read.
        """
        state = self.path.stat()
        seen = (state.st_ino, state.st_size, state.st_mtime_ns)
        if seen == self._seen and state.st_size == self.position:
            return False
        self._seen = seen
        with self.path.open("rb") as file:
            start = file.read(len(self._start))
            file.seek(max(0, self.position - len(self._end)))
            if (start, file.read(len(self._end))) != (self._start, self._end):
                self.position, self._start, self._end = 0, b"", b""
        return state.st_size > self.position

    def read_to(self, position: int) -> None:
        """Remember that it has been read up to here."""
        self.position = position
        with self.path.open("rb") as file:
            self._start = file.read(min(_COMPARED, position))
            file.seek(max(0, position - _COMPARED))
            self._end = file.read(min(_COMPARED, position))
