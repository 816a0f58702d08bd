"""The question of a transition: at which value of an axis does the error collapse?"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final

from analysis.questions.transition.limits import (
    FEWEST_FOR_A_BREAK,
    FIRST_BREAK,
    SEARCH_SEEDS,
    WINDOW_SEEDS,
    searched_length,
)
from hsweep.design.labels import listed
from hsweep.design.point import Point
from hsweep.design.question import (
    Concern,
    PlannedSweep,
    Question,
    RoundDesign,
    check_axes,
    check_nuisance,
)
from hsweep.design.scales import Goal, Scale, check_scale
from hsweep.errors import UserError, check_whole, is_number, make_plain, shown

if TYPE_CHECKING:
    from hsweep.design.trial import Trial

_AMPLE: Final = 6
"""Values of x with room for a drop in their middle."""


@dataclass(frozen=True, slots=True)
class Transition(Question):
    """At which value of ``x`` does the error collapse, and does its growth with ``by`` vanish?

    Attributes:
        x: the ordered axis that is searched for the critical value (usually ``heads``).
        by: the modulating axis (often ``seq_len``), or None.
        within: an axis (such as ``depth``) at each of whose values the question is asked anew.
        scale: how the metric is transformed; None as the task declares its metric.
        eval_size: evaluation examples, needed by the ``accuracy`` scale to floor the error.
        nuisance: axes that are settings and no part of a cell of ``x``, ``by`` and ``within``, such
            as ``lr``; each cell is taken at its best setting.

    Raises:
        UserError: a field of another kind.
    """

    place: ClassVar[str] = "cell"
    is_by_scale: ClassVar[bool] = True
    seeds: ClassVar[int | None] = WINDOW_SEEDS

    x: str = "heads"
    by: str | None = None
    scale: Scale | None = None
    eval_size: int | None = None
    nuisance: tuple[str, ...] = ()
    within: str | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        check_axes("x", self.x)
        for field, axis in (("by", self.by), ("within", self.within)):
            check_axes(field, *(() if axis is None else (axis,)))
        if len(set(self.cell)) < len(self.cell):
            raise UserError(f"x, by and within must be different axes, not {listed(self.cell)}")
        check_scale(self.scale)
        if self.eval_size is not None:
            check_whole("eval_size", self.eval_size, 1)
        within = {self.within: "has a transition at each value (within)"}
        roles = {self.x: "is searched (x)", self.by: "modulates (by)"}
        check_nuisance(self.nuisance, within | roles)

    @property
    def axes(self) -> Mapping[str, Sequence[str]]:
        """The axes of a cell."""
        return {"axis in the sweep's question": self.cell}

    @property
    def cell(self) -> tuple[str, ...]:
        """The axes that make a cell."""
        return (self.x, *(axis for axis in (self.by, self.within) if axis is not None))

    @property
    def answers(self) -> tuple[str, ...]:
        """The axes of a cell."""
        return self.cell

    def concerns(self, plan: PlannedSweep) -> Iterator[Concern]:
        """Yield what a plan lacks: values in order, cells with one setting, rivals that are not
        cells."""
        tried: dict[Any, dict[str, set[Any]]] = {}
        for trial in plan.trials:
            group = tried.setdefault(self.part_of(trial.point), {})
            for axis in filter(None, (self.x, self.by)):
                if not is_number(value := trial.point.get(axis)):
                    yield Concern(
                        "impossible",
                        f"{axis} must be numbers to be put in order, and takes {shown(value)}",
                        f"give {axis} numbers",
                    )
                    return
                group.setdefault(axis, set()).add(value)
        by = self.by
        if by is not None and (least := min(min(group[by]) for group in tried.values())) <= 0:
            yield Concern(
                "impossible",
                f"{by} holds {least}; its logarithm is used, so it must be above 0",
                f"leave that value out (--set {by}=...), or ask with another axis",
            )
        yield from self._of_settings(plan)
        yield from self._of_rivals(plan)
        if not plan.is_adaptive:  # else which values are tried is not known yet
            designs = (
                self.needs(sorted(group[self.x]), () if by is None else sorted(group[by]))
                for group in tried.values()
            )
            yield from dict.fromkeys(chain.from_iterable(designs))

    def _of_settings(self, plan: PlannedSweep) -> Iterator[Concern]:
        """Yield the concerns about the settings of a transition's cells."""
        cells: dict[tuple[Any, ...], list[Trial]] = {}
        for trial in plan.trials:
            cells.setdefault(tuple(trial.point[axis] for axis in self.cell), []).append(trial)
        varying = dict.fromkeys(
            axis
            for trials in cells.values()
            for axis in trials[0].point
            if len({repr(trial.point.get(axis)) for trial in trials}) > 1
        )
        unnamed = [axis for axis in varying if axis not in self.nuisance]
        if unnamed:
            nuisance = tuple(dict.fromkeys((*self.nuisance, *unnamed)))
            subject = "each has" if len(unnamed) > 1 else "it has"
            yield Concern(
                "impossible",
                f"{listed(unnamed)} varies within the cells of {listed(self.cell)}, and the "
                "question does not say what becomes of that",
                f"ask with nuisance={nuisance!r}, which takes each cell at its best setting, or "
                f"with within={unnamed[0]!r}, which asks anew at each of its values, or see that "
                f"{subject} one value in a cell (--set {unnamed[0]}=...)",
            )
        tuned = [axis for axis in self.nuisance if axis in varying]
        stopping = plan.sweep.early_stopping
        if (
            tuned
            and stopping is not None
            and stopping.scouts is None
            and stopping.milestones(plan.sweep.budget)
            and stopping.compete == "trials"
        ):
            yield Concern(
                "weak",
                f"early stopping stops single runs, so settings of {listed(tuned)} lose some of "
                "their seeds and cannot be compared",
                'give Asha compete="points"',
            )

    def _of_rivals(self, plan: PlannedSweep) -> Iterator[Concern]:
        """Yield the concerns about early stopping in a transition where cells compete."""
        stopping = plan.sweep.early_stopping
        if stopping is None or not stopping.milestones(plan.sweep.budget):
            return
        strata: dict[str, list[Trial]] = {}
        for trial in plan.trials:
            strata.setdefault(trial.stratum, []).append(trial)
        competing: set[str] = set()
        for trials in strata.values():
            contenders = {
                trial.point if stopping.compete == "points" else (trial.point, trial.replicate)
                for trial in trials
            }
            if len(contenders) > stopping.num_survivors:
                competing |= {
                    axis for axis in self.cell if len({trial.point[axis] for trial in trials}) > 1
                }
        for axis in [axis for axis in self.cell if axis in competing][:1]:
            effect = "lengths at which the error is larger are lost"
            if axis == self.x:
                effect = "those that are supposed to lose never reach the full budget"
            yield Concern(
                "impossible" if axis == self.x else "weak",
                f"early stopping lets trials of different {axis} compete, so {effect}",
                f"give Asha strata={self.cell!r}",
            )

    def needs(self, values: Sequence[int | float], lengths: Sequence[int | float]) -> list[Concern]:
        """Return the concerns about a design with these ascending values of ``x`` and ``by``."""
        x, by, concerns = self.x, self.by, []
        number = "one value" if len(values) == 1 else f"{len(values)} values"
        remedy = f"give {x} {_AMPLE} values or more (--set {x}=...)"
        if all(isinstance(value, int) for value in values) and values[-1] - values[0] < _AMPLE:
            remedy = f"--set {x}={','.join(str(values[0] + k) for k in range(_AMPLE))}"
        if len(values) < FEWEST_FOR_A_BREAK:
            text = (
                f"{x} has {number} ({listed(values)}), and a test that tells a drop from "
                f"diminishing returns needs {FEWEST_FOR_A_BREAK}, two of them below the drop"
            )
            concerns.append(Concern("weak", text, remedy))
        elif len(values) == FEWEST_FOR_A_BREAK:
            text = (
                f"with {x} = {listed(values)} a drop can be established at {x} = "
                f"{listed(values[FIRST_BREAK:], 'or')}, not at {values[1]}: it takes two smaller "
                "values"
            )
            concerns.append(Concern("weak", text, f"{remedy}, or smaller ones"))
        if by is not None and len(lengths) < 2:
            text = f"{by} has one value, {lengths[0]}, so growth with {by} cannot be judged"
            concerns.append(
                Concern("weak", text, f"give {by} two values or more, or leave by= out")
            )
        return concerns

    def further_runs(self, trials: Sequence["Trial"]) -> tuple[Iterable[Point], int]:
        """Return the points of the length, of each part, at which the search begins; without
        lengths all of them."""
        points = dict.fromkeys(Point(trial.point) for trial in trials)
        by = self.by
        if by is None:
            return points, SEARCH_SEEDS
        lengths: dict[Any, set[Any]] = {}
        for point in points:
            lengths.setdefault(self.part_of(point), set()).add(point[by])
        at = {part: sorted(those)[searched_length(len(those))] for part, those in lengths.items()}
        return [point for point in points if point[by] == at[self.part_of(point)]], SEARCH_SEEDS

    def design(self, rows: Sequence[Any], goal: Goal, budget: int, scouts: int) -> RoundDesign:
        """Return the search that locates the transition."""
        from analysis.questions.transition.search import search

        return search(rows, self, budget, scouts)
