"""What a stretch of a study's log says about one trial, as an MLflow run is told it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hsweep.design.trial import TrialStatus
from hsweep.record.journal import LogRow, TrialRow
from hsweep.redaction import redact
from hsweep.tracking.names import run_params, safe_names
from hsweep.tracking.store import is_refusal, milliseconds

if TYPE_CHECKING:
    from hsweep.tracking.mlflow_api import Metric, MlflowClient, Param, RunTag

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
_MOST_ATTEMPTS: Final = 40
"""At singling out what is refused, for each kind of entry; enough for two of a thousand."""
_NAMES_SHOWN: Final = 3


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

    def entries(
        self, trial: TrialRow, last_report: LogRow | None, *, has_params: bool = False
    ) -> "list[Entry]":
        """Return the metrics, parameters and tags of the run, metrics in the order of the log.

        Args:
            trial: whose rows these are.
            last_report: the one whose metrics are final, for a trial that finished.
            has_params: the run has its parameters.
        """
        from hsweep.tracking.mlflow_api import Param, RunTag

        found: list[Entry] = [metric for report in self.reports for metric in _metrics(report)]
        tags: dict[str, str] = {}
        for report in self.reports:
            for name in ("micro_batch", "note"):
                if value := report.payload.get(name):
                    tags[f"hsweep.{name}"] = str(value)
        if self.orphaned is not None:
            tags["hsweep.orphaned"] = self.orphaned or "false"
        if self.status is not None:
            if not has_params:
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
    from hsweep.tracking.mlflow_api import Metric, Param, RunTag

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

    Where it refuses many of one kind, the last ones are not singled out: they are left together.

    Returns:
        What it refused, and why.
    """
    if not entries:
        return [described(refused)]
    kinds: dict[type, list[Entry]] = {}
    for entry in entries:
        kinds.setdefault(type(entry), []).append(entry)
    found: dict[str, list[str]] = {}
    for kind in kinds.values():
        attempts = _MOST_ATTEMPTS
        # The last is sent first, so that metrics stay in their order.
        parts = [kind]
        while parts:
            part = parts.pop()
            attempts -= 1
            try:
                log(client, run_id, part)
            except Exception as error:
                if not is_refusal(error):
                    raise
                if len(part) == 1 or attempts <= 0:
                    found.setdefault(described(error), []).extend(_name(entry) for entry in part)
                else:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
    return [f"{_listed(names)}: {why}" for why, names in found.items()]


def described(error: BaseException) -> str:
    """Return an error in one line, without secrets."""
    text = " ".join(str(error).split())
    return redact(f"{type(error).__name__}: {text}")[:500]


def _name(entry: "Entry") -> str:
    kind = type(entry).__name__.removeprefix("Run").lower()
    step = getattr(entry, "step", None)
    return f"{kind} {entry.key}" if step is None else f"{kind} {entry.key} at {step}"


def _listed(names: list[str]) -> str:
    distinct = list(dict.fromkeys(names))
    shown = ", ".join(distinct[:_NAMES_SHOWN])
    more = len(distinct) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _shortened(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 4]} ..."


def _metrics(report: LogRow, prefix: str = "") -> list["Metric"]:
    from hsweep.tracking.mlflow_api import Metric

    values = report.payload["metrics"]
    names = safe_names(values)
    return [
        Metric(f"{prefix}{names[name]}", float(value), milliseconds(report.time), report.unit or 0)
        for name, value in values.items()
        if value is not None
    ]
