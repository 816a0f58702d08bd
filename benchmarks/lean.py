"""What a race of cheaper shapes trains, and how often it is right, beside the full grid.

Simulated studies of a baseline and 7, 15 or 31 cheaper shapes, whose runs are drawn when they are
asked for, each the same whoever asks. The grid trains every shape with 8 seeds and is answered by
the analysis (`analysis.questions.lean`). Values are in units of the margin.
"""

import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import click
import numpy as np
import pandas as pd

from analysis.questions.lean.design import race
from analysis.rounds.design import play
from analysis.rounds.looks import Run
from benchmarks.shapes import LEAN_SCALES, Floats, scales, seed_noise
from benchmarks.table_fits import fit_lean

SEEDS: Final = 8
"""Seeds of a shape in the grid."""
UNEQUAL: Final = "_unequal"
"""End of the name of a family whose shapes have seed sds of their own (log sd 0.4)."""
KINDS: Final = ("front", "few", "equal", "mixed", "worse", "margin", "one_at_margin")
"""Accuracies that rise with the cost and level off; one to three equal shapes among worse ones; all
equal; from four margins below the baseline to half a margin above it; all worse by 1.5 margins or
more; all exactly at the margin (where every claim is false); one at the margin, the others far
below it."""
FAMILIES: Final = tuple(f"{kind}{end}" for kind in KINDS for end in ("", UNEQUAL))
NULLS: Final = tuple(f"margin{name.removeprefix('null')}" for name in LEAN_SCALES)
"""All exactly at the margin, each shape with a scale of its own."""


@dataclass
class Simulated:
    """A study whose runs are drawn when they are asked for.

    Attributes:
        true: how much better than the baseline each shape is, the baseline last; shapes are in the
            order of their cost.
        sd: between seeds, of each shape.
    """

    family: str
    number: int
    true: Floats
    sd: Floats
    drawn: dict[Run, float] = field(default_factory=dict)

    def is_fine(self, shape: int) -> bool:
        """Whether a shape is no worse by the margin."""
        return bool(self.true[shape] > -1 + 1e-9)

    @property
    def leanest(self) -> int | None:
        """The cheapest shape that is no worse by the margin."""
        return next(filter(self.is_fine, range(len(self.true) - 1)), None)

    def value(self, run: Run) -> float:
        """Return the metric of a run."""
        if run not in self.drawn:
            name = zlib.crc32(self.family.encode())
            rng = np.random.default_rng([name, len(self.true), self.number, *run])
            noise = self.sd[run.shape] * seed_noise(self.family, 1, rng)[0]
            self.drawn[run] = float(self.true[run.shape] + noise)
        return self.drawn[run]

    def grid(self) -> pd.DataFrame:
        """Return the runs of the full grid as a table."""
        rows = [
            (k, seed, self.value(Run(k, seed)), k)
            for k in range(len(self.true))
            for seed in range(SEEDS)
        ]
        return pd.DataFrame(rows, columns=["shape", "seed", "score", "cost"])


def simulated(family: str, shapes: int, number: int) -> Simulated:
    """Return study ``number`` of a family with so many cheaper shapes."""
    kind = next(kind for kind in sorted(KINDS, reverse=True) if family.startswith(kind))
    rng = np.random.default_rng([zlib.crc32(family.encode()), shapes, number])
    true = np.zeros(shapes + 1)
    if kind == "front":
        cost = np.sort(rng.uniform(0.15, 1.0, shapes))
        gain = 1 - np.exp(-rng.uniform(2.0, 6.0) * cost)
        true[:-1] = rng.uniform(5, 15) * (gain - gain[-1])
        true[:-1] += rng.normal(0, 0.4, shapes)
    elif kind == "few":
        true[:-1] = -rng.uniform(1.5, 6.0, shapes)
        true[rng.choice(shapes, rng.integers(1, 4), replace=False)] = 0.0
    elif kind == "mixed":
        true[:-1] = rng.uniform(-4.0, 0.5, shapes)
    elif kind == "worse":
        true[:-1] = -rng.uniform(1.5, 6.0, shapes)
    elif kind == "margin":
        true[:-1] = -1.0
    elif kind == "one_at_margin":
        true[:-1] = -rng.uniform(2.0, 6.0, shapes)
        true[rng.integers(shapes)] = -1.0
    sd = rng.uniform(0.15, 0.5) * scales(family, shapes + 1, rng)
    return Simulated(family, number, true, sd)


@dataclass(frozen=True)
class Found:
    """What a way of running a study trained and said.

    Attributes:
        found: whether its choice is the leanest shape that is no worse by the margin.
        usable: whether its choice is no worse by the margin.
        is_false: whether any shape was established that is worse by the margin or more.
        verdict: found, excluded or undecided.
        is_lost: whether the leanest shape left after its first run.
    """

    family: str
    shapes: int
    trials: int
    rounds: int
    verdict: str
    found: bool
    usable: bool
    is_false: bool
    is_lost: bool


def raced(family: str, shapes: int, number: int) -> Found:
    """Race the shapes of a simulated study."""
    study = simulated(family, shapes, number)
    design = race([(shapes, *range(shapes))], 1.0)
    played = play(design, study.value, lambda _run: True)
    assert played.answer is not None
    standings = played.answer[0]
    accepted = [each.shape for each in standings if each.outcome == "established"]
    is_excluded = all(each.outcome == "excluded" for each in standings)
    verdict = "found" if accepted else "excluded" if is_excluded else "undecided"
    trials = sum(len(asked.runs) for asked in played.rounds)
    leanest = None if study.leanest is None else standings[study.leanest]
    is_lost = leanest is not None and (leanest.outcome, leanest.seeds) == ("left early", 1)
    return _found(study, trials, len(played.rounds), verdict, accepted, is_lost)


def gridded(family: str, shapes: int, number: int) -> Found:
    """Answer the full grid of the same study."""
    study = simulated(family, shapes, number)
    frame = study.grid()
    result = fit_lean(
        frame, baseline={"shape": shapes}, margin=1.0, config=["shape"], metric="score",
        costs=["cost"],
    )  # fmt: skip
    accepted = [int(row.config["shape"]) for row in result.table if row.accepted]
    return _found(study, len(frame), 1, result.verdict, accepted, False)


def _found(
    study: Simulated, trials: int, rounds: int, verdict: str, accepted: Sequence[int], is_lost: bool
) -> Found:
    choice = min(accepted, default=None)
    return Found(
        *(study.family, len(study.true) - 1, trials, rounds, verdict),
        found=choice is not None and choice == study.leanest,
        usable=choice is not None and study.is_fine(choice),
        is_false=not all(map(study.is_fine, accepted)),
        is_lost=is_lost,
    )


HEADER: Final = (
    *("family", "shapes", "studies", "trials", "most", "of the grid", "rounds", "leanest found"),
    *("grid", "a good one", "grid", "excluded", "grid", "false", "grid", "lost at one seed"),
)


def row(races: Sequence[Found], grids: Sequence[Found]) -> list[str]:
    """Return the row of a family in the table: the race beside the grid."""

    def share(outcomes: Sequence[Found], holds: Callable[[Found], bool]) -> str:
        return f"{sum(map(holds, outcomes)) / len(outcomes):.1%}"

    trials = [outcome.trials for outcome in races]
    mean, of_grid = float(np.mean(trials)), np.mean([outcome.trials for outcome in grids])
    counts = (
        *(races[0].family, str(races[0].shapes), str(len(races)), f"{mean:.1f}"),
        *(str(max(trials)), f"{mean / of_grid:.2f}"),
        f"{np.mean([outcome.rounds for outcome in races]):.1f}",
    )
    rates: list[Callable[[Found], bool]] = [
        lambda outcome: outcome.found,
        lambda outcome: outcome.usable,
        lambda outcome: outcome.verdict == "excluded",
        lambda outcome: outcome.is_false,
    ]
    pairs = [share(outcomes, rate) for rate in rates for outcomes in (races, grids)]
    return [*counts, *pairs, share(races, lambda outcome: outcome.is_lost)]


@click.command("lean")
@click.option("--studies", type=click.IntRange(1), default=100, show_default=True,
              help="Simulated studies of each family.")  # fmt: skip
@click.option("--first", type=click.IntRange(0), default=0, show_default=True,
              help="Number of the first study.")  # fmt: skip
@click.option("--shapes", "sizes", type=click.IntRange(1), multiple=True, default=(7, 15, 31),
              show_default=True, help="Cheaper shapes.")  # fmt: skip
@click.option("--families", default=",".join((*FAMILIES, *NULLS)), help="With commas between.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True)
def command(
    studies: int, first: int, sizes: tuple[int, ...], families: str, processes: int
) -> None:
    """Measure what a race of cheaper shapes trains, and how often it is right."""
    cases = [(family, size) for size in sizes for family in families.split(",")]
    click.echo(f"| {' | '.join(HEADER)} |\n|{' --- |' * len(HEADER)}")
    with ProcessPoolExecutor(processes) as pool:
        for family, size in cases:
            numbers = range(first, first + studies)
            both = [
                list(pool.map(partial(way, family, size), numbers, chunksize=20))
                for way in (raced, gridded)
            ]
            click.echo(f"| {' | '.join(row(*both))} |")
