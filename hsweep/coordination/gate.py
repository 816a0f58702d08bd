"""What decides about a trial between its reports: it goes on, waits or ends.

The recorded reports, entered in their order, rebuild the state of a gate, so that is never saved:
after a crash the record is replayed.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from hsweep.design.budget import Budget
from hsweep.design.early_stopping import PROTECTED
from hsweep.design.scales import Goal
from hsweep.design.stopping_rule import StoppingRule
from hsweep.design.trial import Trial, TrialStatus


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a trial at a rung, with the reason: stop, wait for others, or continue."""

    stop: bool
    reason: str = ""
    wait: bool = False


GO_ON: Final = Verdict(False)


class Gate:
    """Lets every trial run to its end; what stops some overrides this.

    Attributes:
        num_gaps: trials of which the record has lost the report of a rung.
        any_waits: whether a trial waits at a rung.
    """

    @property
    def num_gaps(self) -> int:
        return 0

    @property
    def any_waits(self) -> bool:
        return False

    def enter(self, trial: Trial) -> None:
        """Add a planned trial that competes; a trial that was not added is never stopped."""

    def record(self, trial: Trial, unit: int, value: float | None) -> None:
        """Enter a recorded report without asking for a decision."""

    def carry(self, trial: Trial, unit: int, value: float | None) -> None:
        """Enter the value with which a trial has ended by itself at every rung after ``unit``."""

    def end(self, trial: Trial, status: TrialStatus, reason: str, last: int) -> None:
        """Enter the end of a trial after its unit ``last``."""

    def milestones(self, trial: Trial) -> frozenset[int]:
        """Return the units at which a trial in training may be stopped or have to wait."""
        return frozenset()

    def gate(self, trial: Trial, unit: int) -> int | None:
        """Return the rung that a trial has to pass before it trains on from ``unit``, or starts
        (0); None if it need not wait."""
        return None

    def lost(self, trial: Trial) -> str:
        """Return why a trial will be stopped at its next rung, empty if nothing is known yet."""
        return ""

    def verdict(self, trial: Trial, unit: int) -> Verdict:
        """Return whether a trial that has reported at ``unit`` continues, waits or stops."""
        return GO_ON

    def wait(self, trial: Trial, unit: int, *, is_undecided: bool = False) -> None:
        """Let a trial wait at a rung; ``is_undecided`` means that the rung has just been judged
        undecided."""

    def release(self, stratum: str) -> list[tuple[Trial, Verdict]]:
        """Return the waiting trials of a stratum that can be decided now, with their verdicts."""
        return []


class RuleGate(Gate):
    """Asks a stopping rule about a trial at each of its reports; none waits."""

    def __init__(self, rule: StoppingRule, budget: Budget, goal: Goal) -> None:
        self._rule, self._budget = rule, budget.amount
        self._milestones = frozenset(rule.milestones(budget))
        self._sign = 1.0 if goal == "min" else -1.0
        self._reports: defaultdict[str, dict[str, dict[int, float]]] = defaultdict(dict)

    def enter(self, trial: Trial) -> None:
        """Add a trial with the sweep's budget; one that was planned later does not compete."""
        if trial.stratum != PROTECTED and trial.budget.amount == self._budget:
            self._reports[trial.stratum][trial.key] = {}

    def record(self, trial: Trial, unit: int, value: float | None) -> None:
        """Enter a finite value."""
        reports = self._reports[trial.stratum].get(trial.key)
        if reports is not None and value is not None and math.isfinite(value):
            reports[unit] = self._sign * value

    def milestones(self, trial: Trial) -> frozenset[int]:
        """Return the units at which the rule may stop it."""
        return self._milestones if trial.key in self._reports[trial.stratum] else frozenset()

    def verdict(self, trial: Trial, unit: int) -> Verdict:
        """Return what the rule says of its reports and of those of all that have come as far."""
        if unit not in self.milestones(trial):
            return GO_ON
        competing = self._reports[trial.stratum]
        curves = {
            key: [value for at, value in sorted(reports.items()) if at <= unit]
            for key, reports in competing.items()
            if unit in reports or key == trial.key
        }
        values = curves.pop(trial.key)
        if not values:
            return GO_ON
        reason = self._rule.reason_to_stop(values, list(curves.values()))
        return Verdict(True, f"{reason} (at {unit})") if reason else GO_ON
