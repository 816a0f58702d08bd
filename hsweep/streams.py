"""The standard streams of a command: each is there, takes every text, and JSON is alone."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Final, TextIO

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))

_json: TextIO | None = None
"""Where JSON goes while everything else that is printed goes to standard error."""


def prepare_streams() -> None:
    """Open the streams that this process was started without, so that no file of a study gets the
    number of one; print as ``?`` what the encoding of the terminal has no character for."""
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest number that is free.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


@contextlib.contextmanager
def json_alone() -> Iterator[None]:
    """Keep standard output for ``json_stream``: all else goes to standard error, also what C code
    and child processes print, to the end of this process: much of it is written only then."""
    global _json
    with contextlib.ExitStack() as stack:
        _json = sys.stdout
        if sys.stdout is sys.__stdout__:  # that of this process, not of a test
            _json = stack.enter_context(open(os.dup(1), "w", encoding="utf-8"))  # noqa: PTH123
            os.dup2(2, 1)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        try:
            yield
        finally:
            _json = None


def json_stream() -> TextIO:
    """Return the stream for JSON."""
    return _json or sys.stdout


def discard_output() -> None:
    """Forget the results that could not be written: that would fail again as the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # A stream of a test has no number.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(nowhere, json_stream().fileno())
    os.close(nowhere)
