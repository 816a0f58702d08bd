"""What a search for the front trains, and how often it is right, beside the full grid.

Simulated studies of 8, 16 or 32 shapes, whose runs are drawn when they are asked for, each the same
whoever asks. The grid trains every shape with 8 seeds. Both are answered by the analysis
(`analysis.questions.pareto`), the search with the levels of its last look. Means are in units of
a margin, and seed sds lie between 0.15 and 0.5 of it.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass
from functools import partial
from typing import Final

import click
import numpy as np
import pandas as pd

from analysis.questions.pareto.design import LEVELS, find_front
from analysis.questions.pareto.result import ParetoSettings
from analysis.rounds.design import play
from analysis.rounds.looks import Run
from benchmarks.lean import UNEQUAL, Simulated, simulated
from benchmarks.table_fits import fit_pareto

FAMILIES: Final = tuple(
    f"{kind}{end}"
    for kind in ("front", "few", "mixed", "equal", "worse", "pairs", "steps")
    for end in ("", UNEQUAL)
)
"""Those of `benchmarks.lean`; pairs of equal shapes, each pair better than the cheaper ones; and
shapes each of which is better than the cheaper ones by a seed sd or two."""
LAST: Final = ParetoSettings(alpha=LEVELS[-1])


def study(family: str, shapes: int, number: int) -> Simulated:
    """Return study ``number`` of a family with so many shapes, the dearest last."""
    kind = family.removesuffix(UNEQUAL)
    if kind not in ("pairs", "steps"):
        return simulated(family, shapes - 1, number)
    made = simulated(f"equal{family.removeprefix(kind)}", shapes - 1, number)
    rank = np.arange(float(shapes))
    made.true = 2.0 * (rank // 2) if kind == "pairs" else 0.4 * rank
    made.family = family
    return made


@dataclass(frozen=True)
class Found:
    """What a way of running a study trained and said.

    Attributes:
        decided: shapes whose place is told rightly.
        falsely_on: shapes told on the front of those ``behind`` it.
        falsely_off: shapes told off the front of those ``ahead``, on it, without the cheapest.
    """

    trials: int
    rounds: int
    decided: int
    falsely_on: int
    behind: int
    falsely_off: int
    ahead: int


def searched(family: str, shapes: int, number: int) -> Found:
    """Search for the front of a simulated study."""
    made = study(family, shapes, number)
    design = find_front([(float(cost),) for cost in range(shapes)])
    rounds = play(design, made.value, lambda _run: True).rounds
    return _found(made, [run for asked in rounds for run in asked.runs], len(rounds), LAST)


def gridded(family: str, shapes: int, number: int) -> Found:
    """Answer the full grid of the same study."""
    made = study(family, shapes, number)
    runs = [Run(shape, seed) for shape in range(shapes) for seed in range(8)]
    return _found(made, runs, 1, ParetoSettings())


def _found(made: Simulated, runs: Sequence[Run], rounds: int, settings: ParetoSettings) -> Found:
    rows = [(*run, made.value(run), float(run.shape)) for run in runs]
    table = pd.DataFrame(rows, columns=["shape", "seed", "score", "num_params"])
    result = fit_pareto(table, config=["shape"], metric="score", settings=settings)
    best = np.maximum.accumulate(made.true)
    is_on = np.append(True, made.true[1:] > best[:-1] + 1e-9)
    told = {int(row.config["shape"]): row.class_ for row in result.table}
    decided = sum(told[k] == ("on" if is_on[k] else "off") for k in told)
    falsely_on = sum(told[k] == "on" for k in told if not is_on[k])
    falsely_off = sum(told[k] == "off" for k in told if is_on[k])
    ahead = int(is_on.sum())
    return Found(len(runs), rounds, decided, falsely_on, len(is_on) - ahead, falsely_off, ahead - 1)


HEADER: Final = (
    *("family", "shapes", "studies", "trials", "of the grid", "rounds", "decided rightly", "grid"),
    *("falsely on", "grid", "falsely off", "grid"),
)


def row(family: str, shapes: int, searches: Sequence[Found], grids: Sequence[Found]) -> list[str]:
    """Return the row of a family in the table: the search beside the grid."""
    few, full = (
        np.array([astuple(each) for each in ways]).sum(axis=0) for ways in (searches, grids)
    )
    number = len(searches)

    def shares(part: int, whole: int | None = None) -> list[str]:
        all_of = number * shapes if whole is None else max(1, few[whole])
        return [f"{sums[part] / all_of:.1%}" for sums in (few, full)]

    return [
        *(family, str(shapes), str(number), f"{few[0] / number:.1f}", f"{few[0] / full[0]:.2f}"),
        *(f"{few[1] / number:.1f}", *shares(2), *shares(3, 4), *shares(5, 6)),
    ]


@click.command("fronts")
@click.option("--studies", type=click.IntRange(1), default=100, show_default=True,
              help="Simulated studies of each family.")  # fmt: skip
@click.option("--first", type=click.IntRange(0), default=0, show_default=True,
              help="Number of the first study.")  # fmt: skip
@click.option("--shapes", "sizes", type=click.IntRange(2), multiple=True, default=(8, 16, 32),
              show_default=True, help="Shapes.")  # fmt: skip
@click.option("--families", default=",".join(FAMILIES), help="With commas between.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True)
def command(
    studies: int, first: int, sizes: tuple[int, ...], families: str, processes: int
) -> None:
    """Measure what a search for the front trains, and how often it is right."""
    click.echo(f"| {' | '.join(HEADER)} |\n|{' --- |' * len(HEADER)}")
    with ProcessPoolExecutor(processes) as pool:
        for size in sizes:
            for family in families.split(","):
                numbers = range(first, first + studies)
                both = [
                    list(pool.map(partial(way, family, size), numbers, chunksize=20))
                    for way in (searched, gridded)
                ]
                click.echo(f"| {' | '.join(row(family, size, *both))} |")
