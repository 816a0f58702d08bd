"""The search of a study for its front: which trials the next round has."""

from typing import TYPE_CHECKING, Final

from analysis.questions.pareto.design import find_front
from analysis.rounds.design import Design
from analysis.rounds.looks import Run
from analysis.rounds.search import ShapeSearch

if TYPE_CHECKING:
    from analysis.questions.pareto.question import Pareto  # noqa: F401 (of the base)

_BETTER: Final = 2.0
"""How much better a shape of a rehearsed front is than the one before it."""


class FrontSearch(ShapeSearch["Pareto", None]):
    """Chooses the trials that tell which shapes of a study lie on the front."""

    def _design(self) -> Design[Run, None]:
        return find_front(self.costs)

    def _made_up(self, run: Run, share: float) -> float:
        # Each shape of the front is better than the cheaper ones, the rest as good as its first.
        return _BETTER * run.shape * (run.shape < share * len(self.shapes))
