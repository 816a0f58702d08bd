"""Text from data on a terminal: shown as it is, never obeyed.

An axis value, an exception or a column's name may hold what rich reads as markup, or control
characters that a terminal takes for commands (move the cursor, set the title, fill the clipboard).
"""

import re
import sys
import threading
from collections.abc import Iterable
from typing import Any, Final, Literal, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction of what follows
    "\ud800-\udfff]"  # half a character: cannot be written
)


def visible(text: str) -> str:
    """Return ``text`` with control characters written as escapes, as in ``\\x1b``."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def print_step(text: str) -> None:
    """Print a step that takes a while on standard error."""
    sys.stderr.write(f"{visible(text)} ...\n")
    sys.stderr.flush()


def warn(text: str) -> None:
    """Print a message of this tool on standard error."""
    sys.stderr.write(f"hsweep: {visible(text)}\n")
    sys.stderr.flush()


def table_of(*headings: str, **settings: Any) -> Table:
    """Return an empty table; ``>`` before a heading aligns its column to the right."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading.startswith(">") else "left"
        table.add_column(heading.removeprefix(">"), justify=justify, **settings)
    return table


class PlainConsole(Console):
    """A console that prints text as it is: without markup, without what a terminal would obey.

    One thread prints at a time: rich reckons how many lines of a live table to erase before it
    writes, and what another thread wrote in between would leave a part of the table behind.
    """

    def __init__(self, **settings: Any) -> None:
        self._printing = threading.RLock()
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def __enter__(self) -> Self:
        self._printing.acquire()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._printing.release()

    def print(self, *objects: Any, soft_wrap: bool | None = None, **settings: Any) -> None:
        """Print; a text goes as it is, to be wrapped by the terminal, a table fits the width."""
        if soft_wrap is None:
            soft_wrap = all(isinstance(part, str) for part in objects)
        super().print(*objects, soft_wrap=soft_wrap, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Turn a string into text; here, so that columns are as wide as what they show."""
        return super().render_str(visible(text), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render an object, with control characters made visible."""
        for segment in super().render(renderable, options):
            if segment.control or not _UNSAFE.search(segment.text):
                yield segment
            else:
                yield segment._replace(text=visible(segment.text))
