"""Hub-style data sets by split and column, and what messages about them say."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from models.fields import Rule, share
from tasks.base import DataError
from tasks.sources.hub import load_splits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from datasets import Dataset

_VALIDATION_SPLITS: Final = ("validation", "valid", "val", "dev", "test")


def split_or_share(data: str = "", undivided: str | None = None) -> Rule:
    """Return the rule of examples to hold out: the name of a split, or a share in (0, 1) of one.

    Args:
        data: the data set.
        undivided: the name of the data set that has no splits.
    """

    def rule(name: str, value: Any) -> str | float:
        if isinstance(value, str):
            if data == undivided:
                raise ValueError(
                    f"{data} have no splits: {name} must be the share in (0, 1) to hold out, not "
                    f"{value!r}"
                )
            return value
        if number := share(name, value):
            return number
        raise ValueError(f"{name} must be a split or a share in (0, 1), not 0")

    return rule


@dataclass(frozen=True, slots=True)
class Table:
    """The splits of a data set, and what messages call it.

    Attributes:
        splits: rows by split, read from disk when asked for.
        data: a folder or a hub name.
        config: configuration (subset) name, None for the default one.
    """

    splits: "Mapping[str, Dataset]"
    data: str
    config: str | None = None

    def rows(self, split: str) -> "Dataset":
        """Return a split.

        Raises:
            DataError: there is none of that name, or it has no rows.
        """
        if split not in self.splits:
            raise DataError(f"{self._named} must have a split {split!r}; it has {self.listed()}")
        rows = self.splits[split]
        if len(rows) == 0:
            raise DataError(f"split {split!r} of {self._named} has no rows; it needs at least one")
        return rows

    def validation_split(self, name: str | None) -> str:
        """Return the split to validate on: that of this name, or for None one with a usual name.

        Raises:
            DataError: there is none.
        """
        names = _VALIDATION_SPLITS if name is None else (name,)
        split = next((split_name for split_name in names if split_name in self.splits), None)
        if split is None:
            raise DataError(
                f"{self._named} must have a split {' or '.join(map(repr, names))} to validate "
                f"on; it has {self.listed()}. Name another one, or give a number such as "
                "validation=0.1 to hold out that share of the training split"
            )
        return split

    def find_column(
        self, split: str, names: "Iterable[str]", role: str, setting: str | None = None
    ) -> str:
        """Return the first of ``names`` that a split has a column of.

        Args:
            split: name of the split.
            names: of columns.
            role: what the column holds, for messages.
            setting: of the task that names the column, if one does.

        Raises:
            DataError: there is no such split or column, or the split has no rows.
        """
        columns, usual = self.rows(split).column_names, list(names)
        column = next((name for name in usual if name in columns), None)
        if column is None:
            raise DataError(
                f"split {split!r} of {self._named} must have the {role} column "
                f"{' or '.join(map(repr, usual))}; it has {', '.join(map(repr, columns))}"
                + (f"; name it with {setting}" if setting else "")
            )
        return column

    def labels(self, split: str, column: str, num_classes: int) -> NDArray[np.int64]:
        """Return the classes in a column of a split, (n,).

        Raises:
            DataError: one is missing, or not a whole number in 0..num_classes - 1; the message
                names the first such row.
        """
        values = self.present(split, column)
        if not np.issubdtype(values.dtype, np.integer):
            raise DataError(
                f"{self.where(split)}: labels must be whole numbers without gaps, and column "
                f"{column!r} has values such as {values[0]!r}; number the classes 0, 1, ..."
            )
        wrong = np.flatnonzero((values < 0) | (values >= num_classes))
        if len(wrong):
            raise DataError(
                f"{self.row_name(split, int(wrong[0]))}: labels must lie in 0..{num_classes - 1}, "
                f"not {values[wrong[0]]}; a split without labels cannot be used"
            )
        return values.astype(np.int64)

    def present(self, split: str, column: str) -> NDArray[Any]:
        """Return the labels in a column of a split, whatever they are.

        Raises:
            DataError: one is missing; the message names the row.
        """
        values = self.splits[split].data.column(column)
        if values.null_count:
            row = self.row_name(split, values.is_null().index(True).as_py())
            raise DataError(f"{row}: there is no label; remove the row or give it one")
        return np.asarray(values)

    def where(self, split: str) -> str:
        """Return what messages call a split."""
        named = self.data if self.config is None else f"{self.data}, {self.config}"
        return f"{named}, split {split!r}"

    def row_name(self, split: str, row: int) -> str:
        """Return what messages call a row of a split, counted from 0."""
        return f"{self.where(split)}, row {row}"

    def listed(self) -> str:
        """Return the names of the splits in a row."""
        return ", ".join(map(repr, self.splits)) or "none"

    @property
    def _named(self) -> str:
        return repr(self.data) if self.config is None else f"{self.data!r}, {self.config},"


def read_table(data: str, config: str | None = None) -> Table:
    """Return the splits of a folder or of a data set on the hub.

    Raises:
        DataError: it is missing, downloads are not turned on, or it cannot be read.
    """
    return Table(load_splits(data, config), data, config)
