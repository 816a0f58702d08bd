"""The study as tables: one declared schema for trials, one for reports."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hsweep.errors import UserError
from hsweep.record.journal import Journal, LogRow, TrialRow
from models import conditioning

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_TIMES: Final = ("train_seconds", "data_seconds", "latency_seconds")
EXPORT_FORMATS: Final = (".parquet", ".csv", ".json")


def axis_kinds(rows: Iterable[TrialRow]) -> dict[str, str]:
    """Return each axis's column type: ``bool``, ``int64``, ``float64`` or ``string``.

    A missing value (an axis that only part of a union has, or None) fits any type; mixed kinds,
    tuples and whole numbers beyond 64 bits become strings.
    """
    kinds: dict[str, set[str]] = {}
    for row in rows:
        for axis, value in row.point.items():
            kinds.setdefault(axis, set()).update({_kind(value)} - {""})
    return {
        axis: found.pop()
        if len(found) == 1
        else "float64"
        if found == {"int64", "float64"}
        else "string"
        for axis, found in kinds.items()
    }


def _kind(value: Any) -> str:
    if type(value) is int and not -(2**63) <= value < 2**63:
        return "string"
    names = {bool: "bool", int: "int64", float: "float64", type(None): ""}
    return names.get(type(value), "string")


def trials_schema(
    axes: Mapping[str, str], metrics: Sequence[str], *, orphaned: bool = False
) -> "pa.Schema":
    """Return the schema of the trials table: fixed columns, one column an axis (by the names and
    types of ``axis_kinds``) and one a metric (its last reported value).

    ``orphaned`` adds the column that says why a trial is no longer part of the study.
    """
    import pyarrow as pa

    return pa.schema(
        [
            ("key", pa.string()),
            ("study", pa.string()),
            ("ordinal", pa.int64()),
            *((axis, pa.type_for_alias(kind)) for axis, kind in axes.items()),
            ("seed", pa.int64()),
            ("stratum", pa.string()),
            ("status", pa.string()),
            ("reason", pa.string()),
            *([("orphaned", pa.string())] if orphaned else []),
            ("attempt", pa.int64()),
            ("failures", pa.int64()),
            ("reused_from", pa.string()),
            ("micro_batch", pa.int64()),
            ("reached", pa.int64()),
            ("budget", pa.int64()),
            *((metric, pa.float64()) for metric in metrics),
            ("num_params", pa.int64()),
            ("flops_per_example", pa.int64()),
            ("train_flops_per_example", pa.int64()),
            ("train_memory_bytes", pa.int64()),
            ("wall_seconds", pa.float64()),
            ("train_seconds", pa.float64()),
            ("data_seconds", pa.float64()),
            ("latency_seconds", pa.float64()),
        ]
    )


def trials_columns() -> tuple[str, ...]:
    """Return the names of the trials table's fixed columns, those that only some tables have
    included."""
    return tuple(trials_schema({}, (), orphaned=True).names)


def reports_schema(metrics: Sequence[str]) -> "pa.Schema":
    """Return the schema of the reports table: one row a report, one column a metric."""
    import pyarrow as pa

    return pa.schema(
        [
            ("key", pa.string()),
            ("unit", pa.int64()),
            ("step", pa.int64()),
            ("attempt", pa.int64()),
            ("time", pa.float64()),
            ("wall_seconds", pa.float64()),
            ("micro_batch", pa.int64()),
            ("note", pa.string()),
            *((metric, pa.float64()) for metric in metrics),
        ]
    )


def study_tables(
    journal: Journal, study: str, metrics: Sequence[str], *, orphaned: bool = False
) -> "tuple[pa.Table, pa.Table]":
    """Return a study's trials and reports, those that are no longer part of it only if asked.

    ``reused_from`` names the study that trained a trial, where another one did; ``micro_batch`` is
    the number of examples computed at once in the last report, where memory did not suffice for a
    whole batch.

    Of a probe's numbers those of single layers are columns if a report has them, whether they are
    among ``metrics`` or not: how many layers there are is known only once a model has run.

    A trial's metrics are those of its last report: for a trial that did not finish they are what
    it had reached, and ``status`` says so.
    """
    import pyarrow as pa

    rows = journal.trials(orphaned=orphaned)
    shown = {row.key for row in rows}
    entries = [entry for entry in journal.reports() if entry.key in shown]
    metrics = [*metrics, *_probed_besides(metrics, entries)]
    reports: dict[str, list[Any]] = {name: [] for name in reports_schema(metrics).names}
    last: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        last[entry.key] = entry.payload
        values = entry.payload["metrics"]
        reports["key"].append(entry.key)
        reports["unit"].append(entry.unit)
        reports["step"].append(entry.payload["step"])
        reports["attempt"].append(entry.attempt)
        reports["time"].append(entry.time)
        reports["wall_seconds"].append(entry.payload["wall_seconds"])
        reports["micro_batch"].append(entry.payload.get("micro_batch"))
        reports["note"].append(entry.payload.get("note"))
        for metric in metrics:
            reports[metric].append(values.get(metric))
    axes = axis_kinds(rows)
    trials = [
        {
            "key": row.key,
            "study": study,
            "ordinal": row.ordinal,
            **{axis: _cell(row.point.get(axis), kind) for axis, kind in axes.items()},
            "seed": row.replicate,
            "stratum": row.stratum,
            "status": str(row.status),
            "reason": row.reason,
            **({"orphaned": row.orphaned or None} if orphaned else {}),
            "attempt": row.attempt,
            "failures": row.failures,
            "reused_from": row.reused_from or None,
            "reached": row.unit,
            "budget": row.budget,
            **_last_values(last.get(row.key), metrics),
            **row.counts,
            "wall_seconds": row.wall_seconds,
        }
        for row in rows
    ]
    return (
        pa.Table.from_pylist(trials, schema=trials_schema(axes, metrics, orphaned=orphaned)),
        pa.table(reports, schema=reports_schema(metrics)),
    )


def _last_values(
    payload: Mapping[str, Any] | None, metrics: Sequence[str]
) -> dict[str, float | None]:
    """Return what a trial's last report said: metrics, how it was computed, where time went."""
    if payload is None:
        return {}
    return {
        **{metric: payload["metrics"].get(metric) for metric in metrics},
        "micro_batch": payload.get("micro_batch"),
        **{name: payload.get(name) for name in _TIMES},
    }


def is_probed(column: str) -> bool:
    """Return whether a column holds what a probe measured, rather than an axis or a result."""
    return conditioning.is_probed(column)


def _probed_besides(metrics: Sequence[str], entries: Iterable[LogRow]) -> list[str]:
    reported = {name for entry in entries for name in entry.payload["metrics"]}
    found = {name for name in reported - set(metrics) if is_probed(name)}
    return sorted(found, key=lambda name: (len(name), name))


def _cell(value: Any, kind: str) -> Any:
    if kind != "string" or value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def write_table(table: "pa.Table", path: Path) -> None:
    """Write a table, by the path's ending, under a temporary name first.

    Raises:
        UserError: an ending that no format goes with, or a path that cannot be written.
    """
    if path.suffix not in EXPORT_FORMATS:
        raise UserError(
            f"a table is written as {', '.join(EXPORT_FORMATS)}; {path.name!r} ends in "
            f"{path.suffix!r}"
        )
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(table, temporary, path.suffix)
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"the table {path} cannot be written ({error})") from error


def _write(table: "pa.Table", path: Path, ending: str) -> None:
    if ending == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path)
    elif ending == ".csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(table, path)
    else:
        path.write_text(json.dumps(table.to_pylist(), indent=1))


def frame(table: "pa.Table") -> "pd.DataFrame":
    """Return a table as a pandas frame."""
    converted: pd.DataFrame = table.to_pandas()
    return converted
