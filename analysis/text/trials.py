"""The report page's tables of trials: every trial with its values, and how they ended."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from analysis.runs.statuses import STATUSES
from analysis.text.numbers import NONE, number_text
from analysis.text.tables import Table, varying_columns
from hsweep.design.scales import Goal
from hsweep.record.summary import Remark, remarks, rows_at, run_counts

Cell = str | float | int | None
Columns = Mapping[str, Sequence[Cell]]
"""A table by its columns, as plain JSON values; None where nothing was recorded."""
STATUS_LABELS: Final = {status: status.replace("_", " ") for status in STATUSES}
_COLUMN_LABELS: Final = {
    "mlflow_url": "MLflow run",
    "num_params": "parameters",
    "reused_from": "trained by study",
    "micro_batch": "examples at once",
    "failures": "failed attempts",
    "wall_seconds": "wall time (s)",
    "latency_seconds": "latency (s)",
    "train_memory_bytes": "training memory (B)",
    "flops_per_example": "FLOPs per example",
    "train_flops_per_example": "training FLOPs per example",
}
_CHANGES: Final = ("kept", "restored", "new", "extended", "orphaned")
_BEST: Final = 5
_ALWAYS_SHOWN: Final = ("finished", "stopped_early", "failed", "diverged")


class StatusCount(NamedTuple):
    """How many trials ended one way."""

    status: str
    label: str
    trials: int


def status_counts(trials: pd.DataFrame, runs: int | None = None) -> list[StatusCount]:
    """Return how many trials ended in each way; the four endings always, others where they
    occur. Of planned ones as many count as are left of ``runs``, where that is known."""
    counts = Counter(map(str, trials["status"]) if "status" in trials.columns else ())
    if runs is not None:
        counts["planned"] = dict(run_counts(counts, runs))["planned"]
    return [
        StatusCount(status, label, counts[status])
        for status, label in STATUS_LABELS.items()
        if status in _ALWAYS_SHOWN or counts[status]
    ]


def fixed_axes(trials: pd.DataFrame, axes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the axes that have the same value in all trials, with that value."""
    return [
        (name, _value_text(trials[name].iloc[0]))
        for name in axes
        if name in trials.columns
        and trials[name].nunique(dropna=False) == 1
        and not pd.isna(trials[name].iloc[0])
    ]


def trial_columns(trials: pd.DataFrame, axes: Sequence[str], metric: str) -> Columns:
    """Return every trial by its columns in reading order, empty columns left out.

    The status comes first, then what varies of the shape, seed and result, then costs, and the keys
    last. The study's own name, the page's title, is not repeated.
    """
    varying = varying_columns(trials, axes)
    fixed = [name for name in axes if name not in varying]
    leading = ["status", *varying, "seed", "role", metric, "reached", "budget", "num_params"]
    trailing = ["reason", "reused_from", "mlflow_url", *fixed, "stratum", "ordinal"]
    trailing += ["attempt", "failures", "key"]
    middle = [name for name in trials.columns if name not in (*leading, *trailing, "study")]
    columns = {}
    for name in dict.fromkeys([*leading, *map(str, middle), *trailing]):
        cells = [_cell(value) for value in trials[name].tolist()] if name in trials else []
        has_content = any(cells) if name == "failures" else bool(set(cells) - {None, ""})
        if has_content or (name == "status" and name in trials):
            columns[name] = cells
    return columns


def embedded(columns: Columns) -> dict[str, Any]:
    """Return the trials as the page holds them."""
    heads = [
        {"name": name, "label": column_label(name), "kind": _kind(name, values)}
        for name, values in columns.items()
    ]
    rows = [*zip(*columns.values(), strict=True)]
    return {"columns": heads, "rows": rows, "statusLabels": STATUS_LABELS}


def column_label(name: str) -> str:
    return _COLUMN_LABELS.get(name, name)


def _kind(name: str, values: Sequence[Cell]) -> str:
    """Return ``status``, ``link``, ``number`` or ``text``."""
    kinds = {"status": "status", "mlflow_url": "link"}
    are_numbers = all(value is None or isinstance(value, int | float) for value in values)
    return kinds.get(name, "number" if are_numbers else "text")


def _cell(value: Any) -> Cell:
    if isinstance(value, str):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.7g}")
    return str(value)


def _value_text(value: Any, digits: int = 3) -> str:
    cell = _cell(value)
    return number_text(cell, digits) if isinstance(cell, int | float) else (cell or NONE)


def best_table(trials: pd.DataFrame, axes: Sequence[str], metric: str, goal: Goal) -> Table:
    """Return the best finished trials, the best first."""
    if not {"status", metric} <= set(trials.columns):
        return Table((), ())
    finished = trials.loc[trials["status"].eq("finished") & trials[metric].notna()]
    best = finished.sort_values(metric, ascending=goal == "min", kind="stable").head(_BEST)
    names = [metric, *varying_columns(trials, axes), "seed", "num_params", "wall_seconds", "key"]
    best = best[[name for name in names if name in best and best[name].notna().any()]]
    rows = [
        [str(value)[:12] if name == "key" else _value_text(value, 4) for name, value in row.items()]
        for row in best.to_dict("records")
    ]
    note = (
        f"The best of {len(finished):,} single runs are partly lucky ones: compare repeated runs "
        "before you choose one."
    )
    header = ("", *map(column_label, map(str, best)))
    return Table(header, tuple((str(at), *row) for at, row in enumerate(rows, 1)), note)


def outcomes_table(all_remarks: Iterable[Remark], orphaned: Mapping[str, int]) -> Table:
    """Return what happened to trials besides training to the end; no row where nothing did.
    ``orphaned`` has the number of those no longer part of the study, by the reason."""
    rows = [(remark.what, str(remark.trials), remark.details) for remark in all_remarks]
    rows += [
        ("orphaned", str(number), f"{why}; their results are kept and in no number here")
        for why, number in orphaned.items()
    ]
    return Table(("what happened", "trials", "which and why"), tuple(rows))


def frame_remarks(trials: pd.DataFrame, axes: Sequence[str]) -> list[Remark]:
    """Return remarks on the runs of a table that belongs to no study."""
    names = varying_columns(trials, axes) or [name for name in axes if name in trials.columns]
    return remarks(rows_at(trials[names].to_dict("records"), trials["status"].astype(str)))


def revisions_table(revisions: Sequence[Mapping[str, Any]]) -> Table:
    """Return how the sweep was edited while it ran, as the manifest holds it."""
    rows = []
    for revision in revisions:
        at = time.localtime(float(revision.get("time", 0)))
        counts = revision.get("counts", {})
        changes = ", ".join(f"{counts[name]} {name}" for name in _CHANGES if counts.get(name))
        reasons = [f"{number} {why}" for why, number in revision.get("reasons", {}).items()]
        changes += f" ({'; '.join(reasons)})" if reasons else ""
        command = str(revision.get("command", ""))
        rows.append((time.strftime("%Y-%m-%d %H:%M", at), changes, command))
    return Table(("edited", "trials", "command"), tuple(rows))
