"""Removes final weights that a study does not keep, once a trial's end is on record."""

import contextlib
from collections.abc import Iterable
from typing import Final

from hsweep.design.best_trials import BestTrials
from hsweep.design.sweep import Sweep
from hsweep.design.trial import TrialStatus
from hsweep.planning.content import describe
from hsweep.record.rows import TrialRow
from hsweep.record.weights import WeightsFolder

_ALL: Final = "last"


class Keeping:
    """Removes the weights that a study does not keep (see ``Sweep.keep``).

    What stays follows from the record's values alone, in whatever order trials end and however
    often the study is interrupted. Weights of trials that are not the study's any more are left.

    Args:
        sweep: with a ``keep`` other than ``none``.
        root: folder or URI of the weights.

    Raises:
        UserError: a URI that cannot be used.
    """

    def __init__(self, sweep: Sweep, root: str) -> None:
        self.root = root
        self._folder = WeightsFolder(root)
        self._keeps_all = sweep.keep == _ALL
        self._metric = sweep.metric
        self._longest = sweep.budget.amount
        self._best = BestTrials(sweep.direction, describe(sweep.question))
        self._attempts: dict[str, int] = {}

    def recall(self, rows: Iterable[TrialRow]) -> None:
        """Add trials that have finished before this run, and remove their superfluous weights."""
        for row in rows:
            self._add(row)
        # What cannot be removed costs only space.
        with contextlib.suppress(OSError):
            for key, attempt in self._folder.sizes():
                finished = self._attempts.get(key)
                is_kept = attempt == finished and (self._keeps_all or key in self._best.keys)
                if finished is not None and not is_kept:
                    self._folder.remove((key, attempt))

    def ended(self, row: TrialRow) -> None:
        """Note that a trial has ended, and remove the weights that are superfluous now."""
        if row.status is TrialStatus.FINISHED:
            for key in self._add(row):
                if not self._keeps_all:
                    self._folder.remove((key, self._attempts[key]))

    def _add(self, row: TrialRow) -> set[str]:
        self._attempts[row.key] = row.attempt
        if row.budget != self._longest:
            return {row.key}
        value = row.metrics.get(self._metric)
        return self._best.add(row.key, row.ordinal, row.stratum, row.point, value)
