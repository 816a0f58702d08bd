"""The head-count study, end to end, beside what users write today."""

import contextlib
import functools
import json
import os
import sqlite3
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import click

from benchmarks.pairs import (
    Pairing,
    Quantity,
    environment,
    in_process,
    in_turn,
    measured,
    show,
)

TUTORIAL, EXPERT, OPTUNA = "tutorial", "expert", "optuna"


class Rival(NamedTuple):
    """Another side: what it is called, the ratio that is held, and the one to reach in the end."""

    label: str
    bar: float
    goal: float


RIVALS: Final = {
    TUTORIAL: Rival("tutorial-style Ray Tune", 6.0, 6.0),
    EXPERT: Rival("expert Ray Tune", 1.1, 1.5),
    OPTUNA: Rival("Optuna", 0.75, 1.15),
}
MOST_OVER_FLOOR: Final = 1.4
FLOOR_GOAL: Final = 1.25
MOST_SECONDS: Final = 6.0
"""Of a study in which next to nothing is trained."""
MOST_CHANCE: Final = 0.01
"""How improbable a difference between final errors must be by chance to count as one."""

_FLIPS: Final = 20_000

Cell = tuple[int, int, int]
"""Heads, length and seed of a trial."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is trained, the same on every side.

    Attributes:
        heads: numbers of heads.
        lengths: lengths of the sequences.
        seeds: how many seeds.
        epochs: passes over the training sequences.
        sequences: training sequences; a quarter as many for validation.
        processes: trials at once.
    """

    heads: tuple[int, ...] = (1, 2, 3, 4, 5)
    lengths: tuple[int, ...] = (8, 32, 128)
    seeds: int = 2
    epochs: int = 20
    sequences: int = 8000
    processes: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))


SIZES: Final = {
    "whole": Setting(),
    "nothing": Setting(heads=(1, 2), lengths=(8,), epochs=1, sequences=2048),
}
"""Thirty trials; four of eight updates."""
QUICK: Final = Setting(heads=(1, 2), lengths=(8,), epochs=2, sequences=1024)


@dataclass(slots=True)
class Sides:
    """Runs the sides, each in a process of its own and an empty folder, and keeps what they found.

    Attributes:
        setting: what is trained.
        folder: for everything that is written.
        errors: final NMSE of every trial, by side.
        load: load average before each run, by side.
        steps: seconds of our side's training steps, of each of its runs.
        repeats: whether all runs of our side gave the same errors, to the bit.
    """

    setting: Setting
    folder: Path
    errors: dict[str, dict[Cell, float]] = field(default_factory=dict)
    load: dict[str, list[float]] = field(default_factory=dict)
    steps: list[float] = field(default_factory=list)
    repeats: bool = True

    @property
    def data(self) -> Path:
        """Folder of the data that the other sides read."""
        return self.folder / "data"

    def write_data(self) -> None:
        """Write the very sequences that our side generates."""
        import torch

        from benchmarks.baselines.study_data import Data, data_file
        from hsweep.seeding import replicate_seeds
        from tasks.synthetic.retrieval import Retrieval, generate

        self.data.mkdir()
        count = self.setting.sequences
        for length in self.setting.lengths:
            task = Retrieval(seq_len=length, num_train=count, num_validation=count // 4)
            for seed in range(self.setting.seeds):
                made = generate(task, replicate_seeds(0, seed).data, torch.device("cpu"))
                data = Data(*made.train, *made.validation)
                torch.save(data._asdict(), data_file(self.data, length, seed))

    def ours(self) -> float:
        """Return the seconds of ``hsweep run``, from the start of the process to its end."""
        home = self._new_folder("ours")
        setting = self.setting
        chosen = {
            "heads": _listed(setting.heads),
            "seq_len": _listed(setting.lengths),
            "sequences": str(setting.sequences),
            "epochs": str(setting.epochs),
            "replicates": str(setting.seeds),
        }
        seconds = self._timed(
            "ours",
            [
                *("-m", "hsweep", "run", "benchmarks/head_count.py", "--study", "head_count"),
                *("--home", str(home), "--max-concurrent", str(setting.processes)),
                *(word for item in chosen.items() for word in ("--set", "=".join(item))),
            ],
        )
        study = home / "studies" / "head_count"
        if not (study / "report.html").exists():
            raise RuntimeError(f"{study} lacks its report")
        errors, steps = _our_results(study / "trials.parquet")
        _check_tracked(home / "mlflow" / "mlflow.db", len(errors))
        self.steps.append(steps)
        self.repeats &= self.errors.setdefault("ours", errors) == errors
        return seconds

    def theirs(self, side: str) -> float:
        """Return the seconds of another side's program, from the start to the end."""
        out = self._new_folder(side)
        setting = self.setting
        seconds = self._timed(
            side,
            [
                *("-m", f"benchmarks.baselines.study_{side}"),
                *("--data", str(self.data), "--out", str(out)),
                *("--heads", *map(str, setting.heads), "--lengths", *map(str, setting.lengths)),
                *("--seeds", str(setting.seeds), "--epochs", str(setting.epochs)),
                *("--processes", str(setting.processes)),
            ],
        )
        self.errors[side] = {
            (row["heads"], row["seq_len"], row["seed"]): row["nmse"]
            for row in json.loads((out / "results.json").read_text("utf-8"))
        }
        if side != OPTUNA:
            _check_tracked(out / "mlflow.db", len(self.errors[side]))
        return seconds

    def _timed(self, side: str, arguments: Sequence[str]) -> float:
        """Return the seconds of a side."""
        self.load.setdefault(side, []).append(round(os.getloadavg()[0], 2))
        # One thread a trial on every side; none calls home.
        ended = in_process(
            arguments,
            variables={
                "OMP_NUM_THREADS": "1",
                "RAY_USAGE_STATS_ENABLED": "0",
                # Ray's workers give way to every other process by default, Optuna's do not: on a
                # machine that others use too that would be measured instead.
                "RAY_worker_niceness": "0",
                "MLFLOW_DISABLE_TELEMETRY": "true",
            },
        )
        click.echo(f"{side}: {ended.seconds:.1f} s", err=True)
        return ended.seconds

    def _new_folder(self, side: str) -> Path:
        folder = self.folder / f"{side}-{len(self.load.get(side, []))}"
        folder.mkdir()
        return folder


def _check_tracked(database: Path, expected: int) -> None:
    """Refuse a side whose trials did not all reach MLflow: it has not done the work.

    Raises:
        RuntimeError: runs are missing, or without their metrics.
    """
    with contextlib.closing(sqlite3.connect(database)) as store:
        query = "select count(distinct run_uuid) from metrics where key = 'nmse'"
        (found,) = store.execute(query).fetchone()
    if found != expected:
        raise RuntimeError(f"{database} holds {found} runs with metrics, not {expected}")


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _our_results(table: Path) -> tuple[dict[Cell, float], float]:
    """Return the final errors and the seconds of all training steps together."""
    import pyarrow.parquet as pq

    rows = pq.read_table(table).to_pylist()
    errors = {(row["heads"], row["seq_len"], row["seed"]): row["nmse"] for row in rows}
    return errors, sum(row["train_seconds"] for row in rows)


class Agreement(NamedTuple):
    """How the final errors of two sides compare, on the same data: the geometric mean of theirs
    over ours, and the probability that seeds alone make it differ from 1 so much."""

    ratio: float
    chance: float


def agreement(ours: Mapping[Cell, float], theirs: Mapping[Cell, float]) -> Agreement:
    """Compare final errors, by a test of signs.

    Where both sides draw their initial weights and orders from the same distributions, a trial's
    logarithm of theirs over ours is as likely as its opposite. The mean over all trials is held
    against those of random signs.

    Raises:
        ValueError: the sides have not trained the same trials.
    """
    import numpy as np
    from scipy import stats

    if ours.keys() != theirs.keys():
        raise ValueError(f"trials of one side alone: {sorted(ours.keys() ^ theirs.keys())}")
    differences = np.log([theirs[cell] / ours[cell] for cell in ours])
    found = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=_FLIPS, rng=0
    )
    return Agreement(float(np.exp(differences.mean())), float(found.pvalue))


def _beside(
    sides: Sides, times: Mapping[str, Sequence[tuple[float, float]]], *, has_bars: bool
) -> tuple[list[Pairing], list[Quantity]]:
    """Return our times beside those of the other sides, and whether the final errors agree."""
    pairings, quantities = [], []
    for side, pairs in times.items():
        rival, errors = RIVALS[side], agreement(sides.errors["ours"], sides.errors[side])
        pairings.append(
            Pairing(
                name=f"whole study (goal {rival.goal:g}x)",
                ours="hsweep run",
                theirs=rival.label,
                unit="s",
                is_better="less",
                pairs=tuple(pairs),
                bar=rival.bar if has_bars else None,
                facts={"load_before": {name: sides.load[name] for name in ("ours", side)}},
            )
        )
        quantities.append(
            Quantity(
                name=f"final NMSE, {rival.label} over ours: {errors.ratio:.3f}; probability of that"
                " by chance",
                value=errors.chance,
                unit="",
                bar=MOST_CHANCE if has_bars else None,
                is_better="more",
            )
        )
    return pairings, quantities


def _over_floor(sides: Sides, ours: Sequence[float], *, has_bars: bool) -> Quantity:
    floor = statistics.median(sides.steps) / sides.setting.processes
    return Quantity(
        name="hsweep run over its floor: the training steps alone, on all cores"
        f" (goal {FLOOR_GOAL:g}x)",
        value=statistics.median(ours) / floor,
        unit="x",
        bar=MOST_OVER_FLOOR if has_bars else None,
        facts={"floor_seconds": floor, "errors_repeat_to_the_bit": sides.repeats},
    )


def _fixed_cost(sides: Sides, ours: Sequence[float], *, has_bars: bool) -> Quantity:
    """Return what a study takes in which next to nothing is trained."""
    return Quantity(
        name="a study of next to nothing, from start to end",
        value=statistics.median(ours),
        unit="s",
        bar=MOST_SECONDS if has_bars else None,
        facts={"seconds": list(ours), "load_before": sides.load["ours"]},
    )


@click.command("study")
@click.option("--tutorial-pairs", type=click.IntRange(0), default=1, show_default=True,
              help="How often the tutorial-style script is run; it takes minutes.")  # fmt: skip
@click.option("--size", type=click.Choice(tuple(SIZES)), default="whole", show_default=True,
              help="nothing: what ours takes where next to nothing is trained.")  # fmt: skip
@measured(pairs=3)
def command(tutorial_pairs: int, size: str, pairs: int, quick: bool, strict: bool) -> None:
    """Measure a whole study beside Ray Tune's and Optuna's own scripts."""
    has_bars, pairs = not quick, 1 if quick else pairs
    setting = QUICK if quick else SIZES[size]
    about = environment()
    pairings: list[Pairing] = []
    with tempfile.TemporaryDirectory(prefix="hsweep-study-") as folder:
        sides = Sides(setting, Path(folder))
        if size == "nothing":
            ours = [sides.ours() for _ in range(pairs)]
            quantities = [_fixed_cost(sides, ours, has_bars=has_bars)]
        else:
            sides.write_data()
            times = _measured(sides, pairs, tutorial_pairs)
            pairings, quantities = _beside(sides, times, has_bars=has_bars)
            ours = [pair[0] for both in times.values() for pair in both]
            quantities.append(_over_floor(sides, ours, has_bars=has_bars))
    show("study", pairings, about, quantities=quantities, strict=strict)


def _measured(
    sides: Sides, pairs: int, tutorial_pairs: int
) -> dict[str, Sequence[tuple[float, float]]]:
    """Return the seconds of our side and of another, of each pair, by the other side."""
    numbers = dict.fromkeys(RIVALS, pairs) | {TUTORIAL: tutorial_pairs}
    return {
        side: in_turn(
            sides.ours,
            functools.partial(sides.theirs, side),
            number,
        )
        for side, number in numbers.items()
        if number
    }
