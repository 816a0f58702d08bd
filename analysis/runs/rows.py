"""The rows of a table of runs, checked: what names each run beside how it ended."""

from dataclasses import dataclass
from typing import Any

import pandas as pd


@dataclass(frozen=True, slots=True)
class RunRows:
    """One checked row a run. All three tables have the row's number in the table as their index.

    They are apart so that a table's own columns (``budget``, ``status``) keep their meaning.

    Attributes:
        keys: the columns that name cells, with `NO_VALUE` where empty.
        numbers: further columns as numbers, NaN where empty.
        runs: ``cell`` (number of its keys), ``replicate`` (str), ``value`` (float, NaN unless
            known), ``status`` (one of `analysis.runs.statuses.STATUSES`), ``complete`` (bool),
            ``reached`` and ``budget`` (float, NaN if unknown).
    """

    keys: pd.DataFrame
    numbers: pd.DataFrame
    runs: pd.DataFrame

    def some(self, chosen: Any) -> "RunRows":
        """Return the rows that are True in ``chosen`` alone."""
        return RunRows(*(table.loc[chosen] for table in (self.keys, self.numbers, self.runs)))

    def at(self, positions: list[int]) -> "RunRows":
        """Return the rows at these positions, in their order."""
        return RunRows(*(table.iloc[positions] for table in (self.keys, self.numbers, self.runs)))
