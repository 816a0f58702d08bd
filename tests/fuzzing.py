"""What the fuzz tests share: how much they try, and what every answer must be like."""

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import Result
from hypothesis import HealthCheck, settings

EVERY_CHECK = tuple(HealthCheck)


def tries(number: int) -> Callable[[Any], Any]:
    """Try so many examples, the same ones every time."""
    return settings(
        max_examples=number,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=EVERY_CHECK,
    )


def many(number: int) -> Any:
    """Try other and more examples, in the tests that take their time."""

    def decorate(test: Any) -> Any:
        chosen = settings(
            max_examples=number,
            database=None,
            deadline=None,
            print_blob=True,
            suppress_health_check=EVERY_CHECK,
        )
        return pytest.mark.slow(chosen(test))

    return decorate


@contextlib.contextmanager
def at_home(folder: Path) -> Iterator[Path]:
    """Work in a folder with a home of its own, where relative paths lead, too."""
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, {"HSWEEP_HOME": str(folder / "home")}),
    ):
        yield folder


_BEFORE = re.compile(r"(planning|starting|joining) .*\.\.\.|Point\(.*\)")
"""What the command prints before it refuses, and what ``print`` as a function of the point does."""


def refused_or_done(result: Result, *, done: tuple[int, ...] = (0,)) -> bool:
    """Return whether a command did what it was asked for; else it must have refused in plain words.

    No exception reaches the user, and a refusal names what is wrong.
    """
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    assert result.exit_code in (*done, 2), (result.exit_code, result.output)
    if result.exit_code == 2:
        lines = itertools.dropwhile(_BEFORE.fullmatch, result.stderr.splitlines())
        said = "\n".join(lines).strip()
        assert said.startswith(("hsweep: ", "Usage: ", "Error: ")), said
        assert len(said) > 25, said
        assert len(said) < 30_000, said[:300]
    return result.exit_code in done
