"""The race of a study for its leanest shape: which trials the next round has."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from analysis.questions.lean.design import Comparison, Raced, race
from analysis.rounds.design import Design
from analysis.rounds.looks import Run
from analysis.rounds.search import ShapeSearch
from hsweep.design.scales import Goal

if TYPE_CHECKING:
    from analysis.questions.lean.question import Lean
    from hsweep.record.journal import TrialRow

_WORSE: Final = 2.0
"""The loss of a worse shape in a rehearsed race, over the margin."""


class LeanSearch(ShapeSearch["Lean", tuple[Raced, ...]]):
    """Chooses the trials that find the leanest shape of a study."""

    def __init__(
        self, rows: Sequence["TrialRow"], question: "Lean", goal: Goal, budget: int, scouts: int
    ) -> None:
        super().__init__(rows, question, goal, budget, scouts)
        self._unit = question.margin

    @cached_property
    def _comparisons(self) -> list[Comparison]:
        comparisons = []
        groups = defaultdict(list)
        for k, shape in enumerate(self.shapes):
            groups[self._question.part_of(shape)].append(k)
        for group in groups.values():
            bases = [k for k in group if self._question.is_baseline(self.shapes[k])]
            if len(bases) == 1:  # else the answer says why there is no comparison
                most = self.costs[bases[0]][0]
                comparisons.append((bases[0], *(k for k in group if self.costs[k][0] < most)))
        return comparisons

    def _design(self) -> Design[Run, tuple[Raced, ...]]:
        return race(self._comparisons, self._unit)

    def _made_up(self, run: Run, share: float) -> float:
        is_base = any(run.shape == baseline for baseline, *_ in self._comparisons)
        return -_WORSE * (run.shape < share * len(self.shapes) and not is_base)
