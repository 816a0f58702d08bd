"""Early stopping that fits the question: successive halving within strata.

Asynchronous successive halving (ASHA; Li et al. 2020, "A System for Massively Parallel
Hyperparameter Tuning", section 3.2) with five changes. Trials compete only within their stratum:
in a study of head counts a one-head model is supposed to lose, and its final error is the
measurement. Every stratum keeps a minimum of contenders that run to the full budget. Where shapes
are compared, a contender is a shape with all its replicates, judged by their mean and stopped or
kept as a whole: stopping single unlucky seeds would leave the lucky ones and flatter the shape. A
rung takes a trial's value exactly at the rung's milestone: a value from later training never
enters an earlier rung, and a value that is not finite never enters one. And a rung is decided when
all its contenders are there: a trial that comes early waits on disk while its worker trains
others, so which trials are stopped depends on their values alone, never on how many run at once or
which is done first.

Every trial has its values at some rungs and waits at one before it goes on. Most do both in
training, at each rung. On a ladder of budgets the rungs are the shorter budgets: a trial has its
value at its end, which tells more than a report in mid-schedule, and the trial of the next budget
waits there before its start. Where seeds are set apart to select a setting (``Asha.scouts``), they
alone have values, and the other seeds wait before their start until one setting is left.
"""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Set
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from hsweep.coordination.gate import GO_ON, Gate, Verdict
from hsweep.design.budget import Budget
from hsweep.design.early_stopping import PROTECTED, Asha
from hsweep.design.scales import Goal
from hsweep.design.trial import Trial, TrialStatus

_LOST: Final = (TrialStatus.STOPPED_EARLY, TrialStatus.NOT_NEEDED)


@dataclass(slots=True)
class _Rung:
    """One milestone of a stratum.

    Attributes:
        values: the values of each contender by its trials' keys, smaller being better; None while
            the trial may still report at this rung.
        num_pending: number of trials that may still report at this rung.
        lost: contenders of which the record has lost a value. They count as rivals, so that those
            who had won win again, and lose to nobody.
        passed: those of them that went on. They keep their places, so that who had lost loses
            again.
    """

    values: dict[str, dict[str, float | None]] = field(default_factory=dict)
    num_pending: int = 0
    lost: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)

    def expect(self, name: str, key: str) -> None:
        self.values.setdefault(name, {})[key] = None
        self.num_pending += 1

    def arrive(self, name: str, key: str, value: float | None) -> None:
        """Enter the finite value that a trial has at this rung; None if it will never have one."""
        by_trial = self.values.setdefault(name, {})
        if by_trial.get(key) is None:
            self.num_pending -= key in by_trial
            if value is None:
                by_trial.pop(key, None)
            else:
                by_trial[key] = value
        if not by_trial:
            del self.values[name]

    def lose(self, name: str, key: str, *, went_on: bool) -> bool:
        """Enter that a trial has been here, and whether it went on; return whether its value is
        lost."""
        is_missing = self.values.get(name, {}).get(key, 0.0) is None
        if is_missing:
            self.arrive(name, key, None)
            self.lost.add(name)
            if went_on:
                self.passed.add(name)
        return is_missing

    @property
    def contenders(self) -> Set[str]:
        return self.values.keys() | self.lost

    def means(self, without: Collection[str] = ()) -> dict[str, float]:
        """Return the mean value of each contender with a value."""
        values = {
            name: [value for value in by_trial.values() if value is not None]
            for name, by_trial in self.values.items()
            if name not in without
        }
        return {name: fmean(reported) for name, reported in values.items() if reported}


@dataclass(slots=True)
class _Stratum:
    """One group's rungs.

    Attributes:
        contenders: the contender of each trial, by the trial's key.
        waiting: the waiting trials and their rungs, by key.
        stopped: the reason for each contender that lost at a rung.
        losers: the losing contenders of each decided rung, with the reasons.
        ended: keys of the trials that ended before their budget.
        gaps: keys of the trials without a report of a rung that they have passed.
        may_release: whether a rung may have become decidable since the last release.
    """

    rungs: dict[int, _Rung] = field(default_factory=lambda: defaultdict(_Rung))
    contenders: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, tuple[Trial, int]] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    losers: dict[int, dict[str, str]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    gaps: set[str] = field(default_factory=set)
    may_release: bool = False


class StratifiedAsha(Gate):
    """The rungs of one study, by stratum.

    Args:
        knows_all: whether every trial is entered before the first report; if not, rungs are
            decided on arrival.
    """

    def __init__(
        self, settings: Asha, budget: Budget, goal: Goal, *, knows_all: bool = True
    ) -> None:
        self._settings = settings
        self._unit, self._ladder = budget.unit, sorted(rung.amount for rung in budget.rungs)
        self._is_ladder = bool(budget.ladder)
        self._milestones = frozenset(settings.milestones(budget))
        self._waits = settings.decide == "together" and knows_all
        self._scouts = settings.scouts
        # Where no rung leaves a single setting, the ends of the scouts decide.
        self._rungs = sorted(self._milestones | ({budget.amount} if self._scouts else set()))
        self._by_points = settings.compete == "points" or self._scouts is not None
        self._sign = 1.0 if goal == "min" else -1.0
        self._strata: defaultdict[str, _Stratum] = defaultdict(_Stratum)

    def enter(self, trial: Trial) -> None:
        """Add a planned trial that competes; a trial that was not added is never stopped. A trial
        whose budget is not one of the sweep's was planned later and does not compete."""
        if trial.budget.amount not in self._ladder:
            return
        group = self._strata[trial.stratum]
        # A point competes with all its replicates.
        if self._by_points:
            name = json.dumps(dict(trial.point), default=str)
        else:
            name = group.contenders.get(trial.previous, trial.key)
        group.contenders[trial.key] = name
        group.losers.clear()
        for unit in self._rungs:
            if self._has_value_at(trial, unit):
                group.rungs[unit].expect(name, trial.key)

    def _follows(self, trial: Trial) -> bool:
        """Whether a trial trains only once the scouts of its point have won."""
        return self._scouts is not None and trial.replicate >= self._scouts

    def _has_value_at(self, trial: Trial, unit: int) -> bool:
        return (
            unit in self._rungs
            and not self._follows(trial)
            and (not self._is_ladder or unit == trial.budget.amount)
        )

    def end(self, trial: Trial, status: TrialStatus, reason: str, last: int) -> None:
        """Enter the end of a trial after its unit ``last``; a trial that lost also stops its
        point's other replicates."""
        group = self._strata[trial.stratum]
        name = group.contenders.get(trial.key)
        if name is None:
            return
        if status is not TrialStatus.FINISHED:
            group.ended.add(trial.key)
        if status in _LOST:
            group.stopped.setdefault(name, reason)
        for unit, rung in group.rungs.items():
            if self._waits and status is TrialStatus.STOPPED_EARLY and unit <= last:
                rung.lose(name, trial.key, went_on=unit < last)
            else:
                rung.arrive(name, trial.key, None)
        group.may_release = True

    def carry(self, trial: Trial, unit: int, value: float | None) -> None:
        """Enter the value with which a trial has ended by itself at every rung after ``unit``."""
        for rung in self._rungs:
            if rung > unit:
                self.record(trial, rung, value)

    def record(self, trial: Trial, unit: int, value: float | None) -> None:
        """Enter a recorded report without asking for a decision."""
        group = self._strata[trial.stratum]
        name = group.contenders.get(trial.key)
        if name is None:
            return
        for passed in self._rungs:
            if passed < unit and group.rungs[passed].lose(name, trial.key, went_on=True):
                group.gaps.add(trial.key)
                group.may_release = True
        if not self._has_value_at(trial, unit):
            return
        finite = self._sign * value if value is not None and math.isfinite(value) else None
        group.rungs[unit].arrive(name, trial.key, finite)
        group.may_release |= finite is None or not group.rungs[unit].num_pending

    def milestones(self, trial: Trial) -> frozenset[int]:
        """Return the units at which a trial in training may be stopped or have to wait."""
        is_judged = (
            trial.key in self._strata[trial.stratum].contenders
            and not self._is_ladder
            and trial.stratum != PROTECTED
            and not self._follows(trial)
        )
        return self._milestones if is_judged else frozenset()

    def gate(self, trial: Trial, unit: int) -> int | None:
        """Return the rung that a trial has to pass before it trains on from ``unit``, or starts
        (0); None if it need not wait."""
        contenders = self._strata[trial.stratum].contenders
        if not self._waits or trial.key not in contenders:
            return None
        if self._follows(trial):
            return None if unit else self._rungs[-1]
        if self._is_ladder:
            place = self._ladder.index(trial.budget.amount)
            unit = self._ladder[place - 1] if trial.previous in contenders else 0
        return unit if unit in self._milestones and trial.stratum != PROTECTED else None

    def lost(self, trial: Trial) -> str:
        """Return why a trial will be stopped at its next rung, empty if nothing is known yet."""
        group = self._strata[trial.stratum]
        name = group.contenders.get(trial.key, "")
        return "" if self._follows(trial) else group.stopped.get(name, "")

    def verdict(self, trial: Trial, unit: int) -> Verdict:
        """Return whether a trial that has reported at ``unit`` continues, waits or stops.

        Where a rung waits for all its contenders, the best 1/reduction_factor of them by their
        values at the rung (at least ``min_survivors``) go on. Decided on arrival, a contender is
        stopped if it is not among the best 1/reduction_factor (at least one) of its stratum's
        values at the rung so far, and if enough other contenders are left to meet
        ``min_survivors``. A trial whose contender was stopped is stopped at its next milestone; a
        trial of the protected stratum is never stopped.
        """
        if unit not in self.milestones(trial):
            return GO_ON
        return self._verdict_at(trial, unit) if self._waits else self._on_arrival(trial, unit)

    def wait(self, trial: Trial, unit: int, *, is_undecided: bool = False) -> None:
        """Let a trial wait at a rung; ``is_undecided`` means that the rung has just been judged
        undecided."""
        group = self._strata[trial.stratum]
        group.waiting[trial.key] = trial, unit
        group.may_release = group.may_release or not is_undecided

    @property
    def num_gaps(self) -> int:
        """Trials of which the record has lost the report of a rung."""
        return sum(len(group.gaps) for group in self._strata.values())

    @property
    def any_waits(self) -> bool:
        return any(group.waiting for group in self._strata.values())

    def release(self, stratum: str) -> list[tuple[Trial, Verdict]]:
        """Return the waiting trials of a stratum that can be decided now, with their verdicts."""
        group = self._strata[stratum]
        if not group.may_release:
            return []
        group.may_release = False
        verdicts = [
            (trial, self._verdict_at(trial, rung)) for trial, rung in group.waiting.values()
        ]
        released = [(trial, verdict) for trial, verdict in verdicts if not verdict.wait]
        for trial, _ in released:
            del group.waiting[trial.key]
        return released

    def _verdict_at(self, trial: Trial, unit: int) -> Verdict:
        """Return the verdict on a trial that waits at its gate."""
        if lost := self.lost(trial):
            return Verdict(True, lost)
        group, follows = self._strata[trial.stratum], self._follows(trial)
        name = group.contenders[trial.key]
        decision = self._decide(trial.stratum, unit)
        if decision is None:
            rung = self._where(unit, trial.stratum)
            cause = "for the scouts" if follows else f"at {rung} for the others"
            return Verdict(False, f"waits {cause}", wait=True)
        losers, last = decision
        if reason := losers.get(name, ""):
            return Verdict(True, reason)
        where = self._where(last, trial.stratum)
        contenders = group.rungs[last].contenders - losers.keys()
        if follows and name not in contenders:
            return Verdict(True, f"its scouts have no value at {where}")
        if self._scouts is not None and not follows and len(contenders) == 1:
            rivals = len(group.rungs[last].values)
            return Verdict(True, f"the best of {rivals} at {where}; its other seeds confirm it")
        return GO_ON

    def _decide(self, stratum: str, unit: int) -> tuple[dict[str, str], int] | None:
        """Return the contenders that have lost up to a rung, with the reasons, and the last rung
        that counts: where scouts select, the first rung that leaves a single setting. Return None
        while the rung cannot be decided.

        A contender that an earlier rung dropped is no rival at a later rung, even if results of
        other studies give it a value there.
        """
        group, reasons, rung = self._strata[stratum], dict[str, str](), unit
        for rung in self._rungs[: self._rungs.index(unit) + 1]:
            losers = group.losers.get(rung)
            if losers is None:
                losers = self._losers_at(stratum, rung, reasons)
            if losers is None:
                if rung == unit:
                    return None
                continue
            group.losers[rung] = losers
            reasons |= losers
            remaining = group.rungs[rung].contenders - reasons.keys()
            if self._scouts is not None and len(remaining) == 1:
                break
        return reasons, rung

    def _losers_at(
        self, stratum: str, unit: int, dropped: Collection[str]
    ) -> dict[str, str] | None:
        """Return the contenders that lose at a rung among those not ``dropped`` before, with the
        reasons; None while trials that may change this have yet to report."""
        rung = self._strata[stratum].rungs[unit]
        rivals = rung.contenders - set(dropped)
        if unit in self._milestones:
            num_kept = self._settings.num_kept(len(rivals))
        else:  # the end, where scouts leave one
            num_kept = min(1, len(rivals))
        if num_kept == len(rivals):
            return {}
        if rung.num_pending:
            return None
        without = rung.lost.union(dropped)
        means, where = rung.means(without=without), self._where(unit, stratum)
        ranked = sorted(means, key=lambda name: (-means[name], name))
        num_known = len(ranked) + len(rung.passed.difference(dropped))
        return {
            name: _rank(num_known - place, num_known, where, num_kept)
            for place, name in enumerate(ranked[: max(0, num_known - num_kept)])
        }

    def _on_arrival(self, trial: Trial, unit: int) -> Verdict:
        if reason := self.lost(trial):
            return Verdict(True, reason)
        group = self._strata[trial.stratum]
        name, means = group.contenders[trial.key], group.rungs[unit].means()
        if name not in means:
            return GO_ON
        rank = sum(mean < means[name] for mean in means.values())
        num_kept = max(1, len(means) // self._settings.reduction_factor)
        # A point whose replicate failed or diverged goes on with the others.
        rivals = {
            contender
            for key, contender in group.contenders.items()
            if contender not in group.stopped and (self._by_points or key not in group.ended)
        } - {name}
        if rank < num_kept or len(rivals) < self._settings.num_survivors:
            return GO_ON
        return Verdict(
            True, _rank(rank + 1, len(means), self._where(unit, trial.stratum), num_kept)
        )

    def _where(self, unit: int, stratum: str) -> str:
        if unit not in self._milestones:
            rung = "the end"
        else:
            rung = f"{unit} {self._unit}" if self._is_ladder else f"rung {unit}"
        # A stratum of scouts is the common part of their points, which stands beside the reason.
        return rung if self._scouts is not None else f"{rung} of stratum [{stratum or 'all'}]"


def _rank(rank: int, rivals: int, where: str, num_kept: int) -> str:
    who = f"best {num_kept} go on" if num_kept > 1 else "best goes on"
    return f"rank {rank} of {rivals} at {where}; the {who}"
