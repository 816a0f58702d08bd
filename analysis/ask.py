"""A question put to any table, as `hsweep analyze --table` does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from analysis.answer import Answer
from analysis.questions import kinds
from analysis.questions.base import Kind
from analysis.runs.columns import RunColumns, numbers_if_all_are
from analysis.runs.load import read_table
from analysis.runs.table import Runs
from hsweep.design.labels import listed
from hsweep.errors import UserError, unknown_name

_USUAL_REPLICATE: Final = "seed"


def ask_table(path: Path, kind: Kind | None, chosen: Mapping[str, Any]) -> Answer:
    """Answer a question from the table at ``path``.

    Args:
        path: a parquet or csv file.
        kind: what to ask.
        chosen: values of the command's options, the kind's own among them.

    Raises:
        UserError: an option that is missing or does not fit the table.
    """
    if kind is None:
        names = listed([each.name for each in kinds.KINDS if each.takes_tables], "or")
        raise UserError(f"a table needs --kind {names}")
    metric, replicate = chosen["metric"], chosen["replicate"]
    if metric is None:
        raise UserError("a table needs --metric, the column of the result")
    frame = read_table(path).apply(numbers_if_all_are)
    if metric not in frame:
        raise unknown_name("column", metric, map(str, frame.columns))
    if replicate not in frame and replicate != _USUAL_REPLICATE:
        raise unknown_name("column", replicate, map(str, frame.columns))
    words = chosen["status_column"] or "status"
    if (chosen["pruned"] or chosen["failed"]) and words not in frame:
        raise UserError(f"--pruned and --failed need the column of the words; there is no {words}")
    columns = RunColumns(
        replicate=replicate if replicate in frame else None,
        status_column=chosen["status_column"],
        complete=chosen["complete"],
        pruned=chosen["pruned"],
        failed=chosen["failed"],
        budget_column=chosen["budget_column"],
        target_budget=chosen["target_budget"],
    )
    return Answer((kind.of_table(Runs(frame, metric, columns), chosen),))
