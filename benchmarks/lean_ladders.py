"""Simulated shapes at several budgets, whose lean answer after endless training is known.

The accuracy of a shape after a budget b is A - e (b / b3)^-a: a power law in the budget towards its
limit A, of which e is left at the largest budget b3. Runs of one seed share most of their noise
between budgets.
"""

import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from benchmarks.ladders import BUDGETS
from benchmarks.shapes import MARGIN, Floats

LEAN_SETTLED: Final = ("equal", "worse")
LEAN_OPEN: Final = ("equal_unfinished",)
LEAN_MISLEADING: Final = ("opens", "opens_slowly", "closes", "closes_slowly", "overtaken")
LEAN_GROUPED: Final = ("groups", "groups_open")
"""Three comparisons in one study: all trained out, or one of them opening slowly."""
LEAN_LADDERS: Final = (*LEAN_SETTLED, *LEAN_OPEN, *LEAN_MISLEADING, *LEAN_GROUPED)
_CANDIDATES: Final = 4


@dataclass(frozen=True)
class LeanLadder:
    """A simulated study.

    Attributes:
        frame: one row a run and budget.
        limit: of each shape, by group and label; the baseline is the last of its group.
    """

    frame: pd.DataFrame
    limit: dict[str, dict[str, float]]


def lean_ladder(family: str, seed: int, *, varied: bool = False) -> LeanLadder:
    """Return study number ``seed`` of ``family``; ``varied`` also draws seeds and budgets.

    Families: equal (half of the candidates equal the baseline), worse (all are worse by more than
    two margins), both trained out; equal_unfinished (with up to 0.4 margins to gain); opens (equal
    at the largest budget, where the baseline has still more than the margin to gain), closes (worse
    there, and as good in the end), each also slowly, by smaller powers of the budget; overtaken (a
    baseline that learns more slowly than the others is behind them and ends ahead); groups,
    groups_open.
    """
    rng = np.random.default_rng([zlib.crc32(f"lean_ladder_{family}".encode()), seed, int(varied)])
    seeds = int(rng.choice([3, 4, 5, 6])) if varied else 5
    budgets = BUDGETS[-int(rng.integers(2, 4)) :] if varied else BUDGETS
    parts = {"": family}
    if family in LEAN_GROUPED:
        last = "opens_slowly" if family == "groups_open" else "equal"
        parts = {"a": "equal", "b": "worse", "c": last}
    frames, limits = [], {}
    for group, name in parts.items():
        frame, limits[group] = _runs(name, seeds, budgets, rng)
        frames.append(frame.assign(group=group))
    return LeanLadder(pd.concat(frames, ignore_index=True), limits)


def _runs(
    family: str, seeds: int, budgets: tuple[int, ...], rng: np.random.Generator
) -> tuple[pd.DataFrame, dict[str, float]]:
    shapes = _CANDIDATES + 1
    now = np.full(shapes, 0.8)
    left = MARGIN * rng.uniform(*((0.1, 0.4) if family in LEAN_OPEN else (0.02, 0.12)), shapes)
    slow = family.endswith("slowly")
    rate = rng.uniform(0.4, 0.7, shapes) if slow else rng.uniform(0.8, 1.5, shapes)
    if family == "worse":
        now[:-1] -= MARGIN * rng.uniform(2.5, 4.0, _CANDIDATES)
    elif family == "overtaken":
        now[:-1] += MARGIN * rng.uniform(1.0, 4.0, _CANDIDATES)
        left[:-1] = MARGIN * rng.uniform(0.5, 2.0, _CANDIDATES)
        left[-1] = (now + left)[:-1].max() - now[-1] + MARGIN * rng.uniform(2.0, 4.0)
        rate[-1] = rng.uniform(0.2, 0.4)
        now -= 0.2
    elif family.startswith("closes"):
        now[:-1] -= MARGIN * rng.uniform(2.0, 3.0, _CANDIDATES)
        near = rng.integers(_CANDIDATES)
        left[near] = 0.8 - now[near] + left[-1]
    else:
        now[: _CANDIDATES // 2] -= MARGIN * rng.uniform(2.5, 4.0, _CANDIDATES // 2)
        if family.startswith("opens"):
            left[-1] = MARGIN * rng.uniform(1.4, 2.5)
    limit = now + left
    noise = 0.5 * MARGIN * np.sqrt(0.7) * rng.standard_normal((shapes, seeds))
    labels = [f"s{k}" for k in range(shapes)]
    rows = []
    for budget in budgets:
        mean = limit - left * (budget / budgets[-1]) ** -rate
        own = 0.5 * MARGIN * np.sqrt(0.3) * rng.standard_normal((shapes, seeds))
        rows += _rows(labels, budget, mean[:, None] + noise + own)
    columns = ["shape", "num_params", "seed", "budget", "top1"]
    return pd.DataFrame(rows, columns=columns), dict(zip(labels, limit.tolist(), strict=True))


def _rows(labels: list[str], budget: int, top1: Floats) -> list[tuple[str, float, int, int, float]]:
    return [
        (label, k + 1.0, seed, budget, float(value))
        for k, label in enumerate(labels)
        for seed, value in enumerate(top1[k])
    ]
