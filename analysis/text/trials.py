"""The report page's tables of trials: every trial with its values, and how they ended."""

import dataclasses
import math
import os.path
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from analysis.runs.statuses import NOT_NEEDED
from analysis.text.numbers import NONE, number_text
from analysis.text.tables import Table, varying_columns
from hsweep.design.question import Goal

STATUS_LABELS: Final = {
    "finished": "finished",
    "at_chance": "at chance",
    "stopped_early": "stopped early",
    NOT_NEEDED: "not needed",
    "failed": "failed",
    "diverged": "diverged",
    "too_large": "too large",
    "running": "running",
    "planned": "planned",
}
_BEST: Final = 5
_ALWAYS_COUNTED: Final = ("finished", "stopped_early", "failed", "diverged")

ColumnKind = Literal["number", "text", "status", "link"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table of trials."""

    name: str
    label: str
    kind: ColumnKind


@dataclass(frozen=True, slots=True)
class TrialTable:
    """Every trial, as plain JSON values; None where nothing was recorded."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]


def embedded(table: TrialTable) -> dict[str, Any]:
    """Return the table as the page holds it: what all addresses of a column begin with once."""
    cells = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    columns: list[dict[str, Any]] = []
    for at, column in enumerate(table.columns):
        prefix = ""
        if column.kind == "link":
            texts = [text for text in cells[at] if isinstance(text, str)]
            prefix = os.path.commonprefix(texts)  # noqa: RUF071 - of characters
            cells[at] = tuple(
                text[len(prefix) :] if isinstance(text, str) else text for text in cells[at]
            )
        columns.append({**dataclasses.asdict(column), "prefix": prefix})
    rows = list(zip(*cells, strict=True)) if table.rows else []
    return {"columns": columns, "rows": rows, "statusLabels": STATUS_LABELS}


@dataclass(frozen=True, slots=True)
class StatusCount:
    """How many trials ended one way."""

    status: str
    label: str
    count: int

    @property
    def class_name(self) -> str:
        """The class of its style on the page; empty for a status of another program."""
        return self.status if self.status in STATUS_LABELS else ""


def fixed_axes(trials: pd.DataFrame, axes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the axes that take one value throughout, with that value; not those without one."""
    return [
        (name, _value_text(trials[name].iloc[0]))
        for name in axes
        if name in trials.columns
        and trials[name].nunique(dropna=False) == 1
        and not pd.isna(trials[name].iloc[0])
    ]


def status_counts(trials: pd.DataFrame) -> list[StatusCount]:
    """Return how many trials ended in each way; the four endings always, others where they occur.

    An unknown status is counted under its own name, never dropped.
    """
    found = Counter(map(str, trials["status"]) if "status" in trials.columns else ())
    names = [*STATUS_LABELS, *(name for name in found if name not in STATUS_LABELS)]
    return [
        StatusCount(name, STATUS_LABELS.get(name, name), found[name])
        for name in names
        if name in _ALWAYS_COUNTED or found[name]
    ]


def trial_table(trials: pd.DataFrame, axes: Sequence[str], metric: str) -> TrialTable:
    """Return every trial with its columns in reading order, empty columns left out.

    The status comes first, then what varies of the shape, seed and result, then costs, and the keys
    last. The study's own name, the page's title, is not repeated.
    """
    varying = varying_columns(trials, axes)
    fixed = [name for name in axes if name not in varying]
    leading = ["status", *varying, "seed", "role", metric, "reached", "budget", "num_params"]
    trailing = ["reason", "reused_from", "mlflow_url", *fixed, "stratum", "ordinal"]
    trailing += ["attempt", "failures", "key"]
    names = [str(name) for name in trials.columns]
    middle = [name for name in names if name not in (*leading, *trailing, "study")]
    ordered = [name for name in dict.fromkeys([*leading, *middle, *trailing]) if name in names]
    columns = []
    cells = []
    for name in ordered:
        values = [_plain_cell(value) for value in trials[name].tolist()]
        if name == "failures" and not any(values):
            continue
        distinct = set(values)
        if distinct - {None, ""} or name == "status":
            columns.append(Column(name, _column_label(name), _kind(name, distinct)))
            cells.append(values)
    return TrialTable(tuple(columns), tuple(zip(*cells, strict=True)) if cells else ())


def _column_label(name: str) -> str:
    return {
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
    }.get(name, name)


def _plain_cell(value: Any) -> str | float | int | None:
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


def _kind(name: str, values: Collection[str | float | int | None]) -> ColumnKind:
    if name == "status":
        return "status"
    if name == "mlflow_url":
        return "link"
    present = [value for value in values if value is not None]
    return "number" if all(isinstance(value, int | float) for value in present) else "text"


def best_table(trials: pd.DataFrame, axes: Sequence[str], metric: str, goal: Goal) -> Table:
    """Return the best trials of those that have run to their end, the best first."""
    if not {"status", metric} <= set(trials.columns):
        return Table((), ())
    finished = trials.loc[trials["status"].eq("finished") & trials[metric].notna()]
    best = finished.sort_values(metric, ascending=goal == "min", kind="stable").head(_BEST)
    names = [metric, *varying_columns(trials, axes), "seed", "num_params", "wall_seconds", "key"]
    names = [name for name in names if name in best.columns and best[name].notna().any()]
    rows = tuple(
        (str(rank), *(_best_text(name, value) for name, value in zip(names, row, strict=True)))
        for rank, row in enumerate(best[names].itertuples(index=False), 1)
    )
    note = (
        f"The best of {len(finished):,} single runs are partly lucky ones: compare repeated runs "
        "before you choose one."
    )
    return Table(("", *map(_column_label, names)), rows, note)


def _best_text(name: str, value: Any) -> str:
    if name == "key":
        return str(value)[:12]
    plain = _plain_cell(value)
    return number_text(plain, 4) if isinstance(plain, int | float) else (plain or NONE)


def cell_table(trials: pd.DataFrame, axes: Sequence[str]) -> Table:
    """Return how the trials of every cell ended; planned ones have not started.

    A cell is a stratum where there are several, else a shape. Those that were not needed are
    counted apart.
    """
    found = set(trials["status"]) if "status" in trials.columns else set()
    others = (way for way in ("at_chance", NOT_NEEDED, "too_large") if way in found)
    ways = (*_ALWAYS_COUNTED, *others)
    endings = ("started", "complete", *(STATUS_LABELS[way] for way in ways[1:]))
    names = varying_columns(trials, axes) or [name for name in axes if name in trials.columns]
    if "stratum" in trials.columns and trials["stratum"].astype(str).nunique() > 1:
        names = ["stratum"]
    if trials.empty or not names or "status" not in trials.columns:
        return Table((), ())
    statuses = trials[names].assign(status=trials["status"].astype(str))
    # Strata are words, which stand in the plan's order.
    counts = statuses.groupby([*names, "status"], sort=names != ["stratum"], dropna=False).size()
    cells: dict[tuple[Any, ...], dict[str, int]] = {}
    for index, count in zip(counts.index.tolist(), counts.tolist(), strict=True):
        cells.setdefault(tuple(map(_value_text, index[:-1])), {})[index[-1]] = count
    rows = tuple(
        (
            *key,
            str(
                sum(count for name, count in numbers.items() if name not in ("planned", NOT_NEEDED))
            ),
            *(str(numbers.get(name, 0)) for name in ways),
        )
        for key, numbers in cells.items()
    )
    return Table((*names, *endings), rows)


def _value_text(value: Any) -> str:
    plain = _plain_cell(value)
    return number_text(plain) if isinstance(plain, int | float) else (plain or NONE)
