"""A study that asks for few of its trials: which of them the next round has."""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import numpy as np

from analysis.rounds.design import (
    Answer,
    AnyRun,
    Design,
    Played,
    Round,
    SearchFilm,
    SearchRound,
    play,
)
from analysis.rounds.looks import Run
from hsweep.design.labels import counted, listed, point_label, varying_axes
from hsweep.design.point import Point
from hsweep.design.scales import Goal
from hsweep.design.search import NOT_ASKED
from hsweep.design.space import recorded_point
from hsweep.design.trial import TrialStatus

if TYPE_CHECKING:
    from hsweep.record.journal import TrialRow

_MOST_NAMED: Final = 6
_SHARES: Final = 3 * (0.0, 1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6, 1.0)
"""Where the transition lies in rehearsals, and how many of the shapes are worse."""
_NOISE: Final = 0.4
"""The seed sd in a rehearsed comparison of shapes, over the margin."""


class RoundSearch(ABC, Generic[AnyRun, Answer]):
    """Chooses the trials of a study, round by round.

    Args:
        rows: all that were planned.
        budget: at which a run has its value; those of shorter budgets come before it.
        scouts: replicates that only choose a setting, all before the run itself.

    Attributes:
        played: how far the design had come, when it was last asked.
        line: the round that it asked for, in words.
    """

    why_not = NOT_ASKED
    _unit: float
    _noise: float
    """The unit of made-up values, and the sd of their noise in it."""

    def __init__(self, rows: Sequence["TrialRow"], budget: int, scouts: int) -> None:
        self._scouts = scouts
        self._keys: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
        self._whole = {row.key for row in rows if row.budget == budget}
        self._budgets = len({row.budget for row in rows if row.budget <= budget})
        for row in rows:
            cell = self._cell(row)
            if row.budget <= budget:
                self._keys[*cell, row.replicate - scouts].append(row.key)
        self.played: Played[AnyRun, Answer] = Played(())
        self.line = ""

    def next_round(self, values: Mapping[str, float | None]) -> frozenset[str]:
        """Return the trials of the next round; none at the end (see ``RoundDesign``)."""

        def ended(run: AnyRun) -> bool:
            return all(key in values for key in self._keys[run])

        def value(run: AnyRun) -> float | None:
            # Of settings that compete the winner alone has one.
            known = (values[key] for key in self._keys[run] if key in self._whole)
            return next((self._read(value) for value in known if value is not None), None)

        self.played = play(self._design(), value, ended)
        asked = self.played.next
        if asked is None:
            return frozenset()
        number, runs = len(self.played.rounds) + 1, counted(self._trained(asked), "run")
        self.line = f"round {number} ({asked.phase}), {runs}: {self.cells(asked.runs)}; {asked.why}"
        return frozenset(self._trials_of(asked.runs))

    def rehearsals(self) -> list[frozenset[str]]:
        """Return the trials of studies with made-up values, fewest first (see ``RoundDesign``)."""
        studies = []
        for number, share in enumerate(_SHARES):
            rng = np.random.default_rng(number)

            def value(run: AnyRun, share: float = share, rng: np.random.Generator = rng) -> float:
                noise = self._noise * float(rng.standard_normal())
                return self._unit * (self._made_up(run, share) + noise)

            rounds = play(self._design(), value, lambda _run: True).rounds
            runs = (run for each in rounds for run in each.runs)
            studies.append(frozenset(self._trials_of(runs)))
        return sorted(studies, key=len)

    def replay(self, rows: Sequence["TrialRow"], metric: str) -> frozenset[str]:
        """Bring the design to where the trials on record do; return the keys of all that it has
        asked for."""
        values = {
            row.key: row.metrics.get(metric) if row.status is TrialStatus.FINISHED else None
            for row in rows
            if row.status.is_final and row.reason != NOT_ASKED
        }
        asked = set(self.next_round(values))
        for each in self.played.rounds:
            asked.update(self._trials_of(each.runs))
        return frozenset(asked)

    def _trials_of(self, runs: Iterable[AnyRun]) -> Iterable[str]:
        for *cell, seed in runs:
            yield from self._keys[*cell, seed]
            for scout in range(self._scouts):
                yield from self._keys[*cell, scout - self._scouts]

    @property
    def most_runs(self) -> int:
        """How many runs its design may ask for."""
        return sum(seed >= 0 for *_, seed in self._keys)

    @property
    def most_trials(self) -> int:
        """How many trials it may ask for, of every setting and budget."""
        sizes = [len(keys) for keys in self._keys.values()]
        return min(sum(sizes), self.most_runs * max(sizes) * (1 + self._scouts))

    def film(self) -> SearchFilm:
        """Return what it has trained so far."""
        rounds = (
            SearchRound(each.phase, self._trained(each), self.cells(each.runs), each.why)
            for each in self.played.rounds
        )
        now = self.line if self.played.next is not None else ""
        return SearchFilm(tuple(rounds), self._budgets * self.most_runs, now=now)

    def _trained(self, asked: Round[AnyRun]) -> int:
        """Return how many runs of the study a round has, of every budget; scouts do not count."""
        return self._budgets * len(asked.runs)

    @abstractmethod
    def _cell(self, row: "TrialRow") -> tuple[int, ...]:
        """Return the indices by which the design calls what a trial trains."""

    @abstractmethod
    def _design(self) -> Design[AnyRun, Answer]:
        """Return the design at its beginning."""

    @abstractmethod
    def _made_up(self, run: AnyRun, share: float) -> float:
        """Return a run's made-up level, as the design reads it but in another unit: ``share`` of
        the first indices of a run has one of two levels, the rest the other."""

    @abstractmethod
    def cells(self, runs: Sequence[AnyRun]) -> str:
        """Return what runs train, in words."""

    @abstractmethod
    def _read(self, value: float) -> float:
        """Return a metric's value as the design reads it."""


class OfShapes(Protocol):
    """A question that compares shapes."""

    @property
    def costs(self) -> tuple[str, ...]: ...

    def place_of(self, point: Mapping[str, object]) -> Point:
        """Return the shape of a point."""


AnyQuestion = TypeVar("AnyQuestion", bound=OfShapes)


class ShapeSearch(RoundSearch[Run, Answer], Generic[AnyQuestion, Answer]):
    """Chooses the trials that compare the shapes of a study.

    Attributes:
        shapes: every shape by its index, the cheapest first: the axes of its points but the
            nuisance axes.
        costs: of each shape, in the order of the question's.
        varying: the axes by which shapes differ.
    """

    _unit, _noise = 1.0, _NOISE

    def __init__(
        self,
        rows: Sequence["TrialRow"],
        question: AnyQuestion,
        goal: Goal,
        budget: int,
        scouts: int,
    ) -> None:
        self._question = question
        self._sign = 1.0 if goal == "max" else -1.0
        known: dict[Point, tuple[float, ...]] = {}
        for row in rows:
            columns = {**row.point, **row.counts}
            # Only the first is known of every shape that is raced.
            known[self._shape(row)] = tuple(columns.get(cost, np.nan) for cost in question.costs)
        self.shapes = sorted(known, key=lambda shape: (known[shape][0], repr(dict(shape))))
        self.costs = [known[shape] for shape in self.shapes]
        self._index = {shape: k for k, shape in enumerate(self.shapes)}
        self.varying = varying_axes(self.shapes)
        super().__init__(rows, budget, scouts)

    def _shape(self, row: "TrialRow") -> Point:
        return self._question.place_of(recorded_point(row.point))

    def _cell(self, row: "TrialRow") -> tuple[int]:
        return (self._index[self._shape(row)],)

    def cells(self, runs: Sequence[Run]) -> str:
        """Return the shapes of runs in words, those with as many runs together."""
        groups: dict[int, list[str]] = {}
        for shape, number in Counter(run.shape for run in runs).items():
            groups.setdefault(number, []).append(point_label(self.shapes[shape], self.varying))
        texts = []
        for number, labels in groups.items():
            each = " of" if len(labels) == 1 else " each of"
            named = listed(labels) if len(labels) <= _MOST_NAMED else f"{len(labels)} shapes"
            texts.append(f"{counted(number, 'seed')}{each} {named}")
        return "; ".join(texts)

    def _read(self, value: float) -> float:
        return self._sign * value
