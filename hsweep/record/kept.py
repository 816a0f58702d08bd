"""Which trials' final weights a study keeps, and which it should."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hsweep.design.best_trials import BestTrials
from hsweep.design.trial import TrialStatus
from hsweep.record.rows import TrialRow
from hsweep.record.weights import WeightsFolder


@dataclass(frozen=True, slots=True)
class FinalWeights:
    """The final weights of a trial that are kept.

    Attributes:
        key: of the trial.
        name: of the file.
        location: path or URI of the file.
        file: the same on this machine; None where that was not asked for.
    """

    key: str
    name: str
    location: str
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """Which weights a study keeps.

    Attributes:
        trials: those whose weights are there.
        missing: those whose weights should be there, and are not.
        num_bytes: of all files, also of what is no longer needed.
    """

    trials: tuple[TrialRow, ...]
    missing: tuple[TrialRow, ...]
    num_bytes: int


def kept_weights(
    rows: Iterable[TrialRow],
    folder: WeightsFolder,
    keep: str,
    metric: str,
    goal: str,
    question: Mapping[str, Any] | None,
    *,
    longest: int,
) -> Kept:
    """Return which weights are there, and which should be, as the study's ``keep`` says.

    Args:
        rows: all trials of the study, orphaned ones included.
        longest: the sweep's budget: trials of other budgets are not among the best.
    """
    sizes, rows = folder.sizes(), list(rows)
    finished = [row for row in rows if row.status is TrialStatus.FINISHED]
    current = [row for row in finished if not row.orphaned]
    wanted = {row.key for row in current} if keep == "last" else set()
    if keep == "best":
        best = BestTrials(goal, question)
        for row in current:
            if row.budget == longest:
                best.add(row.key, row.ordinal, row.stratum, row.point, row.metrics.get(metric))
        wanted = best.keys
    there = {row.key for row in finished if (row.key, row.attempt) in sizes}
    return Kept(
        trials=tuple(row for row in finished if row.key in there),
        missing=tuple(row for row in current if row.key in wanted - there),
        num_bytes=sum(sizes.values()),
    )
