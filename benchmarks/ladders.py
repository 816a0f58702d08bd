"""Simulated sweeps at several budgets, whose answer after endless training is known.

The error of a cell (h, T) after a budget b is E(h, T) (1 + (b / b0)^-a): a power law in the budget
towards a floor, with b0 and a of the cell's own. E is a sweep of `benchmarks.sweeps`. For lean
questions, the accuracy of a shape after a budget b is A - e (b / b3)^-a: a power law towards its
limit A, of which e is left at the largest budget b3. Runs of one seed share most of their noise
between budgets.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.shapes import MARGIN
from benchmarks.sweeps import Design, Floats, Shape, collapse, decline, vary

Indices = NDArray[np.int64]
BUDGETS: Final = (38, 75, 150)
HEADS: Final = (1, 2, 3, 4, 5, 6)


@dataclass(frozen=True)
class LadderSweep:
    """A simulated sweep.

    Attributes:
        frame: one row a run and budget.
        h_star: of the limit; None without a collapse.
        grows: whether the error still grows with T from there on, in the limit.
    """

    frame: pd.DataFrame
    h_star: int | None
    grows: bool


@dataclass(frozen=True)
class Curve:
    """How the cells of a sweep train.

    Attributes:
        shape: the limit.
        start: budget b0 at which a cell's error is twice its limit, shape [K, J].
        rate: a, shape [K, J].
    """

    shape: Shape
    start: Floats
    rate: Floats


def ladder_sweep(family: str, seed: int, *, varied: bool = False) -> LadderSweep:
    """Return sweep number ``seed`` of ``family``; ``varied`` also draws lengths, seeds, noise."""
    rng = np.random.default_rng([zlib.crc32(family.encode()), seed, int(varied)])
    design = Design(seeds=int(rng.choice([3, 4, 5])))
    if varied:
        design = vary(design, rng)
    curve = LADDERS[family](design, rng)
    return _simulate(curve, design, rng)


def _simulate(curve: Curve, design: Design, rng: np.random.Generator) -> LadderSweep:
    shape = curve.shape
    x = np.log10(design.lengths) - np.mean(np.log10(design.lengths))
    cells = (len(shape.heads), len(design.lengths))
    limit = _limit(shape, x)
    limit += design.wobble * rng.standard_normal((cells[0], 1))
    limit += design.jitter * rng.standard_normal(cells)
    shared = np.sqrt(0.7) * rng.standard_normal((*cells, design.seeds))
    parts = []
    for budget in BUDGETS:
        mean = limit + np.log10(1 + (budget / curve.start) ** -curve.rate)
        own = np.sqrt(0.3) * rng.standard_normal((*cells, design.seeds))
        # No run is worse than a constant predictor.
        y = np.minimum(mean, 0.0)[:, :, None] + design.seed_sd * (shared + own)
        k, j, seed = (index.ravel() for index in np.indices(y.shape))
        parts.append(
            pd.DataFrame(
                {
                    "heads": np.array(shape.heads)[k],
                    "seq_len": np.array(design.lengths)[j],
                    "seed": seed,
                    "budget": budget,
                    "nmse": 10 ** y.ravel(),
                }
            )
        )
    grows = shape.h_star is not None and bool(shape.slope[shape.at] > 0.1)
    return LadderSweep(pd.concat(parts, ignore_index=True), shape.h_star, grows)


def _limit(shape: Shape, x: Floats) -> Floats:
    return np.asarray(shape.level[:, None] + shape.slope[:, None] * x)


def _rates(design: Design, rng: np.random.Generator, low: float, high: float) -> Floats:
    return rng.uniform(low, high, (len(HEADS), len(design.lengths)))


def _starts(design: Design, rng: np.random.Generator, low: float, high: float) -> Floats:
    cells = (len(HEADS), len(design.lengths))
    return np.asarray(10 ** rng.uniform(np.log10(low), np.log10(high), cells))


def _flat_above(rng: np.random.Generator) -> Shape:
    """Return a collapse from which growth with T is gone."""
    shape = collapse(rng, heads=HEADS)
    slope = shape.slope.copy()
    slope[shape.at :] = rng.uniform(-0.3, 0.0)
    return replace(shape, slope=slope)


def _growing_above(rng: np.random.Generator) -> Shape:
    """Return a collapse from which growth with T goes on."""
    shape = collapse(rng, heads=HEADS)
    slope = shape.slope.copy()
    slope[shape.at :] = rng.uniform(0.35, 0.8)
    return replace(shape, slope=slope)


def _trained_out(shape: Shape, design: Design, rng: np.random.Generator) -> Curve:
    return Curve(shape, _starts(design, rng, 3, 15), _rates(design, rng, 0.8, 1.5))


def _settled(design: Design, rng: np.random.Generator) -> Curve:
    return _trained_out(_flat_above(rng), design, rng)


def _settled_growth(design: Design, rng: np.random.Generator) -> Curve:
    return _trained_out(_growing_above(rng), design, rng)


def _settled_none(design: Design, rng: np.random.Generator) -> Curve:
    kind = str(rng.choice(["null_flat", "null_power", "null_exp", "null_exp_floor"]))
    return _trained_out(decline(kind, rng, HEADS), design, rng)


def _slow(design: Design, rng: np.random.Generator) -> Curve:
    """The same answer at every budget, with a sixth of the error still to go."""
    curve = _settled(design, rng)
    return replace(curve, start=_starts(design, rng, 15, 40), rate=_rates(design, rng, 0.8, 1.2))


def _one_floor(curve: Curve, rows: Indices, reach: float, design: Design) -> Curve:
    """Return the curve with one learning curve for all cells of ``rows`` until each is near its
    limit: the error is E + c b^-a with the same c and a, 10^``reach`` at the largest budget."""
    x = np.log10(design.lengths) - np.mean(np.log10(design.lengths))
    limit = _limit(curve.shape, x)[rows]
    start, rate = curve.start.copy(), curve.rate.copy()
    shared = float(rate[rows].mean())
    rate[rows] = shared
    start[rows] = BUDGETS[-1] * 10 ** ((reach - limit) / shared)
    return replace(curve, start=start, rate=rate)


def _moves(design: Design, rng: np.random.Generator) -> Curve:
    """The head count of the collapse trains slowly: short training sees it one further up."""
    return _at_h_star(_settled(design, rng), design, rng)


def _at_h_star(curve: Curve, design: Design, rng: np.random.Generator) -> Curve:
    at, shape = curve.shape.at, curve.shape
    reach = float(shape.level[at] + rng.uniform(0.3, 0.9) * (shape.level[at - 1] - shape.level[at]))
    return _one_floor(curve, np.array([at]), reach, design)


def _growth_vanishes(design: Design, rng: np.random.Generator) -> Curve:
    """Longer sequences train more slowly: growth with T is there until they have caught up."""
    curve = _settled(design, rng)
    relative = np.array(design.lengths) / design.lengths[0]
    start = curve.start.copy()
    start[curve.shape.at :] = rng.uniform(3, 20) * relative ** rng.uniform(0.7, 1.2)
    return replace(curve, start=start)


def _growth_appears(design: Design, rng: np.random.Generator) -> Curve:
    """Every length trains alike until it nears its own floor: growth with T comes late."""
    curve = _settled_growth(design, rng)
    rows = np.arange(curve.shape.at, len(HEADS))
    reach = float(curve.shape.level[rows].mean() + rng.uniform(0.0, 0.6))
    return _one_floor(curve, rows, reach, design)


def _shrinks(design: Design, rng: np.random.Generator) -> Curve:
    """Too few heads train slowly, and catch up: the collapse is one of short training."""
    shape = decline("null_exp", rng, HEADS)
    shape = replace(shape, level=-3.0 + 0.4 * (shape.level + 1.0))
    curve = _trained_out(shape, design, rng)
    at = int(rng.choice([2, 3]))
    start = curve.start.copy()
    start[:at] = 150 * 10 ** rng.uniform(0.4, 1.0)
    return replace(curve, start=start, rate=np.full_like(curve.rate, rng.uniform(0.7, 1.2)))


def _late(design: Design, rng: np.random.Generator) -> Curve:
    """All head counts that are enough train like the last that is not: they part late."""
    curve = _settled(design, rng)
    at, level = curve.shape.at, curve.shape.level
    rows = np.arange(at - 1, len(HEADS))
    reach = float(level[at - 1] + rng.uniform(-0.2, 0.6))
    return _one_floor(curve, rows, reach, design)


def _moves_slowly(design: Design, rng: np.random.Generator) -> Curve:
    """The same by slower powers of the budget than the analysis takes for the slowest."""
    curve = _settled(design, rng)
    slow = replace(curve, start=_starts(design, rng, 2, 8), rate=_rates(design, rng, 0.5, 0.8))
    return _at_h_star(slow, design, rng)


SETTLED: Final = ("settled", "settled_growth", "settled_none")
MISLEADING: Final = (
    *("moves", "moves_slowly", "growth_vanishes", "growth_appears", "shrinks", "late"),
)
LADDERS: Final[dict[str, Callable[[Design, np.random.Generator], Curve]]] = {
    "settled": _settled,
    "settled_growth": _settled_growth,
    "settled_none": _settled_none,
    "slow": _slow,
    "moves": _moves,
    "moves_slowly": _moves_slowly,
    "growth_vanishes": _growth_vanishes,
    "growth_appears": _growth_appears,
    "shrinks": _shrinks,
    "late": _late,
}

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
        frame, limits[group] = _lean_runs(name, seeds, budgets, rng)
        frames.append(frame.assign(group=group))
    return LeanLadder(pd.concat(frames, ignore_index=True), limits)


def _lean_runs(
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
        top1 = mean[:, None] + noise + own
        rows += [
            (label, k + 1.0, seed, budget, float(value))
            for k, label in enumerate(labels)
            for seed, value in enumerate(top1[k])
        ]
    columns = ["shape", "num_params", "seed", "budget", "top1"]
    return pd.DataFrame(rows, columns=columns), dict(zip(labels, limit.tolist(), strict=True))
