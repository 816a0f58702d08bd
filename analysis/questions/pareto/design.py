"""Which shapes lie on the front of metric and costs? Seeds for those of which that is undecided.

Every shape has two runs at first, then those that are undecided, and the shapes which may beat
them, have 3, 5 and 8. At each look of a shape

- it is **on** or **off** the front where P(front), the chance that nothing beats it, lies within
  the look's level of one or of zero (see `analysis.questions.pareto.fit`). Against one other shape
  the levels of the four looks make 5 % in all, however often it is looked at; against several it is
  less;
- what is off the front is no longer compared: what beats it beats the rest, too;
- an undecided shape **goes on** while its last look is likely to decide. The shapes that cost no
  more and may be the best of these go on with it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from analysis.questions.pareto.limits import FRONT_SEEDS
from analysis.rounds.design import Design, Round
from analysis.rounds.looks import Looks, Run
from analysis.statistics.dominance import dominated_share
from hsweep.design.scales import ALPHA

SEEDS: Final = (2, 3, 5, FRONT_SEEDS)
"""Runs of a shape at each look."""
LEVELS: Final = tuple(ALPHA * share for share in (0.2, 0.2, 0.3, 0.7))
"""The levels of the looks. A normal difference of two equal means passes one of them in 5.0 % of
cases."""
_HOPELESS: Final = 0.25
"""A shape goes on where the chance that its last look decides is at least this."""
_RIVAL_SE: Final = 0.5
"""A shape may be the best where its mean lies so many standard errors below the best mean."""
_DRAWS: Final = 4000


def find_front(costs: Sequence[Sequence[float]]) -> Design[Run, None]:
    """Ask for the runs that tell which shapes lie on the front.

    Args:
        costs: of each shape, shape [shapes, costs].
    """
    front = _Front(costs)
    while asked := front.runs():
        got = yield Round("front", tuple(asked), front.why)
        for run in asked:
            front.take(run, got[run])


class _Front(Looks):
    def __init__(self, costs: Sequence[Sequence[float]]) -> None:
        super().__init__(dict.fromkeys(range(len(costs)), SEEDS), "which shapes lie on the front?")
        self.costs = np.array(costs, dtype=np.float64)
        self.undecided = set(self.looks)
        self.off: set[int] = set()
        self.judged = dict.fromkeys(self.looks, -1)

    def _look(self) -> None:
        left = [
            k for k, sample in self.samples.items() if k not in self.off and sample.variance > 0
        ]
        going_on: set[int] = set()
        if left:
            self._judge(left)
        for k in self.undecided.intersection(left):
            rivals = [j for j in left if j not in self.off and self._costs_no_more(j, k)]
            if rivals and self.looks[k] < len(SEEDS) - 1:
                going_on |= self._undecided_with(k, rivals)
        for k in going_on:
            self.looks[k] += 1
        number = len(going_on & self.undecided)
        self.why = f"{number} undecided: do they lie on the front?" if going_on else ""

    def _judge(self, left: list[int]) -> None:
        """Decide which of the shapes are on or off the front, of those at a further look."""
        rng = np.random.default_rng(0)
        mean, size, variance, df, _ = np.array([self.samples[k] for k in left]).T
        draws = mean + np.sqrt(variance / size) * rng.standard_t(df, (_DRAWS, len(left)))
        beaten = dominated_share(draws, self.costs[None, left])
        for k, share in zip(left, beaten.tolist(), strict=True):
            if k in self.undecided and self.judged[k] < self.looks[k]:
                self.judged[k] = self.looks[k]
                level = LEVELS[self.looks[k]]
                if share >= 1 - level:
                    self.off.add(k)
                if not level < share < 1 - level:
                    self.undecided.remove(k)

    def _costs_no_more(self, j: int, k: int) -> bool:
        return j != k and bool((self.costs[j] <= self.costs[k]).all())

    def _undecided_with(self, k: int, rivals: list[int]) -> set[int]:
        """Return the shapes that go on to decide about one; none where that is unlikely."""
        best = max(rivals, key=lambda j: self.samples[j].mean)
        diff = self.samples[k].mean - self.samples[best].mean
        if sum(self.chance(k, best, side, LEVELS[-1]) for side in (diff, -diff)) < _HOPELESS:
            return set()
        behind = {j: self.samples[best].mean - self.samples[j].mean for j in rivals}
        near = {j for j, gap in behind.items() if gap <= _RIVAL_SE * self.error(k, j)[0]}
        return {k} | {j for j in near if self.looks[j] <= self.looks[k]}
