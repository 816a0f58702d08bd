"""More trials for a study that has run: those its analysis says are missing, and no others.

An analysis that refuses to answer lists the cells that lack full-budget runs. Here that list
becomes trials: those on record that did not run to their end come first, in the order of their
replicates and never by how good they looked; new seeds and new axis values follow.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hsweep.design.domain import as_value
from hsweep.design.space import Point, recorded_point
from hsweep.design.trial import Trial, TrialStatus
from hsweep.errors import UserError
from hsweep.planning.content import content_hash
from hsweep.planning.plan import Plan, Planner
from hsweep.record.manifest import NEW_SEED
from hsweep.record.rows import TrialRow

_TAKEN_UP = (
    (TrialStatus.RUNNING, "continued"),
    (TrialStatus.PLANNED, "started"),
    (TrialStatus.STOPPED_EARLY, "stopped early, now run to the end"),
    (TrialStatus.FAILED, "failed, tried again"),
)
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
        """The cell in words."""
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
        """Keys of the trials that are run."""
        return frozenset(addition.trial.key for addition in self.additions)

    def lines(self) -> list[str]:
        """Return what is run and why, a line a cell."""
        lines = []
        for wanted in self.wanted:
            ways: dict[str, int] = {}
            for addition in self.additions:
                if addition.cell == wanted.label:
                    ways[addition.how] = ways.get(addition.how, 0) + 1
            if ways:
                how = ", ".join(f"{number} {way}" for way, number in ways.items())
                lines.append(f"{wanted.label}: {how} ({wanted.why})")
        return [*lines, *(f"not run: {problem}" for problem in self.problems)]

    def to_json(self) -> dict[str, Any]:
        """Return the extension as plain JSON content: what was asked for and what is run."""
        return {
            "wanted": [
                {"at": dict(cell.at), "trials": cell.trials, "why": cell.why}
                for cell in self.wanted
            ],
            "trials": [
                {
                    "key": addition.trial.key,
                    "point": dict(addition.trial.point),
                    "replicate": addition.trial.replicate,
                    "how": addition.how,
                }
                for addition in self.additions
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
    finder = _Finder(plan, recorded)
    additions: list[Addition] = []
    problems: list[str] = []
    for cell in wanted:
        try:
            points = finder.points_in(cell)
        except UserError as error:
            problems.append(f"{cell.label}: {error}")
            continue
        for point in points:
            found, problem = _fill(cell, point, finder.rows_of(point), trials, planner)
            additions += found
            if problem:
                problems.append(f"{cell.label}: {problem}")
    added = tuple(each.trial for each in additions if not each.is_recorded)
    return Extension(_grown(plan, planner, added), wanted, tuple(additions), tuple(problems))


def with_extensions(plan: Plan, extensions: Iterable[Mapping[str, Any]]) -> Plan:
    """Return the plan of a sweep with the trials of a study's recorded extensions (as
    ``Extension.to_json`` wrote them), oldest first."""
    planner = Planner.following(plan)
    known = {trial.key for trial in plan.trials}
    added: list[Trial] = []
    for extension in extensions:
        for entry in extension["trials"]:
            if entry["key"] not in known:
                point = recorded_point(entry["point"])
                added += planner.plan_point(point, replicates=[int(entry["replicate"])])
    return _grown(plan, planner, tuple(added))


def carried_over(
    extensions: Sequence[Mapping[str, Any]], plan: Plan
) -> tuple[Plan, list[dict[str, Any]]]:
    """Carry a study's recorded extensions over to the plan of an edited sweep.

    A trial that was added stays if its point is in the edited space, or was never in the space and
    still has the space's axes: then no edit has taken it out.

    Returns:
        The plan with the trials that stay, and the extensions with these, by their keys of now.
    """
    points = {content_hash(dict(trial.point)) for trial in plan.trials}
    axes = {frozenset(trial.point) for trial in plan.trials}

    def stays(entry: Mapping[str, Any]) -> bool:
        was_outside = entry["how"] == "new" and frozenset(entry["point"]) in axes
        return was_outside or content_hash(entry["point"]) in points

    carried = [
        {**extension, "trials": [each for each in extension["trials"] if stays(each)]}
        for extension in extensions
    ]
    grown = with_extensions(plan, carried)
    keys = {(content_hash(dict(trial.point)), trial.replicate): trial.key for trial in grown.trials}
    for extension in carried:
        trials = []
        for entry in extension["trials"]:
            point = content_hash(entry["point"])
            if key := keys.get((point, int(entry["replicate"]))):
                # Once in the space, it is the space that decides.
                is_in_space = point in points and entry["how"] == "new"
                how = {"how": "in the sweep since"} if is_in_space else {}
                trials.append({**entry, **how, "key": key})
        extension["trials"] = trials
    return grown, carried


def _grown(plan: Plan, planner: Planner, added: tuple[Trial, ...]) -> Plan:
    problems = (*plan.data_problems, *planner.data_problems)
    return replace(
        plan, trials=(*plan.trials, *added), data_problems=tuple(dict.fromkeys(problems))
    )


def _fill(
    cell: Wanted,
    point: Point,
    rows: Sequence[TrialRow],
    trials: Mapping[str, Trial],
    planner: Planner,
) -> tuple[list[Addition], str]:
    """Return the trials one point is given, and why there are fewer than asked for."""
    order = [status for status, _ in _TAKEN_UP]
    words = dict(_TAKEN_UP)
    usable = sorted(
        (row for row in rows if row.status in words and row.key in trials),
        key=lambda row: (order.index(row.status), row.replicate),
    )
    found = [
        Addition(cell.label, trials[row.key], words[row.status], is_recorded=True)
        for row in usable[: cell.trials]
    ]
    lacking = cell.trials - len(found)
    if not lacking:
        return found, ""
    first = max((row.replicate for row in rows), default=-1) + 1
    skipped = len(planner.skipped)
    how = NEW_SEED if rows else "new"
    new = planner.plan_point(point, replicates=range(first, first + lacking))
    found += [Addition(cell.label, trial, how, is_recorded=False) for trial in new]
    if len(planner.skipped) > skipped:
        return found, planner.skipped[-1].reason
    if len(new) < lacking:
        return found, f"{lacking - len(new)} trials would repeat others of the study"
    return found, ""


class _Finder:
    """Finds the points of a cell: those on record, else those of the sweep's space."""

    def __init__(self, plan: Plan, recorded: Sequence[TrialRow]) -> None:
        self._sweep = plan.sweep
        self._rows: dict[str, list[TrialRow]] = {}
        self._points: dict[str, Point] = {}
        for row in recorded:
            point = recorded_point(row.point)
            identity = content_hash(dict(point))
            self._points.setdefault(identity, point)
            self._rows.setdefault(identity, []).append(row)

    def rows_of(self, point: Point) -> list[TrialRow]:
        """Return a point's trials on record."""
        return self._rows.get(content_hash(dict(point)), [])

    def points_in(self, cell: Wanted) -> list[Point]:
        """Return the points of a cell.

        Raises:
            UserError: the space has none there, or does not say which.
        """
        known = [point for point in self._points.values() if _lies_in(point, cell)]
        if known:
            return known
        sweep = self._sweep
        for axis, value in cell.at.items():
            sweep = sweep.with_setting(axis, [value])
        points = [point for point in sweep.space.points() if _lies_in(point, cell)]
        if not points:
            raise UserError("the sweep's space has no point there")
        per_cell: dict[tuple[Any, ...], int] = {}
        for point in self._points.values():
            at = tuple(point.get(axis) for axis in cell.at)
            per_cell[at] = per_cell.get(at, 0) + 1
        if len(points) > max(per_cell.values(), default=len(points)):
            raise UserError(
                f"the sweep's space has {len(points)} points there, more than any cell of the "
                "study: its axes change in step, and no row says how they go on"
            )
        return points


def _lies_in(point: Mapping[str, Any], cell: Wanted) -> bool:
    return all(point.get(axis) == as_value(value) for axis, value in cell.at.items())
