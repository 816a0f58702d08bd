"""Simulated sweeps with a known answer, in the shapes that real ones take.

y = level(h) + slope(h) * (log10 T - centre) + wobble(h) + jitter(h, T) + seed noise, where y is the
log10 of the error. Level and slope are shaped like the table of the head-count paper (H, section
4), like gradual accuracy curves, or like declines without any transition. All randomness comes from
the given seed.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LENGTHS: Final = (8, 16, 32, 64, 128)
PAPER: Final = ("paper_D4", "paper_E32", "paper_D3", "paper_two_layers")
SHARP: Final = (
    *("sharp", "sharp_small", "coarse", "few_cells", "missing"),
    *("stuck", "noisy", "second", "heavy", "post_trend", "hurts"),
)
GRADUAL: Final = ("marco", "cifar")
NULLS: Final = (
    *("null_flat", "null_power", "null_exp", "null_exp_floor", "null_fade", "null_stuck"),
    "null_above",
)
PLATEAUS: Final = ("plateau", "plateau_coarse")
SCATTERED: Final = ("scatter_flat", "scatter_power")
DROPPED: Final = ("power_drop",)
SINGLE_SHARP: Final = ("single_paper_D4", "single_sharp", "single_second")
SINGLE_NULLS: Final = ("single_null_power", "single_null_above", "single_null_stuck")
PARTLY_SHARP: Final = ("partly_sharp",)
PARTLY_NULLS: Final = ("partly_null_power", "partly_null_above")
TUNED_SHARP: Final = ("tuned_sharp", "tuned_sharp_small", "tuned_noisy")
TUNED_NULLS: Final = (
    *("tuned_null_flat", "tuned_null_power", "tuned_null_exp", "tuned_null_exp_floor"),
    *("tuned_null_fade", "tuned_null_above", "tuned_null_uneven"),
)
SLOPE_BELOW: Final = (0.25, 0.6)
_H_STAR: Final = {"D4": 4, "E32": 4, "D3": 3, "two_layers": 2}


@dataclass(frozen=True)
class Sweep:
    """A simulated sweep.

    Attributes:
        frame: one row a run.
        h_star: the truth; None where there is no transition.
        slopes: true slope of y in log10 T at each head count.
        options: how `benchmarks.table_fits.fit_transition` has to be told about the table.
    """

    frame: pd.DataFrame
    h_star: int | None
    slopes: dict[int, float]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Design:
    """Which runs a sweep has, and what disturbs them (in units of y).

    Attributes:
        lengths: values of T.
        seeds: runs a cell.
        seed_sd: of one run.
        jitter: of a cell (h, T), the same for all its seeds.
        wobble: of a head count, the same for all its cells.
        stuck: share of the runs from h* on that stay at the level before it.
        heavy: noise of twice a t distribution with 3 degrees of freedom.
        missing: share of the cells that are absent.
    """

    lengths: tuple[int, ...] = LENGTHS
    seeds: int = 4
    seed_sd: float = 0.1
    jitter: float = 0.05
    wobble: float = 0.04
    stuck: float = 0.0
    heavy: bool = False
    missing: float = 0.0


@dataclass(frozen=True)
class Shape:
    """The truth of a sweep: level and slope at each head count."""

    heads: tuple[int, ...]
    level: Floats
    slope: Floats
    h_star: int | None

    @property
    def at(self) -> int:
        """Index of h*."""
        assert self.h_star is not None
        return self.heads.index(self.h_star)


def published(name: str) -> pd.DataFrame:
    """Return single NMSE values of paper H, section 4, as a table of runs.

    Log-interpolated over T where the paper prints the two ends only, and with the growth of D = 4
    where it prints T = 128 only; head counts past the last printed one improve by a tenth each.
    """
    x = (np.log10(LENGTHS) - np.log10(8)) / np.log10(16)
    printed = {
        "D4": {1: (7.01e-2, 1.45e-1), 2: (7e-3, 1.3e-2), 3: (8e-4, 1.58e-3), 4: (6.10e-5, 5.23e-6)},
        "E32": {
            1: (7.01e-2, 1.45e-1),
            2: (7e-3, 1.3e-2),
            3: (2.4e-4, 4.77e-4),
            4: (6.6e-6, 5.7e-7),
        },
        "D3": {1: (5e-2, 1e-1), 2: (5.5e-4, 1.11e-3), 3: (2.5e-6, 2.11e-7), 4: (2.1e-6, 1.8e-7)},
        "two_layers": {1: (2.1e-4, 4.28e-4), 2: (4.5e-5, 3.83e-6), 3: (4e-5, 3.4e-6)},
    }
    ends = dict(printed[name])
    for heads in range(max(ends) + 1, 6):
        short, long = ends[heads - 1]
        ends[heads] = (short * 0.9, long * 0.9)
    rows = [
        (heads, length, 0, 10 ** float(np.log10(low) + share * (np.log10(high) - np.log10(low))))
        for heads, (low, high) in ends.items()
        for length, share in zip(LENGTHS, x, strict=True)
    ]
    return pd.DataFrame(rows, columns=["heads", "seq_len", "seed", "nmse"])


def transition_sweep(family: str, seed: int, *, varied: bool = False) -> Sweep:
    """Return sweep number ``seed`` of ``family``.

    Args:
        family: one of `FAMILIES`.
        seed: number of the sweep.
        varied: also draw the design: 4 to 9 head counts, 2 to 6 lengths, 2 to 6 seeds, another
            range of T and other noise than the family's own.
    """
    rng = np.random.default_rng([zlib.crc32(family.encode()), seed, int(varied)])
    return FAMILIES[family](family, rng, varied)


def collapse(
    rng: np.random.Generator,
    *,
    heads: tuple[int, ...] = (1, 2, 3, 4, 5, 6),
    h_star: int | None = None,
    jump: tuple[float, float] = (1.0, 2.2),
    after: float = -0.05,
) -> Shape:
    """A steady decline per head, then one jump to a plateau where growth with T is gone."""
    if h_star is None:
        h_star = int(rng.choice(heads[2:-1]))
    h = np.array(heads, dtype=float)
    at = heads.index(h_star)
    per_head = rng.uniform(0.4, 0.9) * min(1.0, 3.0 / h_star)
    level = -1.0 - per_head * (np.minimum(h, h_star) - heads[0])
    level[at:] += after * (h[at:] - h_star) - rng.uniform(*jump)
    slope = np.where(h < h_star, rng.uniform(*SLOPE_BELOW), rng.uniform(-0.6, -0.1))
    return Shape(heads, level, slope, h_star)


def simulate(shape: Shape, design: Design, rng: np.random.Generator) -> Sweep:
    """Draw the runs of ``shape`` under ``design``; the metric is called nmse."""
    centre = float(np.mean(np.log10(design.lengths)))
    level = shape.level + design.wobble * rng.standard_normal(len(shape.heads))
    cells = [(k, length) for k in range(len(shape.heads)) for length in design.lengths]
    absent = _absent(cells, design, rng)
    rows = []
    for k, length in cells:
        cell_jitter = design.jitter * rng.standard_normal()
        for seed in range(design.seeds):
            stays = design.stuck and shape.h_star is not None and k >= shape.at
            at = shape.at - 1 if stays and rng.random() < design.stuck else k
            noise = rng.standard_t(3) * 2 if design.heavy else rng.standard_normal()
            y = level[at] + shape.slope[at] * (np.log10(length) - centre) + cell_jitter
            if (k, length) not in absent:
                rows.append((shape.heads[k], length, seed, 10 ** (y + design.seed_sd * noise)))
    frame = pd.DataFrame(rows, columns=["heads", "seq_len", "seed", "nmse"])
    slopes = dict(zip(shape.heads, (float(value) for value in shape.slope), strict=True))
    return Sweep(frame, shape.h_star, slopes, {"metric": "nmse"})


def decline(family: str, rng: np.random.Generator, heads: tuple[int, ...]) -> Shape:
    """A decline without any transition, as log error against heads: convex, or straight."""
    h = np.array(heads, dtype=float) / heads[0]
    step = min(1.0, 5.0 / (h[-1] - 1))
    slope = np.full(len(h), rng.uniform(0.1, 0.4))
    match family:
        case "null_flat":
            level = np.full(len(h), -1.5)
            slope = np.full(len(h), rng.choice([0.0, 0.2]))
        case "null_power" | "null_stuck":
            level = -1.0 - rng.uniform(1, 4) * np.log10(h)
        case "null_exp":
            level = -1.0 - rng.uniform(0.3, 0.9) * step * (h - 1)
        case "null_exp_floor":
            falling = -1.0 - rng.uniform(0.5, 1.1) * step * (h - 1)
            level = np.log10(10**falling + 10 ** rng.uniform(-3.5, -2.5))
        case "null_fade":
            level = -1.0 - rng.uniform(1, 3) * np.log10(h)
            slope = rng.uniform(0.3, 0.5) * np.exp(-(h - 1) / rng.uniform(1, 3))
        case _:
            level = -1.0 - rng.uniform(0.4, 0.8) * step * (h - 1)
    return Shape(heads, level, slope, None)


def _absent(
    cells: list[tuple[int, int]], design: Design, rng: np.random.Generator
) -> set[tuple[int, int]]:
    """Return the missing cells; every head count keeps two lengths."""
    if not design.missing:
        return set()
    order = rng.permutation(len(cells))[: round(design.missing * len(cells))]
    absent = {cells[index] for index in order}
    for k in {k for k, _ in cells}:
        left = sum((k, length) not in absent for length in design.lengths)
        for length in design.lengths[: max(0, 2 - left)]:
            absent.discard((k, length))
    return absent


def vary(design: Design, rng: np.random.Generator) -> Design:
    """Draw the lengths, the seeds and the noise again; what a family is about stays."""
    first = int(rng.choice([4, 8, 16, 32]))
    factor = int(rng.choice([2, 4]))
    count = int(rng.integers(2, 7 if factor == 2 else 5))
    return replace(
        design,
        lengths=tuple(first * factor**power for power in range(count)),
        seeds=int(rng.choice([2, 3, 4, 5, 6], p=[0.15, 0.25, 0.27, 0.22, 0.11])),
        seed_sd=design.seed_sd * float(rng.uniform(0.5, 1.3)),
        jitter=float(rng.uniform(0.0, 0.07)),
        wobble=design.wobble * float(rng.uniform(0.0, 1.3)),
    )


def other_heads(rng: np.random.Generator, fewest: int = 4) -> tuple[int, ...]:
    """Draw 4 to 9 head counts, one after the other or in steps of two."""
    count = int(rng.integers(fewest, 10))
    step = int(rng.choice([1, 1, 2]))
    return tuple(step * (index + 1) for index in range(count))


def _seeds(rng: np.random.Generator) -> int:
    return int(rng.choice([3, 4, 5]))


def paper_shape(name: str) -> Shape:
    """Return the level and slope of a table of paper H, section 4."""
    x = np.log10(LENGTHS) - np.mean(np.log10(LENGTHS))
    groups = [np.log10(rows["nmse"].to_numpy()) for _, rows in published(name).groupby("heads")]
    level = np.array([group.mean() for group in groups])
    slope = np.array([group @ x / (x @ x) for group in groups])
    return Shape((1, 2, 3, 4, 5), level, slope, _H_STAR[name])


def _paper(family: str, rng: np.random.Generator, varied: bool) -> Sweep:
    shape = paper_shape(family.removeprefix("paper_"))
    design = Design(seeds=_seeds(rng))
    return simulate(shape, vary(design, rng) if varied else design, rng)


def _sharp(family: str, rng: np.random.Generator, varied: bool) -> Sweep:
    free = other_heads(rng, 5) if varied else (1, 2, 3, 4, 5, 6)
    design = Design(seeds=_seeds(rng))
    match family:
        case "sharp":
            shape = collapse(rng, heads=free, jump=(0.7, 2.0))
            if rng.random() < 0.5:
                design = replace(design, lengths=(8, 32, 128))
        case "sharp_small":
            shape = collapse(rng, heads=free, jump=(0.35, 0.8))
        case "noisy":
            shape = collapse(rng, heads=free, jump=(0.6, 1.6))
            design = replace(design, seed_sd=0.3)
        case "coarse":
            shape = collapse(rng, heads=(1, 2, 4, 8, 12, 16), h_star=int(rng.choice([4, 8])),
                             after=-0.01)  # fmt: skip
        case "few_cells":
            shape = collapse(rng, heads=(1, 2, 3, 4), h_star=3)
            design = replace(design, lengths=(8, 64), seeds=2)
        case "second":
            heads = free if varied else (1, 2, 3, 4, 5)
            shape = collapse(rng, heads=heads, h_star=heads[1])
        case "post_trend":
            shape = collapse(rng, heads=free, after=-0.15)
        case "hurts":
            shape = collapse(rng, heads=free, after=0.15)
        case _:
            shape = collapse(rng, heads=free)
    if family in ("sharp", "second"):
        slope = shape.slope.copy()
        slope[shape.at :] = rng.uniform(-0.2, 0.0)
        shape = replace(shape, slope=slope)
    if varied and family != "few_cells":
        design = vary(design, rng)
    match family:
        case "missing":
            design = replace(design, missing=float(rng.uniform(0.15, 0.3)))
        case "stuck":
            design = replace(design, stuck=float(rng.uniform(0.1, 0.35)), seeds=5)
        case "heavy":
            design = replace(design, heavy=True)
    return simulate(shape, design, rng)


def _null(family: str, rng: np.random.Generator, varied: bool) -> Sweep:
    shape = decline(family, rng, other_heads(rng) if varied else (1, 2, 3, 4, 5, 6))
    design = Design(seeds=_seeds(rng), wobble=0.0)
    if varied:
        design = vary(design, rng)
    if family == "null_above":
        design = replace(design, wobble=0.08)
    sweep = simulate(shape, design, rng)
    if family == "null_stuck":
        worse = rng.random(len(sweep.frame)) < rng.uniform(0.1, 0.25)
        nmse = sweep.frame["nmse"].to_numpy() * np.where(worse, 10 ** rng.uniform(0.3, 1.0), 1.0)
        sweep = replace(sweep, frame=sweep.frame.assign(nmse=nmse))
    return sweep


def _gradual(family: str, rng: np.random.Generator, varied: bool) -> Sweep:
    """Training accuracy that climbs ever faster over several head counts, then settles."""
    heads: tuple[int, ...]
    if family == "marco":
        heads, truth, eval_size = (2, 4, 6, 8, 10, 12, 14, 16), 12, 4000
        lengths: tuple[int, ...] = (8, 16, 32, 64)
        final, per_head = rng.uniform(-2.2, -1.9), rng.uniform(0.12, 0.2)
    else:
        heads, truth, eval_size, lengths = (2, 4, 6, 8, 10, 12, 14), 10, 10_000, (16, 32, 64)
        final, per_head = rng.uniform(-1.7, -1.4), rng.uniform(0.1, 0.17)
    h = np.array(heads, dtype=float)
    at = heads.index(truth)
    steps = per_head * 2 * 0.6 ** np.arange(at)[::-1]
    steps[-2:] += rng.uniform(0.15, 0.35, size=2)
    level = final - 0.01 * np.maximum(h - truth, 0)
    level[:at] += np.cumsum(steps[::-1])[::-1]
    shape = Shape(heads, np.minimum(level, -0.15), np.where(h < truth, 0.25, 0.05), truth)
    design = Design(lengths, 4, seed_sd=0.05, jitter=0.03, wobble=0.02)
    if varied:
        design = replace(vary(design, rng), wobble=design.wobble)
    sweep = simulate(shape, design, rng)
    frame = sweep.frame.rename(columns={"nmse": "accuracy"})
    missed = rng.binomial(eval_size, np.clip(frame["accuracy"], 0, 1))
    frame["accuracy"] = 1 - missed / eval_size
    options = {"metric": "accuracy", "goal": "max", "scale": "accuracy", "eval_size": eval_size}
    if varied and rng.random() < 0.5:
        del options["eval_size"]
    return Sweep(frame, truth, sweep.slopes, options)


def _loss(family: str, rng: np.random.Generator, varied: bool) -> Sweep:
    """Cross-entropy in nats: a power law in h towards an irreducible part, perhaps with a jump."""
    heads = other_heads(rng, 5) if varied else (1, 2, 3, 4, 5, 6)
    h = np.array(heads, dtype=float)
    at = 3
    drop = float(rng.uniform(0.15, 0.4)) if family == "loss" else 0.0
    level = 2.0 + rng.uniform(0.2, 0.5) * (h / h[0]) ** -rng.uniform(0.5, 1.5)
    level -= drop * (h >= heads[at])
    slope = np.where(h < heads[at], 0.05, 0.0) * (drop > 0)
    design = Design(seeds=4, seed_sd=0.01, jitter=0.004, wobble=0.0)
    if varied:
        design = replace(vary(design, rng), jitter=0.004)
    sweep = simulate(Shape(heads, level, slope, heads[at] if drop else None), design, rng)
    frame = sweep.frame.rename(columns={"nmse": "loss"})
    frame["loss"] = np.log10(frame["loss"])
    return Sweep(frame, sweep.h_star, sweep.slopes, {"metric": "loss", "scale": "loss"})


RUNGS: Final = (3, 9, 27)
"""Epochs at which pruned sweeps compare their runs; the last is the full budget."""


def _pruned(family: str, rng: np.random.Generator, varied: bool) -> Sweep:
    """Nine seeds a cell, compared at two rungs: over the whole sweep (a third goes on at each), or
    inside their cell (six, then three of nine go on)."""
    heads = other_heads(rng, 5) if varied else (1, 2, 3, 4, 5, 6)
    shape = decline("null_exp", rng, heads) if "null" in family else collapse(rng, heads=heads)
    design = vary(Design(), rng) if varied else Design()
    sweep = simulate(shape, replace(design, seeds=9), rng)
    runs = sweep.frame
    y = np.log10(runs["nmse"].to_numpy())
    early = [
        y + 0.9 + 0.15 * rng.standard_normal(len(y)),
        y + 0.4 + 0.1 * rng.standard_normal(len(y)),
    ]
    whole = "global" in family
    group = np.zeros(len(y)) if whole else runs.groupby(["heads", "seq_len"]).ngroup().to_numpy()
    shares = (1 / 3, 1 / 3) if whole else (2 / 3, 1 / 2)
    reached = np.full(len(y), RUNGS[-1])
    alive = np.ones(len(y), dtype=bool)
    for budget, value, share in zip(RUNGS, early, shares, strict=False):
        for name in np.unique(group):
            members = np.flatnonzero(alive & (group == name))
            ranked = members[np.argsort(value[members], kind="stable")]
            dropped = ranked[round(share * len(members)) :]
            alive[dropped], reached[dropped] = False, budget
    last = runs.assign(
        epoch=reached,
        nmse=10
        ** np.where(reached == RUNGS[0], early[0], np.where(reached == RUNGS[1], early[1], y)),
    )
    status = np.where(last["epoch"] == RUNGS[-1], "COMPLETE", "PRUNED")
    options = {
        **sweep.options,
        "status_column": "status",
        "complete": ["COMPLETE"],
        "budget_column": "epoch",
        "target_budget": RUNGS[-1],
    }
    frame = last.assign(status=status).sort_values(["heads", "seq_len", "seed"])
    return Sweep(frame, sweep.h_star, sweep.slopes, options)


def _plateau(family: str, rng: np.random.Generator, varied: bool) -> Sweep:
    """A large drop to the second head count, nothing further, and growth with T that stays: short
    training leaves it there."""
    fewest = other_heads(rng) if varied else (1, 2, 3, 4, 5, 6)
    heads = (2, 4, 8, 16) if family == "plateau_coarse" else fewest
    at = np.arange(len(heads))
    level = np.where(at == 0, -1.0, -1.0 - rng.uniform(1.0, 2.8)) - 0.01 * np.maximum(at - 1, 0)
    slope = np.where(at == 0, rng.uniform(*SLOPE_BELOW), rng.uniform(0.3, 1.0))
    design = Design((8, 16) if rng.random() < 0.5 else LENGTHS, seeds=_seeds(rng))
    design = vary(design, rng) if varied else design
    return simulate(Shape(heads, level, slope, heads[1]), design, rng)


def _scattered(family: str, rng: np.random.Generator, varied: bool) -> Sweep:
    """A flat error or a power law where single head counts scatter by up to 0.2 decades; a drop of
    0.6 on a power law; or one value in the middle that is far worse than all others."""
    heads = other_heads(rng, 5) if varied else (1, 2, 3, 4, 5, 6)
    h = np.array(heads, dtype=float) / heads[0]
    scatter = float(rng.uniform(0.0, 0.2)) if family in SCATTERED else 0.02
    flat = family in ("scatter_flat", "one_bad")
    level = np.full(len(h), -2.0) if flat else -1.0 - rng.uniform(0.5, 2.0) * np.log10(h)
    truth = None
    if family == "power_drop":
        truth = int(rng.choice(heads[2:-1]))
        level = level - 0.6 * (h >= truth / heads[0])
    elif family == "one_bad":
        level[len(h) // 2] += rng.uniform(0.8, 2.0)
    slope = np.full(len(h), rng.uniform(0.0, 0.3))
    design = replace(Design(seeds=_seeds(rng)), wobble=scatter)
    if varied:
        design = replace(vary(design, rng), wobble=scatter)
    return simulate(Shape(heads, level, slope, truth), design, rng)


def _single(family: str, rng: np.random.Generator, varied: bool) -> Sweep:
    """The same sweep as another family's, with one seed a cell."""
    whole = family.removeprefix("single_")
    sweep = FAMILIES[whole](whole, rng, varied)
    return replace(sweep, frame=sweep.frame.loc[sweep.frame["seed"] == 0])


def _partly(family: str, rng: np.random.Generator, varied: bool) -> Sweep:
    """The same sweep as another family's, with a second seed in half of its cells."""
    whole = family.removeprefix("partly_")
    sweep = FAMILIES[whole](whole, rng, varied)
    frame = sweep.frame
    cells = frame[["heads", "seq_len"]].drop_duplicates()
    twice = cells.iloc[rng.permutation(len(cells))[: (len(cells) + 1) // 2]]
    chosen = frame.merge(twice, on=["heads", "seq_len"], how="left", indicator=True)
    kept = (frame["seed"] == 0) | ((frame["seed"] == 1) & (chosen["_merge"] == "both").to_numpy())
    return replace(sweep, frame=frame.loc[kept])


def _tuned(family: str, rng: np.random.Generator, varied: bool) -> Sweep:
    """Several learning rates a cell, the best of which has the true value.

    How far the others lie behind is drawn for every cell: from ties to three seed standard
    deviations. ``tuned_null_uneven`` is flat, five times as noisy, and tries one rate below four
    heads and eight from there on: the best of eight runs would look like a drop.
    """
    kind = family.removeprefix("tuned_")
    heads = other_heads(rng, 5) if varied else (1, 2, 3, 4, 5, 6)
    seeds, rates = _seeds(rng), int(rng.integers(3, 7))
    if kind in ("sharp", "sharp_small", "noisy"):
        jump = {"sharp": (0.7, 2.0), "sharp_small": (0.35, 0.8), "noisy": (0.6, 1.6)}[kind]
        shape = collapse(rng, heads=heads, jump=jump)
        design = Design(seed_sd=0.3 if kind == "noisy" else 0.1)
    else:
        uneven = kind == "null_uneven"
        shape = decline("null_flat" if uneven else kind, rng, heads)
        wobble = 0.08 if kind == "null_above" else 0.0
        design = Design(wobble=wobble, seed_sd=0.5 if uneven else 0.1)
        rates = 8 if uneven else rates
    if varied:
        design = vary(design, rng)
        seeds = design.seeds
    sweep = simulate(shape, replace(design, seeds=seeds * rates), rng)
    rate, seed = divmod(sweep.frame["seed"].to_numpy(), seeds)
    cell = sweep.frame.groupby(["heads", "seq_len"]).ngroup().to_numpy()
    behind = design.seed_sd * rng.choice([0.0, 0.5, 1.0, 3.0]) * rng.random((cell.max() + 1, rates))
    behind[np.arange(len(behind)), rng.integers(rates, size=len(behind))] = 0.0
    if kind == "null_uneven":
        behind[:] = 0.0
    frame = sweep.frame.assign(
        seed=seed, lr=10.0**-rate, nmse=sweep.frame["nmse"] * 10 ** behind[cell, rate]
    )
    if kind == "null_uneven":
        frame = frame.loc[(rate == 0) | (frame["heads"] >= 4).to_numpy()]
    return replace(sweep, frame=frame, options={**sweep.options, "nuisance": ["lr"]})


ASHA: Final = ("asha_global", "asha_null_global", "asha_cell", "asha_null_cell")
FAMILIES: Final[dict[str, Callable[[str, np.random.Generator, bool], Sweep]]] = {
    **dict.fromkeys(PAPER, _paper),
    **dict.fromkeys(SHARP, _sharp),
    **dict.fromkeys(GRADUAL, _gradual),
    **dict.fromkeys(("loss", "loss_null"), _loss),
    **dict.fromkeys(NULLS, _null),
    **dict.fromkeys(ASHA, _pruned),
    **dict.fromkeys(PLATEAUS, _plateau),
    **dict.fromkeys((*SCATTERED, *DROPPED, "one_bad"), _scattered),
    **dict.fromkeys((*SINGLE_SHARP, *SINGLE_NULLS), _single),
    **dict.fromkeys((*PARTLY_SHARP, *PARTLY_NULLS), _partly),
    **dict.fromkeys((*TUNED_SHARP, *TUNED_NULLS), _tuned),
}
