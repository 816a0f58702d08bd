"""Commands of this tool as they are printed, to be pasted into a shell."""

import shlex
from pathlib import Path


def command(name: str, *words: object, home: Path) -> str:
    """Return a command that works from any folder, its words quoted where a shell needs that."""
    return shlex.join(["hsweep", name, *map(str, words), "--home", str(home)])
