"""How often the analysis is right, on simulated sweeps whose answer is known."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import click

from analysis.questions.transition.result import TransitionSettings
from benchmarks.bars import Row, budget_rows, front_rows, lean_rows, transition_rows
from benchmarks.ladders import LADDERS, LEAN_LADDERS
from benchmarks.outcomes import (
    BudgetOutcome,
    FrontOutcome,
    LeanOutcome,
    TransitionOutcome,
    budget_outcome,
    front_outcome,
    lean_budget_outcomes,
    lean_outcome,
    transition_outcome,
)
from benchmarks.shapes import (
    LEAN_EQUALS,
    LEAN_FEW,
    LEAN_NULLS,
    LEAN_SCALES,
    LEAN_TUNED_EQUALS,
    LEAN_TUNED_NULLS,
    LEAN_UNTRAINED,
    PARETO,
)
from benchmarks.sweeps import FAMILIES

Outcome = TransitionOutcome | FrontOutcome | LeanOutcome | BudgetOutcome
Kind = TypeVar("Kind", bound=Outcome)
Analyse = Callable[[str, int, TransitionSettings, bool], Sequence[Outcome]]
"""Answers sweep number n of a family, by settings; the last argument: the design is drawn, too."""

LEAN: Final = (
    *(*LEAN_NULLS, *LEAN_SCALES, *LEAN_EQUALS, *LEAN_FEW),
    *(*LEAN_TUNED_NULLS, *LEAN_TUNED_EQUALS, *LEAN_UNTRAINED),
)
KINDS: Final[dict[str, tuple[Iterable[str], Analyse]]] = {
    "": (FAMILIES, lambda *case: [transition_outcome(*case)]),
    "pareto_": (PARETO, lambda name, number, *_: [front_outcome(name, number)]),
    "lean_": (LEAN, lambda name, number, *_: [lean_outcome(name, number)]),
    "budgets_": (LADDERS, lambda *case: [budget_outcome(*case)]),
    "budgets_lean_": (
        LEAN_LADDERS,
        lambda name, number, _, varied: lean_budget_outcomes(name, number, varied),
    ),
}
"""Families and the function that answers their sweeps, by the prefix of the families' names."""
ANALYSES: Final = {
    start + name: partial(analyse, name)
    for start, (names, analyse) in KINDS.items()
    for name in names
}
EVERY_FAMILY: Final = tuple(ANALYSES)
MORE_SWEEPS: Final = 400
FEW_ERRORS: Final = {f"lean_{name}" for name in (*LEAN_NULLS, *LEAN_SCALES, *LEAN_TUNED_NULLS)}
"""Families whose rate of errors is small, so that 100 sweeps say little about it."""


@dataclass(frozen=True)
class Calibration:
    """The outcomes of simulated sweeps, and the rates that follow from them.

    Attributes:
        outcomes: of each sweep, in the order of the families.
        rows: the rates beside their bars.
    """

    outcomes: list[Outcome]
    rows: list[Row]

    def verdicts(self) -> dict[str, Counter[str]]:
        """Return how often each verdict fell, by family of transitions and of lean questions."""
        counted: dict[str, Counter[str]] = {}
        for outcome in self.outcomes:
            if isinstance(outcome, FrontOutcome):
                continue
            family, verdict = outcome.family, outcome.verdict
            if isinstance(outcome, BudgetOutcome):
                family = f"budgets_{family}"
                verdict += "" if outcome.right else " (wrong answer)"
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
        sweeps: number of each (of `FEW_ERRORS` at least 400 where this is 100 or more).
        first_seed: number of the first.
        varied: draw head counts, lengths, seeds and noise for every sweep.
        settings: of the transition analysis.
        processes: to work in; one works here.
    """
    tasks = [
        (family, number)
        for family in families
        for number in range(first_seed, first_seed + _number_of(family, sweeps))
    ]
    analyse = partial(_outcomes, settings=settings, varied=varied)
    if processes == 1:
        results = [analyse(task) for task in tasks]
    else:
        with ProcessPoolExecutor(processes) as pool:
            results = list(pool.map(analyse, tasks, chunksize=10))
    outcomes = [outcome for sweep_outcomes in results for outcome in sweep_outcomes]

    rows = [
        *transition_rows(_of_type(TransitionOutcome, outcomes)),
        *front_rows(_of_type(FrontOutcome, outcomes)),
        *lean_rows(_of_type(LeanOutcome, outcomes)),
        *budget_rows(_of_type(BudgetOutcome, outcomes)),
    ]
    return Calibration(outcomes, rows)


def _of_type(kind: type[Kind], outcomes: Iterable[Outcome]) -> list[Kind]:
    return [outcome for outcome in outcomes if isinstance(outcome, kind)]


def _number_of(family: str, sweeps: int) -> int:
    return max(sweeps, MORE_SWEEPS) if family in FEW_ERRORS and sweeps >= 100 else sweeps


def _outcomes(
    task: tuple[str, int], settings: TransitionSettings, varied: bool
) -> Sequence[Outcome]:
    """Simulate and analyse the sweep of a family and a number."""
    family, number = task
    return ANALYSES[family](number, settings, varied)


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
    calibration = calibrate(
        names,
        sweeps=sweeps,
        first_seed=first_seed,
        varied=varied,
        settings=TransitionSettings(B=draws, n_mc=max(draws - 1, 1)),
        processes=processes,
    )
    if as_json:
        json.dump(calibration.to_json(), sys.stdout, indent=1)
        click.echo()
    else:
        show(calibration)
    if strict and not all(row.holds for row in calibration.rows):
        sys.exit(1)


def show(calibration: Calibration) -> None:
    """Print the verdicts by family, and every rate beside its bar."""
    if verdicts := calibration.verdicts():
        click.echo("| family | sweeps | verdicts |\n| --- | --- | --- |")
        for family, counts in verdicts.items():
            words = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
            click.echo(f"| {family} | {counts.total()} | {words} |")
        click.echo()
    click.echo("| quantity | measured | bar | cases | |\n| --- | --- | --- | --- | --- |")
    for row in calibration.rows:
        where = f" ({row.where})" if row.where else ""
        mark = "" if row.holds else "missed"
        click.echo(
            f"| {row.quantity} | {row.write(row.value)}{where} | {row.bar.text(row.write)} |"
            f" {row.cases} | {mark} |"
        )
