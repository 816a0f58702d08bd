"""Holds a study's record, files and tracked runs against what must be true of them.

Reads the record with SQL of its own: an auditor that used the tool's own reading would not see
what that leaves out.
"""

import contextlib
import hashlib
import json
import re
import sqlite3
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from hsweep.paths import index_file

_LINE: Final = re.compile(rb'\{"crc32":"([0-9a-f]{8})","entries":(.*)\}\n', re.DOTALL)
FINAL: Final = frozenset(
    {"finished", "stopped_early", "not_needed", "diverged", "failed", "too_large"}
)
RUN_STATUS: Final = {
    "finished": "FINISHED",
    "stopped_early": "KILLED",
    "diverged": "FAILED",
    "failed": "FAILED",
    "too_large": "FAILED",
}


class Told(NamedTuple):
    """One report of a trial: all but the time it took."""

    unit: int
    step: int
    metrics: str


@dataclass(frozen=True)
class Ending:
    """How a trial ended, and all that it reported."""

    status: str
    reports: tuple[Told, ...]


class Shown(NamedTuple):
    """What somebody has been shown of a trial."""

    unit: int
    metrics: str


Endings = Mapping[str, Ending]
Seen = set[tuple[str, Shown]]
Reported = tuple[str, int]
"""Key and unit of a report."""


class Entry(NamedTuple):
    """One line of the log."""

    key: str
    kind: str
    unit: int | None
    payload: dict[str, Any]

    @property
    def told(self) -> Told:
        assert self.unit is not None
        return Told(self.unit, self.payload["step"], shown_metrics(self.payload["metrics"]))

    @property
    def shown(self) -> Shown:
        return Shown(self.told.unit, self.told.metrics)


class Row(NamedTuple):
    """What the record says in short of a trial."""

    status: str
    unit: int
    attempt: int


@dataclass(frozen=True)
class Record:
    """A study's record, as it lies on disk: the log of all, and the trials that belong to it."""

    rows: Mapping[str, Row]
    log: tuple[Entry, ...]

    def reports(self, key: str) -> list[Entry]:
        return [entry for entry in self.log if entry.key == key and entry.kind == "report"]

    def statuses(self, key: str) -> list[str]:
        """The statuses that the trial had; that it left or joined the study is none."""
        return [
            entry.payload["status"]
            for entry in self.log
            if entry.key == key and entry.kind == "status" and "orphaned" not in entry.payload
        ]

    def endings(self) -> dict[str, Ending]:
        return {
            key: Ending(row.status, tuple(entry.told for entry in self.reports(key)))
            for key, row in self.rows.items()
        }


def read_record(study: Path) -> Record:
    file = index_file(study / "journal")
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=30)) as database:
        rows = database.execute(
            "SELECT key, status, unit, attempt FROM trials WHERE orphaned = '' ORDER BY ordinal"
        )
        log = database.execute("SELECT key, kind, unit, payload FROM log ORDER BY seq")
        return Record(
            {key: Row(*rest) for key, *rest in rows},
            tuple(Entry(key, kind, unit, json.loads(text)) for key, kind, unit, text in log),
        )


def log_entries(study: Path) -> Iterator[dict[str, Any]]:
    """Yield what the whole lines of a study's log hold."""
    contents = [file.read_bytes() for file in sorted((study / "journal").glob("[0-9]*.jsonl"))]
    lines = [[*map(_entries, content.splitlines(keepends=True))] for content in contents]
    for number, content in enumerate(contents):
        head = lines[number + 1][0] if number + 1 < len(lines) else []
        # What its owner wrote when the study was no longer its own.
        counts = content[: head[0]["after"]] if head else content
        for entries in lines[number][: counts.count(b"\n")]:
            yield from (entry for entry in entries if "segment" not in entry)


def _entries(line: bytes) -> list[dict[str, Any]]:
    checked = _LINE.fullmatch(line)
    is_whole = checked and f"{zlib.crc32(checked[2]):08x}".encode() == checked[1]
    return json.loads(checked[2]) if checked and is_whole else []


def reports_in_the_log(study: Path) -> Counter[Reported]:
    """Return the reports that the whole lines of a study's log hold."""
    entries = log_entries(study)
    return Counter((entry["report"], entry["unit"]) for entry in entries if "report" in entry)


def standing(study: Path) -> tuple[int, int]:
    """Return how many reports are in a study's log, and how many trials have not ended by it."""
    reports, status = 0, dict[str, str]()
    for entry in log_entries(study):
        reports += "report" in entry
        if "trial" in entry:
            status.setdefault(entry["trial"], "planned")
        elif "status" in entry:
            status[entry["status"]] = entry["payload"]["status"]
    return reports, sum(each not in FINAL for each in status.values())


def seen_in(record: Record) -> Seen:
    return {(entry.key, entry.shown) for entry in record.log if entry.kind == "report"}


@dataclass
class Audit:
    """What was found. A trial is in ``once`` if nothing at all is wrong with it."""

    planned: int = 0
    lost: dict[str, str] = field(default_factory=dict)
    doubled: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def once(self) -> int:
        return self.planned - len(self.lost.keys() | self.doubled.keys())

    @property
    def problems(self) -> list[str]:
        lost = [f"lost: {key}: {why}" for key, why in self.lost.items()]
        doubled = [f"doubled: {key}: {why}" for key, why in self.doubled.items()]
        return [*lost, *doubled, *self.wrong]


def audit(
    study: Path,
    calm: Endings,
    seen: Iterable[tuple[str, Shown]] = (),
    damaged: Collection[Reported] = (),
) -> Audit:
    """Hold a study that is said to be complete against an undisturbed one.

    Args:
        study: its folder.
        calm: how its trials end undisturbed.
        seen: what somebody has been shown of it.
        damaged: reports whose line in the log was damaged: they may be missing, or come later.
    """
    record = read_record(study)
    found = Audit(planned=len(calm))
    for key in record.rows.keys() - calm.keys():
        found.wrong.append(f"{key} was never planned")
    for key, expected in calm.items():
        if key not in record.rows:
            found.lost[key] = "not on record"
            continue
        _audit_trial(found, key, record, expected, {unit for of, unit in damaged if of == key})
    on_record = seen_in(record)
    for key, shown in seen:
        if (key, shown) not in on_record and (key, shown.unit) not in damaged:
            found.lost[key] = f"unit {shown.unit} had been shown and is gone: {shown.metrics}"
    in_the_index = Counter((e.key, e.unit) for e in record.log if e.kind == "report")
    if in_the_index != reports_in_the_log(study):
        found.wrong.append("the index holds other reports than the log")
    _audit_files(found, study, record)
    return found


def _audit_trial(
    found: Audit, key: str, record: Record, expected: Ending, damaged: Collection[int]
) -> None:
    row, statuses = record.rows[key], record.statuses(key)
    ends = [status for status in statuses if status in FINAL]
    if not ends or row.status not in FINAL:
        found.lost[key] = f"no final state: {row.status}, log {statuses}"
    if len(ends) > 1:
        found.doubled[key] = f"{len(ends)} final states: {ends}"
    if statuses and statuses[-1] != row.status:
        found.wrong.append(f"{key} is {row.status}, by its log {statuses[-1]}")
    told = [entry.told for entry in record.reports(key)]
    units = [each.unit for each in told]
    if len(set(units)) < len(units):
        found.doubled[key] = f"reports of units {units}"
    if damaged:
        told.sort(key=lambda each: each.unit)
        units.sort()
    if units != sorted(units) or (units and units[-1] != row.unit):
        found.wrong.append(f"{key} reported units {units} and stands at {row.unit}")
    expected_reports = tuple(
        each for each in expected.reports if each.unit in units or each.unit not in damaged
    )
    if missing := {each.unit for each in expected_reports} - set(units):
        found.lost[key] = f"no reports of units {sorted(missing)}"
    if row.status != expected.status:
        found.wrong.append(f"{key} is {row.status}, undisturbed {expected.status}")
    elif tuple(told) != expected_reports:
        found.wrong.append(f"{key} reported {told}, undisturbed {list(expected.reports)}")


def _audit_files(found: Audit, study: Path, record: Record) -> None:
    import pyarrow.parquet

    left = [str(path.relative_to(study)) for path in _files(study / "checkpoints")]
    if left:
        found.wrong.append(f"checkpoints of ended trials are left: {left}")
    trials = pyarrow.parquet.read_table(study / "trials.parquet").to_pylist()
    if {row["key"]: row["status"] for row in trials} != {
        key: row.status for key, row in record.rows.items()
    } or len(trials) != len(record.rows):
        found.wrong.append("trials.parquet is not what the record says")
    reports = pyarrow.parquet.read_table(study / "reports.parquet", columns=["key", "unit"])
    if sorted((row["key"], row["unit"]) for row in reports.to_pylist()) != sorted(
        (key, entry.unit) for key in record.rows for entry in record.reports(key)
    ):
        found.wrong.append("reports.parquet is not what the record says")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def audit_all(study: Path, calm: Endings, seen: Iterable[tuple[str, Shown]], uri: str) -> Audit:
    """Hold a study against an undisturbed one, and what MLflow has of it against its record."""
    found = audit(study, calm, seen)
    audit_tracking(found, study, uri)
    return found


def audit_tracking(found: Audit, study: Path, uri: str, damaged: Collection[Reported] = ()) -> None:
    """Hold what MLflow has of a study against its record.

    A trial of which a report was ``damaged`` may have told MLflow more than is on record.
    """
    from mlflow import MlflowClient

    from hsweep.record.manifest import parse_manifest
    from hsweep.tracking.contents import STUDY_ID, study_tags

    record = read_record(study)
    study_id = study_tags(parse_manifest((study / "study.json").read_text()))[STUDY_ID]
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    experiments = [each.experiment_id for each in client.search_experiments()]
    runs = client.search_runs(
        experiments, f"tags.`hsweep.study_id` = '{study_id}'", max_results=10_000
    )
    keys = [run.data.tags.get("hsweep.trial", "") for run in runs]
    for key, number in Counter(keys).items():
        if number > 1:
            found.doubled[key] = f"{number} MLflow runs"
    parents = [run.info.status for run in runs if "hsweep.trial" not in run.data.tags]
    if parents != ["FINISHED"]:
        found.wrong.append(f"the study's own MLflow runs are {parents}")
    for key in record.rows.keys() - set(keys):
        # What a search did not ask for never was a run.
        if record.rows[key].status != "not_needed":
            found.lost[key] = "no MLflow run"
    for run, key in zip(runs, keys, strict=True):
        if key not in record.rows:
            continue
        status = record.rows[key].status
        if run.info.status != RUN_STATUS[status] or run.data.tags["hsweep.status"] != status:
            found.wrong.append(f"the MLflow run of {key} is {run.info.status}, the trial {status}")
        if key not in {of for of, _ in damaged}:
            _audit_history(found, key, record, client, run.info.run_id)


def _audit_history(found: Audit, key: str, record: Record, client: Any, run_id: str) -> None:
    entries = record.reports(key)
    names = {name for entry in entries for name in entry.payload["metrics"]}
    for name in sorted(names):
        history = client.get_metric_history(run_id, name)
        points = [(point.step, point.value) for point in history]
        expected = [
            (entry.unit, value)
            for entry in entries
            if (value := entry.payload["metrics"].get(name)) is not None
        ]
        if len({step for step, _ in points}) < len(points):
            found.doubled[key] = f"MLflow has {name} at steps {[step for step, _ in points]}"
        elif len(points) < len(expected):
            found.lost[key] = f"MLflow has {name} at steps {[step for step, _ in points]} only"
        elif sorted(points) != expected:
            found.wrong.append(f"MLflow has {name} of {key} as {points}, the record {expected}")


def lost_work(study: Path) -> dict[str, float]:
    """Return, of each trial that has not ended, the seconds recorded beyond its newest checkpoint.

    The seconds are the trial's own clock: training and evaluation, over all attempts.
    """
    record = read_record(study)
    lost: dict[str, float] = {}
    for key, row in record.rows.items():
        reports = record.reports(key)
        if row.status in FINAL or not reports:
            continue
        seconds = {entry.unit: entry.payload["wall_seconds"] for entry in reports}
        last = reports[-1].unit
        kept = max(whole_checkpoints(study / "checkpoints" / key), default=0)
        lost[key] = seconds[last] - seconds.get(min(kept, last or 0), 0.0)
    return lost


def whole_checkpoints(folder: Path) -> list[int]:
    """Return the units of the checkpoints in a trial's folder that are whole."""
    units = []
    for file in sorted(folder.glob("[0-9]*.pt")):
        unit, _, digest = file.stem.split("-")
        # A worker whose driver has just died may still be at work here.
        with contextlib.suppress(FileNotFoundError):
            if hashlib.sha256(file.read_bytes()).hexdigest().startswith(digest):
                units.append(int(unit.partition(".")[0]))
    return units


def shown_metrics(metrics: Mapping[str, Any]) -> str:
    """Return metrics as text: equal if and only if they are equal to the bit."""
    return json.dumps(metrics, sort_keys=True)
