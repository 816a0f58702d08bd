"""A longer budget: which trials go on from what a shorter one has trained, and why others cannot.

The budget is part of a trial's key, so with another budget every trial is another. Where the
learning rate does not depend on the length of the training, the longer trial begins with exactly
the shorter one: its reports are taken over and it goes on from the checkpoint.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hsweep.design.budget import Budget, BudgetUnit
from hsweep.design.recipe import Recipe
from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import UserError
from hsweep.planning.content import content_hash
from hsweep.planning.identity import Accepted, key_of
from hsweep.record.rows import TrialRow

_GOES_ON = (TrialStatus.FINISHED, TrialStatus.PLANNED, TrialStatus.RUNNING)
_STAYS = (TrialStatus.DIVERGED, TrialStatus.STOPPED_EARLY)


def length_dependence(recipe: Recipe) -> str:
    """Return why the learning rate depends on how long the training is; empty if it does not."""
    if recipe.schedule != "constant":
        return f"the {recipe.schedule} schedule spreads the learning rate over the whole budget"
    if recipe.warmup_fraction:
        return f"the warm-up takes {recipe.warmup_fraction:.3g} of the whole budget"
    return ""


def obstacle(before: Budget, after: Budget, recipe: Recipe) -> str:
    """Return why a trial with the budget ``after`` cannot go on from one with ``before``.

    Empty if it can.
    """
    if before.unit != after.unit:
        return f"{before.unit} and {after.unit} are not the same measure"
    if after.amount <= before.amount:
        return "a shorter training is not cut out of a longer one, whose last report came later"
    if after.unit == "seconds":
        return "how many updates a second holds depends on the machine"
    dependence = length_dependence(recipe)
    if dependence:
        return dependence
    if before.report_every != after.report_every:
        return (
            f"reports every {after.report_every} {after.unit} instead of every "
            f"{before.report_every} divide the training otherwise"
        )
    if before.amount % before.report_every:
        return (
            f"the old end at {before.amount} {before.unit} is no multiple of report_every "
            f"{before.report_every}, so the longer training has no report there"
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
        why: why it does not go on from it; empty if it does, or if there is nothing to go on from.
    """

    trial: Trial
    source: TrialRow
    status: TrialStatus | None = None
    checkpoints: str = ""
    why: str = ""

    @property
    def reason(self) -> str:
        """What the record says of its status."""
        if self.status is TrialStatus.PLANNED:
            return f"goes on from {self.source.unit} {self.trial.budget.unit}"
        return self.source.reason

    @property
    def how(self) -> str:
        """What happens to it, in words."""
        if self.status is not TrialStatus.PLANNED:
            return f"{str(self.status).replace('_', ' ')}, as before"
        whole = self.source.status is TrialStatus.FINISHED
        return "finished, now longer" if whole else "unfinished, goes on"


class BudgetHistory:
    """The budgets that a study has had, and what trained with them: all rows of its record, orphans
    included. ``same_rungs`` says whether early stopping is as it was."""

    def __init__(
        self,
        budgets: Iterable[Mapping[str, Any]],
        rows: Mapping[str, TrialRow],
        checkpoints: str,
        *,
        same_rungs: bool,
        accepted: Accepted | None = None,
    ) -> None:
        self._budgets = {budget_of(content) for content in budgets}
        self._rows = rows
        self._checkpoints = checkpoints
        self._same_rungs = same_rungs
        self._accepted = accepted

    def shorter(self, trial: Trial) -> Shorter | None:
        """Find what a planned trial can go on from; None if no other budget trained it."""
        same = []
        for budget in self._budgets - {trial.budget}:
            key = key_of({**trial.parts, "budget": content_hash(budget)}, self._accepted)
            if (row := self._rows.get(key)) is not None:
                same.append((budget, row))
        if not same:
            return None
        same.sort(key=lambda each: (not each[1].orphaned, each[1].unit, each[0].amount))
        usable = [row for budget, row in same if not obstacle(budget, trial.budget, trial.recipe)]
        if not usable:
            budget, row = same[-1]
            return Shorter(trial, row, why=obstacle(budget, trial.budget, trial.recipe))
        source = max(usable, key=lambda row: (row.unit, row.budget))
        if source.unit == 0:
            return Shorter(trial, source)
        if source.status is TrialStatus.STOPPED_EARLY and not self._same_rungs:
            why = "it was stopped early, and early stopping has changed"
            return Shorter(trial, source, why=why)
        if source.status in _STAYS:
            return Shorter(trial, source, source.status)
        if source.status not in _GOES_ON:
            why = f"it had ended as {str(source.status).replace('_', ' ')}"
            return Shorter(trial, source, why=why)
        units = {
            row.key: max(checkpoint_units(self._checkpoints, row.key), default=0) for row in usable
        }
        best = max(units, key=lambda key: (units[key], key == source.key))
        if units[best] == 0 and source.status is TrialStatus.FINISHED:
            return Shorter(trial, source, why="its last checkpoint is gone")
        return Shorter(trial, source, TrialStatus.PLANNED, best)


def checkpoint_units(root: str, key: str) -> Sequence[int]:
    """Return the budget units of a trial's checkpoints under a folder or URI, ascending."""
    from hsweep.training.checkpoints import CheckpointStore

    try:
        return CheckpointStore(root, key, attempt=0).units()
    except (OSError, UserError):
        return ()


def budget_of(content: Mapping[str, Any]) -> Budget:
    """Return a budget from what a study recorded of it."""
    return Budget(
        int(content["amount"]),
        cast(BudgetUnit, content["unit"]),
        int(content.get("report_every", 1)),
    )
