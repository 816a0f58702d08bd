"""Where in the user's code an exception was raised."""

import json
from pathlib import Path
from typing import Any

import pytest

from hsweep import grid
from hsweep.errors import failure_text, user_frame
from hsweep.workspace import load_sweep


def raised(action: Any) -> BaseException:
    with pytest.raises(Exception) as found:
        action()
    return found.value


def line_of(text: str) -> str:
    """Return the place of the one line of this file with this text."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(text)]
    return f"{__file__}:{number}"


def test_it_is_the_users_frame_and_not_the_librarys_or_the_projects() -> None:
    def of_a_library() -> None:
        json.loads("{")  # in the standard library

    def of_the_project() -> None:
        grid(width=[])  # in the project

    assert user_frame(raised(of_a_library)) == line_of("# in the standard library")
    assert user_frame(raised(of_the_project)) == line_of("# in the project")


def test_without_a_frame_of_the_users_it_is_the_innermost() -> None:
    error = raised(lambda: grid(width=[]))
    # The frames of this file are the outer ones.
    while str(user_frame(error)).startswith(__file__):
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next
    assert "hsweep/design/" in str(user_frame(error))


def test_code_that_does_not_parse_and_what_was_never_raised(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("x = 1\ny = (\n")
    error = raised(lambda: load_sweep(path)).__cause__
    assert error is not None
    assert user_frame(error) == f"{path}:2"
    assert user_frame(KeyError("x")) is None


def test_a_failure_says_first_what_and_where_and_then_everything() -> None:
    def bad() -> None:
        raise KeyError("two\nlines")  # a message of two lines

    first, *rest = failure_text(raised(bad)).splitlines()
    assert first == rf"KeyError: 'two\nlines' at {line_of('# a message of two lines')}"
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == r"KeyError: 'two\nlines'"
