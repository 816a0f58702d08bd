"""Where the host waits for the device: what made it wait, in which line, in which update."""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

_PROJECT: Final = Path(__file__).parents[2]
_DEVICE: Final = tuple(
    str(Path(__file__).with_name(f"{name}.py")) for name in ("cuda", "device", "streams", "waits")
)
_UPDATE: Final = "_Loop._update"
_LINES: Final = 2

_noted: Counter[tuple[int | None, str]] = Counter()


def note(what: str) -> None:
    """Note that the host waits here."""
    _noted[_update_here(), f"{what} at {place()}"] += 1


def take() -> Counter[tuple[int | None, str]]:
    """Return the waits since the last call: how many in an update (None outside of any) are of a
    kind and place."""
    taken = Counter(_noted)
    _noted.clear()
    return taken


def place() -> str:
    """Return the innermost lines of the project that are being run, and an optimizer's within."""
    lines: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(lines) < _LINES:
        name = frame.f_code.co_filename
        is_project = name.startswith(str(_PROJECT)) and "site-packages/" not in name
        if is_project and name not in _DEVICE:
            lines.append(f"{Path(name).relative_to(_PROJECT)}:{frame.f_lineno}")
        elif not lines and "optim" in (library := name.rpartition("site-packages/")[2]):
            lines.append(f"{library}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(lines)


def _update_here() -> int | None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_qualname != _UPDATE:
        frame = frame.f_back
    return None if frame is None else int(frame.f_locals["self"]._step)
