"""The list of a study's trials that ``hsweep show`` prints: its order and its table."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hsweep.commands.output import table_of
from hsweep.errors import unknown_name

if TYPE_CHECKING:
    from rich.table import Table

    from hsweep.record.endings import TrialEnd
    from hsweep.record.manifest import Manifest
    from hsweep.record.rows import TrialRow
    from hsweep.record.study import StudyFolder

T = TypeVar("T")

_HEADINGS: Final = {"trial": "ordinal", "done": "reached", "time": "wall_seconds"}
"""Columns that are called otherwise where they are shown."""
_COLUMNS: Final = ("ordinal", "seed", "status", "reached", "wall_seconds", "reason")
"""Columns that are shown in any case."""


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """The order of trials by a column.

    Attributes:
        column: its name in the table of trials.
        values: of every trial, by key.
        is_falling: whether the largest is first; a trial without a value is last either way.
    """

    column: str
    values: Mapping[str, Any]
    is_falling: bool = False

    @classmethod
    def of(cls, study: "StudyFolder", asked: str) -> "TrialOrder":
        """Return the order of a study's trials by a column, or by its heading; falling where a
        minus is before the name.

        Raises:
            UserError: the table of trials has no such column.
        """
        name = asked.removeprefix("-")
        with study.reading() as tables:
            table = tables.trials
        column = name if name in table.column_names else _HEADINGS.get(name, name)
        if column not in table.column_names:
            raise unknown_name("column", name, {*table.column_names, *_HEADINGS})
        pairs = zip(table["key"].to_pylist(), table[column].to_pylist(), strict=True)
        return cls(column, dict(pairs), is_falling=name != asked)

    def sorted(self, trials: Sequence[T], key_of: Callable[[T], str]) -> list[T]:
        """Return trials in this order, equal ones as they come."""
        known = [each for each in trials if not _is_missing(self.values.get(key_of(each)))]
        rest = [each for each in trials if _is_missing(self.values.get(key_of(each)))]
        known.sort(key=lambda each: self.values[key_of(each)], reverse=self.is_falling)
        return known + rest


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def trials_table(
    trials: Sequence[tuple["TrialRow", "TrialEnd"]],
    varying: tuple[str, ...],
    manifest: "Manifest",
    order: TrialOrder | None,
    *,
    is_running: bool,
) -> "Table":
    """Return trials and how they stand as a table, with the column that they are ordered by."""
    from rich.text import Text

    from hsweep.design.labels import point_label
    from hsweep.design.trial import TrialStatus
    from hsweep.record.endings import INTERRUPTED, first_line
    from hsweep.running.progress import STATUS_STYLES, duration, number

    shown = {*_COLUMNS, *varying, manifest.metric}
    by = order if order is not None and order.column not in shown else None
    columns = ["trial", ">seed", "status", ">done", f">{manifest.metric}", ">time", "reason"]
    table = table_of(*columns[:-1], *([] if by is None else [f">{by.column}"]), columns[-1])
    for row, end in trials:
        status = str(row.status).replace("_", " ")
        if end.is_waiting:
            status = "waiting"
        if not is_running and (row.status is TrialStatus.RUNNING or end.is_interrupted):
            status = INTERRUPTED
        how = f"taken from study {end.reused_from}" if end.reused_from else ""
        if end.micro_batch and not how:
            how = f"{end.micro_batch} examples at once: memory"
        table.add_row(
            point_label(row.point, varying),
            f"scout {row.replicate}" if row.replicate < manifest.scouts else str(row.replicate),
            Text(status, STATUS_STYLES[row.status]),
            f"{row.unit}/{row.budget}",
            number(row.metrics.get(manifest.metric)),
            duration(row.wall_seconds),
            *([] if by is None else [_cell(by.values.get(row.key))]),
            how if status == row.reason else first_line(row.reason) or how,
        )
    return table


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
