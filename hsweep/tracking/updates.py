"""What a stretch of a study's log means for one trial's MLflow run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hsweep.design.trial import TrialStatus
from hsweep.record.rows import LogRow, TrialRow
from hsweep.record.schema import FIGURES
from hsweep.tracking.names import acceptable, safe_names
from hsweep.tracking.store import milliseconds

if TYPE_CHECKING:
    from hsweep.tracking.mlflow_api import Metric, Param, RunTag

RUN_STATUS: Final = {
    TrialStatus.PLANNED: "SCHEDULED",
    TrialStatus.RUNNING: "RUNNING",
    TrialStatus.FINISHED: "FINISHED",
    TrialStatus.STOPPED_EARLY: "KILLED",
    TrialStatus.NOT_NEEDED: "KILLED",
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

    def metrics(self) -> "list[Metric]":
        """Return the run's metrics in the order of the log."""
        return report_metrics(self.reports)

    def params(self, values: Mapping[str, str]) -> "list[Param]":
        from hsweep.tracking.mlflow_api import Param

        return [Param(name, value) for name, value in values.items()]

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


def run_params(trial: TrialRow, recipe: Mapping[str, Any], unit: str = "budget") -> dict[str, str]:
    """Return what runs are compared by: every axis, the replicate, the budget under the name of its
    ``unit``, what the model costs, and the fields of the recipe.

    A field that an axis of the same name has set is the axis; one that differs from it is called
    as on the command line (``recipe.lr``).
    """
    values = {
        **trial.point,
        "replicate": trial.replicate,
        "budget" if unit in trial.point else unit: trial.budget,
        **trial.counts,
    }
    for name, value in _flat(recipe).items():
        if name not in values:
            values[name] = value
        elif value != values[name]:
            values[f"recipe.{name}"] = value
    names = safe_names(values)
    return {names[name]: str(value) for name, value in values.items()}


def _flat(recipe: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in recipe.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{each}": part for each, part in value.items()}
        else:
            found[name] = value
    return found


def report_metrics(reports: Iterable[LogRow], **of: str) -> "list[Metric]":
    """Return what reports have measured, in their order; ``of`` says of which model on which data
    set."""
    return [metric for report in reports for metric in _metrics(report, of)]


def _metrics(report: LogRow, of: Mapping[str, str]) -> "list[Metric]":
    from hsweep.tracking.mlflow_api import Metric

    # Of a model, a metric is a result; a rate or a speed is none.
    figures = {} if of else {name: report.payload.get(name) for name in FIGURES}
    values = figures | report.payload["metrics"]
    names = safe_names(values)
    return [
        Metric(names[name], float(value), milliseconds(report.time), report.unit or 0, **of)
        for name, value in values.items()
        if value is not None
    ]
