"""Results as files: JSON, or parquet whose rows any tool reads and whose metadata is the result."""

import json
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.answer import Answer
from analysis.findings.results import LeanResult, ParetoResult, TransitionResult
from analysis.questions.effects.result import AxisEffect, EffectsResult
from analysis.questions.surrogate.result import SurrogateResult
from hsweep.errors import UserError

Result = TransitionResult | ParetoResult | LeanResult | EffectsResult | SurrogateResult

_KINDS: Final[dict[str, type[Result]]] = {
    "transition": TransitionResult,
    "pareto": ParetoResult,
    "lean": LeanResult,
    "effects": EffectsResult,
    "surrogate": SurrogateResult,
}
_KEY: Final = b"hsweep.result"


def write_result(result: Result, path: Path) -> None:
    """Write ``result`` to ``path`` (.json or .parquet).

    The rows of a parquet file are the head counts of a transition, the shapes of a front or of a
    lean question, the steps of every axis, or the shapes a surrogate learned from and predicts.

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
    result: Result | None = answer.transition or answer.lean or answer.pareto
    if result is None and answer.lean_groups is None and answer.conditioning is None:
        result = answer.effects or answer.surrogate
    if result is None:
        raise UserError(
            "only the result of a transition, a front, one lean comparison, effects or a surrogate"
            " can be written; use --json"
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
    if isinstance(result, EffectsResult):
        return pd.DataFrame([row for axis in result.axes for row in _axis_rows(axis)])
    if isinstance(result, SurrogateResult):
        return pd.json_normalize(_surrogate_rows(result), sep=".")
    rows: list[dict[str, Any]] = result.to_json()["table"]
    for row in rows:
        _, row["ci_low"], row["ci_high"] = row.pop("ci")
    return pd.json_normalize(rows, sep=".")


def _axis_rows(axis: AxisEffect) -> list[dict[str, Any]]:
    """Return an axis and its steps; the axis itself has no ends."""
    own = (None, None, axis.effect, axis.p, axis.p_holm, axis.pairs)
    steps = [
        (step.low, step.high, step.effect, step.p, step.p_holm, len(step.pairs))
        for step in axis.steps
    ]
    names = ("from", "to", "gain", "gain_low", "gain_high", "p", "p_holm", "pairs")
    return [
        {"axis": axis.axis, **dict(zip(names, (low, high, *gain, *rest), strict=True))}
        for low, high, gain, *rest in (own, *steps)
    ]


def _surrogate_rows(result: SurrogateResult) -> list[dict[str, Any]]:
    tried = [
        {
            "config": shape.config,
            "label": shape.label,
            "tried": True,
            "cost": shape.cost,
            "metric": shape.metric,
            "expected": shape.left_out.estimate,
            "expected_low": shape.left_out.low,
            "expected_high": shape.left_out.high,
            "extrapolates": False,
        }
        for shape in result.shapes
    ]
    untried = [
        {
            "config": found.config,
            "label": found.label,
            "tried": found.tried,
            "cost": found.cost,
            "metric": None,
            "expected": found.mean.estimate,
            "expected_low": found.mean.low,
            "expected_high": found.mean.high,
            "extrapolates": found.extrapolates,
        }
        for found in (*result.predictions, *result.suggestions)
    ]
    return [*tried, *untried]


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
