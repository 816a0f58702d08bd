"""A longer budget: which trials go on from what a shorter one has trained, and why others cannot.

The budget is part of a trial's key, so with another budget every trial is another. As far as the
learning rate does not depend on the length of the training, the longer trial begins with exactly
the shorter one: these reports are taken over and it goes on from the checkpoint there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hsweep.design.budget import Budget
from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import UserError
from hsweep.planning.content import content_hash
from hsweep.planning.identity import Accepted, key_of
from hsweep.record.rows import TrialRow

_GOES_ON = (TrialStatus.FINISHED, TrialStatus.PLANNED, TrialStatus.RUNNING)
_STAYS = (TrialStatus.DIVERGED, TrialStatus.STOPPED_EARLY)


def _obstacle(before: Budget, after: Budget, trial: Trial) -> str:
    """Return why a trial with the budget ``after`` cannot go on from one with ``before``; empty if
    it can."""
    if before.unit != after.unit:
        return f"{before.unit} and {after.unit} are not the same measure"
    if after.amount <= before.amount:
        return "a shorter training is not cut out of a longer one, whose last report came later"
    if trial.length_dependence:
        return trial.length_dependence
    if before.report_every != after.report_every:
        return (
            f"reports every {after.report_every} {after.unit} instead of every "
            f"{before.report_every} divide the training otherwise"
        )
    if not trial.shared_with(before.amount):
        return (
            f"reports every {before.report_every} {before.unit} leave none that both trainings "
            f"have, of {before.amount} {before.unit}"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Shorter:
    """What the record holds of a trial's training with another budget.

    Attributes:
        trial: with the budget of now.
        source: the trial on record, whose reports it takes over if it goes on from it.
        status: where that leaves it; None if it does not go on from it.
        checkpoints: key of the trial whose checkpoints it goes on from; empty for none.
        through: the last unit whose report it takes over.
        why: why it does not go on from it; empty if it does, or if there is nothing to go on from.
    """

    trial: Trial
    source: TrialRow
    status: TrialStatus | None = None
    checkpoints: str = ""
    through: int = 0
    why: str = ""

    @property
    def reason(self) -> str:
        if self.status is TrialStatus.PLANNED:
            return f"goes on from {self.through} {self.trial.budget.unit}"
        return self.source.reason

    @property
    def how(self) -> str:
        if self.status is not TrialStatus.PLANNED:
            return f"{str(self.status).replace('_', ' ')}, as before"
        whole = self.source.status is TrialStatus.FINISHED
        return "finished, now longer" if whole else "unfinished, goes on"


@dataclass(frozen=True, slots=True)
class BudgetHistory:
    """The budgets that a study has had, and what trained with them.

    Attributes:
        budgets: as the study recorded them.
        rows: all of its record by key, orphans included.
        checkpoints: folder or URI of its checkpoints.
        same_rungs: whether early stopping is as it was.
        accepted: code that is taken for other code in keys.
    """

    budgets: Sequence[Mapping[str, Any]]
    rows: Mapping[str, TrialRow]
    checkpoints: str
    same_rungs: bool
    accepted: Accepted

    def shorter(self, trial: Trial) -> Shorter | None:
        """Find what a planned trial can go on from; None if no other budget trained it, or if the
        shorter one is part of the same ladder, so that it goes on from there as it is handed out.
        """
        if trial.shorter in self.rows:
            return None
        same = []
        for content in self.budgets:
            asked = (content[name] for name in ("amount", "unit", "report_every", "ladder"))
            for budget in Budget(*asked).rungs:
                key = key_of({**trial.parts, "budget": content_hash(budget)}, self.accepted)
                if budget != trial.budget and key in self.rows:
                    same.append((budget, self.rows[key]))
        if not same:
            return None
        same.sort(key=lambda each: (not each[1].orphaned, each[1].unit, each[0].amount))
        why = ""
        usable = []
        for budget, row in same:
            why = _obstacle(budget, trial.budget, trial)
            if not why:
                usable.append(row)
        if not usable:
            return Shorter(trial, row, why=why)
        through = {row.key: trial.shared_with(row.budget) for row in usable}
        reached = {row.key: min(row.unit, through[row.key]) for row in usable}
        source = max(usable, key=lambda row: (reached[row.key], row.budget))
        if source.unit == 0:
            return Shorter(trial, source)
        # What ended a training after the part in common does not end the longer one.
        has_ended = source.unit <= through[source.key] and source.status in _STAYS
        if source.status is TrialStatus.STOPPED_EARLY and not self.same_rungs:
            why = "it was stopped early, and early stopping has changed"
        elif has_ended:
            return Shorter(trial, source, source.status, through=source.unit)
        elif source.status not in (*_GOES_ON, *_STAYS):
            why = f"it had ended as {str(source.status).replace('_', ' ')}"
        else:
            units = {key: self._newest_checkpoint(key, unit) for key, unit in through.items()}
            best = max(units, key=lambda key: (units[key], key == source.key))
            if units[best] or source.status is not TrialStatus.FINISHED:
                taken = reached[source.key]
                return Shorter(trial, source, TrialStatus.PLANNED, best, taken)
            why = "its last checkpoint is gone"
        return Shorter(trial, source, why=why)

    def _newest_checkpoint(self, key: str, through: int) -> int:
        """Return the budget units of a trial's newest checkpoint of those that a longer training
        can go on from, 0 without one."""
        from hsweep.training.checkpoints import CheckpointStore

        try:
            units = CheckpointStore(self.checkpoints, key, attempt=0).units()
        except (OSError, UserError):
            return 0
        return max((unit for unit in units if unit <= through), default=0)
