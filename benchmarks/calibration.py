"""How often the analysis is right, on simulated sweeps whose answer is known."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import click

from analysis.questions.transition.result import TransitionSettings
from benchmarks.bars import Row, budget_rows, front_rows, lean_rows, transition_rows
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
    analyse_ladder = partial(_ladder, settings=settings, varied=varied)
    analyse = partial(_transition, settings=settings, varied=varied)
    if processes == 1:
        found = [analyse(task) for task in transitions]
        front_results = [_front(task) for task in fronts]
        lean_results = [_lean(task) for task in equivalents]
        ladder_results = [analyse_ladder(task) for task in ladders]
        shape_results = [analyse_shapes(task) for task in shapes]
    else:
        with ProcessPoolExecutor(processes) as pool:
            found = _spread(pool, analyse, transitions)
            front_results = _spread(pool, _front, fronts)
            lean_results = _spread(pool, _lean, equivalents)
            ladder_results = _spread(pool, analyse_ladder, ladders)
            shape_results = _spread(pool, analyse_shapes, shapes)
    ladder_results += [each for found_in in shape_results for each in found_in]
    rows = [
        *(*transition_rows(found), *front_rows(front_results)),
        *(*lean_rows(lean_results), *budget_rows(ladder_results)),
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


def _lean_ladder(task: tuple[str, int], varied: bool) -> list[BudgetFound]:
    return lean_budget_found(*task, varied)


def _lean(task: tuple[str, int]) -> LeanFound:
    return lean_found(*task)


@click.command("calibration")
@click.option("--sweeps", type=click.IntRange(1), default=100, show_default=True,
              help="Simulated sweeps of each family.")  # fmt: skip
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True,
              help="Number of the first sweep.")  # fmt: skip
@click.option("--families", help="With commas between; all by default.")
@click.option("--varied", is_flag=True, help="Draw the design of every sweep, too.")
@click.option("--draws", type=click.IntRange(1), default=1000, show_default=True,
              help="Draws of the set of h* and of the abruptness test.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True)
@click.option("--strict", is_flag=True, help="Exit with 1 if a bar is missed.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def command(
    sweeps: int,
    first_seed: int,
    families: str | None,
    varied: bool,
    draws: int,
    processes: int,
    strict: bool,
    as_json: bool,
) -> None:
    """Measure how often the analysis is right, on simulated sweeps whose answer is known."""
    names = tuple(EVERY_FAMILY) if families is None else tuple(families.split(","))
    for name in names:
        if name not in EVERY_FAMILY:
            raise click.BadParameter(
                f"unknown family {name!r}; there are {', '.join(EVERY_FAMILY)}",
                param_hint="--families",
            )
    measured = calibrate(
        names,
        sweeps=sweeps,
        first_seed=first_seed,
        varied=varied,
        settings=TransitionSettings(B=draws, n_mc=max(draws - 1, 1)),
        processes=processes,
    )
    if as_json:
        json.dump(measured.to_json(), sys.stdout, indent=1)
        click.echo()
    else:
        show(measured)
    if strict and not all(row.holds for row in measured.rows):
        sys.exit(1)


def show(measured: Calibration) -> None:
    """Print the verdicts by family, and every rate beside its bar."""
    if verdicts := measured.verdicts():
        click.echo("| family | sweeps | verdicts |\n| --- | --- | --- |")
        for family, counts in verdicts.items():
            words = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
            click.echo(f"| {family} | {counts.total()} | {words} |")
        click.echo()
    click.echo("| quantity | measured | bar | cases | |\n| --- | --- | --- | --- | --- |")
    for row in measured.rows:
        where = f" ({row.where})" if row.where else ""
        mark = "" if row.holds else "missed"
        click.echo(
            f"| {row.quantity} | {row.write(row.value)}{where} | {row.bar.text(row.write)} |"
            f" {row.cases} | {mark} |"
        )
