"""Results as files: JSON, or parquet whose rows any tool reads and whose metadata is the result."""

import json
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.answer import Answer
from analysis.results import LeanResult, ParetoResult, TransitionResult
from hsweep.errors import UserError

Result = TransitionResult | ParetoResult | LeanResult

_KINDS: Final[dict[str, type[Result]]] = {
    "transition": TransitionResult,
    "pareto": ParetoResult,
    "lean": LeanResult,
}
_KEY: Final = b"hsweep.result"


def write_result(result: Result, path: Path) -> None:
    """Write ``result`` to ``path`` (.json or .parquet).

    The rows of a parquet file are the head counts of a transition, or the shapes of a front or of
    a lean question.

    Raises:
        UserError: another ending.
    """
    (kind,) = (name for name, of in _KINDS.items() if isinstance(result, of))
    content = json.dumps({"kind": kind, **result.to_json()}, allow_nan=False)
    if path.suffix == ".json":
        path.write_text(content, encoding="utf-8")
    elif path.suffix == ".parquet":
        table = pa.Table.from_pandas(result_rows(result), preserve_index=False)
        metadata = {**(table.schema.metadata or {}), _KEY: content.encode()}
        pq.write_table(table.replace_schema_metadata(metadata), path)
    else:
        raise UserError(f"cannot write {path}: the name must end in .json or .parquet")


def write_answer(answer: Answer, path: Path) -> None:
    """Write the result that answers the question to ``path`` (see `write_result`).

    Raises:
        UserError: an answer of another kind, or none.
    """
    result = answer.transition or answer.lean or answer.pareto
    if result is None:
        raise UserError(
            "only the result of a transition, a front or one lean comparison can be written; use"
            " --json"
        )
    write_result(result, path)


def read_result(path: Path) -> Result:
    """Return the result that `write_result` wrote to ``path``.

    Raises:
        UserError: a file that holds none.
    """
    try:
        if path.suffix == ".parquet":
            content = json.loads((pq.read_schema(path).metadata or {})[_KEY])
        else:
            content = json.loads(path.read_text(encoding="utf-8"))
        return _KINDS[content["kind"]].from_json(content)
    except (OSError, KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise UserError(f"{path} holds no result of an analysis: {error}") from error


def result_rows(result: Result) -> pd.DataFrame:
    """Return the rows that stand for ``result`` in a table."""
    if isinstance(result, TransitionResult):
        return pd.DataFrame([_head_row(result, head) for head in result.level])
    rows: list[dict[str, Any]] = result.to_json()["table"]
    for row in rows:
        _, row["ci_low"], row["ci_high"] = row.pop("ci")
    return pd.json_normalize(rows, sep=".")


def _head_row(result: TransitionResult, head: float) -> dict[str, Any]:
    level = result.level[head]
    slope = result.gamma.get(head, (None, None, None))
    success = result.success.get(head, (None, None, None))
    drops = {step.x_to: step.drop for step in result.drops}
    return {
        result.x: head,
        "level": level.estimate,
        "level_se": level.se,
        "drop": drops.get(head),
        "p_h": result.p_h.get(head),
        "slope": slope[0],
        "slope_low": slope[1],
        "slope_high": slope[2],
        "success": success[0],
        "success_low": success[1],
        "success_high": success[2],
        "seed_sd": result.seed_sd.get(head),
        "is_h_star": head == result.h_star,
    }
