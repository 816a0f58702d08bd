"""What a plan comes to: how many runs, and how long they take by what was measured here."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from hsweep.coordination.asha import StratifiedAsha
from hsweep.coordination.outlook import Share, shares_of
from hsweep.coordination.trial_table import TrialTable
from hsweep.design.trial import Trial
from hsweep.paths import Home
from hsweep.planning.calibration import Calibration
from hsweep.planning.content import describe
from hsweep.planning.plan import Plan
from hsweep.record.composition import Size, budgets_in_words, counted
from hsweep.record.provenance import hardware
from hsweep.running.progress import about

_WHOLE: Final = 0.995
"""A share of the training that is told as all of it."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is trained of a plan, if no trial fails.

    Where a rung waits for all its contenders, how many go on does not depend on which; where it
    does not, each trial is counted to its end, and ``is_at_most`` says so.

    Attributes:
        size: in the units of the question.
        runs: trials that are started.
        units: budget units that are trained.
        share: of the training of these runs, what early stopping leaves.
        budgets: of the runs, in words.
        seconds: of training in all; None where no speed was measured.
        workers: trials that train at once on this machine.
        longest: the seconds of the longest trial.
    """

    size: Size
    runs: int
    units: int
    share: float
    budgets: str
    is_at_most: bool
    seconds: float | None
    workers: int
    longest: float

    @property
    def wall_seconds(self) -> float | None:
        """How long it takes on this machine; None where no speed was measured."""
        if self.seconds is None:
            return None
        return max(self.seconds / self.workers, self.longest)

    @property
    def what(self) -> str:
        """What is trained: ``10 cells x 2 seeds, each at its best of 3 learning rates: 90 runs of
        40 or 80 epochs``."""
        most = "at most " if self.is_at_most else ""
        parts = [f"{self.size}: {most}{counted(self.runs, 'run')} {self.budgets}"]
        if self.share < _WHOLE:
            parts.append(f"{self.share:.0%} of their training after early stopping")
        return ", ".join(parts)

    @property
    def line(self) -> str:
        """What is trained, and how long that takes where it is known: ``..., about 2 min``."""
        parts = [self.what]
        if self.seconds is not None and self.wall_seconds is not None:
            parts.append(f"about {about(self.wall_seconds)}")
            if self.workers > 1 and self.runs > 1:
                parts[-1] += f" ({about(self.seconds)} of training, {self.workers} at once)"
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "units": self.units,
            "at_most": self.is_at_most,
            **asdict(self.size),
            "line": self.line,
        }


def forecast(plan: Plan, home: Home) -> Forecast:
    """Return what a plan comes to on this machine."""
    sweep, machine = plan.sweep, hardware()
    shares = planned_shares(plan)
    trials = [(trial, shares[trial.key].units) for trial in plan.trials]
    started = [(trial, shares[trial.key].start * trial.units_to_train) for trial in plan.trials]
    units, whole = sum(each for _, each in trials), sum(each for _, each in started)
    calibration = Calibration(home.calibration, machine)
    seconds = calibration.estimate(trials)
    stopping = sweep.early_stopping
    waits = stopping is None or (stopping.decide == "together" and not plan.is_adaptive)
    return Forecast(
        Size.of(plan.trials, describe(sweep.question) or {}, sweep.num_scouts),
        round(sum(share.start for share in shares.values())),
        round(units),
        units / whole if whole else 1.0,
        budgets_in_words((trial.budget.amount for trial in plan.trials), sweep.budget.unit),
        plan.is_adaptive or not waits,
        seconds,
        _workers(plan.trials, machine),
        max((calibration.estimate([each]) or 0.0 for each in trials), default=0.0)
        if seconds is not None
        else 0.0,
    )


def planned_shares(plan: Plan) -> dict[str, Share]:
    """Return what is likely to be trained of a plan's trials, by key, before any is."""
    sweep = plan.sweep
    asha = StratifiedAsha(
        sweep.early_stopping, sweep.budget, sweep.direction, knows_all=not plan.is_adaptive
    )
    table = TrialTable(sweep.direction, None, ())
    for row in table.add(plan.trials):
        asha.enter(row)
    return shares_of(table.rows, asha)


def _workers(trials: Sequence[Trial], machine: Mapping[str, Any]) -> int:
    """Return how many of these trials have room on a machine at once."""
    resources = [trial.resources for trial in trials]
    cpus = max(each.all_cpus for each in resources)
    devices = max(each.gpus for each in resources)
    rooms = [int(machine["cores"] / cpus)] if cpus else []
    if devices:
        rooms.append(int(len(machine["cuda_devices"]) / devices))
    return max(1, min([*rooms, len(trials)]))
