"""What a stretch of a study's log says about one trial, as an MLflow run is told it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hsweep.journal import LogRow, TrialRow
from hsweep.mlflow_store import is_refusal, milliseconds
from hsweep.redaction import redact
from hsweep.tracking_names import run_params, safe_names
from hsweep.trial import TrialStatus

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    Entry = Metric | Param | RunTag

RUN_STATUS: Final = {
    TrialStatus.PLANNED: "SCHEDULED",
    TrialStatus.RUNNING: "RUNNING",
    TrialStatus.FINISHED: "FINISHED",
    TrialStatus.STOPPED_EARLY: "KILLED",
    TrialStatus.DIVERGED: "FAILED",
    TrialStatus.FAILED: "FAILED",
    TrialStatus.TOO_LARGE: "FAILED",
}
"""What MLflow calls each status."""

_LONGEST_VALUE: Final = 5000
"""Characters of a tag; MLflow itself takes 8,000, databases and older servers less."""
_MOST_SINGLED_OUT: Final = 16


@dataclass(slots=True)
class RunRows:
    """What one batch says about one trial."""

    first: LogRow
    reports: list[LogRow] = field(default_factory=list)
    status: LogRow | None = None
    orphaned: str | None = None

    @property
    def new_status(self) -> TrialStatus | None:
        """What the trial became, if the batch says so."""
        return None if self.status is None else TrialStatus(self.status.payload["status"])

    def entries(self, trial: TrialRow, last_report: LogRow | None) -> "list[Entry]":
        """Return the metrics, parameters and tags of the run, metrics in the order of the log.

        Args:
            trial: whose rows these are.
            last_report: the one whose metrics are final, for a trial that finished.
        """
        from mlflow.entities import Param, RunTag

        found: list[Entry] = [metric for report in self.reports for metric in _metrics(report)]
        tags: dict[str, str] = {}
        for report in self.reports:
            for name in ("micro_batch", "note"):
                if value := report.payload.get(name):
                    tags[f"hsweep.{name}"] = str(value)
        if self.orphaned is not None:
            tags["hsweep.orphaned"] = self.orphaned or "false"
        if self.status is not None:
            # Every status repeats the parameters: a crash may have hit between run and parameters.
            found += [Param(name, value) for name, value in run_params(trial).items()]
            tags["hsweep.status"] = self.status.payload["status"]
            tags["hsweep.reason"] = self.status.payload["reason"]
            origins = (("reused_from", trial.reused_from), ("continues", trial.continues))
            tags |= {f"hsweep.{name}": value for name, value in origins if value}
        if last_report is not None:
            found += _metrics(last_report, prefix="final/")
        found += [RunTag(name, _shortened(redact(value))) for name, value in tags.items()]
        return found


def by_trial(rows: Iterable[LogRow]) -> dict[str, RunRows]:
    """Sort log entries by trial."""
    found: dict[str, RunRows] = {}
    for row in rows:
        run = found.setdefault(row.key, RunRows(row))
        if row.kind == "report":
            run.reports.append(row)
        else:
            run.status = row
            run.orphaned = row.payload.get("orphaned", run.orphaned)
    return found


def log(client: "MlflowClient", run_id: str, entries: "Iterable[Entry]") -> None:
    """Send entries to a run, in one call."""
    from mlflow.entities import Metric, Param, RunTag

    sent = list(entries)
    client.log_batch(
        run_id,
        metrics=[entry for entry in sent if isinstance(entry, Metric)],
        params=[entry for entry in sent if isinstance(entry, Param)],
        tags=[entry for entry in sent if isinstance(entry, RunTag)],
    )


def log_what_is_accepted(
    client: "MlflowClient", run_id: str, entries: "list[Entry]", refused: BaseException
) -> list[str]:
    """Send all entries but those that the store refuses, after it refused them together.

    Returns:
        What it refused, and why.
    """
    left = [_MOST_SINGLED_OUT]

    def narrow(part: "list[Entry]", error: BaseException) -> Iterator[str]:
        if len(part) == 1 or left[0] <= 0:
            left[0] -= 1
            more = f" and {len(part) - 1} more" if len(part) > 1 else ""
            yield f"{_name(part[0])}{more}: {described(error)}"
            return
        middle = len(part) // 2
        for half in (part[:middle], part[middle:]):
            try:
                log(client, run_id, half)
            except Exception as problem:
                if not is_refusal(problem):
                    raise
                yield from narrow(half, problem)

    return list(narrow(entries, refused)) if entries else [described(refused)]


def described(error: BaseException) -> str:
    """Return an error in one line, without secrets."""
    text = " ".join(str(error).split())
    return redact(f"{type(error).__name__}: {text}")[:500]


def _name(entry: "Entry") -> str:
    return f"{type(entry).__name__.removeprefix('Run').lower()} {entry.key}"


def _shortened(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 4]} ..."


def _metrics(report: LogRow, prefix: str = "") -> list["Metric"]:
    from mlflow.entities import Metric

    values = report.payload["metrics"]
    names = safe_names(values)
    return [
        Metric(f"{prefix}{names[name]}", float(value), milliseconds(report.time), report.unit or 0)
        for name, value in values.items()
        if value is not None
    ]
