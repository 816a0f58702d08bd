"""Early stopping that fits the question: successive halving within strata.

Asynchronous successive halving (ASHA; Li et al. 2020, "A System for Massively Parallel
Hyperparameter Tuning", section 3.2, in its stopping variant) with four changes. Trials compete
only within their stratum: in a study of head counts a one-head model is supposed to lose, and its
final error is the measurement. Every stratum keeps a minimum of contenders that run to the full
budget. Where shapes are compared, a contender is a shape with all its replicates, judged by their
mean and stopped or kept as a whole: stopping single unlucky seeds would leave the lucky ones and
flatter the shape. A rung takes a trial's value exactly at the rung's milestone: a value from later
training never enters an earlier rung, and a value that is not finite never enters one.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final, Literal

from hsweep.budget import Budget
from hsweep.errors import UserError, unknown_name
from hsweep.question import Goal

_DEFAULT_MIN_SURVIVORS: Final = 3
PROTECTED: Final = "baseline"
"""The stratum of trials that are never stopped: what a study compares everything with."""


@dataclass(frozen=True, slots=True)
class SizeBand:
    """Strata for a Pareto study: trials compete with models of about their own size.

    Attributes:
        factor: the upper end of a band over its lower end, in parameters.

    Raises:
        UserError: a factor not above 1.
    """

    factor: float = 2.0

    def __post_init__(self) -> None:
        if not self.factor > 1:
            raise UserError(f"a size band's factor must be above 1, not {self.factor!r}")

    def label(self, num_params: int) -> str:
        """Return the band of a model, named by its ends."""
        # The small constant keeps a count that is an exact power in the band it opens.
        band = math.floor(math.log(max(1, num_params)) / math.log(self.factor) + 1e-9)
        low, high = self.factor**band, self.factor ** (band + 1)
        return f"num_params={low:.3g}..{high:.3g}"


@dataclass(frozen=True, slots=True)
class Asha:
    """Early stopping by successive halving within strata.

    Attributes:
        grace: budget units before the first rung; nothing is stopped earlier.
        reduction_factor: a rung keeps the best 1/reduction_factor of its stratum.
        strata: axes whose values make a stratum, or a ``SizeBand``; an empty tuple lets all
            trials compete, which is wrong for a transition study.
        min_survivors: contenders of every stratum that are left to run to the full budget; three
            keep the transition fit's answer at a third of the compute.
        compete: ``trials`` each for itself, or ``points``: shapes, by the mean of their replicates.

    Raises:
        UserError: a value outside its range.
    """

    grace: int
    reduction_factor: int = 3
    strata: tuple[str, ...] | SizeBand = ()
    min_survivors: int = _DEFAULT_MIN_SURVIVORS
    compete: Literal["trials", "points"] = "trials"

    def __post_init__(self) -> None:
        for what, value, least in (
            ("the grace period", self.grace, 1),
            ("the reduction factor", self.reduction_factor, 2),
            ("min_survivors", self.min_survivors, 1),
        ):
            if type(value) is not int or value < least:
                raise UserError(f"{what} must be a whole number of at least {least}, not {value!r}")
        strata: object = self.strata
        if isinstance(strata, str):
            raise UserError(f"strata are a tuple of axes; write ({strata!r},)")
        if self.compete not in ("trials", "points"):
            raise UserError(f"compete must be 'trials' or 'points', not {self.compete!r}")

    def milestones(self, budget: Budget) -> list[int]:
        """Return the units at which trials are compared: grace * reduction_factor**k, each moved
        up to the next report, below the full budget."""
        units = budget.report_units()
        rungs: list[int] = []
        target = self.grace
        while target < budget.amount:
            unit = next(unit for unit in units if unit >= target)
            if unit < budget.amount and unit not in rungs:
                rungs.append(unit)
            target *= self.reduction_factor
        return rungs

    def stratum(self, point: Mapping[str, Any], num_params: int) -> str:
        """Return the label of the group a trial competes in.

        Raises:
            UserError: a stratum axis that the space does not have.
        """
        if isinstance(self.strata, SizeBand):
            return self.strata.label(num_params)
        for axis in self.strata:
            if axis not in point:
                raise unknown_name("axis in early_stopping strata", axis, point)
        return ",".join(f"{axis}={point[axis]}" for axis in self.strata)


@dataclass(slots=True)
class _Stratum:
    """One group's rungs, and who is out of the race.

    Attributes:
        rungs: at each milestone, each contender's values by trial.
        members: contenders.
        out: contenders that will not reach the full budget.
        stopped: those of them that lost at a rung, and why.
    """

    rungs: dict[int, dict[str, dict[str, float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    members: set[str] = field(default_factory=set)
    out: set[str] = field(default_factory=set)
    stopped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the scheduler says of a report: stop or go on, and why."""

    stop: bool
    reason: str = ""


_GO_ON: Final = Verdict(False)


class StratifiedAsha:
    """The rungs of one study.

    Feeding it the recorded reports in their order rebuilds it exactly, so nothing of it needs to
    be saved: after a crash the record is replayed. A contender is a trial's own key unless given.

    Args:
        settings: None never stops a trial.
        budget: the trials' common budget.
        goal: whether smaller or larger is better.
    """

    def __init__(self, settings: Asha | None, budget: Budget, goal: Goal) -> None:
        self._settings = settings
        self._milestones = frozenset(settings.milestones(budget) if settings else ())
        self._sign = 1.0 if goal == "min" else -1.0
        self._strata: defaultdict[str, _Stratum] = defaultdict(_Stratum)

    def add(self, key: str, stratum: str, contender: str | None = None) -> None:
        """Announce a planned trial: its contender counts as a possible survivor."""
        self._strata[stratum].members.add(contender or key)

    def leave(
        self, key: str, stratum: str, contender: str | None = None, *, stopped: str = ""
    ) -> None:
        """Note that a trial will not reach the full budget.

        Args:
            key: the trial.
            stratum: its stratum.
            contender: the trial's, if not itself.
            stopped: why it lost at a rung; empty if it failed or diverged.
        """
        group = self._strata[stratum]
        group.out.add(contender or key)
        if stopped:
            group.stopped.setdefault(contender or key, stopped)

    def lost(self, key: str, stratum: str, contender: str | None = None) -> str:
        """Return why a trial's contender was stopped, empty if it was not."""
        return self._strata[stratum].stopped.get(contender or key, "")

    def record(
        self, key: str, stratum: str, unit: int, value: float | None, contender: str | None = None
    ) -> None:
        """Enter a recorded report without asking for a decision."""
        if unit in self._milestones and value is not None and math.isfinite(value):
            rung = self._strata[stratum].rungs[unit]
            rung[contender or key].setdefault(key, self._sign * value)

    def decide(
        self, key: str, stratum: str, unit: int, value: float | None, contender: str | None = None
    ) -> Verdict:
        """Enter a report and say whether its trial goes on.

        A contender is stopped at a milestone if it is not among the best 1/reduction_factor of
        those its stratum has there so far (at least one always is), and if enough others are left
        to meet ``min_survivors``. A trial whose contender was stopped is stopped at its next
        milestone; a protected stratum never is.
        """
        self.record(key, stratum, unit, value, contender)
        if self._settings is None or unit not in self._milestones or stratum == PROTECTED:
            return _GO_ON
        contender = contender or key
        group = self._strata[stratum]
        if contender in group.stopped:
            return Verdict(True, group.stopped[contender])
        means = {name: fmean(values.values()) for name, values in group.rungs[unit].items()}
        if contender not in means:
            return _GO_ON
        rank = sum(other < means[contender] for other in means.values())
        kept = max(1, len(means) // self._settings.reduction_factor)
        if rank < kept:
            return _GO_ON
        others_in_race = len(group.members - group.out - {contender})
        if others_in_race < self._settings.min_survivors:
            return _GO_ON
        return Verdict(
            True,
            f"rank {rank + 1} of {len(means)} at rung {unit} of stratum [{stratum or 'all'}]; "
            f"the best {kept} go on",
        )

    def rung_sizes(self, stratum: str) -> dict[int, int]:
        """Return how many contenders each milestone of a stratum has."""
        return {unit: len(values) for unit, values in self._strata[stratum].rungs.items()}
