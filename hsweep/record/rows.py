"""Rows of a study's record, as they are read from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hsweep.design.labels import TrialLabels
from hsweep.design.trial import TrialStatus
from hsweep.record.schema import JSON_COLUMNS, PLANNED_COLUMNS


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A planned trial and where it stands, in the order of the columns that hold it.

    Attributes:
        counts: ``num_params``, ``flops_per_example``, ``train_memory_bytes``.
        parts: what the key is made of, part by part.
        attempt: how often it was started.
        unit: budget units of the last recorded report.
        value: the study's metric at that report, None if there is none or it was not finite.
        reason: why it failed, diverged or was stopped.
        failures: attempts that failed, all runs of the study together.
        exclusive: whether it must train with nothing beside it.
        orphaned: why it is no longer part of the study; empty while it is.
        reused_from: the study that trained it, if this one did not.
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
    value: float | None = None
    wall_seconds: float = 0.0
    failures: int = 0
    exclusive: bool = False
    orphaned: str = ""
    reused_from: str = ""
    continues: str = ""

    def entry(self) -> dict[str, Any]:
        """Return the trial as planned, as the log holds it."""
        planned = {name: getattr(self, name) for name in PLANNED_COLUMNS[1:]}
        content = {name: dict(planned[name]) for name in JSON_COLUMNS}
        return {"trial": self.key, **planned, **content}


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
