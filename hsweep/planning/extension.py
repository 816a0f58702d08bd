"""More trials for a study that has run: those its analysis says are missing, and no others.

An analysis that refuses to answer lists the cells that lack full-budget runs. Here that list
becomes trials: those on record that did not run to their end come first, in the order of their
replicates and never by how good they looked; new seeds and new axis values follow.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hsweep.design.domain import as_value
from hsweep.design.question import Missing
from hsweep.design.space import Point, recorded_point
from hsweep.design.sweep import Sweep
from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import UserError
from hsweep.planning.plan import Plan, Planner
from hsweep.record.manifest import NEW_SEED
from hsweep.record.rows import TrialRow

_TAKEN_UP: Final = {
    TrialStatus.RUNNING: "continued",
    TrialStatus.PLANNED: "started",
    TrialStatus.STOPPED_EARLY: "stopped early, now run to the end",
    TrialStatus.NOT_NEEDED: "not needed before, now started",
    TrialStatus.FAILED: "failed, tried again",
}
"""Which recorded trials can become full-budget runs, first choice first. One that diverged cannot:
the same seed would diverge again."""


@dataclass(frozen=True, slots=True)
class Addition:
    """A trial that a cell is given: how, in words, and whether the record has it already."""

    cell: Missing
    trial: Trial
    how: str
    is_recorded: bool


@dataclass(frozen=True, slots=True)
class Extension:
    """What is run so that a study can be answered, and the reasons for what cannot be run.

    ``plan`` is the study's with the new trials.
    """

    plan: Plan
    wanted: tuple[Missing, ...]
    additions: tuple[Addition, ...]
    problems: tuple[str, ...]

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(addition.trial.key for addition in self.additions)

    def lines(self) -> list[str]:
        lines = []
        for wanted in self.wanted:
            ways = Counter(each.how for each in self.additions if each.cell is wanted)
            if ways:
                how = ", ".join(f"{number} {way}" for way, number in ways.items())
                lines.append(f"{wanted.label}: {how} ({wanted.why})")
        return [*lines, *(f"not run: {problem}" for problem in self.problems)]

    @property
    def cost(self) -> float:
        """Budget units to train, over those of one run of the sweep's budget."""
        trials = [each.trial for each in self.additions]
        return sum(trial.units_to_train for trial in trials) / self.plan.sweep.budget.amount

    def to_json(self) -> dict[str, Any]:
        return {
            "wanted": [
                {
                    "at": dict(cell.at),
                    "trials": cell.seeds,
                    "budget": cell.budget,
                    "why": cell.why,
                }
                for cell in self.wanted
            ],
            "trials": [
                {
                    "key": each.trial.key,
                    "point": dict(each.trial.point),
                    "replicate": each.trial.replicate,
                    "budget": each.trial.budget.amount,
                    "how": each.how,
                }
                for each in self.additions
            ],
            "cost": self.cost,
            "problems": list(self.problems),
        }


def plan_extension(
    plan: Plan, recorded: Sequence[TrialRow], wanted: Iterable[Missing]
) -> Extension:
    """Find the trials that give every wanted cell its runs.

    Where several points lie in a cell (settings that compete in it), each is given as many runs:
    the other cells had the choice among all of them. ``plan`` holds earlier extensions, too.

    Raises:
        UserError: the study's trials are proposed one by one, so no cell can be filled.
    """
    if plan.is_adaptive:
        raise UserError(
            f"the trials of {plan.sweep.name!r} are proposed one by one during the search; cells "
            "can be filled in a sweep that lists or draws its points"
        )
    wanted = tuple(wanted)
    planner = Planner.following(plan)
    trials = {trial.key: trial for trial in plan.trials}
    rows: dict[Point, list[TrialRow]] = {}
    for row in recorded:
        if row.key in trials:
            rows.setdefault(recorded_point(row.point), []).append(row)
    additions: list[Addition] = []
    problems: list[str] = []
    for cell in wanted:
        try:
            points = _points_in(cell, plan.sweep, rows)
        except UserError as error:
            problems.append(f"{cell.label}: {error}")
            continue
        give = _fill if cell.budget is None else _at_another_budget
        for point in points:
            found, problem = give(cell, point, rows.get(point, []), trials, planner)
            additions += found
            if problem:
                problems.append(f"{cell.label}: {problem}")
    added = [each.trial for each in additions if not each.is_recorded]
    return Extension(_grown(plan, planner, added), wanted, tuple(additions), tuple(problems))


def with_extensions(plan: Plan, extensions: Iterable[Mapping[str, Any]]) -> Plan:
    """Return the plan of a sweep with the trials of a study's recorded extensions (as
    ``Extension.to_json`` wrote them), oldest first."""
    planner = Planner.following(plan)
    rungs = {budget.amount for budget in plan.sweep.budget.rungs}
    amounts: dict[tuple[Mapping[str, Any], int], set[int]] = {}
    for trial in plan.trials:
        amounts.setdefault((trial.point, trial.replicate), set()).add(trial.budget.amount)
    added: list[Trial] = []
    for extension in extensions:
        lacking: dict[tuple[Point, int], None] = {}
        for entry in extension["trials"]:
            place = recorded_point(entry["point"]), int(entry["replicate"])
            if entry["budget"] not in amounts.get(place, ()):
                amounts.setdefault(place, set(rungs)).add(entry["budget"])
                lacking[place] = None
        for point, replicate in lacking:
            added += planner.plan_point(point, [replicate], amounts[point, replicate])
    return _grown(plan, planner, added)


def carried_over(
    extensions: Sequence[Mapping[str, Any]], plan: Plan, before: Mapping[str, Any]
) -> tuple[Plan, list[dict[str, Any]]]:
    """Carry a study's recorded extensions over to the plan of an edited sweep.

    A trial that was added stays if its point is in the edited space, or was never in the space and
    still has the space's axes: then no edit has taken it out. One of a budget of the sweep
    (``before``, as recorded) has one of now; one of another budget keeps that while the unit is the
    same.

    Returns:
        The plan with the trials that stay, and the extensions with these, by their keys of now.
    """
    points = {trial.point for trial in plan.trials}
    axes = {frozenset(point) for point in points}
    now = plan.sweep.budget
    rungs = {budget.amount for budget in now.rungs}
    own = {before["amount"], *before["ladder"]} - rungs

    def carried(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        is_new = entry["how"] == "new"
        if entry["budget"] in own:
            entry = {**entry, "budget": now.amount}
        elif entry["budget"] not in rungs and before["unit"] != now.unit:
            return
        if recorded_point(entry["point"]) in points:
            # Once in the space, it is the space that decides.
            yield {**entry, "how": "in the sweep since"} if is_new else entry
        elif is_new and frozenset(entry["point"]) in axes:
            yield entry

    kept = [[new for old in each["trials"] for new in carried(old)] for each in extensions]
    grown = with_extensions(plan, [{"trials": entries} for entries in kept])
    keys = {(t.point, t.replicate, t.budget.amount): t.key for t in grown.trials}

    def with_keys(entries: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for entry in entries:
            place = recorded_point(entry["point"]), int(entry["replicate"]), entry["budget"]
            if key := keys.get(place):
                yield {**entry, "key": key}

    return grown, [
        {**extension, "trials": [*with_keys(entries)]}
        for extension, entries in zip(extensions, kept, strict=True)
    ]


def _grown(plan: Plan, planner: Planner, added: Iterable[Trial]) -> Plan:
    problems = dict.fromkeys([*plan.data_problems, *planner.data_problems])
    return replace(plan, trials=(*plan.trials, *added), data_problems=tuple(problems))


def _fill(
    cell: Missing,
    point: Point,
    rows: Sequence[TrialRow],
    trials: Mapping[str, Trial],
    planner: Planner,
) -> tuple[list[Addition], str]:
    """Return the trials one point is given, and why there are fewer than asked for.

    Those with the sweep's longest budget are asked for; the shorter ones that they go on from come
    with them, and a new seed has every budget that others of its point have.
    """
    order, longest = list(_TAKEN_UP), planner.sweep.budget.amount
    by_key = {row.key: row for row in rows if row.status in _TAKEN_UP}
    usable = sorted(
        (row for row in by_key.values() if row.budget == longest),
        key=lambda row: (order.index(row.status), row.replicate),
    )[: cell.seeds]
    found = []
    for row in usable:
        key = row.key
        while key in by_key:
            how = _TAKEN_UP[by_key[key].status]
            found.append(Addition(cell, trials[key], how, is_recorded=True))
            key = trials[key].shorter
    lacking = cell.seeds - len(usable)
    if not lacking:
        return found, ""
    first = max((row.replicate for row in rows), default=-1) + 1
    amounts = {budget.amount for budget in planner.sweep.budget.rungs} | {r.budget for r in rows}
    how = NEW_SEED if rows else "new"
    new, problem = _planned(point, range(first, first + lacking), amounts, planner)
    found += [Addition(cell, trial, how, is_recorded=False) for trial in new]
    if not problem and len(new) < lacking * len(amounts):
        problem = f"{lacking - len(new) // len(amounts)} trials would repeat others of the study"
    return found, problem


def _at_another_budget(
    cell: Missing,
    point: Point,
    rows: Sequence[TrialRow],
    trials: Mapping[str, Trial],
    planner: Planner,
) -> tuple[list[Addition], str]:
    """Return the trials of another budget that one point is given, those of its first seeds that
    have finished with the sweep's own, and why there are fewer than asked for."""
    assert cell.budget is not None
    sweep = planner.sweep
    seeds: dict[int, dict[int, TrialRow]] = {}
    for row in sorted(rows, key=lambda row: row.replicate):
        seeds.setdefault(row.replicate, {})[row.budget] = row
    ready = [
        seed
        for seed, own in seeds.items()
        if seed >= sweep.num_scouts
        and (whole := own.get(sweep.budget.amount)) is not None
        and whole.status is TrialStatus.FINISHED
    ][: cell.seeds]
    found, problems = [], []
    for seed in ready:
        known = seeds[seed].get(cell.budget)
        if known is None:
            new, problem = _planned(point, [seed], {*seeds[seed], cell.budget}, planner)
            how = f"at {sweep.budget.of(cell.budget)}"
            found += [Addition(cell, trial, how, is_recorded=False) for trial in new]
            problems += [problem] * bool(problem)
        elif known.status in _TAKEN_UP:
            how = _TAKEN_UP[known.status]
            found.append(Addition(cell, trials[known.key], how, is_recorded=True))
        elif known.status is not TrialStatus.FINISHED:
            ended = str(known.status).replace("_", " ")
            problems.append(f"seed {seed} at {sweep.budget.of(cell.budget)} is {ended}")
    if len(ready) < cell.seeds:
        problems.append(f"{cell.seeds - len(ready)} seeds have no finished trial")
    return found, "; ".join(problems)


def _planned(
    point: Point, replicates: Iterable[int], amounts: Collection[int], planner: Planner
) -> tuple[list[Trial], str]:
    """Return new trials of a point, and why it cannot be run."""
    skipped = len(planner.skipped)
    new = planner.plan_point(point, replicates, amounts)
    return new, planner.skipped[-1].reason if len(planner.skipped) > skipped else ""


def _points_in(cell: Missing, sweep: Sweep, recorded: Collection[Point]) -> list[Point]:
    """Return the points of a cell: those on record, else those of the sweep's space.

    Raises:
        UserError: the space has none there, or does not say which.
    """
    at = {axis: as_value(value) for axis, value in cell.at.items()}
    if known := [point for point in recorded if point.has(at)]:
        return known
    for axis, value in cell.at.items():
        sweep = sweep.with_setting(axis, [value])
    points = [point for point in sweep.space.points() if point.has(at)]
    if not points:
        raise UserError("the sweep's space has no point there")
    per_cell = Counter(tuple(point.get(axis) for axis in cell.at) for point in recorded)
    if len(points) > max(per_cell.values(), default=len(points)):
        raise UserError(
            f"the sweep's space has {len(points)} points there, more than any cell of the "
            "study: its axes change in step, and no row says how they go on"
        )
    return points
