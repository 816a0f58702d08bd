"""Sweeps with a known answer, in the shapes that real ones take.

Every sweep is log10 error = level(h) + slope(h) * log10(T / T_middle) + cell jitter + seed noise,
shaped like the head-count paper's table, like gradual accuracy curves, or like declines without any
transition. All randomness comes from the given seed.
"""

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

LENGTHS = (8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Sweep:
    """A simulated sweep: its table, how to fit it, and the truth (None: there is none)."""

    frame: pd.DataFrame
    h_star: int | None
    slopes: dict[int, float]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Shape:
    """What `build` makes a sweep from; log10 units, slopes per log10 T."""

    heads: tuple[int, ...]
    level: np.ndarray
    slope: np.ndarray
    h_star: int | None
    lengths: tuple[int, ...] = LENGTHS
    seeds: int = 4
    seed_sd: float = 0.1
    jitter: float = 0.05
    wobble: float = 0.04
    stuck: float = 0.0
    heavy: bool = False
    missing: float = 0.0


def published(name: str) -> pd.DataFrame:
    """Single NMSE values of the head-count paper, section 4, log-interpolated over T where it
    prints the two ends only, and with the growth of D = 4 where it prints T = 128 only."""
    x = (np.log10(LENGTHS) - np.log10(8)) / np.log10(16)
    ends = {
        "D4": {1: (7.01e-2, 1.45e-1), 2: (7e-3, 1.3e-2), 3: (8e-4, 1.58e-3), 4: (6.10e-5, 5.23e-6)},
        "E32": {
            1: (7.01e-2, 1.45e-1),
            2: (7e-3, 1.3e-2),
            3: (2.4e-4, 4.77e-4),
            4: (6.6e-6, 5.7e-7),
        },
        "D3": {1: (5e-2, 1e-1), 2: (5.5e-4, 1.11e-3), 3: (2.5e-6, 2.11e-7), 4: (2.1e-6, 1.8e-7)},
        "two_layers": {1: (2.1e-4, 4.28e-4), 2: (4.5e-5, 3.83e-6), 3: (4e-5, 3.4e-6)},
    }[name]
    last = max(ends)
    for extra in range(last + 1, 6):
        ends[extra] = tuple(value * 0.9 for value in ends[extra - 1])
    rows = [
        (h, t, 0, 10 ** float(np.log10(low) + share * (np.log10(high) - np.log10(low))))
        for h, (low, high) in ends.items()
        for t, share in zip(LENGTHS, x, strict=True)
    ]
    return pd.DataFrame(rows, columns=["heads", "seq_len", "seed", "nmse"])


def build(shape: Shape, rng: np.random.Generator) -> Sweep:
    """Draw the runs of ``shape``."""
    centre = np.mean(np.log10(shape.lengths))
    level = shape.level + shape.wobble * rng.standard_normal(len(shape.heads))
    rows = []
    cells = [(k, t) for k in range(len(shape.heads)) for t in shape.lengths]
    gone = set()
    if shape.missing:
        for index in rng.permutation(len(cells))[: round(shape.missing * len(cells))]:
            gone.add(cells[index])
        for k in range(len(shape.heads)):  # every head count keeps two lengths
            left = [t for t in shape.lengths if (k, t) not in gone]
            for t in shape.lengths[: max(0, 2 - len(left))]:
                gone.discard((k, t))
    failing = None
    if shape.h_star is not None:
        failing = shape.heads.index(shape.h_star) - 1
    for k, t in cells:
        cell_jitter = shape.jitter * rng.standard_normal()
        for seed in range(shape.seeds):
            at = k
            if shape.stuck and failing is not None and k > failing and rng.random() < shape.stuck:
                at = failing
            noise = rng.standard_t(3) * 2 if shape.heavy else rng.standard_normal()
            y = level[at] + shape.slope[at] * (np.log10(t) - centre) + cell_jitter
            if (k, t) not in gone:
                rows.append((shape.heads[k], t, seed, 10 ** (y + shape.seed_sd * noise)))
    frame = pd.DataFrame(rows, columns=["heads", "seq_len", "seed", "nmse"])
    slopes = dict(zip(shape.heads, (float(value) for value in shape.slope), strict=True))
    return Sweep(frame, shape.h_star, slopes, {"metric": "nmse"})


def collapse(
    rng: np.random.Generator,
    *,
    heads: tuple[int, ...] = (1, 2, 3, 4, 5, 6),
    h_star: int | None = None,
    jump: tuple[float, float] = (1.0, 2.2),
    decline: tuple[float, float] = (0.4, 0.9),
    after: float = -0.05,
) -> Shape:
    """A steady decline per head, then one jump to a plateau where growth with T is gone."""
    if h_star is None:
        h_star = int(rng.choice(heads[2:-1]))
    h = np.array(heads, dtype=float)
    per_head = rng.uniform(*decline) * min(1.0, 3.0 / h_star)
    at = heads.index(h_star)
    level = -1.0 - per_head * (np.minimum(h, h_star) - 1)
    level[at:] -= rng.uniform(*jump)
    level[at:] += after * (h[at:] - h_star)
    slope = np.where(h < h_star, rng.uniform(0.25, 0.6), rng.uniform(-0.6, -0.1))
    return Shape(heads, level, slope, h_star, seeds=int(rng.choice([3, 4, 5])))


def _paper(name: str, rng: np.random.Generator) -> Shape:
    table = published(name)
    x = np.log10(LENGTHS) - np.mean(np.log10(LENGTHS))
    groups = [np.log10(rows["nmse"].to_numpy()) for _, rows in table.groupby("heads")]
    level = np.array([group.mean() for group in groups])
    slope = np.array([group @ x / (x @ x) for group in groups])
    truth = {"D4": 4, "E32": 4, "D3": 3, "two_layers": 2}[name]
    return Shape((1, 2, 3, 4, 5), level, slope, truth, seeds=int(rng.choice([3, 4, 5])))


def _decline(kind: str, rng: np.random.Generator) -> Shape:
    heads = (1, 2, 3, 4, 5, 6)
    h = np.array(heads, dtype=float)
    slope = np.full(6, rng.uniform(0.1, 0.4))
    level = {
        "null_flat": np.full(6, -1.5),
        "null_power": -1.0 - rng.uniform(1, 4) * np.log10(h),
        "null_exp": -1.0 - rng.uniform(0.3, 0.9) * (h - 1),
        "null_exp_floor": np.log10(
            10 ** (-1.0 - rng.uniform(0.5, 1.1) * (h - 1)) + 10 ** rng.uniform(-3.5, -2.5)
        ),
        "null_fade": -1.0 - rng.uniform(1, 3) * np.log10(h),
        "null_above": -1.0 - rng.uniform(0.4, 0.8) * (h - 1),
    }[kind]
    if kind == "null_fade":
        slope = rng.uniform(0.3, 0.5) * np.exp(-(h - 1) / rng.uniform(1, 3))
    if kind == "null_flat":
        slope = np.full(6, rng.choice([0.0, 0.2]))
    wobble = 0.08 if kind == "null_above" else 0.0
    return Shape(heads, level, slope, None, seeds=int(rng.choice([3, 4, 5])), wobble=wobble)


def transition_sweep(family: str, seed: int) -> Sweep:
    """Return sweep number ``seed`` of ``family``."""
    rng = np.random.default_rng([zlib.crc32(family.encode()), seed])
    if family.startswith("paper_"):
        return build(_paper(family.removeprefix("paper_"), rng), rng)
    if family.startswith("null_"):
        return build(_decline(family, rng), rng)
    if family in ("asha_global", "asha_null_global", "asha_cell", "asha_null_cell"):
        return _pruned(family, rng)
    if family in ("marco", "cifar"):
        return _gradual(family, rng)
    if family == "loss_null":
        return _loss(rng, drop=0.0)
    if family == "loss_sharp":
        return _loss(rng, drop=float(rng.uniform(0.15, 0.4)))
    shape = {
        "sharp": lambda: collapse(rng, jump=(0.7, 2.0)),
        "sharp_small": lambda: collapse(rng, jump=(0.35, 0.8)),
        "noisy": lambda: collapse(rng, jump=(0.8, 1.6)),
        "coarse": lambda: collapse(
            rng, heads=(1, 2, 4, 8, 12, 16), h_star=int(rng.choice([4, 8])), after=-0.01
        ),
        "few_cells": lambda: collapse(rng, heads=(1, 2, 3, 4), h_star=3),
        "missing": lambda: collapse(rng),
        "stuck": lambda: collapse(rng),
        "heavy": lambda: collapse(rng),
        "post_trend": lambda: collapse(rng, after=-0.15),
        "hurts": lambda: collapse(rng, after=0.15),
        "second": lambda: collapse(rng, heads=(1, 2, 3, 4, 5), h_star=2),
    }[family]()
    if family in ("sharp", "second"):
        shape.slope[shape.heads.index(shape.h_star or 0) :] = rng.uniform(-0.2, 0.0)
    if family == "sharp" and rng.random() < 0.5:
        shape.lengths = (8, 32, 128)
    if family == "noisy":
        shape.seed_sd = 0.3
    if family == "few_cells":
        shape.lengths, shape.seeds = (8, 64), 2
    if family == "missing":
        shape.missing = float(rng.uniform(0.15, 0.3))
    if family == "stuck":
        shape.stuck, shape.seeds = float(rng.uniform(0.1, 0.35)), 5
    if family == "heavy":
        shape.heavy = True
    return build(shape, rng)


def _gradual(family: str, rng: np.random.Generator) -> Sweep:
    """Training accuracy that climbs over several head counts and settles at 12 (or 10)."""
    if family == "marco":
        heads, truth, eval_size, lengths = (2, 4, 6, 8, 10, 12, 14, 16), 12, 4000, (8, 16, 32, 64)
        final, per_head = rng.uniform(-2.2, -1.9), rng.uniform(0.12, 0.2)
    else:
        heads, truth, eval_size, lengths = (2, 4, 6, 8, 10, 12, 14), 10, 10_000, (16, 32, 64)
        final, per_head = rng.uniform(-1.7, -1.4), rng.uniform(0.1, 0.17)
    h = np.array(heads, dtype=float)
    # Log error falls ever faster up to the truth: the last two steps before it are the largest.
    at = heads.index(truth)
    steps = per_head * 2 * 0.6 ** np.arange(at)[::-1]
    steps[-2:] += rng.uniform(0.15, 0.35, size=2)
    level = final - 0.01 * np.maximum(h - truth, 0)
    level[:at] += np.cumsum(steps[::-1])[::-1]
    level = np.minimum(level, -0.15)
    slope = np.where(h < truth, 0.25, 0.05)
    shape = Shape(heads, level, slope, truth, lengths, seed_sd=0.05, jitter=0.03, wobble=0.02)
    sweep = build(shape, rng)
    frame = sweep.frame.rename(columns={"nmse": "accuracy"})
    missed = rng.binomial(eval_size, np.clip(frame["accuracy"], 0, 1))
    frame["accuracy"] = 1 - missed / eval_size
    options = {"metric": "accuracy", "goal": "max", "scale": "accuracy", "eval_size": eval_size}
    return Sweep(frame, truth, sweep.slopes, options)


def _loss(rng: np.random.Generator, drop: float) -> Sweep:
    """Cross-entropy in nats: a power law in h towards an irreducible part, perhaps with a jump."""
    heads = (1, 2, 3, 4, 5, 6)
    h = np.array(heads, dtype=float)
    level = 2.0 + rng.uniform(0.2, 0.5) * h ** -rng.uniform(0.5, 1.5) - drop * (h >= 4)
    shape = Shape(
        heads, level, np.where(h < 4, 0.05, 0.0) * (drop > 0), 4 if drop else None,
        seed_sd=0.01, jitter=0.004, wobble=0.0,
    )  # fmt: skip
    sweep = build(shape, rng)
    frame = sweep.frame.rename(columns={"nmse": "loss"})
    frame["loss"] = np.log10(frame["loss"])
    return Sweep(frame, sweep.h_star, sweep.slopes, {"metric": "loss", "scale": "loss"})


def _pruned(family: str, rng: np.random.Generator) -> Sweep:
    """Nine seeds a cell; the worse ones stop at one of two rungs, competing over the whole sweep or
    inside their cell (three of nine survive)."""
    shape = _decline("null_exp", rng) if "null" in family else collapse(rng)
    shape.seeds = 9
    sweep = build(shape, rng)
    frame = sweep.frame
    y = np.log10(frame["nmse"].to_numpy())
    early = [
        y + 0.9 + 0.15 * rng.standard_normal(len(y)),
        y + 0.4 + 0.1 * rng.standard_normal(len(y)),
    ]
    group = (
        np.zeros(len(y), dtype=int)
        if "global" in family
        else frame.groupby(["heads", "seq_len"]).ngroup().to_numpy()
    )
    status = np.full(len(y), "finished", dtype=object)
    recorded = y.copy()
    alive = np.ones(len(y), dtype=bool)
    for rung, keep in zip(early, (2 / 3, 1 / 2), strict=True):
        for name in np.unique(group):
            members = np.flatnonzero(alive & (group == name))
            dropped = members[np.argsort(rung[members], kind="stable")][
                round(keep * len(members)) :
            ]
            alive[dropped], status[dropped], recorded[dropped] = (
                False,
                "stopped_early",
                rung[dropped],
            )
    frame = frame.assign(nmse=10**recorded, status=status)
    return Sweep(frame, sweep.h_star, sweep.slopes, {"metric": "nmse"})


SHAPE_OPTIONS: dict[str, Any] = {"config": ["shape"], "metric": "top1", "costs": ["num_params"]}


def shapes_sweep(family: str, seed: int, *, shapes: int = 16, seeds: int = 5) -> pd.DataFrame:
    """Accuracy of ``shapes`` shapes by cost with the truth in column ``true``.

    Families: homo (one seed sd), hetero (sd varies four-fold), ties (one shape in five repeats
    the truth of a cheaper one), heavy (5 % of the runs crash).
    """
    rng = np.random.default_rng([zlib.crc32(f"pareto_{family}".encode()), seed])
    cost = np.sort(rng.uniform(1, 10, shapes))
    true = 0.6 + 0.08 * np.log(cost) + 0.02 * rng.standard_normal(shapes)
    if family == "ties":
        for k in range(1, shapes, 5):
            true[k] = true[k - 1]
    sd = np.full(shapes, 0.006)
    if family == "hetero":
        sd *= np.exp(rng.uniform(np.log(0.5), np.log(2.0), shapes))
    return _shape_runs(cost, true, sd, seeds, family == "heavy", rng)


def lean_sweep(
    family: str,
    seed: int,
    *,
    candidates: int = 8,
    seeds: int = 5,
    margin: float = 0.015,
) -> pd.DataFrame:
    """A baseline (the last, dearest shape) and cheaper shapes, truth in column ``true``.

    Families: null (every candidate exactly at the margin), null_hetero, null_heavy; mixed (three
    candidates equal the baseline, the others lie two margins below), mixed_hetero, mixed_heavy.
    """
    rng = np.random.default_rng([zlib.crc32(f"lean_{family}".encode()), seed])
    cost = np.arange(1.0, candidates + 2)
    true = np.full(candidates + 1, 0.8)
    if family.startswith("null"):
        true[:-1] -= margin
    else:
        true[: candidates - 3] -= 2 * margin
    sd = np.full(candidates + 1, margin / 2)
    if family.endswith("hetero"):
        sd *= np.exp(rng.uniform(np.log(0.5), np.log(2.0), candidates + 1))
    return _shape_runs(cost, true, sd, seeds, family.endswith("heavy"), rng)


def _shape_runs(
    cost: np.ndarray,
    true: np.ndarray,
    sd: np.ndarray,
    seeds: int,
    heavy: bool,
    rng: np.random.Generator,
) -> pd.DataFrame:
    noise = rng.standard_normal((len(cost), seeds))
    if heavy:
        noise = np.where(rng.random(noise.shape) < 0.05, -40.0, noise)
    top1 = np.clip(true[:, None] + sd[:, None] * noise, 0, 1)
    rows = [
        (f"s{k:02d}", seed, top1[k, seed], cost[k], true[k])
        for k in range(len(cost))
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows, columns=["shape", "seed", "top1", "num_params", "true"])
