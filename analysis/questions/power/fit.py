"""How many lengths and seeds does a sweep need to show a collapse of a given size?

Sweeps with a jump of known size are simulated at the noise seen so far (or an assumed one) and
fitted as real ones are; the power of a design is the share that comes out as a collapse. For lean
questions the power of Holm's first step is known in closed form and is tabulated.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, geometric_mean
from typing import Any, Final

import numpy as np
import pandas as pd

from analysis.questions.lean.result import LeanResult
from analysis.questions.power.result import (
    Collapse,
    Design,
    LeanPowerResult,
    Noise,
    PowerResult,
    PowerRow,
    PowerSettings,
    SettingChoice,
)
from analysis.questions.transition import fit as transition
from analysis.questions.transition.result import TransitionResult, TransitionSettings
from analysis.questions.transition.table import RunTable
from analysis.runs.rows import RunRows
from analysis.runs.scale import THRESHOLDS
from analysis.runs.tuned import tuned_runs
from analysis.statistics.bounds import share_of
from analysis.statistics.cross_fitting import cross_fit
from analysis.statistics.noninferiority import power, seeds_for
from analysis.statistics.values import FloatArray
from analysis.text.numbers import y_unit
from analysis.values import Number, number
from hsweep.design.scales import Scale
from hsweep.errors import UserError

_DECADES_OF_MIN_DROP: Final = 0.5
"""The drop that a scale asks for stands for half a decade of error; sizes are scaled by it."""
_FEWEST_HEADS: Final = 4
_ALTERNATIVES: Final = ((2, 2), (2, 5), (3, 3), (5, 3), (5, 5))
"""(lengths, seeds) that stand beside a sweep's own design."""
_LEAN_SEEDS: Final = (3, 5, 8, 12, 20)
_LEAN_RATIOS: Final = (0.5, 1.0, 1.5, 2.0, 3.0)

Progress = Callable[[int, int], None]


def default_noise(scale: Scale) -> Noise:
    unit = _unit(scale)
    return Noise(0.1 * unit, 0.05 * unit, 0.04 * unit, "assumed: nothing has been run yet")


def noise_of(result: TransitionResult) -> Noise:
    """Return the noise that a study shows.

    The seed sd is the geometric mean over head counts; the cells' own scatter is what their
    over-dispersion phi leaves beside the seeds: phi = 1 + cell_sd^2 / c, with c the mean seed
    variance of a cell's median.
    """
    spreads = [sd for sd in result.seed_sd.values() if sd > 0]
    if result.stated_sd is None and (result.n1_assumed_sd is not None or not spreads):
        source = "assumed: no cell of the study holds two full-budget runs"
        return replace(default_noise(result.scale), source=source)
    seed_sd = geometric_mean(spreads)
    variance = 1.57 * seed_sd**2 * fmean([1 / cell.n for cell in result.cells] or [1.0])
    cell_sd = math.sqrt(max(result.phi - 1, 0.0) * variance)
    head_sd = default_noise(result.scale).head_sd
    source = f"seen in {len(result.runs)} full-budget runs"
    return Noise(
        seed_sd, cell_sd, head_sd, source if result.stated_sd is None else "stated by the user"
    )


def plan_transition(
    heads: Sequence[Number],
    lengths: Sequence[Number | None],
    seeds: int,
    *,
    x: str = "heads",
    by: str | None = "seq_len",
    scale: Scale = "error",
    noise: Noise | None = None,
    h_star: Number | None = None,
    jumps: Sequence[float] | None = None,
    settings: PowerSettings = PowerSettings(),
    choice: SettingChoice = SettingChoice(),
    on_progress: Progress | None = None,
) -> PowerResult:
    """Return the power of a sweep's design and of others at jumps of the given sizes.

    Args:
        seeds: runs of every cell that count.
        x, by: names of the axes; ``by`` None for a sweep at one length.
        h_star: where the jump is put; None: in the middle of the grid, never before its third
            value, since a break at the second cannot be told from diminishing returns.
        jumps: sizes; None: 0.4, 0.8 and 1.5 decades (a tenth of them in nats for losses).
        choice: of settings of nuisance axes.
        on_progress: called with the number of sweeps done and of all.

    Raises:
        UserError: an axis without two values, or a jump that is not positive.
    """
    warnings: list[str] = []
    unit = _unit(scale)
    heads = tuple(number(head) for head in sorted(set(heads)))
    if len(heads) < 2:
        raise UserError(f"{x} has one value; a transition needs at least {_FEWEST_HEADS}")
    if jumps is None:
        jumps = [round(jump * unit, 6) for jump in (0.4, 0.8, 1.5)]
    if not jumps or min(jumps) <= 0:
        raise UserError(f"a jump must be above 0, not {min(jumps, default=None)!r}")
    if len(heads) < _FEWEST_HEADS:
        few, step = len(heads), heads[-1] - heads[-2]
        more = range(1, _FEWEST_HEADS + 2 - few)
        heads = (*heads, *(number(heads[-1] + step * k) for k in more))
        warnings.append(
            f"{few} values of {x} can never show a transition, which needs {_FEWEST_HEADS}; the "
            f"table is for {', '.join(f'{head:g}' for head in heads)}"
        )
    at = heads.index(h_star) if h_star in heads else len(heads) // 2
    truth = Collapse(0.7 * unit, 0.4 * unit, heads[max(2, min(at, len(heads) - 1))])
    if h_star is not None and truth.h_star != h_star:
        warnings.append(
            f"the jump is put at {x} = {truth.h_star:g}: one at {h_star:g} has too few values "
            "below it to be told from diminishing returns"
        )
    if seeds == 1:
        warnings.append(
            "one run a cell measures no seed noise: such a design can only suggest a collapse"
        )
    noise = noise or default_noise(scale)
    fit_settings = TransitionSettings(B=1, n_mc=settings.n_mc)  # no verdict depends on B
    designs = _designs(heads, tuple(lengths), seeds, by)
    cases = [(design, float(jump)) for design in designs for jump in jumps]
    table: list[PowerRow] = []
    for design, jump in cases:
        verdicts: Counter[str] = Counter()
        for sweep in range(settings.sweeps):
            crossed_design = replace(design, seeds=design.seeds * choice.crossed)
            y = simulate(crossed_design, jump, truth, noise, (settings.rng_seed, sweep))
            result = transition.fit(_table(design, y, x, by, scale), settings=fit_settings)
            verdicts[result.verdict] += 1
            if on_progress is not None:
                num_sweeps = len(table) * settings.sweeps + sweep + 1
                on_progress(num_sweeps, len(cases) * settings.sweeps)
        table.append(
            PowerRow(
                design=design,
                trials=choice.trials(len(design.heads) * len(design.lengths), design.seeds),
                jump=jump,
                power=share_of(verdicts["collapse"], settings.sweeps),
                verdicts={name: n / settings.sweeps for name, n in sorted(verdicts.items())},
            )
        )
    recommended = {}
    for jump in map(float, jumps):
        enough = [
            (row.trials, k)
            for k, row in enumerate(table)
            if row.jump == jump and row.power.estimate >= settings.target
        ]
        recommended[jump] = min(enough, default=(0, -1))[1]
    return PowerResult(
        x=x,
        by=by,
        unit=y_unit(scale),
        noise=noise,
        collapse=truth,
        table=tuple(table),
        recommended=recommended,
        settings=settings,
        warnings=tuple(warnings),
        choice=choice,
    )


def plan_lean(
    *,
    margin: float,
    candidates: int,
    seeds: int,
    alpha: float = 0.05,
    study_result: LeanResult | None = None,
    target: float = 0.8,
    choice: SettingChoice = SettingChoice(),
) -> LeanPowerResult:
    """Return the power to establish an exactly equal candidate.

    Args:
        candidates: cheaper shapes that will be tested.
        alpha: family-wise error rate; divided already where several comparisons share it.
        study_result: a study's result, for its seed sd and its number of candidates.
        choice: of settings of nuisance axes. Seeds that choose for each other scatter more in their
            mean, as if the margin were narrower.

    Raises:
        UserError: no candidate.
    """
    sd, kept = None, 1.0
    source = "nothing has been run yet: several ratios of margin to seed sd are shown"
    if study_result is not None:
        candidates = max(candidates, len(study_result.table))
        alpha = study_result.settings.level
        sd, lost = study_result.sd, study_result.baseline_lost
        # What the baseline has lost it will lose again: a plan counts the seeds that are left.
        kept -= lost.total / max(1, lost.started)
        if sd is not None:
            source = f"the baseline's seed sd, {study_result.baseline_n} runs"
    if candidates < 1:
        raise UserError("no shape is cheaper than the baseline, so there is nothing to test")
    ratios = _LEAN_RATIOS if sd is None else (margin / sd,)
    seed_counts = sorted({*_LEAN_SEEDS, seeds})
    narrower = _inflation(choice.crossed, seeds) ** -0.5
    test: dict[str, Any] = {"candidates": candidates, "alpha": alpha, "kept": kept}
    return LeanPowerResult(
        margin=margin,
        sd=sd,
        candidates=candidates,
        alpha=alpha,
        own_seeds=seeds,
        power={
            ratio: {n: power(ratio * narrower, n, **test) for n in seed_counts if n > 1}
            for ratio in ratios
        },
        enough={ratio: seeds_for(ratio * narrower, target=target, **test) for ratio in ratios},
        target=target,
        source=source,
        choice=choice,
    )


def _inflation(settings: int, seeds: int) -> float:
    """Return the usual inflation of a mean whose seeds choose for each other among equals."""
    if settings < 2 or seeds < 2:
        return 1.0
    draws = np.random.default_rng(0).standard_normal((20, settings, seeds))
    return float(np.mean([cross_fit(quality).inflation for quality in draws]))


def simulate(
    design: Design, jump: float, truth: Collapse, noise: Noise, seed: Sequence[int]
) -> FloatArray:
    """Return y of one sweep, shape [heads, lengths, seeds].

    The same ``seed`` draws the same scatter of head counts for every design and jump, so that less
    noise lies between them.

    Below the jump y falls by ``decline`` a value on average, linearly in the axis, and grows with
    log10 T; at ``h_star`` it falls by ``jump`` more and stays.
    """
    h = np.array(design.heads, dtype=np.float64)
    star = design.heads.index(truth.h_star)
    per_head = truth.decline * star / (h[star] - h[0])
    level = -per_head * (np.minimum(h, h[star]) - h[0])
    level[star:] -= jump
    of_heads, of_cells, of_seeds = (np.random.default_rng([*seed, part]) for part in range(3))
    level = level + noise.head_sd * of_heads.standard_normal(len(h))
    lengths = np.array([1.0 if length is None else length for length in design.lengths])
    centred = np.log10(lengths) - np.log10(lengths).mean()
    slope = np.where(np.arange(len(h)) < star, truth.slope, 0.0)
    cells = level[:, None] + slope[:, None] * centred
    cells = cells + noise.cell_sd * of_cells.standard_normal(cells.shape)
    seeds = noise.seed_sd * of_seeds.standard_normal((design.seeds, *cells.shape))
    return np.asarray(cells[:, :, None] + np.moveaxis(seeds, 0, -1), dtype=np.float64)


def _table(design: Design, y: FloatArray, x: str, by: str | None, scale: Scale) -> RunTable:
    """Return the runs of y, shape [heads, lengths, settings * seeds]."""
    heads, lengths, runs = (index.ravel() for index in np.indices(y.shape))
    length_values = [np.nan if length is None else length for length in design.lengths]
    frame = pd.DataFrame(
        {
            "x": np.array(design.heads, dtype=np.float64)[heads],
            "by": np.array(length_values, dtype=np.float64)[lengths],
            "setting": runs // design.seeds,
            "replicate": (runs % design.seeds).astype(str),
            "value": y.ravel(),
            "y": y.ravel(),
            "status": "finished",
            "complete": True,
        }
    )
    whole = RunTable(frame, x, by, "simulated", "max" if scale == "accuracy" else "min", scale, ())
    if y.shape[2] == design.seeds:
        return whole
    config = ["x"] if by is None else ["x", "by"]
    rows, tuned, _ = tuned_runs(
        RunRows(frame[[*config, "setting"]], pd.DataFrame(index=frame.index), frame),
        config=config, nuisance=["setting"], goal="min", value="y", noun="cell",
    )  # fmt: skip
    aside = frame.drop(index=rows.runs.index)
    return replace(whole, frame=rows.runs, nuisance=("setting",), aside=aside, tuned=tuned)


def _designs(
    heads: tuple[Number, ...], lengths: tuple[Number | None, ...], seeds: int, by: str | None
) -> list[Design]:
    """Return the sweep's own design and the alternatives, smallest first."""
    study_lengths = tuple(sorted({length for length in lengths if length is not None}))
    if by is None or not study_lengths:
        own = Design(heads, (None,), seeds, is_own=True)
        alternatives = [Design(heads, (None,), n) for n in (2, 3, 5, 8, 12) if n != seeds]
    else:
        own = Design(heads, study_lengths, seeds, is_own=True)
        alternatives = [
            Design(heads, _even_lengths(study_lengths, count), n)
            for count, n in _ALTERNATIVES
            if (count, n) != (len(study_lengths), seeds)
        ]
    return sorted([own, *alternatives], key=lambda design: design.trials)


def _even_lengths(lengths: tuple[Number, ...], count: int) -> tuple[Number, ...]:
    """Return ``count`` lengths spaced evenly in their logarithm over the sweep's own range, or
    doubling from its smallest where that reaches further."""
    if count == len(lengths):
        return lengths
    low, high = lengths[0], max(lengths[-1], lengths[0] * 2 ** (count - 1))
    return tuple(round(float(length)) for length in np.geomspace(low, high, count))


def _unit(scale: Scale) -> float:
    return THRESHOLDS[scale].min_drop / _DECADES_OF_MIN_DROP
