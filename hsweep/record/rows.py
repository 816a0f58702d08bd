"""Rows of a study's record, as they are read from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from hsweep.design.labels import TrialLabels
from hsweep.design.trial_status import TrialStatus

PLAN_LOST: Final = "the line of the log that planned it is damaged"
"""Why a trial is no part of a study of which only later entries can be read."""
SAID_OF_COUNTS: Final = ("num_params",)
"""Costs that a report of one's own training may name where the plan does not know them."""
FIGURES: Final = ("learning_rate", "grad_norm", "running_loss", "examples_per_second")
"""Of the updates before a report: what every table of reports and every tracker has besides
metrics, unless a metric has that name."""

RawReport = tuple[str, float, int, int, str]
"""A report as it is stored: key, time, attempt, unit, payload (JSON)."""


@dataclass(slots=True)
class TrialRow:
    """A trial on record: what was planned and where it stands.

    Attributes:
        counts: ``num_params``, ``flops_per_example``, ``train_memory_bytes``.
        parts: what the key is made of, part by part.
        reason: why it failed, diverged or was stopped.
        attempt: how often it was started.
        unit: budget units of the last recorded report.
        last: payload of that report; empty before the first.
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
        """Whether it was ever handed out, or has results from elsewhere."""
        return bool(self.attempt or self.unit)

    def plan_entry(self) -> dict[str, Any]:
        """Return the trial as planned, as the log holds it."""
        planned = {name: getattr(self, name) for name in PLANNED_COLUMNS[1:]}
        content = {name: dict(planned[name]) for name in ("point", "counts", "parts")}
        return {"trial": self.key, **planned, **content}

    def apply(self, entry: Mapping[str, Any]) -> bool:
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


TRIAL_COLUMNS: Final = tuple(each.name for each in fields(TrialRow))
PLANNED_COLUMNS: Final = TRIAL_COLUMNS[: TRIAL_COLUMNS.index("status")]
CHANGED_BY_STATUS: Final = (
    *("reason", "failures", "exclusive", "orphaned", "reused_from", "continues"),
)


def lost_row(key: str) -> TrialRow:
    """Return the row of a trial of which only later entries can be read."""
    return TrialRow(key, -1, {}, 0, "", 0, {}, orphaned=PLAN_LOST)


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
