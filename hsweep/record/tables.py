"""The study as tables: one declared schema for trials, one for reports.

A report is a row of the record. Of a large study most questions need the last one of each trial
alone, or those of a few trials, so all reports are read only for tables that need all.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hsweep.design.labels import counted
from hsweep.errors import UserError
from hsweep.files import replacing
from hsweep.record.index import parsed
from hsweep.record.journal_reader import ORIGIN_META, JournalReader
from hsweep.record.rows import FIGURES, REPORTED_COUNTS, RawReport, TrialRow
from models.conditioning import PROBED_WORDS
from models.conditioning import is_probed as is_probed

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_REPORT_FIELDS: Final = (
    ("step", "int64"), ("wall_seconds", "float64"), ("micro_batch", "int64"), ("note", "string"),
    *((name, "float64") for name in FIGURES),
)  # fmt: skip
"""What a report says besides its metrics, as far as the table of reports has it."""
_LAST_TIMES: Final = ("train_seconds", "data_seconds", "latency_seconds")
_LAST_FIELDS: Final = (
    *(("micro_batch", "int64"), ("wall_seconds", "float64")),
    *((name, "float64") for name in _LAST_TIMES),
)
"""What the table of trials has of the last report besides its metrics."""
_PAYLOAD: Final = 4
_COUNTS: Final = (
    "num_params", "flops_per_example", "train_flops_per_example", "train_memory_bytes",
)  # fmt: skip
EXPORT_FORMATS: Final = (".parquet", ".csv", ".json")


def axis_kinds(points: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the column type of each axis of points: ``bool``, ``int64``, ``float64`` or
    ``string``.

    A missing value (an axis that only part of a union has, or None) fits any type; mixed kinds,
    tuples and whole numbers beyond 64 bits become strings.
    """
    import pyarrow as pa

    names = {pa.bool_(): "bool", pa.int64(): "int64", pa.float64(): "float64"}
    kinds = {}
    # Those of replicates are one object.
    distinct = {id(point): point for point in points}.values()
    for axis in dict.fromkeys(axis for point in distinct for axis in point):
        try:
            kind = pa.array([point.get(axis) for point in distinct]).type
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            kind = pa.string()
        kinds[axis] = names.get(kind, "string")
    return kinds


def trials_schema(
    axes: Mapping[str, str], metrics: Sequence[str], *, orphaned: bool = False
) -> "pa.Schema":
    """Return the schema of the trials table: fixed columns, one column an axis (by the names and
    types of ``axis_kinds``) and one a metric (its last reported value).

    ``orphaned`` adds the column that says why a trial is no longer part of the study.
    """
    import pyarrow as pa

    fields = [
        *(("key", "string"), ("study", "string"), ("ordinal", "int64"), *axes.items()),
        *(("seed", "int64"), ("stratum", "string"), ("status", "string"), ("reason", "string")),
        *([("orphaned", "string")] if orphaned else []),
        *(("attempt", "int64"), ("failures", "int64"), ("reused_from", "string")),
        *((name, "int64") for name in ("micro_batch", "reached", "budget")),
        *((metric, "float64") for metric in metrics),
        *((name, "int64") for name in _COUNTS),
        *((name, "float64") for name in ("wall_seconds", *_LAST_TIMES)),
    ]
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in fields])


def reports_schema(metrics: Sequence[str]) -> "pa.Schema":
    import pyarrow as pa

    step, *others = _REPORT_FIELDS
    fields = [
        *(("key", "string"), ("unit", "int64"), step, ("attempt", "int64"), ("time", "float64")),
        *((name, kind) for name, kind in others if name not in metrics),
        *((metric, "float64") for metric in metrics),
    ]
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in fields])


def _reports_part(entries: Sequence[RawReport], metrics: Sequence[str]) -> "pa.Table":
    import pyarrow as pa

    keys, times, attempts, units, payloads = zip(*entries, strict=True)
    fields = {name: kind for name, kind in _REPORT_FIELDS if name not in metrics}
    columns: dict[str, Any] = {
        "key": keys, "unit": units, "attempt": attempts, "time": times,
        **_payloads(payloads, metrics, fields),
    }  # fmt: skip
    return pa.table(columns, reports_schema(metrics))


def _payloads(
    payloads: Sequence[str], metrics: Sequence[str], fields: Mapping[str, str]
) -> dict[str, Any]:
    """Return the content of reports, column by column: ``metrics`` and other ``fields``."""
    import pyarrow as pa
    import pyarrow.json

    columns = [(name, pa.type_for_alias(kind)) for name, kind in fields.items()]
    inner = pa.struct([(metric, pa.float64()) for metric in metrics])
    schema = pa.schema([*columns, ("metrics", inner)])
    text = "\n".join(payloads).encode()
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(payloads):
            raise pa.ArrowInvalid("not a line a report")
    except pa.ArrowInvalid:  # what Python reads as a number and Arrow does not
        table = pa.Table.from_pylist([json.loads(payload) for payload in payloads], schema)
    values = table.column("metrics").combine_chunks()
    return {
        **{name: table.column(name) for name in fields},
        **dict(zip(metrics, values.flatten(), strict=True)),
    }


def _probed_besides(metrics: Sequence[str], entries: Sequence[RawReport]) -> list[str]:
    # Looked for as text first: without a probe there is nothing to be read for it.
    text = "\n".join(entry[_PAYLOAD] for entry in entries)
    if not any(word in text for word in PROBED_WORDS if word not in metrics):
        return []
    reported = {name for entry in entries for name in json.loads(entry[_PAYLOAD])["metrics"]}
    return [name for name in reported - set(metrics) if is_probed(name)]


def _cell(value: Any, kind: str) -> Any:
    if kind != "string" or value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def write_table(table: "pa.Table", path: Path) -> None:
    """Write a table, by the path's ending; UserError for an ending that no format goes with, or a
    path that cannot be written."""
    if path.suffix not in EXPORT_FORMATS:
        raise UserError(
            f"a table is written as {', '.join(EXPORT_FORMATS)}; {path.name!r} ends in "
            f"{path.suffix!r}"
        )
    import pyarrow.csv
    import pyarrow.parquet

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft:
            if path.suffix == ".parquet":
                pyarrow.parquet.write_table(table, draft)
            elif path.suffix == ".csv":
                pyarrow.csv.write_csv(table, draft)
            else:
                draft.write_text(json.dumps(table.to_pylist(), indent=1), "utf-8")
    except OSError as error:
        raise UserError(f"the table {path} cannot be written ({error})") from error


@dataclass
class StudyTables:
    """What a study has recorded, as tables that are read once and only when they are needed.

    Attributes:
        journal: the record, within a snapshot for as long as this is used.
        metrics: of the reports, the main one first.
        orphaned: also trials that are no longer part of the study, with a column that says why.
    """

    journal: JournalReader
    study: str
    metrics: Sequence[str]
    orphaned: bool = False

    @cached_property
    def trials(self) -> "pa.Table":
        """The table of trials.

        ``reused_from`` names the study that trained a trial, where another one did;
        ``micro_batch`` is the number of examples computed at once in the last report, where memory
        did not suffice for a whole batch. A trial's metrics are those of its last report: for a
        trial that did not finish they are what it had reached, and ``status`` says so.
        """
        import pyarrow as pa
        import pyarrow.compute

        stored, metrics = self._columns, self.metrics
        if any(map(is_probed, metrics)):
            # How many layers were probed is known only from all reports.
            metrics = self.reports.column_names[len(reports_schema(()).names) :]
        points, counts = parsed(stored["point"]), parsed(stored["counts"])
        axes = axis_kinds(points)
        columns: dict[str, Any] = {
            **stored,
            **{
                axis: [_cell(point.get(axis), kind) for point in points]
                for axis, kind in axes.items()
            },
            "study": [self.study] * len(points),
            "seed": stored["replicate"],
            "orphaned": [why or None for why in stored["orphaned"]],
            "reused_from": [name or None for name in stored["reused_from"]],
            "reached": stored["unit"],
            **{name: [count.get(name) for count in counts] for name in _COUNTS},
        }
        reported = _payloads(stored["last"], [*metrics, *REPORTED_COUNTS], dict(_LAST_FIELDS))
        for name in REPORTED_COUNTS:
            planned, measured = pa.array(columns[name], pa.int64()), reported.pop(name)
            whole = pa.compute.round(measured).cast(pa.int64())
            columns[name] = pa.compute.coalesce(planned, whole)
        columns |= reported
        columns["wall_seconds"] = pa.compute.fill_null(reported["wall_seconds"], 0.0)
        return pa.table(columns, trials_schema(axes, metrics, orphaned=self.orphaned))

    def trials_frame(self) -> "pd.DataFrame":
        table: pd.DataFrame = self.trials.to_pandas()
        return table

    @cached_property
    def reports(self) -> "pa.Table":
        """The table of all reports, in the order they were recorded."""
        return self._reports_in(self.journal.report_batches())

    @cached_property
    def reported(self) -> frozenset[str]:
        """Keys of the trials that have reported."""
        return self.journal.reported_keys() & self._keys

    def reports_of(self, keys: Collection[str]) -> "pd.DataFrame":
        table: pd.DataFrame = self._reports_in(self.journal.report_batches(keys)).to_pandas()
        return table

    def _reports_in(self, batches: Iterable[Sequence[RawReport]]) -> "pa.Table":
        """Return the table of the reports of these trials.

        Besides ``metrics`` it has the probe's numbers of single layers, if a report has them: how
        many layers there are is known only once a model has run.
        """
        import pyarrow as pa

        parts = []
        besides: set[str] = set()
        for batch in batches:
            if entries := [entry for entry in batch if entry[0] in self._keys]:
                probed = _probed_besides(self.metrics, entries)
                besides.update(probed)
                parts.append(_reports_part(entries, [*self.metrics, *probed]))
        ordered = sorted(besides, key=lambda name: (len(name), name))
        schema = reports_schema([*self.metrics, *ordered])
        if not parts:
            return schema.empty_table()
        return pa.concat_tables(parts, promote_options="default").select(schema.names).cast(schema)

    @cached_property
    def rows(self) -> list[TrialRow]:
        """The trials, in the order of the plan."""
        return self.journal.trials(orphaned=self.orphaned)

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(self._columns["key"])

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        return self.journal.trial_columns(orphaned=self.orphaned)


def mixed_versions_lines(journal: JournalReader, keys: Iterable[str] | None = None) -> list[str]:
    """Return a line with the packages of which the trials with these keys (None: all trials) were
    trained with several versions, and the number of trials of each version; empty for none."""
    if len(journal.metas(ORIGIN_META)) < 2:
        return []
    origins = journal.origins()
    versions = {text: json.loads(text)["versions"] for texts in origins.values() for text in texts}
    trials: Counter[tuple[str, str]] = Counter()
    for key in origins if keys is None else keys:
        packages = (item for text in origins.get(key, ()) for item in versions[text].items())
        trials.update(dict.fromkeys(packages, 1))
    numbers = Counter(package for package, _ in trials)
    mixed = [
        f"{package} {version} ({counted(number, 'trial')})"
        for (package, version), number in trials.items()
        if numbers[package] > 1
    ]
    return [f"trained with different versions: {', '.join(mixed)}"] if mixed else []
