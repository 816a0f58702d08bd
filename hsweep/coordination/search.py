"""Adaptive search by Optuna's ask and tell.

Optuna gets a trial that was stopped early as pruned at its rung, and a diverged or failed trial as
failed: the sampler would take a value of a small budget for a final value, and a trial without an
end for a running trial. A point is told once, by the mean over its replicates. Proposals are part
of the study's record, so a resumed search knows everything that the interrupted search knew.
"""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import optuna
from optuna.trial import TrialState

from hsweep.coordination.recording import record_trials
from hsweep.design.space import Point
from hsweep.design.sweep import Sweep
from hsweep.design.trial import Trial, TrialStatus, cost_columns
from hsweep.errors import UserError
from hsweep.planning.plan import Planner, baseline_proposals
from hsweep.record.journal import Journal
from hsweep.record.summary import PROPOSALS, SEARCH_END

_MAX_REJECTIONS: Final = 1_000


@dataclass(slots=True)
class _Proposal:
    """A proposed point: its trials and their outcomes."""

    suggestion: optuna.Trial
    open_keys: set[str]
    finished: list[list[float]] = field(default_factory=list)
    stopped: list[tuple[int, float]] = field(default_factory=list)


class OptunaProposer:
    """Proposes points of an Optuna study, and tells Optuna their outcomes.

    Args:
        reuse: gives recorded trials the results of the same trials in other studies.

    Attributes:
        study: Optuna's, in memory.
        known_trials: trials of proposals made by earlier runs of the study.

    Raises:
        UserError: an axis whose values Optuna cannot hold.
    """

    def __init__(
        self,
        sweep: Sweep,
        planner: Planner,
        journal: Journal,
        seed: int,
        reuse: Callable[[Sequence[Trial]], object] = lambda _trials: None,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        objectives = [(sweep.metric, sweep.direction), *sweep.search.also]
        self._sweep, self._planner, self._journal = sweep, planner, journal
        self._objectives, self._reuse = objectives, reuse
        try:
            self._space = sweep.space.to_optuna()
        except ValueError as error:
            raise UserError(f"Optuna cannot search this space: {error}") from error
        self.study = optuna.create_study(
            sampler=optuna.samplers.TPESampler(seed=seed % 2**32),
            directions=["minimize" if goal == "min" else "maximize" for _, goal in objectives],
        )
        self._by_key: dict[str, _Proposal] = {}
        self._num_proposed = 0
        self._is_over = False
        self.known_trials: list[Trial] = []
        self._recall()
        # The reason that ended an earlier run's search may not hold for this run.
        if journal.meta(SEARCH_END) is not None:
            journal.set_metas({SEARCH_END: None})
        # The baseline is proposed first.
        first = [parameters for _, parameters in baseline_proposals(sweep)]
        self._first = first[self._num_proposed :]

    @property
    def num_to_come(self) -> int:
        assert self._sweep.search.num_points is not None
        points = 0 if self._is_over else self._sweep.search.num_points - self._num_proposed
        return max(0, points) * self._sweep.replicates

    def propose(self) -> list[Trial]:
        """Return the trials of the next point, after recording them.

        The list is empty once all points are proposed, or once so many proposals in a row were
        refused that the space seems to hold no further point; the record then gives that reason.
        """
        refusals, reason = 0, ""
        while self.num_to_come:
            if refusals >= _MAX_REJECTIONS:
                self._give_up(refusals, reason)
                return []
            suggestion = self._ask(self._first.pop(0) if self._first else None)
            decoded = self._sweep.space.decode(suggestion.params)
            trials: list[Trial] = []
            if decoded is None:
                reason = "excluded by a where(...) of the space"
            else:
                point = Point(decoded)
                trials = self._planner.plan_point(point)
                reason = self._planner.skipped.get(point, "the same as a point before")
            if not trials:
                refusals += 1
                # Nothing to learn from again.
                self.study.tell(suggestion, state=TrialState.FAIL)
                continue
            record = {"parameters": suggestion.params, "point": decoded}
            self._journal.set_meta(f"{PROPOSALS}{self._num_proposed:06d}", json.dumps(record))
            record_trials(self._journal, trials)
            self._reuse(trials)
            self._enter(suggestion, trials)
            return trials
        return []

    def _ask(self, parameters: Mapping[str, Any] | None = None) -> optuna.Trial:
        if parameters is not None:
            self.study.enqueue_trial(dict(parameters))
        return self.study.ask(self._space)

    def _give_up(self, refusals: int, reason: str) -> None:
        self._is_over = True
        self._journal.set_meta(
            SEARCH_END,
            f"the search ended with {self._num_proposed} of {self._sweep.search.num_points} "
            f"points: {refusals:,} proposals in a row were refused (the last one: {reason}); widen "
            "the space, or lower num_points",
        )

    def tell(self, trial: Trial, status: TrialStatus, unit: int, value: float | None) -> None:
        """Note the end of a trial; Optuna gets its point once all replicates have ended."""
        proposal = self._by_key.pop(trial.key, None)
        if proposal is None:
            return
        proposal.open_keys.discard(trial.key)
        if status is TrialStatus.FINISHED and value is not None:
            proposal.finished.append(
                [self._objective(trial, name, value) for name, _ in self._objectives]
            )
        elif status is TrialStatus.STOPPED_EARLY and value is not None:
            proposal.stopped.append((unit, value))
        if proposal.open_keys:
            return
        means = [statistics.fmean(column) for column in zip(*proposal.finished, strict=True)]
        if means and all(map(math.isfinite, means)):
            self.study.tell(proposal.suggestion, means)
        elif proposal.stopped and not means:
            last = max(reached for reached, _ in proposal.stopped)
            at_rung = [rung_value for reached, rung_value in proposal.stopped if reached == last]
            proposal.suggestion.report(statistics.fmean(at_rung), step=last)
            self.study.tell(proposal.suggestion, state=TrialState.PRUNED)
        else:
            self.study.tell(proposal.suggestion, state=TrialState.FAIL)

    def _objective(self, trial: Trial, name: str, value: float) -> float:
        if name == self._sweep.metric:
            return value
        costs = cost_columns(trial)
        if name in costs:
            return float(costs[name])
        for entry in reversed(list(self._journal.reports([trial.key]))):
            if name in entry.payload["metrics"]:
                value = entry.payload["metrics"][name]
                return math.nan if value is None else float(value)
        return math.nan

    def _enter(self, suggestion: optuna.Trial, trials: list[Trial]) -> None:
        proposal = _Proposal(suggestion, {trial.key for trial in trials})
        self._by_key.update(dict.fromkeys(proposal.open_keys, proposal))
        self._num_proposed += 1

    def _recall(self) -> None:
        """Replay the proposals of earlier runs and how their trials ended."""
        rows = {row.key: row for row in self._journal.trials()}
        number = 0
        while (text := self._journal.meta(f"{PROPOSALS}{number:06d}")) is not None:
            record = json.loads(text)
            point = Point({name: _plain(value) for name, value in record["point"].items()})
            trials = self._planner.plan_point(point)
            parameters = {name: _plain(value) for name, value in record["parameters"].items()}
            self._enter(self._ask(parameters), trials)
            self.known_trials.extend(trials)
            for trial in trials:
                row = rows.get(trial.key)
                if row is not None and row.status.is_final:
                    self.tell(trial, row.status, row.unit, row.metrics.get(self._sweep.metric))
            number += 1


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, list) else value
