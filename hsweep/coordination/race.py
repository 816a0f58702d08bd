"""The trials of a study as contenders: what each competes as, and who is left alone."""

import json
from collections.abc import Collection

from hsweep.coordination.rungs import StratifiedAsha, Verdict
from hsweep.design.sweep import Sweep
from hsweep.design.trial import Trial, TrialStatus


class Race:
    """A sweep's early stopping, asked about trials.

    Args:
        sweep: with its early stopping, or none.
        kept: keys of trials that are left alone: their full-budget values were asked for. What
            they report still counts at the rungs, but not as a contender left.
        knows_all: whether every trial is entered before the first report.
    """

    def __init__(self, sweep: Sweep, kept: Collection[str], *, knows_all: bool) -> None:
        self._stopping = sweep.early_stopping
        self._kept = kept
        self._asha = StratifiedAsha(
            sweep.early_stopping, sweep.budget, sweep.goal, knows_all=knows_all
        )

    def enter(self, trial: Trial) -> None:
        """Announce a planned trial."""
        contender = self._contender(trial)
        self._asha.add(trial.key, trial.stratum, contender)
        if trial.key in self._kept and contender is None:
            self._asha.exempt(trial.key, trial.stratum)

    def wait_no_longer(self, trial: Trial) -> None:
        """Note that a trial will report no more, so that nobody waits for it."""
        self._asha.end(trial.key, trial.stratum)

    def leave(self, trial: Trial, status: TrialStatus, reason: str) -> None:
        """Note how a trial ended."""
        self.wait_no_longer(trial)
        if status is TrialStatus.FINISHED:
            return
        contender = self._contender(trial)
        stopped = reason if status is TrialStatus.STOPPED_EARLY else ""
        if stopped or contender is None:
            # A shape whose replicate failed or diverged goes on with the others.
            self._asha.leave(trial.key, trial.stratum, contender, stopped=stopped)

    def record(self, trial: Trial, unit: int, value: float | None) -> None:
        """Enter a recorded report without asking for a decision."""
        self._asha.record(trial.key, trial.stratum, unit, value, self._contender(trial))

    def may_wait_at(self, trial: Trial, unit: int) -> bool:
        """Whether a trial whose last report is of this unit may have to wait for others there."""
        return trial.key not in self._kept and self._asha.waiting_place(unit)

    def waits_at(self, trial: Trial) -> frozenset[int]:
        """Return the units after which a trial needs a verdict to go on."""
        if trial.key in self._kept:
            return frozenset()
        return self._asha.milestones(trial.key, trial.stratum, self._contender(trial))

    def verdict(self, trial: Trial, unit: int) -> Verdict:
        """Say whether a trial that has reported at ``unit`` goes on, waits or is stopped."""
        if trial.key in self._kept:
            return Verdict(False)
        return self._asha.verdict(trial.key, trial.stratum, unit, self._contender(trial))

    def lost(self, trial: Trial) -> str:
        """Return why a trial would be stopped at its next rung, empty if nothing is known yet."""
        if trial.key in self._kept:
            return ""
        return self._asha.lost(trial.key, trial.stratum, self._contender(trial))

    def units_spared(self, budget: int) -> int:
        """Return the budget units that stops at rungs still to be decided will spare.

        Args:
            budget: units of a full budget.
        """
        return sum(
            number * (budget - unit) for unit, number in self._asha.stops_to_come() if unit < budget
        )

    def _contender(self, trial: Trial) -> str | None:
        """Return what a trial competes as: itself (None), or its point with all replicates."""
        if self._stopping is None or self._stopping.compete == "trials":
            return None
        return json.dumps(dict(trial.point), default=str)
