"""Coordinators of tiny sweeps, and what their journals say."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from stepped_trial import train_stepwise

from hsweep import Sweep
from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.recording import record_trials
from hsweep.coordination.runner import InlineRunner
from hsweep.design.trial import Assignment, Report, Resources, Trial, TrialStatus
from hsweep.planning.plan import make_plan
from hsweep.record.journal import Journal, JournalReader
from hsweep.running.forecast import play_out
from hsweep.running.pace import Outlook
from hsweep.training.checkpoints import THREAD_NAME, CheckpointStore

History = list[tuple[int, int, dict[str, float | None]]]
"""(unit, step, metrics) of every report of a trial, in the order of the record."""


def planned(sweep: Sweep, seed: int = 0) -> tuple[Trial, ...]:
    return make_plan(sweep, preset="quick", study_seed=seed).trials


def assignment_of(
    trial: Trial,
    folder: Path,
    *,
    attempt: int = 1,
    recorded_through: int = 0,
    checkpoint_seconds: float = 1e9,
) -> Assignment:
    return Assignment(trial, attempt, recorded_through, str(folder), checkpoint_seconds)


@contextmanager
def coordinating(sweep: Sweep, folder: Path, **parts: Any) -> Iterator[Coordinator]:
    """Open the study kept in ``folder``, new or not, and settle it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with Journal(folder / "journal", create=True) as journal:
        parts = {"trials": planned(sweep), "checkpoints": str(folder / "checkpoints")} | parts
        record_trials(journal, parts["trials"])
        coordinator = Coordinator(journal=journal, sweep=sweep, **parts)
        yield coordinator
        coordinator.settle()


def outlook_of(coordinator: Coordinator) -> Outlook:
    """What is likely to be trained of a sweep."""
    if coordinator.sweep.early_stopping is None or coordinator.proposer is not None:
        return Outlook(coordinator)
    trained = play_out(coordinator.sweep, coordinator.planned_trials())
    return Outlook(coordinator, (len(trained), sum(trained.values())))


def units_left(outlook: Outlook) -> int:
    """Budget units that are likely to be trained still."""
    units, share, to_come = outlook._remainder()
    return round(share * sum(units.values()) + to_come)


@dataclass
class StopsAfter:
    """An observer that asks a run to end once there were so many reports."""

    coordinator: Coordinator
    left: int

    def started(self, *_: object) -> None: ...

    def reported(self, *_: object) -> None:
        self.left -= 1
        if not self.left:
            self.coordinator.request_stop("enough")

    def ended(self, *_: object) -> None: ...


def run_inline(coordinator: Coordinator, most_reports: int | None = None) -> None:
    """Train all that is left, or so many reports of it."""
    if most_reports is not None:
        coordinator.observer = StopsAfter(coordinator, most_reports)
    InlineRunner().run(coordinator)


def take_one(coordinator: Coordinator, size: Resources | None = None) -> Assignment | None:
    """Take the next trial."""
    return coordinator.next_assignment(size)


def statuses(folder: Path) -> dict[str, TrialStatus]:
    with JournalReader(folder / "journal") as journal:
        return {row.key: row.status for row in journal.trials()}


def values(folder: Path) -> dict[str, float | None]:
    with JournalReader(folder / "journal") as journal:
        return {row.key: row.metrics.get("nmse") for row in journal.trials()}


def histories(folder: Path) -> dict[str, History]:
    with JournalReader(folder / "journal") as journal:
        # A study may be running: the trials of these reports are on record by now.
        reports = list(journal.reports())
        found: dict[str, History] = {row.key: [] for row in journal.trials(orphaned=True)}
        for entry in reports:
            assert entry.unit is not None
            payload = entry.payload
            found[entry.key].append((entry.unit, payload["step"], payload["metrics"]))
        return found


def status_log(folder: Path, key: str) -> list[str]:
    """Every status that a trial had, in order."""
    with JournalReader(folder / "journal") as journal:
        return [
            entry.payload["status"]
            for entry in journal.log_after(0, 1_000_000)
            if entry.key == key and entry.kind == "status"
        ]


def content(report: Report) -> tuple[Any, ...]:
    """All of a report but the time it took."""
    return report.unit, report.step, report.metrics, report.is_last, report.diverged_at


def checkpoints_written() -> None:
    """Return when no checkpoint is being written beside any training of this process."""
    for thread in threading.enumerate():
        if thread.name.startswith(THREAD_NAME):
            thread.join()


def assert_equal_to_the_bit(one: Any, other: Any) -> None:
    """Compare tensors, and dictionaries and sequences of them: values, types and order."""
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_equal_to_the_bit(one[name], other[name])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_equal_to_the_bit(mine, theirs)
    else:
        assert one == other


def saved(root: Path, trial: Trial) -> dict[str, Any]:
    """The content of a trial's newest checkpoint."""
    found = CheckpointStore(str(root), trial.key, attempt=99).search().state
    assert found is not None
    return found


def trained_with_stops(
    trial: Trial, root: Path, stops: Sequence[int], checkpoint_seconds: float, *, lost: bool
) -> list[Report]:
    """Train a trial of six units that ends at some of them and goes on; return what was recorded.

    What is ``lost`` is what a killed process does not write: the checkpoint of its end.
    """
    recorded: dict[int, Report] = {}
    for attempt, stop in enumerate([*stops, 6], start=1):
        through = max(recorded, default=0)
        assignment = assignment_of(
            trial, root, attempt=attempt, recorded_through=through,
            checkpoint_seconds=checkpoint_seconds,
        )  # fmt: skip
        generator = train_stepwise(assignment)
        for report in generator:
            assert isinstance(report, Report)
            # What arrives again was the same before.
            known = recorded.setdefault(report.unit, report)
            assert (content(known), known.micro_batch) == (content(report), report.micro_batch)
            if report.unit >= stop:
                break
        before = set((root / trial.key).glob("*.pt"))
        generator.close()
        if lost and attempt <= len(stops):
            for file in set((root / trial.key).glob("*.pt")) - before:
                file.unlink()
    return [recorded[unit] for unit in sorted(recorded)]
