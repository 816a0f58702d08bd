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
    TrialStatus.FAILED: "failed, tried again",
}
"""Which recorded trials can become full-budget runs, first choice first. One that diverged cannot:
the same seed would diverge again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Full-budget runs that an analysis asks for in one cell, given by its axis values, and why."""

    at: Mapping[str, Any]
    trials: int
    why: str

    @property
    def label(self) -> str:
        return " ".join(
            f"{axis}={f'{value:g}' if isinstance(value, float) else value}"
            for axis, value in self.at.items()
        )


@dataclass(frozen=True, slots=True)
class Addition:
    """A trial that a cell is given: how, in words, and whether the record has it already."""

    cell: str
    trial: Trial
    how: str
    is_recorded: bool


@dataclass(frozen=True, slots=True)
class Extension:
    """What is run so that a study can be answered, and the reasons for what cannot be run.

    ``plan`` is the study's with the new trials.
    """

    plan: Plan
    wanted: tuple[Wanted, ...]
    additions: tuple[Addition, ...]
    problems: tuple[str, ...]

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(addition.trial.key for addition in self.additions)

    def lines(self) -> list[str]:
        lines = []
        for wanted in self.wanted:
            ways = Counter(each.how for each in self.additions if each.cell == wanted.label)
            if ways:
                how = ", ".join(f"{number} {way}" for way, number in ways.items())
                lines.append(f"{wanted.label}: {how} ({wanted.why})")
        return [*lines, *(f"not run: {problem}" for problem in self.problems)]

    def to_json(self) -> dict[str, Any]:
        return {
            "wanted": [
                {"at": dict(cell.at), "trials": cell.trials, "why": cell.why}
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
            "problems": list(self.problems),
        }


def plan_extension(plan: Plan, recorded: Sequence[TrialRow], wanted: Iterable[Wanted]) -> Extension:
    """Find the trials that give every wanted cell its full-budget runs.

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
        rows.setdefault(recorded_point(row.point), []).append(row)
    additions: list[Addition] = []
    problems: list[str] = []
    for cell in wanted:
        try:
            points = _points_in(cell, plan.sweep, rows)
        except UserError as error:
            problems.append(f"{cell.label}: {error}")
            continue
        for point in points:
            found, problem = _fill(cell, point, rows.get(point, []), trials, planner)
            additions += found
            if problem:
                problems.append(f"{cell.label}: {problem}")
    added = [each.trial for each in additions if not each.is_recorded]
    return Extension(_grown(plan, planner, added), wanted, tuple(additions), tuple(problems))


def with_extensions(plan: Plan, extensions: Iterable[Mapping[str, Any]]) -> Plan:
    """Return the plan of a sweep with the trials of a study's recorded extensions (as
    ``Extension.to_json`` wrote them), oldest first."""
    planner = Planner.following(plan)
    known = {trial.key for trial in plan.trials}
    added: list[Trial] = []
    for entry in (each for extension in extensions for each in extension["trials"]):
        if entry["key"] not in known:
            point = recorded_point(entry["point"])
            added += planner.plan_point(point, replicates=[int(entry["replicate"])])
    return _grown(plan, planner, added)


def carried_over(
    extensions: Sequence[Mapping[str, Any]], plan: Plan
) -> tuple[Plan, list[dict[str, Any]]]:
    """Carry a study's recorded extensions over to the plan of an edited sweep.

    A trial that was added stays if its point is in the edited space, or was never in the space and
    still has the space's axes: then no edit has taken it out.

    Returns:
        The plan with the trials that stay, and the extensions with these, by their keys of now.
    """
    points = {trial.point for trial in plan.trials}
    axes = {frozenset(point) for point in points}

    def carried(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        is_new = entry["how"] == "new"
        if recorded_point(entry["point"]) in points:
            # Once in the space, it is the space that decides.
            yield {**entry, "how": "in the sweep since"} if is_new else entry
        elif is_new and frozenset(entry["point"]) in axes:
            yield entry

    kept = [[new for old in each["trials"] for new in carried(old)] for each in extensions]
    grown = with_extensions(plan, [{"trials": entries} for entries in kept])
    keys: dict[tuple[Mapping[str, Any], int], dict[int, str]] = {}
    for trial in grown.trials:
        keys.setdefault((trial.point, trial.replicate), {})[trial.budget.amount] = trial.key

    def with_keys(entries: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for entry in entries:
            if found := keys.get((recorded_point(entry["point"]), int(entry["replicate"]))):
                budget = int(entry["budget"])
                budget = budget if budget in found else max(found)
                yield {**entry, "budget": budget, "key": found[budget]}

    return grown, [
        {**extension, "trials": [*with_keys(entries)]}
        for extension, entries in zip(extensions, kept, strict=True)
    ]


def _grown(plan: Plan, planner: Planner, added: Iterable[Trial]) -> Plan:
    problems = dict.fromkeys([*plan.data_problems, *planner.data_problems])
    return replace(plan, trials=(*plan.trials, *added), data_problems=tuple(problems))


def _fill(
    cell: Wanted,
    point: Point,
    rows: Sequence[TrialRow],
    trials: Mapping[str, Trial],
    planner: Planner,
) -> tuple[list[Addition], str]:
    """Return the trials one point is given, and why there are fewer than asked for.

    Of a ladder those with the longest budget are asked for, and the shorter ones that they go on
    from come with them.
    """
    order, rungs = list(_TAKEN_UP), planner.sweep.budget.rungs
    by_key = {row.key: row for row in rows if row.status in _TAKEN_UP and row.key in trials}
    usable = sorted(
        (row for row in by_key.values() if row.budget == rungs[-1].amount),
        key=lambda row: (order.index(row.status), row.replicate),
    )[: cell.trials]
    found = []
    for row in usable:
        key = row.key
        while key in by_key:
            how = _TAKEN_UP[by_key[key].status]
            found.append(Addition(cell.label, trials[key], how, is_recorded=True))
            key = trials[key].shorter
    lacking = cell.trials - len(usable)
    if not lacking:
        return found, ""
    first = max((row.replicate for row in rows), default=-1) + 1
    skipped = len(planner.skipped)
    how = NEW_SEED if rows else "new"
    new = planner.plan_point(point, replicates=range(first, first + lacking))
    found += [Addition(cell.label, trial, how, is_recorded=False) for trial in new]
    if len(planner.skipped) > skipped:
        return found, planner.skipped[-1].reason
    if len(new) < lacking * len(rungs):
        return found, f"{lacking - len(new) // len(rungs)} trials would repeat others of the study"
    return found, ""


def _points_in(cell: Wanted, sweep: Sweep, recorded: Collection[Point]) -> list[Point]:
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
