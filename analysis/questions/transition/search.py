"""The search of a study for its transition: which trials the next round has."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from analysis.questions.transition.design import GRID_SEEDS, SEARCH_SEED, Located, Run, locate
from analysis.rounds.design import Design
from analysis.rounds.search import RoundSearch
from analysis.runs.scale import THRESHOLDS
from analysis.values import describe
from hsweep.design.scales import ALPHA
from hsweep.design.search import NOT_ASKED

if TYPE_CHECKING:
    from analysis.questions.transition.question import Transition
    from hsweep.record.journal import TrialRow

_FALL: Final = 3.0
_GROWTH: Final = 1.0
"""The fall at a rehearsed transition, and growth with length before it, over the smallest fall that
counts."""


class TransitionSearch(RoundSearch[Run, Located]):
    """Chooses the trials that locate the transition of a study.

    Args:
        parts: searches of the study, which share its error rate.

    Attributes:
        heads, lengths: the values of the searched and of the modulating axis, ascending.
    """

    def __init__(
        self,
        rows: Sequence["TrialRow"],
        question: "Transition",
        budget: int,
        scouts: int,
        parts: int = 1,
    ) -> None:
        assert question.scale is not None  # of a planned sweep
        self._x, self._by = question.x, question.by
        self._scale, self._eval_size = question.scale, question.eval_size
        self._unit, self._noise = 1.0, THRESHOLDS[self._scale].assumed_sd
        self._alpha = ALPHA / parts
        self.heads = sorted({row.point[self._x] for row in rows})
        self.lengths = [0] if self._by is None else sorted({row.point[self._by] for row in rows})
        super().__init__(rows, budget, scouts)
        # The plan has chosen it, among the lengths that it could plan.
        self._at = next(length for _, length, seed in self._keys if seed >= SEARCH_SEED)

    def _cell(self, row: "TrialRow") -> tuple[int, int]:
        length = 0 if self._by is None else self.lengths.index(row.point[self._by])
        return self.heads.index(row.point[self._x]), length

    def _design(self) -> Design[Run, Located]:
        limits = THRESHOLDS[self._scale]
        return locate(self.heads, self.lengths, self._at, limits, self._alpha)

    def _made_up(self, run: Run, share: float) -> float:
        # Before the transition the error grows with length, after it no more.
        is_after = run.head >= round(share * len(self.heads))
        grown = _GROWTH * run.length / len(self.lengths)
        return THRESHOLDS[self._scale].min_drop * (-_FALL if is_after else grown)

    def cells(self, runs: Sequence[Run]) -> str:
        """Return the cells of runs in words."""
        heads = _values(self.heads, {run.head for run in runs})
        cells = f"{self._x} = {heads}"
        if self._by is not None:
            cells += f" at {self._by} = {_values(self.lengths, {run.length for run in runs})}"
        return cells

    @property
    def most_runs(self) -> int:
        """A grid of so many seeds at most."""
        return min(super().most_runs, GRID_SEEDS * len(self.heads) * len(self.lengths))

    def _read(self, value: float) -> float:
        if self._scale == "loss":
            return value
        error = 1.0 - value if self._scale == "accuracy" else value
        floor = 0.5 / self._eval_size if self._eval_size else 0.0
        return math.log10(max(error, floor)) if max(error, floor) > 0 else -math.inf


class Searches:
    """Searches for the same at each value of an axis, which share the error rate; their rounds
    stand side by side (see ``RoundDesign``).

    Args:
        parts: the searches, by that value in words.
    """

    why_not = NOT_ASKED

    def __init__(self, parts: Mapping[str, TransitionSearch]) -> None:
        self.parts, self.line = parts, ""

    def next_round(self, values: Mapping[str, float | None]) -> frozenset[str]:
        """Return the trials of the next round of every search."""
        asked = {name: part.next_round(values) for name, part in self.parts.items()}
        rounds = {name: len(self.parts[name].played.rounds) for name, keys in asked.items() if keys}
        # A part that is further on waits, as it does where nothing has been killed.
        present = [name for name, number in rounds.items() if number == min(rounds.values())]
        self.line = "\n".join(f"{name}, {self.parts[name].line}" for name in present) or self.line
        return frozenset().union(*(asked[name] for name in present))

    @property
    def most_trials(self) -> int:
        """How many trials all its parts may ask for."""
        return sum(part.most_trials for part in self.parts.values())

    def rehearsals(self) -> list[frozenset[str]]:
        """Return the trials of studies with made-up values, fewest first."""
        of_parts = (part.rehearsals() for part in self.parts.values())
        return [frozenset().union(*studies) for studies in zip(*of_parts, strict=True)]


def search(
    rows: Sequence["TrialRow"], question: "Transition", budget: int, scouts: int
) -> TransitionSearch | Searches:
    """Return what chooses among the planned trials of a study: a search at each value of
    ``within``."""
    within = question.within
    if within is None:
        return TransitionSearch(rows, question, budget, scouts)
    parts: defaultdict[str, list[TrialRow]] = defaultdict(list)
    for row in rows:
        parts[describe({within: row.point[within]})].append(row)
    return Searches(
        {
            name: TransitionSearch(part, question, budget, scouts, len(parts))
            for name, part in parts.items()
        }
    )


def _values(values: Sequence[float], indices: set[int]) -> str:
    return ", ".join(f"{values[index]:g}" for index in sorted(indices))
