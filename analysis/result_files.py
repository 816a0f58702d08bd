"""Results as files: JSON, or parquet whose rows any tool reads and whose metadata is the result."""

import json
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis import ask
from analysis.answer import Answer
from analysis.questions.base import Finding
from analysis.values import Jsonable
from hsweep.errors import UserError

_KEY: Final = b"hsweep.result"


def write_finding(finding: Finding, path: Path) -> None:
    """Write what was found to ``path`` (.json or .parquet).

    The rows of a parquet file are the head counts of a transition, the shapes of a front or of a
    lean question, or the steps of every axis.

    Raises:
        UserError: another ending, or a parquet file of what has no rows of its own.
    """
    content = json.dumps({"kind": finding.kind.name, **finding.result.to_json()}, allow_nan=False)
    if path.suffix == ".json":
        path.write_text(content, encoding="utf-8")
    elif path.suffix == ".parquet":
        table = pa.Table.from_pandas(_rows(finding), preserve_index=False)
        metadata = {**(table.schema.metadata or {}), _KEY: content.encode()}
        pq.write_table(table.replace_schema_metadata(metadata), path)
    else:
        raise UserError(f"cannot write {path}: the name must end in .json or .parquet")


def _rows(finding: Finding) -> pd.DataFrame:
    """Return the rows that stand for a result: those it names itself, else those of its table."""
    if hasattr(finding.result, "rows"):
        rows: pd.DataFrame = finding.result.rows()
        return rows
    if not hasattr(finding.result, "table"):
        raise UserError(f"a result of {finding.kind.name} has no rows; write it as .json")
    content: list[dict[str, Any]] = finding.result.to_json()["table"]
    for row in content:
        _, row["ci_low"], row["ci_high"] = row.pop("ci")
    return pd.json_normalize(content, sep=".")


def write_answer(answer: Answer, path: Path) -> None:
    """Write the result that answers the question to ``path`` (see `write_finding`).

    Raises:
        UserError: no answer, or one that cannot be written so.
    """
    if answer.leading is None:
        raise UserError("there is no result to write")
    write_finding(answer.leading, path)


def read_result(path: Path) -> Jsonable:
    """Return the result that `write_finding` wrote to ``path``.

    Raises:
        UserError: a file that holds none.
    """
    results = {kind.name: kind.result for kind in ask.KINDS}
    try:
        if path.suffix == ".parquet":
            content = json.loads((pq.read_schema(path).metadata or {})[_KEY])
        else:
            content = json.loads(path.read_text(encoding="utf-8"))
        return results[content["kind"]].from_json(content)
    except (OSError, KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise UserError(f"{path} holds no result of an analysis: {error}") from error
