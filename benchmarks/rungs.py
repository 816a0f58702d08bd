"""Does a short training tell which setting is the best of a long one?

Reads the record of a finished study in which every setting of a nuisance axis (a learning rate)
trained with every seed to every budget of a ladder, none stopped early, and trains nothing. Such a
study names the axis in its question and lists its values; ``tuned(...)`` would stop them:

    space=grid(heads=[1, 2, 4], lr=[1e-3, 3e-3, 1e-2, 3e-2]),
    question=Transition(x="heads", by=None, nuisance=("lr",)),
    recipe=lambda point: Recipe(lr=point.lr, schedule="wsd", warmup_steps=50),
    budget=epochs(40, ladder=[5, 10, 20, 40]), replicates=2,

    python -m benchmarks rungs my_heads-quick --home FOLDER
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

import click
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hsweep.errors import UserError
from hsweep.paths import Home
from hsweep.record.study import Study

Floats = NDArray[np.float64]
DECAY: Final = 0.2
"""Share of a shorter budget that its decay branch trains beside the trunk."""


@dataclass(frozen=True)
class Curves:
    """What every setting comes to at every budget.

    Attributes:
        budgets: ascending; the last is the end.
        values: smaller is better, inf where a run has no value; shape
            [cells, settings, seeds, budgets].
        unit: of the values.
    """

    budgets: tuple[int, ...]
    values: Floats
    unit: str

    @property
    def seed_sd(self) -> float:
        """Standard deviation between seeds at the end, at each cell's best setting, pooled."""
        ends = self.values[..., -1]
        best = np.argmin(ends.mean(axis=2), axis=1)
        chosen = ends[np.arange(len(ends)), best]
        return float(np.sqrt(np.mean(np.var(chosen, axis=1, ddof=1))))

    def scouts(self) -> Iterator[tuple[Floats, Floats]]:
        """Yield each cell's settings by budget for one seed, and what the mean of the other seeds
        loses at the end by each setting, against the setting that the one seed prefers there.

        A run without a value counts as the worst of its cell.
        """
        for cell in self.values:
            ends = cell[..., -1]
            ends = np.where(np.isfinite(ends), ends, ends[np.isfinite(ends)].max())
            for seed in range(cell.shape[1]):
                others = np.delete(ends, seed, axis=1).mean(axis=1)
                yield cell[:, seed], others - others[np.argmin(cell[:, seed, -1])]


@dataclass(frozen=True)
class RungSkill:
    """What the order of the settings at one budget tells of their order at the end.

    Attributes:
        budget: the rung.
        same: how often the best there is the best at the end, for one seed.
        in_half, in_third: how often the best at the end is among those that a rung with this
            reduction factor keeps.
    """

    budget: int
    same: float
    in_half: float
    in_third: float


@dataclass(frozen=True)
class Halving:
    """What successive halving by one scout comes to.

    Attributes:
        rungs: the budgets at which settings compete, empty for the end alone.
        factor: a rung keeps the best 1/factor.
        same: how often it chooses what its scout prefers at the end.
        regret: what the other seeds lose by it on average, in the unit of the values, against the
            scout's preference at the end.
        worst: the largest such loss.
        cost: training of the scouts of one cell in runs of the full budget.
    """

    rungs: tuple[int, ...]
    factor: int
    same: float
    regret: float
    worst: float
    cost: float


def curves_of(
    trials: pd.DataFrame, *, cell: Sequence[str], nuisance: Sequence[str], metric: str, scale: str,
    goal: str,
) -> Curves:  # fmt: skip
    """Return the curves of a table of trials, one a row, with columns ``seed`` and ``budget``.

    Args:
        scale: ``error`` for decades of the metric; else its own unit.

    Raises:
        UserError: fewer than two seeds, settings or budgets, or a setting that lacks some of them.
    """
    found = trials.assign(value=trials[metric].astype(float) * (1 if goal == "min" else -1))
    if scale == "error":
        found["value"] = np.log10(found["value"])
    axes = [*cell, *nuisance, "seed", "budget"]
    if (found["status"] == "stopped_early").any() or (found["status"] == "planned").any():
        raise UserError(
            "every setting has to train to every budget with every seed, and some trials were "
            "stopped early or have not run; list the values of the axis instead of tuned(...), "
            "with early_stopping=None, and run the study to its end"
        )
    table = found.set_index(axes)["value"].unstack("budget")
    seeds, budgets = found["seed"].nunique(), sorted(found["budget"].unique())
    settings = len(found[list(nuisance)].drop_duplicates())
    cells, rest = divmod(len(table), seeds * settings)
    if rest or min(seeds, settings, len(budgets)) < 2:
        raise UserError(
            "a benchmark of rungs needs at least two seeds, settings and budgets, all of them in "
            f"every cell; here are {seeds} seeds, {settings} settings and {len(budgets)} budgets, "
            f"and {len(table)} runs"
        )
    values = table.to_numpy().reshape(cells, settings, seeds, len(budgets))
    return Curves(
        tuple(int(budget) for budget in budgets),
        np.where(np.isfinite(values), values, np.inf),
        "decades" if scale == "error" else metric,
    )


def skill(curves: Curves, rung: int) -> RungSkill:
    """Return what the budget at index ``rung`` tells of the end."""
    kept: dict[int, list[bool]] = {1: [], 2: [], 3: []}
    for values, _ in curves.scouts():
        order = np.argsort(values[:, rung], kind="stable").tolist()
        best = int(np.argmin(values[:, -1]))
        for factor, hits in kept.items():
            among = 1 if factor == 1 else max(1, len(order) // factor)
            hits.append(best in order[:among])
    same, half, third = (fmean(kept[factor]) for factor in (1, 2, 3))
    return RungSkill(curves.budgets[rung], same, half, third)


def halving(curves: Curves, rungs: Sequence[int], factor: int) -> Halving:
    """Return what scouts come to that compete at the budgets of these indices, and at the end
    where more than one is left."""
    same, lost, costs = [], [], []
    for values, regret in curves.scouts():
        left, units, shorter = list(range(len(values))), 0.0, 0
        for rung in (*rungs, len(curves.budgets) - 1):
            if len(left) == 1:
                break
            budget = curves.budgets[rung]
            # The trunk goes on from where the shorter budget's decay began.
            units += len(left) * (budget - (1 - DECAY) * shorter)
            shorter = budget
            left.sort(key=lambda setting: values[setting, rung])
            is_end = rung == len(curves.budgets) - 1
            left = left[: 1 if is_end else max(1, len(left) // factor)]
        same.append(left[0] == int(np.argmin(values[:, -1])))
        lost.append(float(regret[left[0]]))
        costs.append(units / curves.budgets[-1])
    return Halving(
        tuple(curves.budgets[rung] for rung in rungs),
        factor, fmean(same), fmean(lost), max(lost), fmean(costs),
    )  # fmt: skip


def designs(curves: Curves) -> list[Halving]:
    """Return ladders of up to two rungs with reduction factors 2 and 3, and the end alone."""
    shorter = range(len(curves.budgets) - 1)
    ladders = [(), *itertools.combinations(shorter, 1), *itertools.combinations(shorter, 2)]
    return [
        halving(curves, rungs, factor)
        for rungs in ladders
        for factor in ((2, 3) if rungs else (2,))
    ]


def curves_of_study(study: Study) -> Curves:
    """Return the curves of a study.

    Raises:
        UserError: its question names no nuisance axis, or `curves_of` refuses its trials.
    """
    manifest = study.manifest
    asked = manifest.question or {}
    nuisance = list(asked.get("nuisance", ()))
    if not nuisance:
        raise UserError(f"the question of {study.name} names no nuisance axis")
    with study.reading() as tables:
        trials = tables.trials_frame()
    cell = [axis for axis in manifest.axes if axis not in nuisance and trials[axis].nunique() > 1]
    return curves_of(
        trials, cell=cell, nuisance=nuisance, metric=manifest.metric, goal=manifest.goal,
        scale=str(asked.get("scale")),
    )  # fmt: skip


@click.command("rungs")
@click.argument("names", nargs=-1, required=True, metavar="STUDY...")
@click.option("--home", type=click.Path(path_type=Path), required=True, help="Their home.")
def command(names: Sequence[str], home: Path) -> None:
    """Measure which rung of a ladder predicts the best setting at its end, in finished studies."""
    known = {}
    for name in names:
        try:
            known[name] = curves_of_study(Study.open(Home(home.expanduser().absolute()), name))
        except UserError as error:
            raise click.ClickException(f"{name}: {error}") from error
    click.echo(
        "| study | rung | best there is best at the end | end's best in the best half "
        "| in the best third |\n|" + " --- |" * 5
    )
    for name, curves in known.items():
        for rung in range(len(curves.budgets) - 1):
            row = skill(curves, rung)
            click.echo(
                f"| {name} | {_of_end(row.budget, curves)} | {row.same:.0%} | {row.in_half:.0%} "
                f"| {row.in_third:.0%} |"
            )
    click.echo(
        "\n| study | rungs | factor | scouts cost, runs | scout's choice at the end | regret "
        "| in seed sd | worst, in seed sd |\n|" + " --- |" * 8
    )
    for name, curves in known.items():
        sd = curves.seed_sd
        for found in designs(curves):
            rungs = ", ".join(_of_end(rung, curves) for rung in found.rungs) or "the end alone"
            click.echo(
                f"| {name} | {rungs} | {found.factor if found.rungs else ''} | {found.cost:.2f} "
                f"| {found.same:.0%} | {found.regret:.3g} {curves.unit} | {found.regret / sd:.2f} "
                f"| {found.worst / sd:.1f} |"
            )


def _of_end(budget: int, curves: Curves) -> str:
    share = budget / curves.budgets[-1]
    return f"1/{round(1 / share)}" if math.isclose(1 / share, round(1 / share)) else f"{share:.2f}"
