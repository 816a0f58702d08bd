"""What data holds is printed, never obeyed: by rich as markup, by the terminal as commands."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from hsweep.terminal import PlainConsole, visible

CLEAR, TITLE = "\x1b[2J", "\x1b]0;owned\x07"
SWEEP = """
from hsweep import Recipe, Sweep, epochs, grid
from tiny import TinyTask, tiny_model

def model(point):
    if point.word != "plain":
        raise ValueError({reason!r})
    return tiny_model(point)

SWEEP = Sweep(
    name="noted", space=grid(width=[1, 2], word=["plain", {value!r}]), task=TinyTask(),
    model=model, recipe=Recipe(lr=0.05, batch_size=8), metric="nmse", goal="min",
    budget=epochs(1),
)
"""


def printed(*things: object) -> str:
    stream = io.StringIO()
    console = PlainConsole(file=stream, width=300, force_terminal=True, color_system=None)
    for thing in things:
        console.print(thing, soft_wrap=True)
    return stream.getvalue()


@given(st.text(st.characters(codec=None)))
def test_no_text_reaches_the_terminal_as_a_command(text: str) -> None:
    table = Table(text, title=text)
    table.add_row(text)
    shown = printed(text, Text(text), table)
    assert all(character in "\n\t" or character >= " " for character in shown)
    assert not {"\x7f", "\x9b", "\x9d", "\u202e"} & set(shown)
    shown.encode()


@given(st.text(st.characters(codec="utf-8", exclude_categories=("C",))))
def test_ordinary_text_is_printed_as_it_is(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize("text", ["[red]", "a[/]b", "[/nothing]", "[link=https://x.org]y", ":car:"])
def test_what_rich_would_take_for_markup_is_text(text: str) -> None:
    table = Table("heading")
    table.add_row(text)
    assert printed(text).rstrip("\n") == text
    assert text in printed(table)


def test_styles_of_our_own_are_kept() -> None:
    stream = io.StringIO()
    console = PlainConsole(file=stream, force_terminal=True, color_system="standard")
    console.print(Text("said", "red"))
    console.print("said", style="red")
    assert stream.getvalue() == "\x1b[31msaid\x1b[0m\n" * 2


@pytest.mark.parametrize("verb", ["plan", "run", "show"])
def test_a_value_and_a_reason_with_markup_are_shown_by_every_verb(
    hsweep: Callable[..., Result], tmp_path: Path, verb: str
) -> None:
    file = tmp_path / "noted.py"
    file.write_text(SWEEP.format(reason="no [/red] room", value="[bold]loud[/bold]"))
    result = hsweep(
        "run" if verb == "show" else verb, file, *(["--runner", "inline"] * (verb != "plan"))
    )
    assert result.exit_code == 0, result.output
    assert "[bold]loud[/bold]" in result.output
    assert "no [/red] room" in result.output
    if verb == "show":
        assert hsweep("show", "noted-quick").exit_code == 0


@pytest.mark.parametrize("planted", [CLEAR, TITLE])
def test_commands_in_an_exception_are_shown_as_escapes(
    hsweep: Callable[..., Result], tmp_path: Path, planted: str
) -> None:
    file = tmp_path / "raising.py"
    file.write_text(f"raise RuntimeError({planted + 'gone'!r})")
    result = hsweep("plan", file)
    assert result.exit_code == 2
    assert "\\x1b" in result.stderr
    assert "\x1b" not in result.output
    file.write_text(SWEEP.format(reason=planted + "gone", value="other"))
    result = hsweep("plan", file)
    assert result.exit_code == 0, result.output
    assert "\\x1b" in result.output
    assert "\x1b" not in result.output
