"""Answers as files: JSON, or parquet whose rows any tool reads and whose metadata is the result."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.answer import Answer
from analysis.questions.base import Finding
from hsweep.errors import UserError


def write_answer(answer: Answer, path: Path) -> None:
    """Write the result that answers the question to ``path`` (.json or .parquet).

    The rows of a parquet file are the head counts of a transition, the shapes of a front or of a
    lean question, or the steps of every axis; its metadata ``hsweep.result`` is the JSON.

    Raises:
        UserError: no answer, another ending, or a parquet file of what has no rows of its own.
    """
    finding = answer.leading
    if finding is None:
        raise UserError("there is no result to write")
    content = json.dumps({"kind": finding.kind.name, **finding.result.to_json()}, allow_nan=False)
    if path.suffix == ".json":
        path.write_text(content, encoding="utf-8")
    elif path.suffix == ".parquet":
        table = pa.Table.from_pandas(_rows(finding), preserve_index=False)
        metadata = {**(table.schema.metadata or {}), b"hsweep.result": content.encode()}
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
