"""The lean question: which cheaper shapes are no worse than a baseline by a margin?"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from analysis.questions.costs import check_costs, concerns_of_costs, require_known
from analysis.questions.lean.limits import BASELINE_MORE, RACE_SEEDS, margin_problem
from hsweep.design.labels import point_label
from hsweep.design.point import Point
from hsweep.design.question import (
    Concern,
    PlannedSweep,
    Question,
    RoundDesign,
    check_axes,
    check_nuisance,
)
from hsweep.design.scales import ALPHA, Goal, Scale, check_scale
from hsweep.design.trial import cost_columns
from hsweep.errors import UserError, is_number, make_plain, shown

if TYPE_CHECKING:
    from hsweep.design.space import Space
    from hsweep.design.trial import Trial

_WIDE_MARGIN: Final = 3.0
"""A design is called weak if its margin would have to be larger than this many seed sd."""


@dataclass(frozen=True, slots=True)
class Lean(Question):
    """Which shapes lie on the front of metric and cost, and which is the leanest good one?

    Attributes:
        costs: columns to save, first one first (``num_params``, ``flops_per_example``,
            ``train_memory_bytes``, ``wall_seconds``, ``latency_seconds``).
        baseline: axis values that name the baseline shape; a dictionary becomes pairs.
        within: an axis at each of whose values the baseline is another shape, for example a family
            of models; shapes are then compared only with the baseline they share it with.
        nuisance: axes that are settings and no part of a shape, such as ``lr``; each shape, the
            baseline too, is taken at its best setting.
        margin: how much worse than the baseline, in the metric's own unit, still counts as equal.
        scale: how the metric is transformed for display; None as the task declares its metric.

    Raises:
        UserError: a margin that is not a positive number, or a field of another kind.
    """

    place: ClassVar[str] = "shape"
    seeds: ClassVar[int | None] = RACE_SEEDS

    baseline: tuple[tuple[str, int | float | str], ...]
    margin: float
    costs: tuple[str, ...] = ("num_params",)
    scale: Scale | None = None
    within: str | None = None
    nuisance: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        make_plain(self)
        if not (is_number(self.margin) and self.margin > 0):
            raise UserError(f"margin must be positive, not {shown(self.margin)}")
        baseline: object = self.baseline
        pairs = tuple(baseline.items()) if isinstance(baseline, dict) else baseline
        if not (isinstance(pairs, tuple) and pairs and all(map(_is_axis_and_value, pairs))):
            raise UserError(
                f"baseline must be axes with values, as {{'heads': 12}}, not {shown(baseline)}"
            )
        # As a point has them.
        pairs = sorted((axis, tuple(at) if isinstance(at, list) else at) for axis, at in pairs)
        object.__setattr__(self, "baseline", tuple(pairs))
        check_costs(self.costs)
        check_axes("within", *(() if self.within is None else (self.within,)))
        check_scale(self.scale)
        check_nuisance(
            self.nuisance,
            {
                **dict.fromkeys((axis for axis, _ in self.baseline), "is named by the baseline"),
                self.within: "parts the comparisons (within)",
                **dict.fromkeys(self.costs, "is a cost"),
            },
        )

    @property
    def axes(self) -> Mapping[str, Sequence[str]]:
        """The baseline's axes, and that within which the comparisons stand."""
        within = () if self.within is None else (self.within,)
        baseline = tuple(axis for axis, _ in self.baseline)
        return {
            "axis in the lean question's baseline": baseline,
            "axis in the lean question": within,
        }

    def is_baseline(self, point: Mapping[str, Any]) -> bool:
        """Whether a point is the baseline, at any value of the nuisance axes."""
        return all(point.get(axis) == value for axis, value in self.baseline)

    def protects(self, point: Mapping[str, Any]) -> bool:
        """Whether a point is the baseline, with which everything will be compared."""
        return self.is_baseline(point)

    def selection_seeds(self, seeds: int) -> int:
        """Return two of four or more seeds, else one.

        The baseline stands in every comparison. With one its rate was so often the worse one that
        10 % of simulated studies made a false claim, with two 6 %. Two seeds at least are to be
        counted.
        """
        return 2 if seeds > 3 else 1

    def concerns(self, plan: PlannedSweep) -> Iterator[Concern]:
        """Yield what a plan lacks: one baseline, cheaper shapes, costs that are known, seeds."""
        groups = self.comparisons(plan.trials)
        of_groups: list[Concern] = []
        most_candidates = 0
        for name, shapes in groups.items():
            baselines = [trial for trial in shapes.values() if self.is_baseline(trial.point)]
            where = "" if self.within is None else f" at {self.within}={name}"
            if len(baselines) != 1:
                of_groups.append(self._without_one_baseline(plan, baselines, where))
                continue
            candidates = self.num_cheaper(shapes)
            most_candidates = max(most_candidates, candidates)
            if not candidates:
                text = f"no planned shape has a lower {self.costs[0]} than the baseline{where}, "
                remedy = "add smaller shapes, or ask for another cost"
                of_groups.append(Concern("weak", f"{text}so none can be leaner", remedy))
        yield from self._of_the_margin(plan)
        # A comparison that stands by itself is answered whatever becomes of the others.
        some_stand = sum(concern.kind == "impossible" for concern in of_groups) < len(groups)
        yield from (
            replace(concern, kind="weak") if some_stand else concern for concern in of_groups
        )
        yield from concerns_of_costs(plan, self.costs, self.within)
        seeds = plan.sweep.seeds
        yield from self.needs(most_candidates, seeds, len(groups))

    def _of_the_margin(self, plan: PlannedSweep) -> Iterator[Concern]:
        """Yield that the margin is as wide as the metric's range, where that is declared."""
        for metric in plan.declared_metrics:
            if metric.name == plan.sweep.metric and metric.scale != "count":
                is_share = metric.scale == "accuracy"
                margin, chance = self.margin, metric.chance
                if problem := margin_problem(margin, metric.name, chance, is_share=is_share):
                    yield Concern("impossible", problem, "narrow it")

    def _without_one_baseline(
        self, plan: PlannedSweep, baselines: Sequence["Trial"], where: str
    ) -> Concern:
        label = point_label(dict(self.baseline))
        if baselines:
            examples = "; ".join(point_label(trial.point) for trial in baselines[:3])
            return Concern(
                "impossible",
                f"the baseline {label} fits {len(baselines)} shapes{where}, for example {examples}",
                "name one by fixing every axis that varies, or call axes that are no part of a "
                "shape nuisance=(...)",
            )
        for point, reason in plan.skipped.items():
            if self.is_baseline(point):
                return Concern(
                    "impossible",
                    f"the baseline {label} is skipped{where}: {reason}",
                    "make it possible",
                )
        remedy = "add its values to the axes, or name a planned shape"
        if not plan.sweep.search.lists_points:
            remedy = (
                "a search begins with the baseline where it names a value, within its range, of "
                "every axis that varies: name all of them"
            )
        return Concern("impossible", f"no planned trial has the baseline {label}{where}", remedy)

    def comparisons(self, trials: Iterable["Trial"]) -> dict[Any, dict[Point, "Trial"]]:
        """Return a trial of each shape, by the comparisons that the shapes belong to."""
        shapes: dict[Any, dict[Point, Trial]] = {}
        for trial in trials:
            group = shapes.setdefault(self.part_of(trial.point), {})
            group.setdefault(self.place_of(trial.point), trial)
        return shapes

    def num_cheaper(self, shapes: Mapping[Point, "Trial"]) -> int:
        """Return the number of shapes of a comparison that cost less than its baseline.

        Where only a run can tell the cost, all shapes but the baseline count.
        """
        costs = {trial.point: cost_columns(trial).get(self.costs[0]) for trial in shapes.values()}
        limits = [cost for point, cost in costs.items() if self.is_baseline(point)]
        if not limits or limits[0] is None:
            return len(costs) - len(limits)
        return sum(cost is None or cost < limits[0] for cost in costs.values())

    def needs(self, candidates: int, seeds: int, comparisons: int) -> list[Concern]:
        """Return the concerns about a design with this number of seeds of each shape.

        An equal shape passes Holm's first step every second time where the margin is the critical
        t value times the standard error of a difference of two means.

        Args:
            candidates: cheaper shapes of the comparison that has most of them.
            comparisons: among which the error rate is divided.
        """
        from scipy.special import stdtrit

        def margin(seeds: int) -> float:
            level = 1 - ALPHA / comparisons / candidates
            return float(stdtrit(2 * (seeds - 1), level)) * math.sqrt(2 / seeds)

        if seeds < 2 or not candidates or margin(seeds) <= _WIDE_MARGIN:
            return []
        enough = next(number for number in itertools.count(seeds) if margin(number) <= _WIDE_MARGIN)
        text = (
            f"with {seeds} seeds and {candidates} candidates an equal shape is found every second "
            f"time if the margin is {margin(seeds):.1f} times the sd between seeds"
        )
        return [Concern("weak", text, f"--set replicates={enough}")]

    def proposals(self, space: "Space") -> list[Point]:
        """Return the baseline, at each value of ``within`` and of the nuisance axes.

        None where it does not determine its point: where another axis has several values, or one
        of these has infinitely many.
        """
        points = list(space.parameters_of(dict(self.baseline)))
        shapes, parts = set(map(self.place_of, points)), set(map(self.part_of, points))
        return points if len(shapes) == len(parts) else []

    def further_runs(self, trials: Sequence["Trial"]) -> tuple[Iterable[Point], int]:
        """Return the points of the baseline.

        Raises:
            UserError: the first cost, by which shapes are raced, is not known before training.
        """
        require_known(self.costs[:1], trials)
        points = dict.fromkeys(Point(trial.point) for trial in trials)
        return filter(self.is_baseline, points), BASELINE_MORE

    def design(self, rows: Sequence[Any], goal: Goal, budget: int, scouts: int) -> RoundDesign:
        """Return the race of the cheaper shapes against the baseline."""
        from analysis.questions.lean.search import LeanSearch

        return LeanSearch(rows, self, goal, budget, scouts)


def _is_axis_and_value(pair: object) -> bool:
    return isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)


def lean(
    baseline: dict[str, int | float | str],
    margin: float,
    costs: tuple[str, ...] = ("num_params",),
    scale: Scale | None = None,
    within: str | None = None,
    nuisance: tuple[str, ...] = (),
) -> Lean:
    """Return the lean question with its baseline as a dictionary of axis values."""
    return Lean(baseline, margin, costs, scale, within, nuisance)  # type: ignore[arg-type]
