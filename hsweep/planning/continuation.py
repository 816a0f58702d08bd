"""Another budget: which trials go on from what was trained with the previous one, and why others
cannot.

The budget is part of a trial's key, so with another budget every trial is another. As far as the
learning rate does not depend on the length of the training, the longer trial begins with exactly
the shorter one: these reports are taken over and it goes on from the checkpoint there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hsweep.design.budget import Budget
from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import UserError
from hsweep.planning.content import content_hash
from hsweep.planning.identity import Accepted, key_of
from hsweep.record.rows import TrialRow

_GOES_ON: Final = (TrialStatus.FINISHED, TrialStatus.PLANNED, TrialStatus.RUNNING)
_STAYS: Final = (TrialStatus.DIVERGED, TrialStatus.STOPPED_EARLY)


@dataclass(frozen=True, slots=True)
class Continuation:
    """A trial that was trained with another budget before.

    Attributes:
        trial: with the budget of now.
        previous: the trial on record, whose reports it takes over if it goes on from it.
        status: where that leaves it; None if it does not go on from it.
        checkpoints: key of the trial whose checkpoints it goes on from; empty for none.
        through: the last unit whose report it takes over.
        why: why it does not go on from it; empty if it does, or if there is nothing to go on from.
    """

    trial: Trial
    previous: TrialRow
    status: TrialStatus | None = None
    checkpoints: str = ""
    through: int = 0
    why: str = ""

    @property
    def reason(self) -> str:
        """Why the trial is where it is, for the record."""
        if self.status is TrialStatus.PLANNED:
            return f"goes on from {self.through} {self.trial.budget.unit}"
        return self.previous.reason

    @property
    def how(self) -> str:
        """How it goes on, in words."""
        if self.status is not TrialStatus.PLANNED:
            return f"{str(self.status).replace('_', ' ')}, as before"
        whole = self.previous.status is TrialStatus.FINISHED
        return "finished, now longer" if whole else "unfinished, goes on"


def continuation_of(
    trial: Trial,
    budgets: Sequence[Mapping[str, Any]],
    rows: Mapping[str, TrialRow],
    checkpoints: str,
    accepted: Accepted,
    *,
    same_rungs: bool,
) -> Continuation | None:
    """Return the recorded training that a planned trial can go on from.

    None if it was trained with no other budget, or if its previous budget is part of the same
    ladder: then the coordinator lets it go on from there.

    Args:
        trial: one that is not on record.
        budgets: those that the study has had, as it recorded them.
        rows: all of its record by key, orphaned trials included.
        checkpoints: folder or URI of its checkpoints.
        accepted: code that is taken for other code in keys.
        same_rungs: whether early stopping is as it was.
    """
    if trial.previous in rows:
        return None
    same: list[tuple[Budget, TrialRow]] = []
    for content in budgets:
        fields = (content[name] for name in ("amount", "unit", "report_every", "ladder"))
        for budget in Budget(*fields).rungs:
            key = key_of({**trial.parts, "budget": content_hash(budget)}, accepted)
            if budget != trial.budget and key in rows:
                same.append((budget, rows[key]))
    if not same:
        return None
    same.sort(key=lambda each: (not each[1].orphaned, each[1].unit, each[0].amount))
    obstacles = [(_obstacle(budget, trial), row) for budget, row in same]
    usable = [row for obstacle, row in obstacles if not obstacle]
    if not usable:
        why, row = obstacles[-1]
        return Continuation(trial, row, why=why)
    through = {row.key: trial.shared_with(row.budget) for row in usable}
    reached = {row.key: min(row.unit, through[row.key]) for row in usable}
    previous = max(usable, key=lambda row: (reached[row.key], row.budget))
    if previous.unit == 0:
        return Continuation(trial, previous)
    if previous.status is TrialStatus.STOPPED_EARLY and not same_rungs:
        why = "it was stopped early, and early stopping has changed"
    # What ended a training after the part in common does not end the longer one.
    elif previous.unit <= through[previous.key] and previous.status in _STAYS:
        return Continuation(trial, previous, previous.status, through=previous.unit)
    elif previous.status not in (*_GOES_ON, *_STAYS):
        why = f"it had ended as {str(previous.status).replace('_', ' ')}"
    else:
        units = {key: _newest_checkpoint(checkpoints, key, unit) for key, unit in through.items()}
        best = max(units, key=lambda key: (units[key], key == previous.key))
        if units[best] or previous.status is not TrialStatus.FINISHED:
            taken = reached[previous.key]
            return Continuation(trial, previous, TrialStatus.PLANNED, best, taken)
        why = "its last checkpoint is gone"
    return Continuation(trial, previous, why=why)


def _obstacle(before: Budget, trial: Trial) -> str:
    """Return why a trial cannot go on from one with another budget; empty if it can."""
    after = trial.budget
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


def _newest_checkpoint(root: str, key: str, through: int) -> int:
    """Return the budget units of a trial's newest checkpoint of those that a longer training can go
    on from, 0 without one."""
    from hsweep.training.checkpoints import CheckpointStore

    try:
        units = CheckpointStore(root, key, attempt=0).units()
    except (OSError, UserError):
        return 0
    return max((unit for unit in units if unit <= through), default=0)
