"""The question of a front: which shapes does no other beat in both metric and cost?"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from analysis.questions.costs import check_costs, concerns_of_costs, require_known
from analysis.questions.pareto.limits import FRONT_SEEDS
from hsweep.design.point import Point
from hsweep.design.question import Concern, PlannedSweep, Question, RoundDesign, check_nuisance
from hsweep.design.scales import Goal, Scale, check_scale
from hsweep.errors import make_plain

if TYPE_CHECKING:
    from hsweep.design.trial import Trial


@dataclass(frozen=True, slots=True)
class Pareto(Question):
    """Which shapes lie on the front of metric and cost?

    Attributes:
        costs: columns to save, first one first (``num_params``, ``flops_per_example``,
            ``train_memory_bytes``, ``wall_seconds``, ``latency_seconds``).
        nuisance: axes that are settings and no part of a shape, such as ``lr``; each shape is taken
            at its best setting.
        scale: how the metric is transformed for display; None as the task declares its metric.

    Raises:
        UserError: a field of another kind.
    """

    place: ClassVar[str] = "shape"
    seeds: ClassVar[int | None] = FRONT_SEEDS

    costs: tuple[str, ...] = ("num_params",)
    nuisance: tuple[str, ...] = ()
    scale: Scale | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        check_costs(self.costs)
        check_scale(self.scale)
        check_nuisance(self.nuisance, dict.fromkeys(self.costs, "is a cost"))

    @property
    def axes(self) -> Mapping[str, Sequence[str]]:
        """None: all axes but the nuisance axes make a shape."""
        return {}

    def concerns(self, plan: PlannedSweep) -> Iterator[Concern]:
        """Yield what a plan lacks: several shapes, costs that are known."""
        if len({self.place_of(trial.point) for trial in plan.trials}) < 2:
            text = "one shape is planned, and a front is of several"
            yield Concern("impossible", text, "give an axis of its shape more values")
        yield from concerns_of_costs(plan, self.costs, None)

    def further_runs(self, trials: Sequence["Trial"]) -> tuple[Iterable[Point], int]:
        """Return no points.

        Raises:
            UserError: a cost is not known before training.
        """
        require_known(self.costs, trials)
        return (), 0

    def design(self, rows: Sequence[Any], goal: Goal, budget: int, scouts: int) -> RoundDesign:
        """Return the search for the front."""
        from analysis.questions.pareto.search import FrontSearch

        return FrontSearch(rows, self, goal, budget, scouts)
