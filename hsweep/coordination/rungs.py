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
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from hsweep.design.budget import Budget
from hsweep.design.early_stopping import PROTECTED, Asha
from hsweep.design.question import Goal


@dataclass(slots=True)
class _Stratum:
    """One group's rungs, and who is out of the race.

    Attributes:
        rungs: at each milestone, each contender's finite values by trial.
        arrived: at each milestone, the trials that reported there, whatever their value.
        trials: the contender of each trial.
        ended: trials that will report no more.
        out: contenders that will not reach the full budget, or do not count as having.
        exempt: contenders that are never stopped.
        stopped: contenders that lost at a rung, and why.
    """

    rungs: dict[int, dict[str, dict[str, float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    arrived: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    trials: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    out: set[str] = field(default_factory=set)
    exempt: set[str] = field(default_factory=set)
    stopped: dict[str, str] = field(default_factory=dict)

    def missing(self, unit: int) -> set[str]:
        """Return the trials that may still report at a milestone for the first time."""
        return self.trials.keys() - self.ended - self.arrived[unit]

    def means(self, unit: int) -> dict[str, float]:
        """Return what each contender is judged by at a milestone, smaller being better."""
        return {name: fmean(values.values()) for name, values in self.rungs[unit].items()}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the scheduler says of a report, and why: stop, wait for others, or else go on."""

    stop: bool
    reason: str = ""
    wait: bool = False


_GO_ON: Final = Verdict(False)


class StratifiedAsha:
    """The rungs of one study.

    Feeding it the recorded reports in their order rebuilds it exactly, so nothing of it needs to
    be saved: after a crash the record is replayed. A contender is a trial's own key unless given.

    Args:
        settings: None never stops a trial.
        budget: the trials' common budget.
        goal: whether smaller or larger is better.
        knows_all: whether every trial is announced before the first report; if not, rungs are
            decided on arrival.
    """

    def __init__(
        self, settings: Asha | None, budget: Budget, goal: Goal, *, knows_all: bool = True
    ) -> None:
        self._settings = settings
        self._milestones = frozenset(settings.milestones(budget) if settings else ())
        self._together = settings is not None and settings.decide == "together" and knows_all
        self._sign = 1.0 if goal == "min" else -1.0
        self._strata: defaultdict[str, _Stratum] = defaultdict(_Stratum)

    def add(self, key: str, stratum: str, contender: str | None = None) -> None:
        """Announce a planned trial: its contender counts as a possible survivor."""
        self._strata[stratum].trials[key] = contender or key

    def exempt(self, key: str, stratum: str, contender: str | None = None) -> None:
        """Let a trial's contender run to the full budget whatever happens; it still is a rival,
        but no survivor to count on."""
        group = self._strata[stratum]
        group.out.add(contender or key)
        group.exempt.add(contender or key)

    def end(self, key: str, stratum: str) -> None:
        """Note that a trial will report no more, so that nobody waits for it."""
        self._strata[stratum].ended.add(key)

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
        if unit not in self._milestones:
            return
        group = self._strata[stratum]
        group.arrived[unit].add(key)
        if value is not None and math.isfinite(value):
            group.rungs[unit][contender or key].setdefault(key, self._sign * value)

    def decide(
        self, key: str, stratum: str, unit: int, value: float | None, contender: str | None = None
    ) -> Verdict:
        """Enter a report and say whether its trial goes on, waits or is stopped.

        Decided together, the contenders of a full rung go on that are among the best
        1/reduction_factor (at least ``min_survivors``) by their values there. Decided on arrival,
        a contender is stopped if it is not among the best 1/reduction_factor of those its stratum
        has there so far (at least one always is), and if enough others are left to meet
        ``min_survivors``. A trial whose contender was stopped is stopped at its next milestone; a
        protected stratum never is.
        """
        self.record(key, stratum, unit, value, contender)
        return self.verdict(key, stratum, unit, contender)

    def verdict(self, key: str, stratum: str, unit: int, contender: str | None = None) -> Verdict:
        """Say whether a trial that has reported at ``unit`` goes on, waits or is stopped."""
        if self._settings is None or unit not in self._milestones or stratum == PROTECTED:
            return _GO_ON
        contender = contender or key
        group = self._strata[stratum]
        if contender in group.exempt:
            return _GO_ON
        if contender in group.stopped:
            return Verdict(True, group.stopped[contender])
        if self._together:
            return self._verdict_together(group, stratum, unit, contender)
        return self._verdict_on_arrival(group, stratum, unit, contender)

    def waiting_place(self, unit: int) -> bool:
        """Whether a trial whose last report is of this unit may have to wait there."""
        return self._together and unit in self._milestones

    def milestones(self, key: str, stratum: str, contender: str | None = None) -> frozenset[int]:
        """Return the units at which a trial may be stopped or have to wait."""
        is_exempt = (contender or key) in self._strata[stratum].exempt
        return frozenset() if stratum == PROTECTED or is_exempt else self._milestones

    def _verdict_together(
        self, group: _Stratum, stratum: str, unit: int, contender: str
    ) -> Verdict:
        missing = group.missing(unit)
        present = group.rungs[unit].keys()
        to_come = {group.trials[key] for key in missing} - present
        if self._num_stops(len(present) + len(to_come), group, present | to_come) == 0:
            return _GO_ON
        where = f"rung {unit} of stratum [{stratum or 'all'}]"
        if missing:
            return Verdict(False, f"waits at {where} for the others", wait=True)
        means = group.means(unit)
        if contender not in means:
            return _GO_ON
        ranked = sorted(means.keys() - group.exempt, key=lambda name: (-means[name], name))
        losers = ranked[: self._num_stops(len(means), group, means.keys())]
        if contender not in losers:
            return _GO_ON
        rank = sum(other < means[contender] for other in means.values())
        kept = len(means) - len(losers)
        return Verdict(True, f"rank {rank + 1} of {len(means)} at {where}; the best {kept} go on")

    def stops_to_come(self) -> Iterator[tuple[int, int]]:
        """Yield the rungs that are still to be decided, each with the number of trials that will be
        stopped there if none fails before; nothing where rungs are decided on arrival."""
        if not self._together:
            return
        for stratum, group in self._strata.items():
            if stratum == PROTECTED:
                continue
            stopped = 0
            for unit in sorted(self._milestones):
                missing = group.missing(unit)
                if not missing:
                    continue
                rivals = group.rungs[unit].keys() | {group.trials[key] for key in missing}
                stops = self._num_stops(len(rivals) - stopped, group, rivals)
                stopped += stops
                members = sum(name in rivals for name in group.trials.values())
                yield unit, round(stops * members / len(rivals))

    def _num_stops(self, num_present: int, group: _Stratum, present: Set[str]) -> int:
        """Return how many of a rung's contenders do not go on."""
        assert self._settings is not None
        kept = max(1, num_present // self._settings.reduction_factor)
        survivors = self._settings.min_survivors + len(group.exempt & present)
        return max(0, num_present - max(kept, survivors))

    def _verdict_on_arrival(
        self, group: _Stratum, stratum: str, unit: int, contender: str
    ) -> Verdict:
        assert self._settings is not None
        means = group.means(unit)
        if contender not in means:
            return _GO_ON
        rank = sum(other < means[contender] for other in means.values())
        kept = max(1, len(means) // self._settings.reduction_factor)
        if rank < kept:
            return _GO_ON
        others_in_race = len(set(group.trials.values()) - group.out - {contender})
        if others_in_race < self._settings.min_survivors:
            return _GO_ON
        return Verdict(
            True,
            f"rank {rank + 1} of {len(means)} at rung {unit} of stratum [{stratum or 'all'}]; "
            f"the best {kept} go on",
        )

    def rung_sizes(self, stratum: str) -> dict[int, int]:
        """Return how many contenders each milestone of a stratum has."""
        rungs = self._strata[stratum].rungs
        return {unit: len(values) for unit, values in rungs.items() if values}
