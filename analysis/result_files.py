"""Results as files: JSON, or parquet whose rows any tool reads and whose metadata is the result."""

import json
from pathlib import Path
from typing import Final

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
        UserError: another ending.
    """
    content = json.dumps({"kind": finding.kind, **finding.result.to_json()}, allow_nan=False)
    if path.suffix == ".json":
        path.write_text(content, encoding="utf-8")
    elif path.suffix == ".parquet":
        table = pa.Table.from_pandas(finding.rows(), preserve_index=False)
        metadata = {**(table.schema.metadata or {}), _KEY: content.encode()}
        pq.write_table(table.replace_schema_metadata(metadata), path)
    else:
        raise UserError(f"cannot write {path}: the name must end in .json or .parquet")


def write_answer(answer: Answer, path: Path) -> None:
    """Write the result that answers the question to ``path`` (see `write_finding`).

    Raises:
        UserError: an answer of another kind, or none.
    """
    finding = None if answer.leading is None else answer.leading.saved
    if finding is None:
        raise UserError(
            "only the result of a transition, a front, one lean comparison or effects can be"
            " written; use --json"
        )
    write_finding(finding, path)


def read_result(path: Path) -> Jsonable:
    """Return the result that `write_finding` wrote to ``path``.

    Raises:
        UserError: a file that holds none.
    """
    results = {kind.name: kind.result for kind in ask.KINDS if kind.result is not None}
    try:
        if path.suffix == ".parquet":
            content = json.loads((pq.read_schema(path).metadata or {})[_KEY])
        else:
            content = json.loads(path.read_text(encoding="utf-8"))
        return results[content["kind"]].from_json(content)
    except (OSError, KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise UserError(f"{path} holds no result of an analysis: {error}") from error
