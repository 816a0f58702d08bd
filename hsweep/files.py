"""Files that are replaced whole: written under a temporary name, then renamed."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the temporary name of a file that takes the place of ``path`` when the block ends;
    OSError if it cannot be renamed. What was there before stays then, as after any error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def set_aside(path: Path, why: str) -> Path:
    """Rename a file, as to ``sweep.changed-1.py``, and return its new path."""
    number = 1
    while (aside := path.with_name(f"{path.stem}.{why}-{number}{path.suffix}")).exists():
        number += 1
    return path.rename(aside)


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text; where that fails, what was there before stays."""
    with replacing(path) as temporary:
        temporary.write_text(text, "utf-8")


def write_json(path: Path, content: Any) -> None:
    """Replace a file by plain content as JSON; values unknown to JSON become strings."""
    write_text(path, json.dumps(content, indent=1, default=str) + "\n")


def cause(error: Exception) -> str:
    """Return the reason of an error about a file, without the file's name."""
    return getattr(error, "strerror", None) or str(error)
