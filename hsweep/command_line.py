"""Commands of this tool as they are printed, to be pasted into a shell."""

import contextlib
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Final

_RECORDED: Final[ContextVar[Sequence[str] | None]] = ContextVar("recorded", default=None)


def command(name: str, *words: object, home: Path) -> str:
    """Return a command that works from any folder, its words quoted where a shell needs that."""
    return shlex.join([program(), name, *map(str, words), "--home", str(home)])


def program() -> str:
    """Return how a shell starts this tool: by its name, or by its file where that name is another
    program's or none's, as in an environment that is not activated."""
    beside, found = Path(sys.executable).with_name("hsweep"), shutil.which("hsweep")
    is_other = beside.exists() and not (found and beside.samefile(found))
    return str(beside) if is_other else "hsweep"


def running_command() -> list[str]:
    """Return the words of the command that runs, as a study records it."""
    words = _RECORDED.get()
    return ["hsweep", *sys.argv[1:]] if words is None else list(words)


@contextlib.contextmanager
def recorded_as(words: Sequence[str]) -> Iterator[None]:
    """Let studies record these words, which repeat a Python call in a shell, as the command."""
    token = _RECORDED.set(words)
    try:
        yield
    finally:
        _RECORDED.reset(token)
