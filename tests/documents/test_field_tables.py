"""The tables of fields in docs/sweep-file.md are those of the code."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import hsweep

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sweep-file.md"
TABLE = re.compile(r"^\| `(\w+)` \| what it says \|\n\| --- \| --- \|\n((?:\|.*\n)+)", re.M)
TABLES = dict(TABLE.findall(PAGE.read_text("utf-8")))
NAMES = {name: getattr(hsweep, name) for name in hsweep.__all__}
REQUIRED = object()


def in_code(name: str) -> Iterator[tuple[str, Any]]:
    """Yield what a call of ``hsweep.NAME`` takes, and its value where it is left out."""
    called = getattr(hsweep, name)
    if is_dataclass(called):
        for each in fields(called):
            default = each.default if each.default_factory is MISSING else each.default_factory()
            yield each.name, REQUIRED if default is MISSING else default
    else:
        for parameter in inspect.signature(called).parameters.values():
            left_out = parameter.default is parameter.empty
            yield parameter.name, REQUIRED if left_out else parameter.default


def on_page(name: str) -> Iterator[tuple[str, Any]]:
    for row in TABLES[name].splitlines():
        for entry in re.findall(r"`([^`]+)`", row.split("|")[1]):
            field, given, value = entry.partition("=")
            yield field, eval(value, NAMES) if given else REQUIRED


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_field_and_its_value(name: str) -> None:
    page = list(on_page(name))
    assert len(page) == len(dict(page)), "a field stands twice"
    assert {key: plain(value) for key, value in page} == {
        key: plain(value) for key, value in in_code(name)
    }


def plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "items") else value


def test_what_a_sweep_is_made_of_has_a_table() -> None:
    assert set(TABLES) == {
        "Sweep",
        "Transition",
        "lean",
        "Pareto",
        "epochs",
        "Recipe",
        "Asha",
        "Median",
        "Resources",
    }
