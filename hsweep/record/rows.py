"""The state that a study's log adds up to: a row for each trial, and the study's values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal

from hsweep.design.labels import TrialLabels, first_of
from hsweep.design.trial_status import TrialStatus
from hsweep.record.log import Entry, LogLine

_ENTRY_KINDS: Final = ("report", "status", "trial", "meta")

PLAN_LOST: Final = "the line of the log that planned it is damaged"
"""Reason for which a trial is no part of the study when only its later entries can be read."""
REPORTED_COUNTS: Final = ("num_params",)
"""Costs that a report of one's own training may name where the plan does not know them."""
FIGURES: Final = ("learning_rate", "grad_norm", "running_loss", "examples_per_second")
"""Figures about the updates before a report. Tables of reports and trackers show them beside the
metrics, unless a metric has the same name."""

RawReport = tuple[str, float, int, int, str]
"""A report as it is stored: key, time, attempt, unit, payload (JSON)."""


@dataclass(slots=True)
class TrialRow:
    """A trial on record: its plan and its state.

    Attributes:
        counts: ``num_params``, ``flops_per_example``, ``train_memory_bytes``.
        parts: the parts of the key, by name.
        reason: why it failed, diverged or was stopped.
        attempt: number of times it was started.
        unit: budget units of the last recorded report.
        last: payload of that report; empty before the first.
        failures: number of failed attempts in all runs of the study.
        exclusive: whether it must train with nothing beside it.
        orphaned: reason why it is no longer part of the study; empty if it is part.
        reused_from: name of the other study that trained it; empty if this study did.
        continues: key of the trial with a shorter budget that it goes on from; empty for none.
    """

    key: str
    ordinal: int
    point: Mapping[str, Any]
    replicate: int
    stratum: str
    budget: int
    counts: Mapping[str, int]
    parts: Mapping[str, str] = field(default_factory=dict)
    status: TrialStatus = TrialStatus.PLANNED
    reason: str = ""
    attempt: int = 0
    unit: int = 0
    last: Mapping[str, Any] = field(default_factory=dict)
    failures: int = 0
    exclusive: bool = False
    orphaned: str = ""
    reused_from: str = ""
    continues: str = ""

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """The metrics of the last report; empty before the first."""
        metrics: Mapping[str, float | None] = self.last.get("metrics", {})
        return metrics

    @property
    def wall_seconds(self) -> float:
        """Training time until the last report, over all attempts."""
        return float(self.last.get("wall_seconds", 0.0))

    @property
    def has_begun(self) -> bool:
        """Whether the trial was ever handed out, or has results of another study."""
        return bool(self.attempt or self.unit)

    def plan_entry(self) -> dict[str, Any]:
        """Return the trial as planned, as the log holds it."""
        values = {name: getattr(self, name) for name in PLANNED_COLUMNS[1:]}
        content = {name: dict(values[name]) for name in ("point", "counts", "parts")}
        return {"trial": self.key, **values, **content}

    def apply(self, entry: Entry) -> bool:
        """Change where the trial stands by an entry of the log; return whether it is of any
        consequence: a second report of a unit is not."""
        if "trial" in entry:
            for name in PLANNED_COLUMNS[1:]:
                setattr(self, name, entry[name])
            if self.orphaned == PLAN_LOST:
                self.orphaned = ""
            return True
        payload = entry["payload"]
        if "report" in entry:
            if entry["unit"] <= self.unit:
                return False
            self.unit, self.last = entry["unit"], payload
        else:
            self.status = TrialStatus(payload["status"])
            for name in CHANGED_BY_STATUS:
                if name in payload:
                    setattr(self, name, payload[name])
        self.attempt = max(self.attempt, entry["attempt"])
        return True


TRIAL_COLUMNS: Final = tuple(column.name for column in fields(TrialRow))
PLANNED_COLUMNS: Final = TRIAL_COLUMNS[: TRIAL_COLUMNS.index("status")]
CHANGED_BY_STATUS: Final = (
    *("reason", "failures", "exclusive", "orphaned", "reused_from", "continues", "last", "unit"),
)


@dataclass(frozen=True, slots=True)
class LogRow:
    """One entry of the log.

    Attributes:
        seq: grows from entry to entry, with gaps.
        kind: ``report`` (payload: step, metrics, wall_seconds, ...) or ``status`` (payload: status,
            reason, and what else changes with it).
        unit: budget units, for reports.
    """

    seq: int
    time: float
    key: str
    attempt: int
    kind: Literal["report", "status"]
    unit: int | None
    payload: Mapping[str, Any]


def labels_of(rows: Sequence[TrialRow]) -> dict[str, str]:
    """Return trials in words, by key: ``heads=2 #0``, on a ladder ``heads=2 #0 at 38``."""
    labels = TrialLabels((row.point for row in rows), (row.budget for row in rows))
    return {row.key: labels.of(row.point, row.replicate, row.budget) for row in rows}


@dataclass(slots=True)
class StudyState:
    """The state that the entries of a log lead to, one after the other."""

    rows: dict[str, TrialRow] = field(default_factory=dict)
    metas: dict[str, str] = field(default_factory=dict)

    def apply(self, entry: Entry) -> bool:
        """Change the state by an entry; return whether it is of any consequence."""
        if "segment" in entry:
            return False
        if "meta" in entry:
            if entry["value"] is None:
                self.metas.pop(entry["meta"], None)
            else:
                self.metas[entry["meta"]] = entry["value"]
            return True
        key = key_of_entry(entry)
        row = self.rows.get(key)
        if row is None:
            # Until the line that planned it comes, which may be damaged.
            row = self.rows[key] = TrialRow(key, -1, {}, 0, "", 0, {}, orphaned=PLAN_LOST)
        return row.apply(entry)


def key_of_entry(entry: Entry) -> str:
    """Return the key of the trial that an entry is about; empty for a value of the study."""
    return str(entry.get("report") or entry.get("status") or entry.get("trial") or "")


def damage_text(path: Path, line: LogLine, keys: Iterable[str]) -> str:
    """Return what a damaged line of a log costs, given the keys of the trials on record."""
    lost_keys = [key for key in keys if key.encode() in line.content]
    of = f" of trial {first_of(lost_keys)}" if lost_keys else ""
    kinds = [kind for kind in _ENTRY_KINDS if kind.encode() in line.content]
    remains = f" (what can be read of it: {', '.join(kinds)})" if kinds else ""
    return (
        f"{path}: the line at byte {line.start} is damaged and what it held{of} is lost, "
        f"{line.end - line.start:,} bytes{remains}; the study goes on from what is left, and "
        "trains again what it lacks"
    )
