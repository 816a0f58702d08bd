"""What a stretch of a study's log means for one trial's MLflow run."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hsweep.design.trial import TrialStatus
from hsweep.record.rows import LogRow, TrialRow
from hsweep.record.schema import FIGURES
from hsweep.tracking.names import acceptable, run_params, safe_names
from hsweep.tracking.store import milliseconds

if TYPE_CHECKING:
    from hsweep.tracking.mlflow_api import Metric, Param, RunTag

RUN_STATUS: Final = {
    TrialStatus.PLANNED: "SCHEDULED",
    TrialStatus.RUNNING: "RUNNING",
    TrialStatus.FINISHED: "FINISHED",
    TrialStatus.STOPPED_EARLY: "KILLED",
    TrialStatus.DIVERGED: "FAILED",
    TrialStatus.FAILED: "FAILED",
    TrialStatus.TOO_LARGE: "FAILED",
}


@dataclass(slots=True)
class RunRows:
    """The entries of one batch that concern one trial; ``status`` is the last of its kind."""

    first: LogRow
    reports: list[LogRow] = field(default_factory=list)
    status: LogRow | None = None
    orphaned: str | None = None

    @property
    def new_status(self) -> TrialStatus | None:
        return None if self.status is None else TrialStatus(self.status.payload["status"])

    def metrics(self, last_report: LogRow | None) -> "list[Metric]":
        """Return the run's metrics in the order of the log; those of ``last_report`` are final."""
        found = [metric for report in self.reports for metric in _metrics(report)]
        return found + (_metrics(last_report, prefix="final/") if last_report is not None else [])

    def params(self, trial: TrialRow) -> "list[Param]":
        """Return the run's parameters, if the batch has a status: then the trial's are known."""
        from hsweep.tracking.mlflow_api import Param

        if self.status is None:
            return []
        return [Param(name, value) for name, value in run_params(trial).items()]

    def tags(self, trial: TrialRow) -> "list[RunTag]":
        from hsweep.tracking.mlflow_api import RunTag

        values = {
            name: str(report.payload[name])
            for report in self.reports
            for name in ("micro_batch", "note")
            if report.payload.get(name)
        }
        if self.orphaned is not None:
            values["orphaned"] = self.orphaned or "false"
        if self.status is not None:
            values |= {name: self.status.payload[name] for name in ("status", "reason")}
            origins = {"reused_from": trial.reused_from, "continues": trial.continues}
            values |= {name: value for name, value in origins.items() if value}
        return [RunTag(f"hsweep.{name}", acceptable(value)) for name, value in values.items()]


def by_trial(rows: Iterable[LogRow]) -> dict[str, RunRows]:
    """Sort log entries by trial, in the order of each trial's first."""
    found: dict[str, RunRows] = {}
    for row in rows:
        run = found.setdefault(row.key, RunRows(row))
        if row.kind == "report":
            run.reports.append(row)
        else:
            run.status = row
            run.orphaned = row.payload.get("orphaned", run.orphaned)
    return found


def _metrics(report: LogRow, prefix: str = "") -> "list[Metric]":
    from hsweep.tracking.mlflow_api import Metric

    # What is final is a result; a rate or a speed is none.
    figures = {} if prefix else {name: report.payload.get(name) for name in FIGURES}
    values = figures | report.payload["metrics"]
    names = safe_names(values)
    return [
        Metric(f"{prefix}{names[name]}", float(value), milliseconds(report.time), report.unit or 0)
        for name, value in values.items()
        if value is not None
    ]
