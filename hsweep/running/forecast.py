"""How many runs a plan leads to, and how long they take at the speeds measured on this machine."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from hsweep.coordination.coordinator import Coordinator
from hsweep.coordination.recording import planned_row
from hsweep.design.labels import counted
from hsweep.design.question import RoundDesign
from hsweep.design.sweep import Sweep
from hsweep.design.trial import Report, Resources, Trial
from hsweep.paths import Home
from hsweep.planning.calibration import Calibration
from hsweep.planning.plan import Plan
from hsweep.record.journal import Journal
from hsweep.record.log import Entry
from hsweep.record.provenance import hardware
from hsweep.record.rows import StudyState
from hsweep.record.summary import Size, budgets_in_words
from hsweep.running.progress import about

_WHOLE: Final = 0.995
"""Share of the training above which the forecast does not mention early stopping."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The training that a plan leads to, if no trial fails.

    Where a rung waits for all its contenders, how many go on does not depend on which; where it
    does not, each trial is counted to its end, and ``is_at_most`` says so. Of a search in rounds
    the numbers are those of a typical study.

    Attributes:
        size: in the units of the question.
        share: share of these runs' training that early stopping leaves.
        budgets: of the runs, in words.
        seconds: of training in all; None where no speed was measured.
        workers: trials that train at once.
        most: runs and seconds of the longest search of many; None without a search in rounds.
        planned: runs that such a search may ask for.
    """

    size: Size
    runs: int
    units: int
    share: float
    budgets: str
    is_at_most: bool
    seconds: float | None
    workers: int
    most: tuple[int, float | None] | None = None
    planned: int = 0

    @property
    def wall_seconds(self) -> float | None:
        """Estimated seconds by this machine's speeds; None where none was measured."""
        return None if self.seconds is None else self.seconds / self.workers

    @property
    def what(self) -> str:
        """The training in words: ``10 cells x 2 seeds, each at its best of 3 learning rates: 90
        runs of 40 or 80 epochs``."""
        most = "at most " if self.is_at_most else "about " if self.most else ""
        parts = [f"{self.size}: {most}{counted(self.runs, 'run')} {self.budgets}"]
        if self.share < _WHOLE:
            parts.append(f"{self.share:.0%} of their training after early stopping")
        return ", ".join(parts)

    @property
    def line(self) -> str:
        """The training in words, with its time where that is known: ``..., about 2 min``."""
        parts = [self.what]
        if self.seconds is not None and self.wall_seconds is not None:
            parts.append(f"about {about(self.wall_seconds)}")
            if self.workers > 1 and self.runs > 1:
                parts[-1] += f" ({about(self.seconds)} of training, {self.workers} at once)"
        if self.most is not None:
            runs, seconds = self.most
            time = "" if seconds is None else f" ({about(seconds / self.workers)})"
            parts.append(f"rarely more than {runs:,}{time}, never more than {self.planned:,}")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "units": self.units,
            "at_most": self.is_at_most,
            "most": self.most,
            "planned": self.planned,
            **asdict(self.size),
            "line": self.line,
        }


def search_of(plan: Plan) -> RoundDesign | None:
    """Return what chooses among the planned trials of a search; None where all are trained."""
    sweep = plan.sweep
    if not sweep.search.is_sequential or sweep.question is None:
        return None
    rows = [planned_row(trial) for trial in plan.trials]
    return sweep.question.design(rows, sweep.direction, sweep.budget.amount, sweep.num_scouts)


def forecast(plan: Plan, home: Home, room: Callable[[Resources], int] | None = None) -> Forecast:
    """Return the training that a plan leads to, where ``room`` is how many trials with the same
    resources train at once; by default as many as fit on this machine."""
    machine = hardware()
    calibration = Calibration(home.calibration, machine)
    room = room or functools.partial(_room_on, machine)
    search = search_of(plan)
    if search is None:
        return _forecast(plan, plan.trials, calibration, room)
    typical, longest = (
        _forecast(plan, asked, calibration, room) for asked in rehearsed(plan.trials, search)
    )
    size = _size(plan.sweep, plan.trials)
    return replace(
        typical,
        size=replace(size, seeds=1),
        most=(longest.runs, longest.seconds),
        planned=search.most_trials,
    )


def rehearsed(
    trials: Sequence[Trial], search: RoundDesign | None
) -> tuple[Sequence[Trial], Sequence[Trial]]:
    """Return the trials of a typical search and of the longest of many; all without a search."""
    if search is None:
        return trials, trials
    studies = search.rehearsals()
    typical, longest = studies[len(studies) // 2], studies[-1]
    return (
        [trial for trial in trials if trial.key in typical],
        [trial for trial in trials if trial.key in longest],
    )


def _room_on(machine: Mapping[str, Any], request: Resources) -> int:
    """Return how many trials with such resources fit on a machine at once."""
    rooms = [int(machine["cores"] / request.all_cpus)] if request.all_cpus else []
    if request.gpus:
        rooms.append(int(len(machine["cuda_devices"]) / request.gpus))
    return min(rooms, default=sys.maxsize)


def _forecast(
    plan: Plan,
    trials: Sequence[Trial],
    calibration: Calibration,
    room: Callable[[Resources], int],
) -> Forecast:
    sweep, stopping = plan.sweep, plan.sweep.early_stopping
    waits = stopping is None or (stopping.decide == "together" and not plan.is_adaptive)
    trained = {trial.key: trial.units_to_train for trial in trials}
    if waits:
        trained = play_out(sweep, trials)
    whole = sum(trial.units_to_train for trial in trials if trial.key in trained)
    units = sum(trained.values())
    # The trials that go on are unknown, so all get an equal share of the training that is left.
    share = units / sum(trial.units_to_train for trial in trials)
    spread = ((trial, share * trial.units_to_train) for trial in trials)
    return Forecast(
        _size(sweep, trials),
        len(trained),
        units,
        units / whole if whole else 1.0,
        budgets_in_words((trial.budget.amount for trial in trials), sweep.budget.unit),
        plan.is_adaptive or not waits,
        calibration.estimate(spread),
        max(1, min(len(trials), *map(room, {trial.resources for trial in trials}))),
    )


def _size(sweep: Sweep, trials: Sequence[Trial]) -> Size:
    question = sweep.question
    place, nuisance = ("point", ()) if question is None else (question.place, question.nuisance)
    return Size.of(trials, place, nuisance, sweep.num_scouts)


def play_out(
    sweep: Sweep, trials: Sequence[Trial], exempt: frozenset[str] = frozenset()
) -> dict[str, int]:
    """Return the budget units that each trial trains, by key, without trials that never start.

    Where a rung waits for all its contenders, how many go on does not depend on which, so the study
    is played through with made-up values.
    """
    if sweep.early_stopping is None:
        return {trial.key: trial.units_to_train for trial in trials}
    journal = _Unrecorded()
    journal.add_trials(map(planned_row, trials))
    # Without an origin, the coordinator reads no origins from the record, which has no index.
    unattributed_trials = [replace(trial, origin="") for trial in trials]
    coordinator = Coordinator(journal, sweep, unattributed_trials, "", exempt=exempt)
    while (assignment := coordinator.next_assignment()) is not None:
        trial = assignment.trial
        for unit in sorted({*assignment.waits_at, trial.budget.amount}):
            if unit <= assignment.recorded_through:
                continue
            metrics = {sweep.metric: (1 + trial.ordinal) / (1 + len(trials))}
            report = Report(unit, 0, metrics, 0.0, is_last=unit == trial.budget.amount)
            if not coordinator.report(assignment, report):
                break
    return coordinator.table.units_trained()


class _Unrecorded(Journal):
    """A record in memory alone."""

    def __init__(self) -> None:
        self._state = StudyState()
        self.rows = self._state.rows

    def append(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._state.apply(entry)
