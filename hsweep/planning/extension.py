"""More trials for a study that has run: exactly the trials that its analysis lacks.

An analysis that refuses to answer lists the cells that lack full-budget runs. Here that list
becomes trials: those on record that did not run to their end come first, in the order of their
replicates and never by how good they looked; new seeds and new axis values follow.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from hsweep.design.domain import as_value
from hsweep.design.missing import ASKED, Missing
from hsweep.design.point import Point
from hsweep.design.space import recorded_point
from hsweep.design.sweep import Sweep
from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import UserError
from hsweep.planning.answerable import NO_SEED, takes_no_seed
from hsweep.planning.plan import Plan, Planner
from hsweep.record.manifest import NEW_SEED
from hsweep.record.rows import TrialRow
from hsweep.record.summary import counts_in_words

_TAKEN_UP: Final = {
    TrialStatus.RUNNING: "continued",
    TrialStatus.PLANNED: "started",
    TrialStatus.STOPPED_EARLY: "stopped early, now run to the end",
    TrialStatus.NOT_NEEDED: "not needed before, now started",
    TrialStatus.FAILED: "failed, tried again",
}
"""Which recorded trials can become full-budget runs, first choice first. One that diverged cannot:
the same seed would diverge again."""
_ORDER: Final = list(_TAKEN_UP)
_LOST: Final = (TrialStatus.FAILED, TrialStatus.DIVERGED, TrialStatus.TOO_LARGE)

_Place: TypeAlias = tuple[Point, int, int]
"""The point, the replicate and the budget of a trial."""
_Runs: TypeAlias = list[tuple[int, int, str]]
"""Replicates and budgets of the trials that a point gets, each with the way it is run, in words."""
_Entry: TypeAlias = Mapping[str, Any]
"""A trial of an extension as the manifest has it."""


@dataclass(frozen=True, slots=True)
class Extension:
    """The trials that complete a study's answer.

    Attributes:
        plan: the study's plan with the new trials.
        additions: each trial with the missing runs it is for, and the way it is run, in words.
        problems: why other missing runs cannot be trained.
    """

    plan: Plan
    additions: tuple[tuple[Missing, Trial, str], ...]
    problems: tuple[str, ...]

    @property
    def trials(self) -> list[Trial]:
        return [trial for _, trial, _ in self.additions]

    def lines(self) -> list[str]:
        """Return the runs, and the problems, in words."""
        lines = []
        for runs, group in itertools.groupby(self.additions, key=lambda addition: addition[0]):
            ways = Counter(way for _, _, way in group).items()
            text = ", ".join(f"{number} {way}" for way, number in ways)
            lines.append(f"{runs.label}: {text} ({runs.why})")
        return [*lines, *(f"not run: {problem}" for problem in self.problems)]

    @property
    def cost(self) -> float:
        """Budget units to train, in multiples of one run with the sweep's budget."""
        return sum(trial.units_to_train for trial in self.trials) / self.plan.sweep.budget.amount

    def to_json(self) -> dict[str, Any]:
        return {
            "trials": [
                {
                    "key": trial.key,
                    "point": dict(trial.point),
                    "replicate": trial.replicate,
                    "budget": trial.budget.amount,
                    "how": way,
                }
                for _, trial, way in self.additions
            ],
            "cost": self.cost,
            "problems": list(self.problems),
        }


def plan_extension(
    plan: Plan,
    recorded: Sequence[TrialRow],
    missing_runs: Iterable[Missing],
    added: Collection[str] = (),
) -> Extension:
    """Find trials for the missing runs of every cell; UserError if the study's trials are proposed
    one by one, so that no cell can be filled.

    If a cell has several points (competing settings), each point gets that number of runs, so that
    every cell has the same choice. ``plan`` holds earlier extensions, too, whose trials are the
    keys ``added``: a point of which some have come to nothing gets no more for the same reason.
    """
    if plan.is_adaptive:
        raise UserError(
            f"the trials of {plan.sweep.name!r} are proposed one by one during the search; cells "
            "can be filled in a sweep that lists or draws its points"
        )
    keys = {trial.key for trial in plan.trials}
    rows: dict[Point, list[TrialRow]] = {}
    for row in recorded:
        if row.key in keys:
            rows.setdefault(recorded_point(row.point), []).append(row)
    is_seeded = not takes_no_seed(plan)
    requests: list[tuple[Missing, Point, _Runs]] = []
    problems: list[str] = []
    for missing in missing_runs:
        try:
            points = _points_in(missing, plan.sweep, rows)
        except UserError as error:
            problems.append(f"{missing.label}: {error}")
            continue
        runs_of = _at_own_budget if missing.budget is None else _at_another_budget
        for point in points:
            here = rows.get(point, [])
            runs, problem = runs_of(missing, here, plan.sweep)
            if not is_seeded and any(way == NEW_SEED for *_, way in runs):
                runs, problem = [run for run in runs if run[-1] != NEW_SEED], NO_SEED
            futile = Counter(r.status for r in here if r.key in added and r.status in _LOST)
            if futile and missing.why != ASKED:
                runs, problem = [], f"of runs added before, {counts_in_words([*futile.items()])}"
            requests.append((missing, point, runs))
            problems += [f"{missing.label}: {problem}"] if problem else []
    planner = Planner(plan)
    places = [(point, seed, amount) for _, point, runs in requests for seed, amount, _ in runs]
    trials = _add_places(planner, places)
    additions: dict[str, tuple[Missing, Trial, str]] = {}
    for missing, point, runs in requests:
        planned = {
            trial.key: (missing, trial, way)
            for seed, amount, way in runs
            if (trial := trials.get((point, seed, amount))) is not None
        }
        for key, addition in planned.items():
            additions.setdefault(key, addition)
        if lost := len(runs) - len(planned):
            repeats = f"{lost} trials would repeat others of the study"
            problems.append(f"{missing.label}: {planner.skipped.get(point, repeats)}")
    return Extension(planner.whole_plan(), tuple(additions.values()), tuple(problems))


def carried_over(
    extensions: Sequence[Mapping[str, Any]], plan: Plan, before: Mapping[str, Any]
) -> tuple[Plan, list[dict[str, Any]]]:
    """Carry a study's recorded extensions (as ``Extension.to_json`` wrote them) over to a plan.

    A trial that was added stays if its point is in the sweep's space of now, or was never in the
    space and still has the space's axes: then no edit has taken it out. One of a budget of the
    sweep (``before``, as recorded) has one of now; one of another budget keeps that while the unit
    is the same.

    Returns:
        The plan with the trials that stay, and the extensions with these, by their keys of now.
    """
    points = {trial.point for trial in plan.trials}
    axes = {frozenset(point) for point in points}
    now = plan.sweep.budget
    rungs = {budget.amount for budget in now.rungs}
    replaced = {before["amount"], *before["ladder"]} - rungs

    def staying(entries: Iterable[_Entry]) -> Iterator[_Entry]:
        for entry in entries:
            if entry["budget"] in replaced:
                entry = {**entry, "budget": now.amount}
            elif entry["budget"] not in rungs and before["unit"] != now.unit:
                continue
            is_new = entry["how"] == "new"
            if recorded_point(entry["point"]) in points:
                # Once in the space, it is the space that decides.
                yield {**entry, "how": "in the sweep since"} if is_new else entry
            elif is_new and frozenset(entry["point"]) in axes:
                yield entry

    planner, carried = Planner(plan), []
    for extension in extensions:
        entries = {
            (recorded_point(entry["point"]), int(entry["replicate"]), int(entry["budget"])): entry
            for entry in staying(extension["trials"])
        }
        trials = _add_places(planner, entries)
        stay = [{**entry, "key": trials[at].key} for at, entry in entries.items() if at in trials]
        carried.append({**extension, "trials": stay})
    return planner.whole_plan(), carried


def _add_places(
    planner: Planner, places: Iterable[_Place]
) -> dict[tuple[Mapping[str, Any], int, int], Trial]:
    """Add the trials at some places to a plan, a new seed with all its budgets; return all trials
    of the plan by their places."""
    rungs = {budget.amount for budget in planner.sweep.budget.rungs}
    amounts: dict[tuple[Mapping[str, Any], int], set[int]] = {}
    for trial in planner.trials.values():
        amounts.setdefault((trial.point, trial.replicate), set()).add(trial.budget.amount)
    seeds: dict[tuple[Point, int], None] = {}
    for point, replicate, amount in places:
        if amount not in amounts.get((point, replicate), ()):
            amounts.setdefault((point, replicate), set(rungs)).add(amount)
            seeds[point, replicate] = None
    for point, replicate in seeds:
        planner.plan_point(point, [replicate], amounts[point, replicate])
    return {
        (trial.point, trial.replicate, trial.budget.amount): trial
        for trial in planner.trials.values()
    }


def _at_own_budget(missing: Missing, rows: Sequence[TrialRow], sweep: Sweep) -> tuple[_Runs, str]:
    """Return the runs that a point with these rows gets, and why they are fewer than asked for.

    The cell lacks runs with the sweep's longest budget; the shorter runs that these go on from come
    with them, and a new seed has every budget that other seeds of its point have.
    """
    budget = sweep.budget
    usable = sorted(
        (row for row in rows if row.budget == budget.amount and row.status in _TAKEN_UP),
        key=lambda row: (_ORDER.index(row.status), row.replicate),
    )[: missing.seeds]
    runs: _Runs = []
    for seed in (row.replicate for row in usable):
        of_seed = (row for row in rows if row.replicate == seed and row.budget <= budget.amount)
        longest_first = sorted(of_seed, key=lambda row: -row.budget)
        for row in itertools.takewhile(lambda row: row.status in _TAKEN_UP, longest_first):
            runs.append((seed, row.budget, _TAKEN_UP[row.status]))
    first = max((row.replicate for row in rows), default=-1) + 1
    amounts = sorted({rung.amount for rung in budget.rungs} | {row.budget for row in rows})
    way = NEW_SEED if rows else "new"
    new = range(first, first + missing.seeds - len(usable))
    return [*runs, *((seed, amount, way) for seed in new for amount in amounts)], ""


def _at_another_budget(
    missing: Missing, rows: Sequence[TrialRow], sweep: Sweep
) -> tuple[_Runs, str]:
    """Return the runs of another budget that a point with these rows gets: its first seeds that
    have finished with the sweep's own budget; and why they are fewer than asked for."""
    assert missing.budget is not None
    budget = sweep.budget.of(missing.budget)
    at = {(row.replicate, row.budget): row for row in rows}
    finished_seeds = [
        seed
        for seed, amount in sorted(at)
        if amount == sweep.budget.amount
        and seed >= sweep.num_scouts
        and at[seed, amount].status is TrialStatus.FINISHED
    ][: missing.seeds]
    runs: _Runs = []
    problems = []
    for seed in finished_seeds:
        row = at.get((seed, budget.amount))
        if row is None:
            runs.append((seed, budget.amount, f"at {budget}"))
        elif row.status in _TAKEN_UP:
            runs.append((seed, budget.amount, _TAKEN_UP[row.status]))
        elif row.status is not TrialStatus.FINISHED:
            problems.append(f"seed {seed} at {budget} is {str(row.status).replace('_', ' ')}")
    if len(finished_seeds) < missing.seeds:
        problems.append(f"{missing.seeds - len(finished_seeds)} seeds have no finished trial")
    if not (runs or problems):
        problems.append(f"its seeds are trained to {budget} already")
    return runs, "; ".join(problems)


def _points_in(missing: Missing, sweep: Sweep, recorded: Collection[Point]) -> list[Point]:
    """Return the points of a cell: those on record, else those of the sweep's space; UserError if
    it has none in the cell, or cannot list them."""
    at = {axis: as_value(value) for axis, value in missing.at.items()}
    if points := [point for point in recorded if point.has(at)]:
        return points
    sweep = sweep.with_settings([(axis, [value]) for axis, value in missing.at.items()])
    points = [point for point in sweep.space.points() if point.has(at)]
    if not points:
        raise UserError("the sweep's space has no point there")
    per_cell = Counter(tuple(point.get(axis) for axis in missing.at) for point in recorded)
    if len(points) > max(per_cell.values(), default=len(points)):
        raise UserError(
            f"the sweep's space has {len(points)} points there, more than any cell of the "
            "study: its axes change in step, and no row says how they go on"
        )
    return points
