"""How often effects of single axes are right, on simulated grids of shapes with a known surface."""

from collections.abc import Iterable
from dataclasses import dataclass

import click
import numpy as np
import pandas as pd

from analysis.questions.effects import fit as effects
from analysis.runs.grouped import Grouped, grouped
from analysis.runs.table import Runs

NOISES = ("even", "uneven", "shared", "along depth")


@dataclass(frozen=True, slots=True)
class EffectRates:
    """Shares of sweeps: three with nothing to find, one of intervals, one with a true effect."""

    noise: str
    seeds: int
    false_axis: float
    false_interaction: float
    false_equal_cost: float
    coverage: float
    found: float


def effect_rates(noise: str, seeds: int, sweeps: int, first_seed: int) -> EffectRates:
    """Analyse grids of 3 x 3 shapes in which nothing matters, and in which heads do.

    The true effect is one seed standard deviation a step.
    """
    null, true = [], []
    for number in range(first_seed, first_seed + sweeps):
        frame = _grid(noise, seeds, number)
        null.append(effects.fit(_shapes(frame)))
        frame["score"] += np.log2(frame["heads"])
        true.append(effects.fit(_shapes(frame)))
    told = ("helps", "hurts")
    return EffectRates(
        noise,
        seeds,
        _share(any(axis.verdict in told for axis in found.axes) for found in null),
        _share(found.interactions[0].verdict in told for found in null),
        _share(any(len(g.unbeaten) < len(g.shapes) for g in found.equal_cost) for found in null),
        _share(axis.effect.low <= 0 <= axis.effect.high for found in null for axis in found.axes),
        _share(found.axes[0].verdict == "helps" for found in true),
    )


def _share(hits: Iterable[bool]) -> float:
    return float(np.mean(list(hits)))


def _grid(noise: str, seeds: int, number: int) -> pd.DataFrame:
    rng = np.random.default_rng([number, NOISES.index(noise)])
    lift = rng.normal(size=seeds)
    rows = []
    for heads in (2, 4, 8):
        for depth in (1, 2, 4):
            sd = np.exp(rng.normal(0, 0.6)) if noise == "uneven" else 1.0
            score = sd * rng.normal(size=seeds)
            if noise == "shared":
                score = score + 2 * lift
            if noise == "along depth":
                score = score + lift * (np.log2(depth) - 1)
            rows += [(heads, depth, s, 1000 + 100 * depth, v) for s, v in enumerate(score)]
    return pd.DataFrame(rows, columns=["heads", "depth", "seed", "num_params", "score"])


@click.command("effects")
@click.option("--sweeps", type=click.IntRange(1), default=200, show_default=True,
              help="Simulated grids of each kind of noise and number of seeds.")  # fmt: skip
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True)
def command(sweeps: int, first_seed: int) -> None:
    """Measure how often effects of axes are right."""
    click.echo(
        "| noise | seeds | false axis | false interaction | false equal cost | coverage | found |"
        "\n|" + " --- |" * 7
    )
    for noise in NOISES:
        for seeds in (3, 5):
            rates = effect_rates(noise, seeds, sweeps, first_seed)
            click.echo(
                f"| {noise} | {seeds} | {rates.false_axis:.3f} | {rates.false_interaction:.3f}"
                f" | {rates.false_equal_cost:.3f} | {rates.coverage:.3f} | {rates.found:.2f} |"
            )


def _shapes(frame: pd.DataFrame) -> Grouped:
    axes, costs = ("heads", "depth"), ("num_params",)
    return grouped(Runs(frame, "score"), axes, goal="max", costs=costs, crash_sd=6.0)
