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
from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from hsweep.design.budget import Budget
from hsweep.design.early_stopping import PROTECTED, Asha
from hsweep.design.question import Goal
from hsweep.design.trial import Trial, TrialStatus


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trial does after a report, and why: stop, wait for others, or else go on."""

    stop: bool
    reason: str = ""
    wait: bool = False


_GO_ON: Final = Verdict(False)
_LOST: Final = (TrialStatus.STOPPED_EARLY, TrialStatus.NOT_NEEDED)


@dataclass(slots=True)
class _Rung:
    """One milestone of a stratum.

    Attributes:
        values: each contender's finite values by trial, smaller being better.
        pending: each contender's trials that may still report here.
        rivals: contenders with a value or a pending trial.
    """

    values: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    pending: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    rivals: set[str] = field(default_factory=set)

    def expect(self, name: str, key: str) -> None:
        self.pending[name].add(key)
        self.rivals.add(name)

    def arrive(self, name: str, key: str, value: float | None) -> None:
        """Note that a trial has reported, or with no value that it never will."""
        if value is not None:
            self.values[name].setdefault(key, value)
            self.rivals.add(name)
        if key in self.pending.get(name, ()):
            self.pending[name].remove(key)
            if not self.pending[name]:
                del self.pending[name]
                if name not in self.values:
                    self.rivals.remove(name)


@dataclass(slots=True)
class _Stratum:
    """One group's rungs.

    Attributes:
        contenders: what each trial competes as, by its key.
        waiting: the trials that wait, and the rung where they do.
        stopped: contenders that lost at a rung, and why.
        exempt: contenders that are never stopped: they count as rivals, not as survivors.
        decided: who lost at each rung that is decided, and why.
        ended: trials that ended before their budget.
        may_release: something has happened since that may decide a rung.
    """

    rungs: dict[int, _Rung] = field(default_factory=lambda: defaultdict(_Rung))
    contenders: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, tuple[Trial, int]] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    exempt: set[str] = field(default_factory=set)
    decided: dict[int, dict[str, str]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    may_release: bool = False


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
        self._deciding = sorted(self._milestones | ({budget.amount} if self._scouts else set()))
        self._by_points = settings is not None and (
            settings.compete == "points" or self._scouts is not None
        )
        self._sign = 1.0 if goal == "min" else -1.0
        self._strata: defaultdict[str, _Stratum] = defaultdict(_Stratum)
        self._exempt: set[str] = set()

    def enter(self, trial: Trial, *, is_exempt: bool = False, is_trained: bool = True) -> None:
        """Announce a planned trial: what it competes as is a possible survivor. One of a budget
        that is none of the sweep's was asked for later and competes with no other.

        Args:
            trial: what is announced.
            is_exempt: early stopping never ends it.
            is_trained: it may still report; what does not is not waited for.
        """
        if is_exempt:
            self._exempt.add(trial.key)
        if self._settings is None or trial.budget.amount not in self._amounts:
            return
        group = self._strata[trial.stratum]
        # A point competes with all its replicates.
        if self._by_points:
            name = json.dumps(dict(trial.point), default=str)
        else:
            name = group.contenders.get(trial.previous, trial.key)
        group.contenders[trial.key] = name
        group.decided.clear()
        if is_exempt and not self._by_points:
            group.exempt.add(name)
        for unit in self._deciding if is_trained and not self._follows(trial) else ():
            if not self._is_ladder or unit == trial.budget.amount:
                group.rungs[unit].expect(name, trial.key)

    def _follows(self, trial: Trial) -> bool:
        """Whether a trial trains only if the scouts of its point have won."""
        return self._scouts is not None and trial.replicate >= self._scouts

    def end(self, trial: Trial, status: TrialStatus, reason: str) -> None:
        """Note how a trial has ended: the replicates of a point that was stopped end as well."""
        group = self._strata[trial.stratum]
        name = group.contenders.get(trial.key)
        if name is None:
            return
        if status is not TrialStatus.FINISHED:
            group.ended.add(trial.key)
        if status in _LOST:
            group.stopped.setdefault(name, reason)
        for rung in group.rungs.values():
            rung.arrive(name, trial.key, None)
        group.may_release = True

    def record(self, trial: Trial, unit: int, value: float | None) -> None:
        """Enter a recorded report without asking for a decision."""
        group = self._strata[trial.stratum]
        name = group.contenders.get(trial.key)
        is_counted = unit in self._deciding and not self._follows(trial)
        if name is None or not is_counted or (self._is_ladder and unit != trial.budget.amount):
            return
        is_value = value is not None and math.isfinite(value)
        rung = group.rungs[unit]
        rung.arrive(name, trial.key, self._sign * value if is_value and value is not None else None)
        group.may_release = group.may_release or not is_value or not rung.pending

    def milestones(self, trial: Trial) -> frozenset[int]:
        """Return the units at which a trial in training may be stopped or have to wait."""
        return frozenset() if self._is_ladder else self._rungs_of(trial)

    def _rungs_of(self, trial: Trial) -> frozenset[int]:
        is_safe = trial.key in self._exempt or trial.stratum == PROTECTED or self._follows(trial)
        competes = trial.key in self._strata[trial.stratum].contenders
        return self._milestones if competes and not is_safe else frozenset()

    def lost(self, trial: Trial) -> str:
        """Return why a trial will be stopped at its next rung, empty if nothing is known yet."""
        if trial.key in self._exempt or self._follows(trial):
            return ""
        group = self._strata[trial.stratum]
        return group.stopped.get(group.contenders.get(trial.key, ""), "")

    def verdict(self, trial: Trial, unit: int) -> Verdict:
        """Say whether a trial that has reported at ``unit`` goes on, waits or is stopped.

        Where a rung waits for all its contenders, those go on that are among the best
        1/reduction_factor (at least ``min_survivors``) by their values there. Decided on arrival,
        a contender is stopped if it is not among the best 1/reduction_factor of those its stratum
        has there so far (at least one always is), and if enough others are left to meet
        ``min_survivors``. A trial whose contender was stopped is stopped at its next milestone; one
        that is exempt or of the protected stratum never is.
        """
        if unit not in self.milestones(trial):
            return _GO_ON
        return self._verdict_at(trial, unit) if self._waits else self._on_arrival(trial, unit)

    def wait(self, trial: Trial, unit: int, *, is_undecided: bool = False) -> None:
        """Let a trial wait at a rung; ``is_undecided`` says that its verdict was to wait."""
        group = self._strata[trial.stratum]
        group.waiting[trial.key] = trial, unit
        group.may_release = group.may_release or not is_undecided

    def may_wait(self, trial: Trial, unit: int, *, has_reported: bool) -> bool:
        """Whether a trial that goes on from a rung may have to wait there."""
        if self._follows(trial):
            return self._waits and trial.key not in self._exempt and not has_reported
        return self._waits and unit in self._rungs_of(trial)

    @property
    def any_waits(self) -> bool:
        return any(group.waiting for group in self._strata.values())

    def release(self, stratum: str) -> list[tuple[Trial, Verdict]]:
        """Return the trials of a stratum that need not wait any longer, and their verdicts."""
        group = self._strata[stratum]
        if not group.may_release:
            return []
        group.may_release = False
        released = []
        for trial, unit in [*group.waiting.values()]:
            verdict = self._verdict_at(trial, unit)
            if not verdict.wait:
                del group.waiting[trial.key]
                released.append((trial, verdict))
        return released

    def _verdict_at(self, trial: Trial, unit: int) -> Verdict:
        """Say what becomes of a trial at a rung; of one that follows scouts, at those that these
        have to pass."""
        follows = self._follows(trial)
        if lost := self.lost(trial):
            return Verdict(True, lost)
        group = self._strata[trial.stratum]
        name, left = group.contenders[trial.key], set[str]()
        for at in self._deciding if follows else [unit]:
            where = self._where(at, trial.stratum)
            losers = self._losers(group, at, trial.stratum)
            if losers is None:
                whom = "for the scouts" if follows else f"at {where} for the others"
                return Verdict(False, f"waits {whom}", wait=True)
            if reason := losers.get(name, ""):
                return Verdict(True, reason)
            left = group.rungs[at].rivals - losers.keys()
            if self._scouts is not None and len(left) == 1:
                if follows:
                    break
                rivals = len(group.rungs[at].values)
                return Verdict(True, f"the best of {rivals} at {where}; its other seeds confirm it")
        if follows and name not in left:
            return Verdict(True, f"its scouts have no value at {where}")
        return _GO_ON

    def _losers(self, group: _Stratum, unit: int, stratum: str) -> dict[str, str] | None:
        """Return who has lost up to a rung and why, None while that rung cannot be decided.

        Those that an earlier rung dropped are no rivals, though results of other studies may have
        brought them their values here.
        """
        found: dict[str, str] = {}
        for at in self._deciding:
            if at > unit:
                break
            losers = group.decided.get(at)
            if losers is None:
                losers = self._losers_at(group, at, found, stratum)
            if losers is None:
                if at == unit:
                    return None
                continue
            group.decided[at] = losers
            found |= losers
        return found

    def _losers_at(
        self, group: _Stratum, unit: int, gone: Collection[str], stratum: str
    ) -> dict[str, str] | None:
        rung = group.rungs[unit]
        rivals = rung.rivals.difference(gone) if gone else rung.rivals
        if self._num_stops(group, rivals, unit) == 0:
            return {}
        if rung.pending.keys() - gone if gone else rung.pending:
            return None
        means = {name: fmean(rung.values[name].values()) for name in rivals}
        ranked = sorted(means.keys() - group.exempt, key=lambda name: (-means[name], name))
        losers = ranked[: self._num_stops(group, rivals, unit)]
        where, kept = self._where(unit, stratum), len(means) - len(losers)
        return {
            name: _rank(len(means) - place, len(means), where, kept)
            for place, name in enumerate(losers)
        }

    def _num_stops(self, group: _Stratum, rivals: set[str], unit: int) -> int:
        """Return how many of a rung's rivals do not go on."""
        assert self._settings is not None
        if unit not in self._milestones:  # the end, where scouts leave one
            return max(0, len(rivals) - 1)
        return len(rivals) - self._settings.num_kept(len(rivals), len(group.exempt & rivals))

    def _on_arrival(self, trial: Trial, unit: int) -> Verdict:
        assert self._settings is not None
        if lost := self.lost(trial):
            return Verdict(True, lost)
        group = self._strata[trial.stratum]
        name, values = group.contenders[trial.key], group.rungs[unit].values
        if name not in values:
            return _GO_ON
        means = {each: fmean(of_trials.values()) for each, of_trials in values.items()}
        rank = sum(other < means[name] for other in means.values())
        kept = max(1, len(means) // self._settings.reduction_factor)
        if rank < kept or len(self._survivors(group) - {name}) < self._settings.num_survivors:
            return _GO_ON
        return Verdict(True, _rank(rank + 1, len(means), self._where(unit, trial.stratum), kept))

    def _survivors(self, group: _Stratum) -> set[str]:
        """Return the contenders that have reached the full budget or may reach it."""
        return {
            name
            for key, name in group.contenders.items()
            # A point whose replicate failed or diverged goes on with the others.
            if name not in group.exempt
            and name not in group.stopped
            and (self._by_points or key not in group.ended)
        }

    def _where(self, unit: int, stratum: str) -> str:
        if unit not in self._milestones:
            rung = "the end"
        else:
            rung = f"{unit} {self._unit}" if self._is_ladder else f"rung {unit}"
        # Scouts' strata are what their points have in common, which is told beside them.
        return rung if self._scouts is not None else f"{rung} of stratum [{stratum or 'all'}]"


def _rank(rank: int, rivals: int, where: str, kept: int) -> str:
    who = f"best {kept} go on" if kept > 1 else "best goes on"
    return f"rank {rank} of {rivals} at {where}; the {who}"
