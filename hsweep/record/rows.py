"""Rows of a study's record, as they are read from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hsweep.design.trial import TrialStatus


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A planned trial and where it stands.

    Attributes:
        counts: ``num_params``, ``flops_per_example``, ``train_memory_bytes``.
        attempt: how often it was started.
        unit: budget units of the last recorded report.
        value: the study's metric at that report, None if there is none or it was not finite.
        reason: why it failed, diverged or was stopped.
        failures: attempts that failed, all runs of the study together.
        exclusive: whether it must train with nothing beside it.
        orphaned: why it is no longer part of the study; empty while it is.
        reused_from: the study that trained it, if this one did not.
        continues: key of the trial with a shorter budget that it goes on from; empty for none.
        parts: what the key is made of, part by part.
    """

    key: str
    ordinal: int
    point: Mapping[str, Any]
    replicate: int
    stratum: str
    budget: int
    counts: Mapping[str, int]
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
    parts: Mapping[str, str] = field(default_factory=dict)

    def entry(self) -> dict[str, Any]:
        """Return the trial as planned, as the log holds it."""
        return {
            "trial": self.key,
            "ordinal": self.ordinal,
            "point": dict(self.point),
            "replicate": self.replicate,
            "stratum": self.stratum,
            "budget": self.budget,
            "counts": dict(self.counts),
            "parts": dict(self.parts),
        }


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


@dataclass(slots=True)
class Totals:
    """A study's numbers as a whole; orphaned trials count only where that is said.

    Attributes:
        counts: trials by status; every status has an entry.
        orphaned: trials that are no longer part of the study.
        reused: trials that another study trained.
        tried_again: trials of which an attempt failed.
        units: budget units of all last reports.
        budget: the largest.
        wall_seconds: of the trials that were trained here.
        trained_seconds, waited_seconds: of all trials by their last reports, orphaned ones
            included: training, and the part of it that was waiting for data.
    """

    counts: dict[TrialStatus, int] = field(default_factory=lambda: dict.fromkeys(TrialStatus, 0))
    orphaned: int = 0
    reused: int = 0
    tried_again: int = 0
    units: int = 0
    budget: int = 0
    wall_seconds: float = 0.0
    trained_seconds: float = 0.0
    waited_seconds: float = 0.0

    @property
    def trials(self) -> int:
        """How many trials the study has."""
        return sum(self.counts.values())

    @property
    def data_wait_share(self) -> float | None:
        """Share of the training time that was waiting for data; None if none was measured."""
        return self.waited_seconds / self.trained_seconds if self.trained_seconds else None

    def add(self, status: TrialStatus, is_orphaned: bool, number: int, sums: Sequence[Any]) -> None:
        """Add the trials of one status."""
        reused, tried_again, units, budget, wall_seconds, trained, waited = sums
        self.trained_seconds += trained or 0.0
        self.waited_seconds += waited or 0.0
        if is_orphaned:
            self.orphaned += number
            return
        self.counts[status] += number
        self.reused += reused
        self.tried_again += tried_again
        self.units += units
        self.budget = max(self.budget, budget)
        self.wall_seconds += wall_seconds
