"""What each failed attempt of a study raised, from its record."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console

from hsweep.design.labels import point_label, varying_axes
from hsweep.record.study import Study

_MOST_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that failed.

    Attributes:
        trial: in words, by the axes that vary and the replicate.
        key: the trial's.
        attempt: its number, from 1.
        time: when that was recorded, in seconds since 1970.
        reason: what happened, in its first line, and the traceback.
    """

    trial: str
    key: str
    attempt: int
    time: float
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return plain content."""
        return asdict(self)


def failed_attempts(study: Study) -> list[FailedAttempt]:
    """Return the failed attempts of a study's trials in the order they were recorded."""
    with study.journal() as journal, journal.snapshot():
        trials = {row.key: row for row in journal.trials()}
        entries = list(journal.errors())
    varying = varying_axes(list(trials.values()))
    return [
        FailedAttempt(
            trial=f"{point_label(row.point, varying)} #{row.replicate}",
            key=entry.key,
            attempt=entry.attempt,
            time=entry.time,
            reason=str(entry.payload["reason"]).strip(),
        )
        for entry in entries
        if (row := trials.get(entry.key)) is not None
    ]


def show_failed_attempts(console: Console, study: Study, found: Sequence[FailedAttempt]) -> None:
    """Print failed attempts, those that failed in the very same way together."""
    alike: dict[str, list[FailedAttempt]] = {}
    for each in found:
        alike.setdefault(each.reason, []).append(each)
    for reason, group in alike.items():
        named = [f"{each.trial} (attempt {each.attempt})" for each in group[:_MOST_NAMED]]
        left = len(group) - len(named)
        named += [f"and {left} more"] if left else []
        console.print(", ".join(named), style="bold", soft_wrap=True)
        console.print(reason, soft_wrap=True)
        console.print()
    if not found:
        console.print(f"no attempt of {study.name} has failed", soft_wrap=True)
