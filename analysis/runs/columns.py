"""Columns of tables from other tools."""

from collections.abc import Sequence
from typing import Any, Final, TypedDict

import numpy as np
import pandas as pd

from analysis.statistics.values import FloatArray, IntArray
from analysis.values import AxisValue
from hsweep.errors import UserError

Key = tuple[AxisValue, ...]
"""The values of several columns in a row."""
NO_VALUE: Final = "none"
"""The value of an axis in trials that do not have this axis."""
ROUNDING: Final = 0.01
"""Budgets that differ by at most this share count as the same budget."""
_NUMBER: Final = r"\s*-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?\s*"
"""A number in text; 007 is a name, not a number."""


class RunColumns(TypedDict, total=False):
    """The columns of a table that tell its runs apart and how each run ended.

    Every analysis takes these as arguments.

    Attributes:
        replicate: column of the seeds, by default ``seed``. None says that the rows of a cell or
            shape are repeated runs without seeds; these are numbered. So are the rows of a table
            without a column ``seed``, if nothing else tells them apart (`analysis.runs.choices`).
        status_column: column of how each run ended; by default the one that holds words for it.
        complete: further words of a full-budget run, besides the known ones (``finished``).
        pruned: further words of a run that was stopped before its full budget.
        failed: further words of a run without a result.
        budget_column: column of how far each run trained; rows that reached less than
            ``target_budget`` are not complete.
        target_budget: the full budget; None takes the largest in the table. Budgets that differ by
            at most 1 % count as equal.
    """

    replicate: str | None
    status_column: str | None
    complete: Sequence[str]
    pruned: Sequence[str]
    failed: Sequence[str]
    budget_column: str | None
    target_budget: float | None


def require(frame: pd.DataFrame, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in frame.columns]
    if missing:
        present = ", ".join(str(name) for name in frame.columns)
        raise UserError(f"the table has no column {missing[0]!r}; it has: {present}")


def replicate_words(column: "pd.Series[Any]") -> "pd.Series[str]":
    """Return the names of replicates as text: seeds 0 and 0.0 are the same."""
    if pd.api.types.is_float_dtype(column) and (column % 1 == 0).all():
        column = column.astype(np.int64)
    return column.astype(str)


def numbers_if_all_are(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of texts such as "4" as numbers, if every text is a plain number."""
    if pd.api.types.is_numeric_dtype(column):
        return column
    are_numbers = column.astype(str).str.fullmatch(_NUMBER).all()
    return pd.to_numeric(column) if are_numbers else column


def as_numbers(column: "pd.Series[Any]", name: str, *, infinite: bool = False) -> FloatArray:
    """Return a column as numbers, NaN where empty; infinities are refused unless ``infinite``.

    Raises:
        UserError: the column holds anything else.
    """
    if pd.api.types.is_bool_dtype(column):
        raise UserError(f"column {name!r} holds true and false, not numbers")
    try:
        values = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    except (ValueError, TypeError):
        are_none = pd.to_numeric(column.astype(object), errors="coerce").isna() & column.notna()
        row = int(np.flatnonzero(are_none)[0])
        raise UserError(
            f"column {name!r} is not numeric: it holds {column.iloc[row]!r} in row {row + 1}"
        ) from None
    if not infinite and np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise UserError(f"column {name!r} holds an infinity in row {row + 1}")
    return values


def budget_steps(reached: FloatArray) -> FloatArray:
    """Return the budgets, with budgets that differ by rounding alone replaced by their largest.

    Sorted budgets form a chain while each is within `ROUNDING` of the one before. A chain is one
    budget if its first and last are also within `ROUNDING`; else its budgets are reports along a
    learning curve, and stay as they are. NaN stays NaN.
    """
    budgets = pd.Series(reached).sort_values()
    links = (budgets > budgets.shift() * (1 + ROUNDING)).cumsum()
    least, most = (budgets.groupby(links).transform(end) for end in ("min", "max"))
    is_one = budgets.notna() & (most <= least * (1 + ROUNDING))
    return budgets.mask(is_one, most).sort_index().to_numpy()


def rows_by_values(rows: pd.DataFrame, columns: Sequence[str]) -> list[tuple[Key, IntArray]]:
    """Return each combination of the columns' values, sorted, with the positions of its rows."""
    if not columns:
        return [((), np.arange(len(rows)))]
    number = rows.groupby(list(columns), sort=True, dropna=False).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    firsts = rows[list(columns)].iloc[order[starts]]
    keys = zip(*(map(plain, firsts[name].tolist()) for name in columns), strict=True)
    return list(zip(keys, np.split(order, starts[1:]), strict=True))


def moving_together(frame: pd.DataFrame) -> list[list[str]]:
    """Return the groups of columns of which each value of one stands with one value of the others.

    Where no value comes back, as of rates drawn at random, they have to rise or fall together.
    """
    groups: dict[tuple[int, ...], list[str]] = {}
    for name in map(str, frame):
        codes, values = pd.factorize(frame[name].astype(str))
        if len(values) == len(frame) and pd.api.types.is_numeric_dtype(frame[name]):
            ranks = frame[name].rank()
            codes = np.asarray(ranks if ranks.iloc[0] <= ranks.iloc[-1] else -ranks, np.int64)
        if len(values) > 1:
            groups.setdefault(tuple(codes.tolist()), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def in_order(value: AxisValue) -> tuple[bool, float, str]:
    """Return a key that sorts numbers before names."""
    is_name = isinstance(value, str)
    return is_name, 0.0 if is_name else float(value), str(value)


def plain(value: object) -> AxisValue:
    """Return an axis value as a Python int, float or text."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, int | float | str) else str(value)
