"""Simulated shapes with a known front, and a known set of lean equivalents.

Accuracies of shapes by cost, four or five seeds each; the truth is in column ``true``. All
randomness comes from the given seed.
"""

import zlib
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHAPE_OPTIONS: Final[dict[str, Any]] = {
    "config": ["shape"],
    "metric": "top1",
    "costs": ["num_params"],
}
PARETO: Final = ("homo", "hetero", "ties", "heavy")
LEAN_NULLS: Final = ("null", "null_hetero", "null_heavy")
LEAN_EQUALS: Final = ("equal", "equal_hetero", "equal_heavy")
LEAN_FEW: Final = ("few_equal",)
"""Two seeds, a margin of one seed standard deviation: next to nothing can be established."""
LEAN_SCALES: Final = (
    *("null_spread", "null_wide", "null_quiet", "null_noisy", "null_rising"),
    *("null_t3", "null_stuck", "null_quiet_stuck"),
)
"""Every candidate exactly at the margin, and every shape with a scale of its own (`scales`,
`seed_noise`), over 3, 5 and 10 seeds of 1, 4, 8 and 11 candidates."""
LEAN_DESIGNS: Final = tuple((shapes, seeds) for shapes in (1, 4, 8, 11) for seeds in (3, 5, 10))
LEAN_UNTRAINED: Final = ("untrained", "untrained_hetero")
LEAN_TUNED_NULLS: Final = ("tuned_null", "tuned_null_base")
LEAN_TUNED_EQUALS: Final = ("tuned_equal",)
CHANCE: Final = 0.1
MARGIN: Final = 0.015
"""Two seed standard deviations."""


def scales(family: str, shapes: int, rng: np.random.Generator) -> Floats:
    """Return how far the seeds of each shape scatter, the cheapest first and the baseline last.

    Families by the words in their names: unequal and spread (log sd 0.4), wide (log sd 0.8), hetero
    (four-fold), quiet (the baseline a tenth of the others), noisy (the cheaper half ten times the
    others), rising (tenfold from the baseline to the cheapest); else all alike.
    """
    sd, words = np.ones(shapes), set(family.split("_"))
    if log_sd := 0.8 * ("wide" in words) or 0.4 * bool({"unequal", "spread"} & words):
        sd = np.exp(rng.normal(0, log_sd, shapes))
    if "hetero" in words:
        sd = np.exp(rng.uniform(np.log(0.5), np.log(2.0), shapes))
    if "quiet" in words:
        sd[-1] = 0.1
    if "noisy" in words:
        sd[shapes // 2 :] = 0.1
    if "rising" in words:
        sd = np.geomspace(1.0, 0.1, shapes)
    return sd


def seed_noise(family: str, size: int, rng: np.random.Generator) -> Floats:
    """Return the noise of runs, in seed sds: heavy tails (t3), 5 % (heavy) or 10 % (stuck) of the
    runs far below the others, else normal."""
    words = set(family.split("_"))
    if "t3" in words:
        return np.asarray(rng.standard_t(3, size) / np.sqrt(3))
    noise = rng.standard_normal(size)
    share = 0.05 * ("heavy" in words) or 0.1 * ("stuck" in words)
    return np.where(rng.random(size) < share, -40.0, noise) if share else noise


def shapes_sweep(family: str, seed: int, *, shapes: int = 16, seeds: int = 5) -> pd.DataFrame:
    """Return accuracies of ``shapes`` shapes by cost.

    Families: homo (one seed sd), hetero (sd varies four-fold), ties (one shape in five repeats
    the truth of a cheaper one), heavy (5 % of the runs crash).
    """
    rng = np.random.default_rng([zlib.crc32(f"pareto_{family}".encode()), seed])
    cost = np.sort(rng.uniform(1, 10, shapes))
    true = 0.6 + 0.08 * np.log(cost) + 0.02 * rng.standard_normal(shapes)
    if family == "ties":
        for k in range(1, shapes, 5):
            true[k] = true[k - 1]
    return _runs(cost, true, 0.006 * scales(family, shapes, rng), seeds, family, rng)


def lean_sweep(
    family: str,
    seed: int,
    *,
    candidates: int = 8,
    seeds: int = 5,
    margin: float = MARGIN,
) -> pd.DataFrame:
    """Return accuracies of a baseline (the last, dearest shape) and of cheaper shapes.

    Families: null (every candidate exactly at the margin), null_hetero, null_heavy; equal (three
    candidates equal the baseline, the others lie two margins below), equal_hetero, equal_heavy;
    few_equal (equal, with two seeds and twice the noise); those of `LEAN_SCALES`; untrained,
    untrained_hetero (every shape scores what a constant predictor does); tuned_null,
    tuned_null_base, tuned_equal (see `_tuned_runs`).
    """
    if family.startswith("few"):
        seeds, margin = 2, margin * 2
    rng = np.random.default_rng([zlib.crc32(f"lean_{family}".encode()), seed])
    cost = np.arange(1.0, candidates + 2)
    true = np.full(candidates + 1, 0.8)
    if family.startswith("untrained"):
        true[:] = CHANCE
    elif "null" in family:
        true[:-1] -= margin
    else:
        true[: candidates - 3] -= 2 * margin
    sd = margin / 2 * scales(family, candidates + 1, rng)
    if family.startswith("tuned"):
        return _tuned_runs(cost, true, sd, seeds, family, rng)
    return _runs(cost, true, sd, seeds, family, rng)


def _tuned_runs(
    cost: Floats, true: Floats, sd: Floats, seeds: int, family: str, rng: np.random.Generator
) -> pd.DataFrame:
    """Return runs with several learning rates a shape, the best of which has the true value.

    The candidates are tried with one to eight of them and the baseline with two; in
    ``tuned_null_base`` it is the baseline that has eight, and the candidates have two. How far the
    others lie below the best is drawn: from ties to three seed standard deviations.
    """
    rows = []
    for k, best in enumerate(true):
        is_base = k == len(true) - 1
        few, many = (1 + k % 8, 2) if not family.endswith("base") else (2, 8)
        tried = many if is_base else few
        behind = sd[k] * rng.choice([0.0, 0.5, 1.0, 3.0]) * rng.random(tried)
        behind[rng.integers(tried)] = 0.0
        runs = best - behind[:, None] + sd[k] * rng.standard_normal((tried, seeds))
        rows += [
            (f"s{k:02d}", 10.0**-rate, seed, runs[rate, seed], cost[k], best)
            for rate in range(tried)
            for seed in range(seeds)
        ]
    return pd.DataFrame(rows, columns=["shape", "lr", "seed", "top1", "num_params", "true"])


def _runs(
    cost: Floats,
    true: Floats,
    sd: Floats,
    seeds: int,
    family: str,
    rng: np.random.Generator,
) -> pd.DataFrame:
    noise = seed_noise(family, len(cost) * seeds, rng).reshape(-1, seeds)
    top1 = np.clip(true[:, None] + sd[:, None] * noise, 0, 1)
    rows = [
        (f"s{k:02d}", seed, top1[k, seed], cost[k], true[k])
        for k in range(len(cost))
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows, columns=["shape", "seed", "top1", "num_params", "true"])
