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

On a ladder of budgets the rungs are its shorter budgets. There a contender is what the trials of
its budgets are together, and is judged by the value at the end of its trial of that budget: a
decayed one, which tells more of the end than a report in mid-schedule. Its trial of the next budget
waits before its start, and those that do not go on are never started.

Where scouts compete for their points (``Asha.scouts``), the other replicates wait before their
start, and those of one point train: that of the setting that won.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from hsweep.coordination.trial_table import ScheduledTrial
from hsweep.design.budget import Budget
from hsweep.design.early_stopping import PROTECTED, Asha
from hsweep.design.question import Goal
from hsweep.design.trial import TrialStatus


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trial does after a report, and why: stop, wait for others, or else go on."""

    stop: bool
    reason: str = ""
    wait: bool = False


_GO_ON: Final = Verdict(False)
_LOST: Final = (TrialStatus.STOPPED_EARLY, TrialStatus.NOT_NEEDED)


@dataclass(slots=True)
class _Stratum:
    """One group's rungs.

    Attributes:
        contenders: what each of its members competes as, by its key.
        values: at each milestone, each contender's finite values by trial.
        arrived: at each milestone, the trials that reported there, whatever their value, or never
            will, since their budget is another.
        waiting: the trials that wait at a rung, which is that of their last report.
        stopped: contenders that lost at a rung, and why.
        exempt: contenders that are never stopped: they count as rivals, not as survivors.
    """

    members: dict[str, ScheduledTrial] = field(default_factory=dict)
    contenders: dict[str, str] = field(default_factory=dict)
    values: dict[int, dict[str, dict[str, float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    arrived: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    waiting: dict[str, ScheduledTrial] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    exempt: set[str] = field(default_factory=set)

    def to_come(self, unit: int) -> set[str]:
        """Return the contenders of trials that may still report at a milestone for the first
        time."""
        arrived = self.arrived[unit]
        return {
            self.contenders[key]
            for key, member in self.members.items()
            if key not in arrived and not member.is_done
        }

    def left(self, unit: int, losers: Mapping[str, str]) -> set[str]:
        """Return who goes on at a milestone or is still to come to it."""
        return (self.values[unit].keys() | self.to_come(unit)) - losers.keys()

    def means(self, unit: int) -> dict[str, float]:
        """Return what each contender is judged by at a milestone, smaller being better."""
        return {name: fmean(values.values()) for name, values in self.values[unit].items()}


class StratifiedAsha:
    """The rungs of one study.

    Feeding it the recorded reports in their order rebuilds it exactly, so nothing of it needs to
    be saved: after a crash the record is replayed.

    Args:
        settings: None never stops a trial.
        budget: the trials' common budget, or its ladder.
        goal: whether smaller or larger is better.
        knows_all: whether every trial is entered before the first report; if not, rungs are
            decided on arrival.
    """

    def __init__(
        self, settings: Asha | None, budget: Budget, goal: Goal, *, knows_all: bool = True
    ) -> None:
        self._settings = settings
        self._is_ladder = bool(budget.ladder)
        self._amounts = frozenset(each.amount for each in budget.rungs)
        self._unit = budget.unit
        self._milestones = frozenset(settings.milestones(budget) if settings else ())
        self._waits = settings is not None and settings.decide == "together" and knows_all
        self._scouts = None if settings is None else settings.scouts
        # Where no rung leaves a single one, the ends of the scouts decide.
        self._deciding = self._milestones | ({budget.amount} if self._scouts else frozenset())
        self._by_points = settings is not None and (
            settings.compete == "points" or self._scouts is not None
        )
        self._sign = 1.0 if goal == "min" else -1.0
        self._strata: defaultdict[str, _Stratum] = defaultdict(_Stratum)

    def enter(self, row: ScheduledTrial) -> None:
        """Announce a planned trial: what it competes as is a possible survivor. One of a budget
        that is none of the sweep's was asked for later and competes with no other."""
        if self._settings is None or row.trial.budget.amount not in self._amounts:
            return
        trial, group = row.trial, self._strata[row.trial.stratum]
        group.members[trial.key] = row
        # A point competes with all its replicates.
        if self._by_points:
            contender = json.dumps(dict(trial.point), default=str)
        else:
            contender = group.contenders.get(trial.shorter, trial.key)
        group.contenders[trial.key] = contender
        if row.is_exempt and not self._by_points:
            group.exempt.add(contender)
        # What it does not report at is not waited for.
        others: frozenset[int] = frozenset()
        if self._follows(row):
            others = self._deciding
        elif self._is_ladder:
            others = self._deciding - {trial.budget.amount}
        for unit in others:
            group.arrived[unit].add(trial.key)

    def _follows(self, row: ScheduledTrial) -> bool:
        """Whether a trial trains only if the scouts of its point have won."""
        return self._scouts is not None and row.trial.replicate >= self._scouts

    def end(self, row: ScheduledTrial, reason: str) -> None:
        """Note why a trial has ended: the replicates of a point that was stopped end as well."""
        if self._settings is not None and row.status in _LOST:
            group = self._strata[row.trial.stratum]
            group.stopped.setdefault(group.contenders[row.trial.key], reason)

    def record(self, row: ScheduledTrial, unit: int, value: float | None) -> None:
        """Enter a recorded report without asking for a decision."""
        if unit not in self._deciding or self._follows(row):
            return
        if row.trial.budget.amount not in self._amounts:
            return
        if self._is_ladder and unit != row.trial.budget.amount:
            return
        key, group = row.trial.key, self._strata[row.trial.stratum]
        group.arrived[unit].add(key)
        if value is not None and math.isfinite(value):
            group.values[unit][group.contenders[key]].setdefault(key, self._sign * value)

    def milestones(self, row: ScheduledTrial) -> frozenset[int]:
        """Return the units at which a trial in training may be stopped or have to wait."""
        return frozenset() if self._is_ladder else self._rungs_of(row)

    def _rungs_of(self, row: ScheduledTrial) -> frozenset[int]:
        is_safe = row.is_exempt or row.trial.stratum == PROTECTED or self._follows(row)
        return frozenset() if is_safe else self._milestones

    def lost(self, row: ScheduledTrial) -> str:
        """Return why a trial will be stopped at its next rung, empty if nothing is known yet."""
        if self._settings is None or row.is_exempt or self._follows(row):
            return ""
        group = self._strata[row.trial.stratum]
        return group.stopped.get(group.contenders[row.trial.key], "")

    def verdict(self, row: ScheduledTrial, unit: int) -> Verdict:
        """Say whether a trial that has reported at ``unit`` goes on, waits or is stopped.

        Where a rung waits for all its contenders, those go on that are among the best
        1/reduction_factor (at least ``min_survivors``) by their values there. Decided on arrival,
        a contender is stopped if it is not among the best 1/reduction_factor of those its stratum
        has there so far (at least one always is), and if enough others are left to meet
        ``min_survivors``. A trial whose contender was stopped is stopped at its next milestone; one
        that is exempt or of the protected stratum never is.
        """
        if unit not in self.milestones(row):
            return _GO_ON
        group, stratum = self._strata[row.trial.stratum], row.trial.stratum
        if not self._waits:
            return self._verdict_on_arrival(group, unit, row)
        return self._verdict_at_rung(row, unit, self._losers(group, stratum, unit))

    def wait(self, row: ScheduledTrial) -> None:
        self._strata[row.trial.stratum].waiting[row.trial.key] = row

    def may_wait(self, row: ScheduledTrial) -> bool:
        if self._follows(row):
            return self._waits and not row.is_exempt and not row.unit
        return self._waits and self._rung_before(row) in self._rungs_of(row)

    def _rung_before(self, row: ScheduledTrial) -> int:
        """Return the unit of the last rung that a trial has come to; on a ladder it is that of the
        shorter budget."""
        if not self._is_ladder:
            return row.unit
        return 0 if row.shorter is None else row.shorter.trial.budget.amount

    @property
    def any_waits(self) -> bool:
        return any(group.waiting for group in self._strata.values())

    def release(self, stratum: str) -> list[tuple[ScheduledTrial, Verdict]]:
        """Return the trials of a stratum that need not wait any longer, and their verdicts."""
        group = self._strata.get(stratum)
        if group is None or not group.waiting:
            return []
        waiting = group.waiting.values()
        units = {self._rung_before(row) for row in waiting if not self._follows(row)}
        losers = {unit: self._losers(group, stratum, unit) for unit in units}
        following = {group.contenders[row.trial.key] for row in waiting if self._follows(row)}
        of_scouts = {each: self._verdict_of_scouts(each, group, stratum) for each in following}
        released = []
        for row in waiting:
            if self._follows(row):
                verdict = of_scouts[group.contenders[row.trial.key]]
            else:
                unit = self._rung_before(row)
                verdict = self._verdict_at_rung(row, unit, losers[unit])
            if not verdict.wait:
                released.append((row, verdict))
        for row, _ in released:
            del group.waiting[row.trial.key]
        return released

    def _verdict_at_rung(
        self, row: ScheduledTrial, unit: int, losers: dict[str, str] | None
    ) -> Verdict:
        stratum = row.trial.stratum
        if lost := self.lost(row):
            return Verdict(True, lost)
        if losers is None:
            return Verdict(False, f"waits at {self._rung(unit, stratum)} for the others", wait=True)
        group = self._strata[stratum]
        if reason := losers.get(group.contenders[row.trial.key], ""):
            return Verdict(True, reason)
        if self._scouts is not None and len(group.left(unit, losers)) == 1:
            where = self._rung(unit, stratum)
            rivals = len(group.values[unit])
            return Verdict(True, f"the best of {rivals} at {where}; its other seeds confirm it")
        return _GO_ON

    def _verdict_of_scouts(self, contender: str, group: _Stratum, stratum: str) -> Verdict:
        """Say whether those trials of a contender may begin that others compete for."""
        for unit in sorted(self._deciding):
            losers = self._losers(group, stratum, unit)
            if losers is None:
                return Verdict(False, "waits for the scouts", wait=True)
            if reason := losers.get(contender, ""):
                return Verdict(True, reason)
            left = group.left(unit, losers)
            if len(left) == 1:
                break
        if contender in left:
            return _GO_ON
        return Verdict(True, f"its scouts have no value at {self._rung(unit, stratum)}")

    def _losers(self, group: _Stratum, stratum: str, unit: int) -> dict[str, str] | None:
        """Return who has lost up to a rung and why, None while that rung cannot be decided.

        Those that an earlier rung dropped are no rivals, though results of other studies may have
        brought them their values here.
        """
        found: dict[str, str] = {}
        for at in sorted(self._deciding):
            if at > unit:
                break
            losers = self._losers_at(group, stratum, at, found.keys())
            if losers is None and at == unit:
                return None
            found |= losers or {}
        return found

    def _losers_at(
        self, group: _Stratum, stratum: str, unit: int, gone: Set[str]
    ) -> dict[str, str] | None:
        to_come = group.to_come(unit) - gone
        rivals = (group.values[unit].keys() | to_come) - gone
        if self._num_stops(group, rivals, unit) == 0:
            return {}
        if to_come:
            return None
        means = {name: mean for name, mean in group.means(unit).items() if name not in gone}
        ranked = sorted(means.keys() - group.exempt, key=lambda name: (-means[name], name))
        losers = ranked[: self._num_stops(group, means.keys(), unit)]
        where, kept = self._rung(unit, stratum), len(means) - len(losers)
        return {
            name: _rank(len(means) - place, len(means), where, kept)
            for place, name in enumerate(losers)
        }

    def _num_stops(self, group: _Stratum, rivals: Set[str], unit: int, num_gone: int = 0) -> int:
        """Return how many of a rung's rivals in a group do not go on, of whom so many are gone
        since an earlier rung."""
        assert self._settings is not None
        present = max(0, len(rivals) - num_gone)
        if unit not in self._milestones:  # the end, where scouts leave one
            return max(0, present - 1)
        return present - self._settings.num_kept(present, len(group.exempt & rivals))

    def _verdict_on_arrival(self, group: _Stratum, unit: int, row: ScheduledTrial) -> Verdict:
        assert self._settings is not None
        if lost := self.lost(row):
            return Verdict(True, lost)
        means, contender = group.means(unit), group.contenders[row.trial.key]
        if contender not in means:
            return _GO_ON
        rank = sum(other < means[contender] for other in means.values())
        kept = max(1, len(means) // self._settings.reduction_factor)
        if rank < kept:
            return _GO_ON
        if len(self._survivors(group) - {contender}) < self._settings.num_survivors:
            return _GO_ON
        where = self._rung(unit, row.trial.stratum)
        return Verdict(True, _rank(rank + 1, len(means), where, kept))

    def _survivors(self, group: _Stratum) -> Set[str]:
        """Return the contenders that have reached the full budget or may reach it."""
        gone = group.stopped.keys() | group.exempt
        return {
            contender
            for key, contender in group.contenders.items()
            # A point whose replicate failed or diverged goes on with the others.
            if contender not in gone and (self._by_points or _may_finish(group.members[key]))
        }

    def shares(self) -> dict[str, tuple[float, float]]:
        """Return of trials that stops at rungs still to be decided may end, by key, how likely each
        is to be started and the budget units it is likely to train still, if no trial fails before;
        none where rungs are decided on arrival."""
        found: dict[str, tuple[float, float]] = {}
        for stratum, group in self._strata.items():
            if not self._waits or stratum == PROTECTED:
                continue
            going_on = self._going_on(group)
            rows = [row for row in group.members.values() if not (row.is_done or row.is_exempt)]
            following = [row for row in rows if self._follows(row)]
            points = {group.contenders[row.trial.key] for row in following}
            for row in rows:
                if self._follows(row):
                    share = 1.0 if row.has_begun else 1 / len(points)
                    found[row.trial.key] = share, share * row.units_left
                elif going_on:
                    found[row.trial.key] = self._share(row, going_on)
        return found

    def _going_on(self, group: _Stratum) -> dict[int, float]:
        """Return which share of its contenders goes on from each rung still to be decided."""
        found: dict[int, float] = {}
        stopped = 0
        for unit in sorted(self._milestones):
            to_come = group.to_come(unit)
            if not to_come:
                continue
            rivals = group.values[unit].keys() | to_come
            stopped += self._num_stops(group, rivals, unit, stopped)
            # The scouts of a winner end with the others'.
            is_last = self._scouts is not None and len(rivals) - stopped == 1
            found[unit] = 1 - (stopped + is_last) / max(1, len(rivals - group.exempt))
            if is_last:
                break
        return found

    def _share(self, row: ScheduledTrial, going_on: Mapping[int, float]) -> tuple[float, float]:
        """Return how likely a trial is started, and the units it is likely to train, where such
        shares go on from the rungs before its end."""
        amount = row.trial.budget.amount
        if self._is_ladder:
            if row.has_begun:
                return 1.0, row.units_left
            share = min((each for unit, each in going_on.items() if unit < amount), default=1.0)
            return share, share * row.units_left
        at, share, units = row.reached, 1.0, 0.0
        for unit in [*(unit for unit in sorted(going_on) if unit >= at), amount]:
            units += share * (unit - at)
            at, share = unit, going_on.get(unit, 0.0)
        return 1.0, units

    def _rung(self, unit: int, stratum: str) -> str:
        if unit not in self._milestones:
            rung = "the end"
        else:
            rung = f"{unit} {self._unit}" if self._is_ladder else f"rung {unit}"
        # Scouts' strata are what their points have in common, which is told beside them.
        return rung if self._scouts is not None else f"{rung} of stratum [{stratum or 'all'}]"


def _rank(rank: int, rivals: int, where: str, kept: int) -> str:
    who = f"best {kept} go on" if kept > 1 else "best goes on"
    return f"rank {rank} of {rivals} at {where}; the {who}"


def _may_finish(row: ScheduledTrial) -> bool:
    return not row.status.is_final or row.status is TrialStatus.FINISHED
