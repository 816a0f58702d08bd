"""Adaptive search by Optuna's ask and tell.

Optuna gets a trial that was stopped early as pruned at its rung, and a diverged or failed trial as
failed: the sampler would take a value of a small budget for a final value, and a trial without an
end for a running trial. A point is told once, by the mean over its replicates. Proposals are part
of the study's record, each with what was told before it, so a search that goes on asks and tells
the same in the same order: then a sampler's random numbers stand where they stood.
"""

import contextlib
import json
import math
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import optuna
from optuna.trial import TrialState

from hsweep.coordination.recording import record_trials
from hsweep.design.labels import listed
from hsweep.design.point import Point
from hsweep.design.scales import Goal
from hsweep.design.space import recorded_point
from hsweep.design.sweep import Sweep
from hsweep.design.trial import Trial, TrialStatus, cost_columns
from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.planning.plan import Planner
from hsweep.record.journal import Journal
from hsweep.record.journal_reader import JournalReader
from hsweep.record.rows import TrialRow
from hsweep.record.study import StudyFolder
from hsweep.record.summary import EARLIER, PROPOSALS, SEARCH_END

_MAX_REJECTIONS: Final = 1_000
_PATIENCE: Final = 20
"""Proposals of the sampler that may be refused in a row before points are drawn at random."""


@dataclass(slots=True)
class _Proposal:
    """A proposed point: its trials and their outcomes."""

    number: int
    suggestion: optuna.Trial
    trials: list[Trial]
    open_keys: set[str]
    finished: list[list[float]] = field(default_factory=list)
    stopped: list[tuple[int, float]] = field(default_factory=list)


class OptunaProposer:
    """Proposes points of an Optuna study, and tells Optuna their outcomes.

    Args:
        reuse: gives recorded trials the results of the same trials in other studies.
        home: where the study is that the search starts from.

    Attributes:
        study: Optuna's, in memory.
        known_trials: trials of proposals made by earlier runs of the study.

    Raises:
        UserError: a sampler that cannot be made, or a study that the search cannot start from.
    """

    def __init__(
        self,
        sweep: Sweep,
        planner: Planner,
        journal: Journal,
        seed: int,
        reuse: Callable[[Sequence[Trial]], object] = lambda _trials: None,
        home: Home | None = None,
    ) -> None:
        self._sweep, self._planner, self._journal, self._seed = sweep, planner, journal, seed
        self._objectives, self._reuse = _objectives(sweep), reuse
        self._ranges = sweep.space.to_optuna()
        self.study = sweep.search.new_study(seed, [goal for _, goal in self._objectives])
        self._by_key: dict[str, _Proposal] = {}
        self._proposals: list[_Proposal] = []
        self._told: list[int] = []
        self._is_over = False
        # The baseline is proposed first.
        question = sweep.question
        self._first = [] if question is None else question.proposals(sweep.space)
        if sweep.search.start_from and home is not None:
            self._start(home)
        self._recall()
        # The reason that ended an earlier run's search may not hold for this run.
        if journal.meta(SEARCH_END) is not None:
            journal.set_metas({SEARCH_END: None})

    @property
    def known_trials(self) -> list[Trial]:
        return [trial for proposal in self._proposals for trial in proposal.trials]

    @property
    def num_to_come(self) -> int:
        assert self._sweep.search.num_points is not None
        points = 0 if self._is_over else self._sweep.search.num_points - len(self._proposals)
        return max(0, points) * self._sweep.replicates

    def propose(self) -> list[Trial]:
        """Return the trials of the next point, after recording them.

        The list is empty once all points are proposed, or once the space seems to hold no further
        one; the record then says so.
        """
        if not self.num_to_come:
            return []
        drawn = self._draw()
        if drawn is None:
            self._is_over = True
            self._journal.set_meta(SEARCH_END, self._end)
            return []
        suggestion, trials = drawn
        record = {"point": dict(trials[0].point), "told": self._told}
        name = f"{PROPOSALS}{len(self._proposals):06d}"
        self._journal.set_meta(name, json.dumps(record))
        record_trials(self._journal, trials)
        self._reuse(trials)
        self._enter(suggestion, trials)
        return trials

    def _draw(self) -> tuple[optuna.Trial, list[Trial]] | None:
        """Return a point that was not proposed yet: the baseline, one of the sampler's, or, where
        these are refused time and again, one at random; None if there seems to be none."""
        seen = {trial.point for trial in self.known_trials} | {*self._planner.skipped}
        first = [self._values(point) for point in self._first if point not in seen]
        for values in (*first, *[None] * _PATIENCE):
            suggestion = self._ask(values)
            point = self._sweep.space.from_optuna(suggestion.params)
            if point is not None and (trials := self._planner.plan_point(point)):
                return suggestion, trials
            self._refuse(suggestion, point)
        seed = self._seed + len(self._proposals)
        for point in self._sweep.space.sample(len(seen) + _MAX_REJECTIONS, seed):
            if point not in seen and (trials := self._planner.plan_point(point)):
                return self._ask(self._values(point)), trials
        why = "no other was found"
        if reasons := [*self._planner.skipped.values()]:
            why += f" that can be trained (the last one: {reasons[-1]})"
        self._end = (
            f"the search ended with {len(self._proposals)} of {self._sweep.search.num_points} "
            f"points: {why}; widen the space, or lower num_points"
        )
        return None

    def _ask(self, values: Mapping[str, Any] | None) -> optuna.Trial:
        if values:
            self.study.enqueue_trial(dict(values))
        # Samplers warn of constraints, say, that CMA-ES makes no use of.
        with warnings.catch_warnings(action="ignore"):
            return self.study.ask(self._ranges)

    def _values(self, point: Point) -> dict[str, Any]:
        return self._sweep.space.optuna_values(point)

    def _refuse(self, suggestion: optuna.Trial, point: Point | None) -> None:
        """Tell a proposal that is not trained. One beyond the constraint counts as bad as the worst
        result so far: of a failed trial samplers learn nothing, and propose its neighbours."""
        excess = None if point is None else self._planner.excess.get(point)
        if excess is None:
            self._tell(suggestion, TrialState.FAIL, excess)
            return
        known = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        worse = [max if goal == "min" else min for _, goal in self._objectives]
        columns = zip(*(trial.values for trial in known), strict=True)
        worst = [of(column) for of, column in zip(worse, columns, strict=False)]
        self._tell(suggestion, worst or TrialState.PRUNED, excess)

    def _tell(
        self, suggestion: optuna.Trial, end: Sequence[float] | TrialState, excess: float | None
    ) -> None:
        """Tell the values of a trial, or in which state it ended without any."""
        if self._sweep.search.constraint is not None and excess is not None:
            suggestion.set_constraint("excess", excess)
        values, state = (None, end) if isinstance(end, TrialState) else (end, None)
        # A sampler that has proposed all it has then stops the loop of study.optimize().
        with warnings.catch_warnings(action="ignore"), contextlib.suppress(RuntimeError):
            self.study.tell(suggestion, values, state=state)

    def tell(self, trial: Trial, status: TrialStatus, unit: int, value: float | None) -> None:
        """Note the end of a trial; Optuna gets its point once all replicates have ended."""
        proposal = self._by_key.pop(trial.key, None)
        if proposal is None:
            return
        proposal.open_keys.discard(trial.key)
        if status is TrialStatus.FINISHED and value is not None:
            proposal.finished.append(
                _values_of(self._objectives, self._journal, self._journal.rows[trial.key])
            )
        elif status is TrialStatus.STOPPED_EARLY and value is not None:
            proposal.stopped.append((unit, value))
        if proposal.open_keys:
            return
        self._told.append(proposal.number)
        excess = self._sweep.search.excess(cost_columns(trial))
        means = [statistics.fmean(column) for column in zip(*proposal.finished, strict=True)]
        if means and all(map(math.isfinite, means)):
            self._tell(proposal.suggestion, means, excess)
        elif proposal.stopped and not means:
            last = max(reached for reached, _ in proposal.stopped)
            at_rung = [rung_value for reached, rung_value in proposal.stopped if reached == last]
            proposal.suggestion.report(statistics.fmean(at_rung), step=last)
            self._tell(proposal.suggestion, TrialState.PRUNED, excess)
        else:
            self._tell(proposal.suggestion, TrialState.FAIL, excess)

    def _enter(self, suggestion: optuna.Trial, trials: list[Trial]) -> None:
        keys = {trial.key for trial in trials}
        proposal = _Proposal(len(self._proposals), suggestion, trials, keys)
        self._by_key.update(dict.fromkeys(keys, proposal))
        self._proposals.append(proposal)
        self._told = []

    def _recall(self) -> None:
        """Ask again for the proposals of earlier runs, and tell how their trials ended, in the same
        order."""
        rows = {row.key: row for row in self._journal.trials()}
        repeats = True
        while text := self._journal.meta(f"{PROPOSALS}{len(self._proposals):06d}"):
            record = json.loads(text)
            for number in record["told"]:
                self._tell_again(self._proposals[number], rows)
            point = recorded_point(record["point"])
            drawn = self._draw() if repeats else None
            if drawn is None or drawn[1][0].point != point:
                # With another version of Optuna, say, or after an edit of the search.
                repeats = False
                if drawn is not None:
                    self._tell(drawn[0], TrialState.FAIL, None)
                    for trial in drawn[1]:
                        del self._planner.trials[trial.key]
                drawn = self._ask(self._values(point)), self._planner.plan_point(point)
            self._enter(*drawn)
        for proposal in self._proposals:
            self._tell_again(proposal, rows)

    def _tell_again(self, proposal: _Proposal, rows: Mapping[str, TrialRow]) -> None:
        for trial in proposal.trials:
            row = rows.get(trial.key)
            if row is not None and row.status.is_final:
                self.tell(trial, row.status, row.unit, row.metrics.get(self._sweep.metric))

    def _start(self, home: Home) -> None:
        """Tell the results of the study that the search starts from, as they were then."""
        name = f"{EARLIER}{self._sweep.search.start_from}"
        text = self._journal.meta(name)
        if text is None:
            text = json.dumps(earlier_results(home, self._sweep))
            self._journal.set_meta(name, text)
        for result in json.loads(text):
            # Some samplers know a trial by its generation, which it gets when it is asked for.
            asked = self._ask(self._values(recorded_point(result["point"])))
            self._tell(asked, result["values"], result["excess"])


def earlier_results(home: Home, sweep: Sweep) -> list[dict[str, Any]]:
    """Return what is known of the points of a planned sweep from the study that its search starts
    from: each point, the mean of each objective over its seeds, and its excess of the constraint.

    Raises:
        UserError: there is no such study, or none of its trials says anything about this search.
    """
    study, results = StudyFolder.open(home, sweep.search.start_from), []
    there = (study.manifest.metric, study.manifest.goal, study.manifest.budget["unit"])
    here = (sweep.metric, sweep.direction, sweep.budget.unit)
    if there != here:
        raise UserError(
            f"the search cannot start from the study {study.name!r}: its metric, goal and unit of "
            f"the budget are {listed(there)}, and here they are {listed(here)}"
        )
    rows: dict[Point, list[TrialRow]] = {}
    with study.journal() as journal:
        for row in journal.trials():
            if row.status is TrialStatus.FINISHED and row.budget == sweep.budget.amount:
                rows.setdefault(recorded_point(row.point), []).append(row)
        for point, of_point in rows.items():
            measured = [_values_of(_objectives(sweep), journal, row) for row in of_point]
            means = [statistics.fmean(column) for column in zip(*measured, strict=True)]
            if sweep.space.optuna_values(point) and all(map(math.isfinite, means)):
                excess = sweep.search.excess(of_point[0].counts)
                results.append({"point": dict(point), "values": means, "excess": excess})
    if not results:
        raise UserError(
            f"the search cannot start from the study {study.name!r}: none of its finished trials "
            f"has the budget {sweep.budget.amount} {sweep.budget.unit} and the objectives of this "
            "sweep, and lies in its space"
        )
    return results


def _objectives(sweep: Sweep) -> list[tuple[str, Goal]]:
    return [(sweep.metric, sweep.direction), *sweep.search.also]


def _values_of(
    objectives: Sequence[tuple[str, Goal]], journal: JournalReader, row: TrialRow
) -> list[float]:
    """Return the objectives of a finished trial; NaN for one that was not measured."""
    known: dict[str, float | None] = {**row.metrics, **row.counts}
    if any(name not in known for name, _ in objectives):
        for entry in journal.reports([row.key]):
            known = {**entry.payload["metrics"], **known}
    values = [known.get(name) for name, _ in objectives]
    return [math.nan if value is None else float(value) for value in values]
