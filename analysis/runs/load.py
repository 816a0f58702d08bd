"""Tables of runs as files."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pandas as pd

from hsweep.errors import UserError


def read_table(path: Path | str) -> pd.DataFrame:
    """Return the table at ``path`` (.parquet or .csv).

    Raises:
        UserError: a missing, unreadable or empty file, or another ending.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"no table at {file}: the file does not exist")
    ending = file.suffix.lower()
    if ending not in (".parquet", ".csv"):
        raise UserError(f"cannot read {file}: the name must end in .parquet or .csv")
    try:
        frame = pd.read_parquet(file) if ending == ".parquet" else pd.read_csv(file)
    except pd.errors.EmptyDataError:
        raise UserError(f"the table at {file} is empty") from None
    except (ValueError, OSError) as error:  # pyarrow's and pandas' parsing errors derive from these
        raise UserError(f"cannot read {file} as {ending[1:]}: {error}") from error
    if frame.empty:
        raise UserError(f"the table at {file} is empty: it has no rows")
    return frame.apply(_texts_if_nested)


def _texts_if_nested(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of lists and the like as their texts, which can be compared and grouped."""
    if column.dtype != object or all(isinstance(value, Hashable) for value in column):
        return column
    return column.map(lambda value: value if isinstance(value, Hashable) else str(value))
