"""Helpers with which commands print: consoles, tables, JSON, quantities and times."""

import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from hsweep.streams import json_stream

if TYPE_CHECKING:
    from rich.console import Console

EXIT_NOTHING_USABLE: Final = 1
NO_STUDY: Final = "{home} holds no study yet; begin one with: hsweep run SWEEP"


def console_for(*, as_json: bool) -> "Console":
    """Return the console for messages: on standard output, or on standard error beside JSON."""
    from hsweep.terminal import PlainConsole

    console = PlainConsole(stderr=as_json)
    if not console.is_terminal and not console.is_jupyter:
        # In a file or a pipe a line is as long as what it says.
        console.width = max(console.width, 160)
    return console


def print_json(content: Any) -> None:
    """Write plain content to standard output, alone."""
    # At once: written piece by piece, millions of small writes take most of the time.
    text = json.dumps(content, indent=1, default=str, allow_nan=False) + "\n"
    json_stream().write(text)
    json_stream().flush()


def quantity(value: float, unit: str = "") -> str:
    """Return a large number as people write it: 86.568 M, 1.2 G."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3f} {prefix}{unit}".rstrip()
    return f"{value:g} {unit}".rstrip()


def minute(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))


def exit_with(code: int) -> None:
    sys.stdout.flush()
    sys.exit(code)
