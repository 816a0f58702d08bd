"""A study that asks for few of its trials: which of them the next round has."""

import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic

import numpy as np

from analysis.adaptive.front import find_front
from analysis.adaptive.lean import Comparison, Raced, race
from analysis.adaptive.looks import Run as ShapeRun
from analysis.adaptive.rounds import (
    Answer,
    AnyRun,
    Design,
    Played,
    Round,
    SearchFilm,
    SearchRound,
    play,
)
from analysis.adaptive.transition import GRID_SEEDS, SEARCH_SEED, Located, Run, locate
from analysis.runs.scale import THRESHOLDS
from analysis.values import describe
from hsweep.design.labels import listed, point_label, varying_axes
from hsweep.design.question import ALPHA, Goal
from hsweep.design.search import NOT_ASKED
from hsweep.design.space import Point, recorded_point
from hsweep.design.trial import TrialStatus
from hsweep.record.manifest import Manifest
from hsweep.record.summary import counted

if TYPE_CHECKING:
    from hsweep.record.journal import TrialRow

_MOST_NAMED: Final = 6
_SHARES: Final = 3 * (0.0, 1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6, 1.0)
"""Where the transition lies in rehearsals, and how many of the shapes are worse."""
_FALL: Final = 3.0
_GROWTH: Final = 1.0
"""The fall at a rehearsed transition, and growth with length before it, over the smallest fall that
counts."""
_NOISE: Final = 0.4
_WORSE: Final = 2.0
"""The seed sd and the loss of a worse shape in a rehearsed race, over the margin."""


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


class TransitionSearch(RoundSearch[Run, Located]):
    """Chooses the trials that locate the transition of a study.

    Attributes:
        heads, lengths: the values of the searched and of the modulating axis, ascending.
    """

    def __init__(
        self, rows: Sequence["TrialRow"], question: Mapping[str, Any], budget: int, scouts: int
    ) -> None:
        self._x, self._by = question["x"], question["by"]
        self._scale, self._eval_size = question["scale"], question["eval_size"]
        self._unit, self._noise = 1.0, THRESHOLDS[self._scale].assumed_sd
        self._alpha = ALPHA / question.get("parts", 1)
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


class ShapeSearch(RoundSearch[ShapeRun, Answer]):
    """Chooses the trials that compare the shapes of a study.

    Attributes:
        shapes: every shape by its index, the cheapest first: the axes of its points but the
            nuisance axes.
        costs: of each shape, in the order of the question's.
        varying: the axes by which shapes differ.
    """

    _noise = _NOISE

    def __init__(
        self,
        rows: Sequence["TrialRow"],
        question: Mapping[str, Any],
        goal: Goal,
        budget: int,
        scouts: int,
    ) -> None:
        self._question, self._unit = question, question["margin"]
        self._sign = 1.0 if goal == "max" else -1.0
        known: dict[Point, tuple[float, ...]] = {}
        for row in rows:
            columns = {**row.point, **row.counts}
            # Only the first is known of every shape that is raced.
            known[self._shape(row)] = tuple(columns.get(cost, np.nan) for cost in question["costs"])
        self.shapes = sorted(known, key=lambda shape: (known[shape][0], repr(dict(shape))))
        self.costs = [known[shape] for shape in self.shapes]
        self._index = {shape: k for k, shape in enumerate(self.shapes)}
        self.varying = varying_axes(self.shapes)
        super().__init__(rows, budget, scouts)

    def _shape(self, row: "TrialRow") -> Point:
        point = recorded_point(row.point)
        return Point(
            {axis: point[axis] for axis in point if axis not in self._question["nuisance"]}
        )

    def _cell(self, row: "TrialRow") -> tuple[int]:
        return (self._index[self._shape(row)],)

    def cells(self, runs: Sequence[ShapeRun]) -> str:
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


class LeanSearch(ShapeSearch[tuple[Raced, ...]]):
    """Chooses the trials that find the leanest shape of a study."""

    @cached_property
    def _comparisons(self) -> list[Comparison]:
        within, comparisons = self._question["within"], []
        baseline = recorded_point(dict(self._question["baseline"]))
        groups = defaultdict(list)
        for k, shape in enumerate(self.shapes):
            groups[None if within is None else shape.get(within)].append(k)
        for group in groups.values():
            bases = [k for k in group if self.shapes[k].has(baseline)]
            if len(bases) == 1:  # else the answer says why there is no comparison
                most = self.costs[bases[0]][0]
                comparisons.append((bases[0], *(k for k in group if self.costs[k][0] < most)))
        return comparisons

    def _design(self) -> Design[ShapeRun, tuple[Raced, ...]]:
        return race(self._comparisons, self._unit)

    def _made_up(self, run: ShapeRun, share: float) -> float:
        is_base = any(run.shape == baseline for baseline, *_ in self._comparisons)
        return -_WORSE * (run.shape < share * len(self.shapes) and not is_base)


class FrontSearch(ShapeSearch[None]):
    """Chooses the trials that tell which shapes of a study lie on the front."""

    def _design(self) -> Design[ShapeRun, None]:
        return find_front(self.costs)

    def _made_up(self, run: ShapeRun, share: float) -> float:
        # Each shape of the front is better than the cheaper ones, the rest as good as its first.
        return _WORSE * run.shape * (run.shape < share * len(self.shapes))


def _values(values: Sequence[float], indices: set[int]) -> str:
    return ", ".join(f"{values[index]:g}" for index in sorted(indices))


AnySearch = TransitionSearch | LeanSearch | FrontSearch


def study_search(
    rows: Sequence["TrialRow"],
    question: Mapping[str, Any],
    goal: Goal,
    budget: int,
    scouts: int,
    method: str,
) -> AnySearch | Searches:
    """Return what chooses among the planned trials of a study for its question, as recorded."""
    if method == "front":
        return FrontSearch(rows, question, goal, budget, scouts)
    if method == "lean":
        return LeanSearch(rows, question, goal, budget, scouts)
    within = question.get("within")
    if within is None:
        return TransitionSearch(rows, question, budget, scouts)
    parts: defaultdict[str, list[TrialRow]] = defaultdict(list)
    for row in rows:
        parts[describe({within: row.point[within]})].append(row)
    asked = {**question, "parts": len(parts)}
    return Searches(
        {name: TransitionSearch(part, asked, budget, scouts) for name, part in parts.items()}
    )


def recorded_search(
    manifest: Manifest, rows: Sequence["TrialRow"], goal: Goal
) -> tuple[AnySearch, frozenset[str]]:
    """Return the search of a study as far as its trials have brought it, and the keys of those that
    it has asked for."""
    assert manifest.question is not None
    amount = int(manifest.budget["amount"])
    asked = manifest.question, goal, amount, manifest.scouts, manifest.search
    search = study_search(rows, *asked)
    assert not isinstance(search, Searches)  # of which each part is asked for
    return search, search.replay(rows, manifest.metric)
