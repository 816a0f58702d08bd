"""How often the analysis is right, on simulated sweeps whose answer is known."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from analysis.questions.transition.result import TransitionSettings
from benchmarks.bars import Row, budget_rows, front_rows, lean_rows, scouted_rows, transition_rows
from benchmarks.ladders import LADDERS
from benchmarks.lean_ladders import LEAN_LADDERS
from benchmarks.outcomes import (
    BudgetFound,
    Found,
    FrontFound,
    LeanFound,
    budget_found,
    front_found,
    lean_budget_found,
    lean_found,
    transition_found,
)
from benchmarks.scouts import SCOUTED, ScoutedFound, scouted_found
from benchmarks.shapes import (
    LEAN_EQUALS,
    LEAN_FEW,
    LEAN_NULLS,
    LEAN_TUNED_EQUALS,
    LEAN_TUNED_NULLS,
    LEAN_UNTRAINED,
    PARETO,
)
from benchmarks.sweeps import FAMILIES

Result = TypeVar("Result")

LEAN = (
    *(*LEAN_NULLS, *LEAN_EQUALS, *LEAN_FEW),
    *(*LEAN_TUNED_NULLS, *LEAN_TUNED_EQUALS, *LEAN_UNTRAINED),
)
EVERY_FAMILY = (
    *FAMILIES,
    *(f"pareto_{family}" for family in PARETO),
    *(f"lean_{family}" for family in LEAN),
    *(f"budgets_{family}" for family in LADDERS),
    *(f"budgets_lean_{family}" for family in LEAN_LADDERS),
    *(f"scouts_{family}" for family in SCOUTED),
)
LEAN_NULL_SWEEPS = 400
"""The family-wise error rate is small, so fewer cases say little about it."""


@dataclass(frozen=True)
class Calibration:
    """Everything measured.

    Attributes:
        found: one entry a transition sweep.
        fronts: one entry a Pareto sweep.
        equivalents: one entry a lean sweep.
        ladders: one entry a sweep at several budgets.
        rows: the rates beside their bars.
    """

    found: list[Found]
    fronts: list[FrontFound]
    equivalents: list[LeanFound]
    ladders: list[BudgetFound]
    rows: list[Row]

    def verdicts(self) -> dict[str, Counter[str]]:
        """Return how often each verdict fell, by family of transitions and of lean questions."""
        counted: dict[str, Counter[str]] = {}
        told = [
            *((one.family, one.verdict) for one in self.found),
            *((one.family, one.verdict) for one in self.equivalents),
            *(
                (f"budgets_{one.family}", f"{one.settled}{'' if one.right else ' (wrong answer)'}")
                for one in self.ladders
            ),
        ]
        for family, verdict in told:
            counted.setdefault(family, Counter())[verdict] += 1
        return counted

    def to_json(self) -> dict[str, Any]:
        """Return rows and verdicts as plain JSON content."""
        return {
            "rows": [row.to_json() for row in self.rows],
            "verdicts": {family: dict(counts) for family, counts in self.verdicts().items()},
        }


def calibrate(
    families: Sequence[str],
    *,
    sweeps: int,
    first_seed: int,
    varied: bool,
    settings: TransitionSettings,
    processes: int = 1,
) -> Calibration:
    """Analyse ``sweeps`` simulated sweeps of each family, numbered from ``first_seed``.

    Args:
        families: of `EVERY_FAMILY`.
        sweeps: number of each (of ``lean_null`` at least 400 where more than 100 are asked for).
        first_seed: number of the first.
        varied: draw head counts, lengths, seeds and noise for every sweep.
        settings: of the transition analysis.
        processes: to work in; one works here.
    """
    numbers = range(first_seed, first_seed + sweeps)
    more = max(sweeps, LEAN_NULL_SWEEPS) if sweeps >= 100 else sweeps
    enough = range(first_seed, first_seed + more)
    transitions = [(name, seed) for name in families if name in FAMILIES for seed in numbers]
    fronts = [(name, seed) for name in PARETO if f"pareto_{name}" in families for seed in numbers]
    equivalents = [
        (name, seed)
        for name in LEAN
        if f"lean_{name}" in families
        for seed in (enough if name in (*LEAN_NULLS, *LEAN_TUNED_NULLS) else numbers)
    ]
    ladders = [(name, n) for name in LADDERS if f"budgets_{name}" in families for n in numbers]
    shapes = [
        (name, seed)
        for name in LEAN_LADDERS
        if f"budgets_lean_{name}" in families
        for seed in numbers
    ]
    analyse_shapes = partial(_lean_ladder, varied=varied)
    chosen = [(name, n) for name in SCOUTED if f"scouts_{name}" in families for n in numbers]
    analyse_scouted = partial(_scouted, settings=settings)
    analyse_ladder = partial(_ladder, settings=settings, varied=varied)
    analyse = partial(_transition, settings=settings, varied=varied)
    if processes == 1:
        found = [analyse(task) for task in transitions]
        front_results = [_front(task) for task in fronts]
        lean_results = [_lean(task) for task in equivalents]
        ladder_results = [analyse_ladder(task) for task in ladders]
        scouted = [analyse_scouted(task) for task in chosen]
        shape_results = [analyse_shapes(task) for task in shapes]
    else:
        with ProcessPoolExecutor(processes) as pool:
            found = _spread(pool, analyse, transitions)
            front_results = _spread(pool, _front, fronts)
            lean_results = _spread(pool, _lean, equivalents)
            ladder_results = _spread(pool, analyse_ladder, ladders)
            shape_results = _spread(pool, analyse_shapes, shapes)
            scouted = _spread(pool, analyse_scouted, chosen)
    ladder_results += [each for found_in in shape_results for each in found_in]
    rows = [
        *(*transition_rows(found), *front_rows(front_results)),
        *(*lean_rows(lean_results), *budget_rows(ladder_results)),
        *scouted_rows([each for found_in in scouted for each in found_in]),
    ]
    return Calibration(found, front_results, lean_results, ladder_results, rows)


def _spread(
    pool: ProcessPoolExecutor,
    analyse: Callable[[tuple[str, int]], Result],
    tasks: Sequence[tuple[str, int]],
) -> list[Result]:
    return list(pool.map(analyse, tasks, chunksize=10))


def _transition(task: tuple[str, int], settings: TransitionSettings, varied: bool) -> Found:
    return transition_found(*task, settings, varied)


def _front(task: tuple[str, int]) -> FrontFound:
    return front_found(*task)


def _ladder(task: tuple[str, int], settings: TransitionSettings, varied: bool) -> BudgetFound:
    return budget_found(*task, settings, varied)


def _scouted(task: tuple[str, int], settings: TransitionSettings) -> list[ScoutedFound]:
    return scouted_found(*task, settings)


def _lean_ladder(task: tuple[str, int], varied: bool) -> list[BudgetFound]:
    return lean_budget_found(*task, varied)


def _lean(task: tuple[str, int]) -> LeanFound:
    return lean_found(*task)
