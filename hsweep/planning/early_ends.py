"""What early stopping leaves of a plan to be trained, as far as that is known before any trains.

Where a rung waits for all its contenders, how many go on does not depend on which: so the number of
trials and budget units follows from the plan, if no trial fails and the contenders of a stratum
cost about the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from hsweep.design.early_stopping import PROTECTED, Asha
from hsweep.design.labels import listed
from hsweep.design.question import Transition
from hsweep.design.trial import Trial
from hsweep.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class EarlyEnds:
    """What is trained of a plan's trials.

    Attributes:
        trials: how many are started.
        units: budget units that are trained.
        shares: of the units of each stratum's trials, by its label.
        tuning: what the settings of the nuisance axes cost; None where no scouts compete.
    """

    trials: int
    units: float
    shares: Mapping[str, float]
    tuning: "Tuning | None"

    def to_json(self) -> dict[str, Any]:
        tuning = None if self.tuning is None else asdict(self.tuning)
        return {"trials": self.trials, "units": round(self.units), "tuning": tuning}

    def lines(self, plan: Plan) -> list[str]:
        """Return what is trained in words, for those who are about to run the plan."""
        total = sum(trial.units_to_train for trial in plan.trials)
        lines = [
            f"early stopping: about {self.trials} of {len(plan.trials)} trials are started, and "
            f"{self.units / total:.0%} of their training is done"
        ]
        question, tuning = plan.sweep.question, self.tuning
        if tuning is None or question is None:
            return lines
        what = "cell" if isinstance(question, Transition) else "shape"
        seeds = f"{tuning.confirming} other seed{'s' if tuning.confirming > 1 else ''}"
        scouts = "1 scout" if tuning.scouts == 1 else f"{tuning.scouts} scouts"
        where = f"each of {tuning.groups} {what}s" if tuning.groups > 1 else f"the {what}"
        by_ladder = f"; the tuning alone is {tuning.cost_of_tuning:.3g} times"
        return [
            *lines,
            f"tuning: in {where} the settings ({tuning.settings} at most) of "
            f"{listed(question.nuisance)} compete by {scouts} each, seeds that count in no answer, "
            f"and {seeds} train at the one that wins",
            f"cost of tuning: {tuning.cost:.3g} times what those {seeds} would cost at one setting "
            f"and one budget{by_ladder if plan.sweep.budget.ladder else ''}",
        ]


@dataclass(frozen=True, slots=True)
class Tuning:
    """What it costs to compare shapes each at its best setting.

    Attributes:
        groups: cells or shapes in which settings compete.
        settings: the most of them in one.
        scouts, confirming: seeds that choose, and seeds that train at the setting that won.
        cost: of all that is trained, as a multiple of the confirming seeds at one setting and the
            longest budget alone.
        cost_of_tuning: the same, as a multiple of the confirming seeds at every budget.
    """

    groups: int
    settings: int
    scouts: int
    confirming: int
    cost: float
    cost_of_tuning: float


@dataclass(slots=True)
class _Trained:
    """Trials that are started, and units that are trained for them."""

    trials: float = 0
    units: float = 0

    def add(self, contenders: float, steps: Sequence["_Trained"]) -> None:
        """Add one step on the way of so many contenders."""
        self.trials += contenders * fmean(step.trials for step in steps)
        self.units += contenders * fmean(step.units for step in steps)


def early_ends(plan: Plan) -> EarlyEnds | None:
    """Return what early stopping leaves of a plan; None where it stops nothing, or where what it
    stops depends on the order in which trials report."""
    stopping = plan.sweep.early_stopping
    if stopping is None or stopping.decide != "together" or plan.is_adaptive:
        return None
    strata: dict[str, list[Trial]] = {}
    for trial in plan.trials:
        strata.setdefault(trial.stratum, []).append(trial)
    found = {label: _of_stratum(trials, stopping, plan) for label, trials in strata.items()}
    all_units = {label: sum(t.units_to_train for t in trials) for label, trials in strata.items()}
    units = sum(each.units for each in found.values())
    return EarlyEnds(
        trials=round(sum(each.trials for each in found.values())),
        units=units,
        shares={label: found[label].units / all_units[label] for label in strata},
        tuning=_tuning(plan, stopping.scouts, strata.values(), units) if stopping.scouts else None,
    )


def _of_stratum(trials: Sequence[Trial], stopping: Asha, plan: Plan) -> _Trained:
    found = _Trained()
    if trials[0].stratum == PROTECTED:
        found.add(len(trials), [_Trained(1, fmean(t.units_to_train for t in trials))])
        return found
    scouts = stopping.scouts
    by_points = stopping.compete == "points" or scouts is not None
    contenders: dict[object, list[Trial]] = {}
    for trial in trials:
        name = (id(trial.point), None if by_points else trial.replicate)
        contenders.setdefault(name, []).append(trial)
    competing = [
        [trial for trial in each if scouts is None or trial.replicate < scouts]
        for each in contenders.values()
    ]
    milestones = stopping.milestones(plan.sweep.budget)
    ends = [*milestones, plan.sweep.budget.amount]
    steps = [
        list(_steps(each, ends, is_ladder=bool(plan.sweep.budget.ladder))) for each in competing
    ]
    left = len(contenders)
    for at, _ in enumerate(ends):
        found.add(left, [each[at] for each in steps])
        if at < len(milestones):
            left = stopping.num_kept(left)
        if scouts is not None and left == 1:
            break
    if scouts is not None:
        followers = [
            [trial for trial in each if trial.replicate >= scouts] for each in contenders.values()
        ]
        found.add(
            1, [_Trained(len(each), sum(t.units_to_train for t in each)) for each in followers]
        )
    return found


def _steps(trials: Sequence[Trial], ends: Sequence[int], *, is_ladder: bool) -> Iterator[_Trained]:
    """Yield what a contender trains up to each rung and to the end, after the one before."""
    before = 0
    for end in ends:
        if is_ladder:
            own = [trial for trial in trials if trial.budget.amount == end]
            yield _Trained(len(own), sum(trial.units_to_train for trial in own))
        else:
            yield _Trained(len(trials) * (not before), len(trials) * (end - before))
        before = end


def _tuning(plan: Plan, scouts: int, strata: Iterable[Sequence[Trial]], units: float) -> Tuning:
    longest = plan.sweep.budget.amount
    groups = list(strata)
    alone, confirming = 0.0, 0.0
    for trials in groups:
        points = len({id(trial.point) for trial in trials})
        own = [trial for trial in trials if trial.replicate >= scouts]
        alone += longest * sum(trial.budget.amount == longest for trial in own) / points
        confirming += sum(trial.units_to_train for trial in own) / points
    return Tuning(
        groups=len(groups),
        settings=max(len({id(trial.point) for trial in trials}) for trials in groups),
        scouts=scouts,
        confirming=plan.sweep.replicates - scouts,
        cost=units / alone,
        cost_of_tuning=units / confirming,
    )
