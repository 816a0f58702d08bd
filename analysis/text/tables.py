"""Small tables in words."""

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from analysis.text.numbers import NONE

MAX_ROWS: Final = 200
"""Rows of a table that the page shows as it is; the table of trials holds any number."""
TERMINAL_ROWS: Final = 40
"""Rows of a table that the terminal shows."""


@dataclass(frozen=True, slots=True)
class Table:
    """A small table in words.

    Attributes:
        header: column titles.
        rows: cells as text; each as long as the header.
        note: what to know before reading it.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


NO_TABLE: Final = Table((), ())


def varying_columns(trials: pd.DataFrame, axes: Sequence[str]) -> list[str]:
    return [
        name for name in axes if name in trials.columns and trials[name].nunique(dropna=False) > 1
    ]


def first_rows(
    table: Table, most: int = MAX_ROWS, rest: str = "analysis.json holds them all"
) -> Table:
    """Return a table of its first rows, which says how many there are and where the rest is."""
    if len(table.rows) <= most:
        return table
    some = f"The first {most} of {len(table.rows):,} rows; {rest}."
    return dataclasses.replace(table, rows=table.rows[:most], note=f"{table.note} {some}".strip())


def provenance_table(provenance: Mapping[str, Any]) -> Table:
    """Return what the study rests on, nested names joined by dots."""
    rows = []
    for name, value in leaves(provenance):
        text = NONE if value is None else str(value)
        if name == "command" and isinstance(value, list):
            text = shlex.join(map(str, value))
        elif isinstance(value, list | tuple | set):
            text = json.dumps(list(value), default=str)
        rows.append((name, text))
    return Table(("what", "value"), tuple(rows))


def leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings, their names joined by dots."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
