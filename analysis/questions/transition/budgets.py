"""Would the answer survive more training? The transition at each budget, and what is still to come.

The change of a cell from the last budget but one to the last is estimated from seeds that were
trained to both, so that most of their noise cancels. Along the logarithm of the budget the error of
a cell is taken to go on changing at most as fast as between its last two budgets, up to
``budget_reach`` times the largest budget, and to stop at any time: a power law towards a floor does
so. Where each cell stops is not known, so that every combination has to leave the answer as it is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Final

import numpy as np

from analysis.questions.transition.budget_result import BudgetAnswer, Budgets, BudgetTrials
from analysis.questions.transition.cells import (
    Cells,
    Grid,
    SeedNoise,
    cell_values,
    read_cells,
    resampled_cells,
    seed_noise,
)
from analysis.questions.transition.location import step_drops
from analysis.questions.transition.result import CLAIMS, TransitionResult
from analysis.runs.ladder import Ladder
from analysis.runs.table import Runs
from analysis.statistics.values import FloatArray, Interval, Mask
from analysis.values import Number, number
from hsweep.design.question import Scale

_PLACED: Final = (*CLAIMS, "plateau")
_OPEN: Final = ("inconclusive", "suggested")
_ENDLESS: Final = 30.0
"""Decades that stand for a fall without a floor in sight."""
_SAME_CLAIM: Final = {"threshold": "transition"}
"""Both say that the error collapses, to where it no longer grows with T."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What an answer rests on.

    Attributes:
        holds: in which draws, shape [B].
        fails: what would happen otherwise, in words.
        heads: indices of the head counts that decide it.
    """

    holds: Mask
    fails: str
    heads: tuple[int, ...]


def budgets_of(
    result: TransitionResult, ladder: Ladder, answer: Callable[[Runs], TransitionResult]
) -> Budgets:
    """Return the transition at each budget, and whether that of the largest is settled.

    Args:
        result: of the largest budget.
        ladder: the runs of each budget.
        answer: fits the runs of one budget.
    """
    names = {"unit": ladder.unit, "column": ladder.column}
    if len(ladder.rungs) < 2:
        if ladder.reports:
            reason = (
                f"{ladder.reports} budgets a run are reports on its way, not runs trained to each"
            )
            return Budgets("unknown", reason, **names)
        return Budgets("unknown", "one budget only: longer training was not tried", **names)
    found = [answer(rung.runs) for rung in ladder.rungs[:-1]]
    found.append(result)
    budgets = [number(rung.budget) for rung in ladder.rungs]
    answers = tuple(_answer(*pair) for pair in zip(budgets, found, strict=True))
    before, last = budgets[-2:]
    if result.verdict in _OPEN:
        reason = "the largest budget has no answer that is tested"
        return Budgets("unknown", reason, **names, answers=answers)
    if any(cell.pruned for cell in result.counts):
        reason = "runs were stopped early, so budgets hold different runs"
        return Budgets("unknown", reason, **names, answers=answers)
    if _claim(found[-2]) != _claim(result) and found[-2].verdict not in _OPEN:
        return Budgets(
            "moving",
            f"{_in_words(found[-2], result.x)} at {ladder.at(before)}",
            **names,
            answers=answers,
            missing=_longer(result, budgets, range(len(result.level)), "the answer still moves"),
        )
    pairs = _Pairs.of(found[-2], result)
    if pairs.gap or found[-2].verdict in _OPEN:
        reason = pairs.gap or f"no answer is tested at {ladder.at(before)}"
        return Budgets("unknown", reason, **names, answers=answers)
    z, change = _draws(pairs, result)
    come = still_to_come(change, last / before, result.settings.budget_exponent, result.scale)
    ahead = list(_conditions(z + np.minimum(come, 0), z + np.maximum(come, 0), pairs, result))
    share = _share(ahead)
    common = {**names, "answers": answers, "same": share}
    if share >= result.settings.set_mass:
        return Budgets("settled", f"the same at {ladder.at(before)}", **common)
    worst = min(ahead, key=lambda condition: float(condition.holds.mean()))
    on_course = _share(list(_conditions(z + change, z + change, pairs, result)))
    if on_course <= 1 - result.settings.set_mass:
        why = "the answer still moves"
        missing = _longer(result, budgets, worst.heads, why)
        return Budgets("moving", f"{worst.fails}", **common, missing=missing)
    middle = [np.median(part, axis=0, keepdims=True) for part in (z, come)]
    at_middle = _conditions(
        middle[0] + np.minimum(middle[1], 0), middle[0] + np.maximum(middle[1], 0), pairs, result
    )
    missing = (
        _more_seeds(pairs, last, worst.heads)
        if _share(list(at_middle)) == 1
        else _longer(result, budgets, worst.heads, "what is still to come may change the answer")
    )
    return Budgets("unknown", f"{worst.fails}", **common, missing=missing)


def _claim(result: TransitionResult) -> tuple[str, Number | None]:
    place = result.h_star if result.verdict in _PLACED else None
    return _SAME_CLAIM.get(result.verdict, result.verdict), place


def _in_words(result: TransitionResult, x: str) -> str:
    verdict = result.verdict.replace("_", " ")
    if result.verdict not in _PLACED:
        return f"no transition in {x}" if verdict == "none" else verdict
    return f"{verdict} at {x} = {result.h_star:g}"


def _answer(budget: Number, result: TransitionResult) -> BudgetAnswer:
    return BudgetAnswer(
        budget,
        len(result.runs),
        result.verdict,
        result.h_star,
        result.h_set,
        _drop_interval(result),
        result.gamma_below,
        result.gamma_above,
    )


def _drop_interval(result: TransitionResult) -> Interval | None:
    if result.drop is None or result.noise_gap or result.h_peak is None:
        return None
    grid = _grid(result)
    noise = seed_noise(grid, result.limits, result.settings.assumed_sd)
    cells = read_cells(grid, noise, _best_of(result, int(grid.counts[grid.counts > 0].min())))
    rng = np.random.default_rng([result.settings.rng_seed, 2])
    peak = int(np.flatnonzero(grid.heads == result.h_peak)[0])
    drops = step_drops(resampled_cells(cells, result.settings.B, rng))[:, peak - 1]
    low, high = np.quantile(drops, [0.025, 0.975])
    return Interval(result.drop, float(low), float(high))


def _best_of(result: TransitionResult, fewest: int) -> int | None:
    return None if result.reading == "typical" else fewest


def _grid(result: TransitionResult) -> Grid:
    cells: dict[tuple[float, float | None], list[float]] = {}
    for run in result.runs:
        cells.setdefault((run.x, run.by), []).append(run.y)
    heads, lengths = _axes(result)
    return Grid(
        np.array(heads, dtype=np.float64),
        np.array([np.nan if by is None else by for by in lengths], dtype=np.float64),
        tuple(tuple(np.sort(cells.get((x, by), [])) for by in lengths) for x in heads),
    )


def _axes(result: TransitionResult) -> tuple[list[Number], list[Number | None]]:
    heads = sorted({run.x for run in result.runs})
    return heads, sorted({run.by for run in result.runs}, key=lambda by: by or 0)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Seeds that were trained to the last two budgets, cell by cell.

    Attributes:
        cells: y at the largest budget, as `Cells` under the answer's reading.
        last: the same, run by run, ``last[k][j]``.
        change: y there less y at the budget before, of the same runs.
        noise: of the change.
        gap: why changes are not known; empty where they are.
    """

    heads: list[Number]
    lengths: list[Number | None]
    cells: Cells
    last: tuple[tuple[FloatArray, ...], ...]
    change: tuple[tuple[FloatArray, ...], ...]
    noise: SeedNoise
    gap: str

    @classmethod
    def of(cls, before: TransitionResult, result: TransitionResult) -> "_Pairs":
        heads, lengths = _axes(result)
        earlier = {(run.x, run.by, run.replicate): run.y for run in before.runs}
        cells: dict[tuple[Number, Number | None], list[tuple[float, float]]] = {}
        for run in result.runs:
            y = earlier.get((run.x, run.by, run.replicate))
            if y is not None:
                cells.setdefault((run.x, run.by), []).append((run.y, run.y - y))
        rows = [[np.array(cells.get((x, by), [])).reshape(-1, 2) for by in lengths] for x in heads]
        last = tuple(tuple(cell[:, 0] for cell in row) for row in rows)
        change = tuple(tuple(cell[:, 1] for cell in row) for row in rows)
        whole = _grid(result)
        grid, changes = (Grid(whole.heads, whole.lengths, part) for part in (last, change))
        lacking = int(((whole.counts > 0) & (grid.counts == 0)).sum())
        gap = f"{lacking} cells hold no seed that was trained to both budgets" if lacking else ""
        limits = result.limits
        noise = seed_noise(changes, limits, None) if not lacking else seed_noise(whole, limits, None)
        gap = gap or (f"{noise.gap} at both budgets" if noise.gap else "")
        fewest = int(grid.counts[grid.counts > 0].min()) if not lacking else 0
        seeds = seed_noise(grid if not lacking else whole, limits, None)
        read = read_cells(grid if not lacking else whole, seeds, _best_of(result, fewest))
        return cls(heads, lengths, read, last, change, noise, gap)


def _draws(pairs: _Pairs, result: TransitionResult) -> tuple[FloatArray, FloatArray]:
    """Return draws of z at the largest budget and of its change to it, shapes [B, K, J].

    Seeds are resampled with both of their values, as in `cells.resampled_cells`; what cells scatter
    about their lines beyond that is added to z. The change is smoothed by a line in log10 T.
    """
    cells, draws = pairs.cells, result.settings.B
    rng = np.random.default_rng([result.settings.rng_seed, 3])
    z = np.full((draws, *cells.z.shape), np.nan)
    change = z.copy()
    for k, row in enumerate(pairs.last):
        for j, values in enumerate(row):
            n = values.size
            if not n:
                continue
            picks = rng.integers(0, n, size=(draws, n))
            few = np.sqrt(max(n * (n - 1), 1))
            now = cells.z[k, j]
            moved = _centre(pairs.change[k][j][picks])
            z[:, k, j] = now
            change[:, k, j] = moved + pairs.noise.sd[k] / few * _t(pairs.noise.df[k], draws, rng)
    return z, _along_lengths(change, cells.grid.lengths)


def still_to_come(change: FloatArray, ratio: float, exponent: float, scale: Scale) -> FloatArray:
    """Return the most that y can still change after it changed by ``change`` over the last ratio.

    The error is a floor plus a power of the budget, b^-a with a of at least ``exponent``: with e the
    part above the floor over the floor, (1 + r^a e) / (1 + e) = 10^-change for a ratio r, and
    log10(1 + e) is left. Where no such e exists no floor is in sight. A loss in nats is not a
    logarithm: r^a - 1 times what is left is the last change. So is what gets worse by training.
    """
    power = ratio**exponent
    come = change / (power - 1)
    if scale == "loss":
        return come
    fall = 10 ** -np.minimum(change, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.log10(1 + (fall - 1) / (power - fall))
    return np.asarray(np.where(change > 0, come, np.where(fall < power, -left, -_ENDLESS)))


def _centre(samples: FloatArray) -> FloatArray:
    """Return the median of all pairs' means of each row (Hodges and Lehmann), of many the median."""
    n = samples.shape[1]
    if n > 20:
        return np.asarray(np.median(samples, axis=1))
    first, second = np.triu_indices(n)
    return np.asarray(np.median((samples[:, first] + samples[:, second]) / 2, axis=1))


def _t(df: float, draws: int, rng: np.random.Generator) -> FloatArray:
    return rng.standard_t(df, draws) if df > 0 else rng.standard_normal(draws)


def _along_lengths(change: FloatArray, lengths: FloatArray) -> FloatArray:
    x = np.log10(lengths)
    smooth = change.copy()
    for k in range(change.shape[1]):
        present = ~np.isnan(change[0, k]) & ~np.isnan(x)
        if present.sum() < 3:
            continue
        design = np.column_stack([np.ones(int(present.sum())), x[present]])
        smooth[:, k, present] = change[:, k, present] @ (design @ np.linalg.pinv(design)).T
    return smooth


def _share(conditions: list[Condition]) -> float:
    return float(np.logical_and.reduce([condition.holds for condition in conditions]).mean())


def _conditions(
    low: FloatArray, high: FloatArray, pairs: _Pairs, result: TransitionResult
) -> Iterator[Condition]:
    """Yield what the answer rests on, where each cell lies between ``low`` and ``high`` [B, K, J].

    Each holds in a draw only if it holds wherever the cells lie.
    """
    limits, settings, heads = result.limits, result.settings, pairs.heads
    unit = limits.unit
    least, most = _step_bounds(low, high)
    if result.verdict not in _PLACED:
        yield from _no_claim(low, high, pairs, result)
        return
    assert result.h_star is not None
    assert result.h_peak is not None
    star, peak = heads.index(result.h_star), heads.index(result.h_peak)
    drop, largest = least[:, peak - 1], most[:, peak - 1]
    at = (peak - 1, peak)
    yield Condition(
        drop >= limits.min_drop,
        f"the drop at {heads[peak]:g} may be less than {limits.min_drop:g} {unit}",
        at,
    )
    for k in range(1, len(heads)):
        if np.isnan(most[0, k - 1]) or k == peak:
            continue
        other_low, other_high = least[:, k - 1], most[:, k - 1]
        if peak < k <= star:
            holds = other_low >= np.maximum(limits.d_min, settings.rho * largest)
            yield Condition(holds, f"the drop may end before {heads[star]:g}", (k - 1, k))
        elif k == star + 1:
            holds = other_high < np.maximum(limits.d_min, settings.rho * drop)
            yield Condition(holds, f"the drop may reach {heads[k]:g}", (k - 1, k))
        if not peak < k <= star:
            yield Condition(
                other_high < drop, f"the largest drop may move to {heads[k]:g}", (k - 1, k, *at)
            )
    if result.verdict in ("transition", "jump_only"):
        yield Condition(
            _excess(least, most, peak, heads) >= limits.min_excess,
            f"less than {limits.min_excess:g} {unit} of the drop may be abrupt",
            tuple(range(peak + 1)),
        )
    if result.verdict == "plateau":
        fall = _later_fall(low, high, star)
        flat = np.minimum(limits.min_drop, settings.rho * drop)
        yield Condition(fall <= flat, f"the error may fall beyond {heads[star]:g}", at)
        return
    if result.by is None or result.gamma_above is None:
        return
    above = tuple(range(star, len(heads)))
    slope_low, slope_high = _slopes(low, high, pairs.cells.grid.lengths, star, len(heads))
    words = f"growth with {result.by} from {heads[star]:g} on may"
    if result.verdict == "jump_only":
        yield Condition(slope_low > limits.delta_T, f"{words} vanish", above)
    else:
        yield Condition(slope_high <= limits.delta_T, f"{words} exceed {limits.delta_T:g}", above)


def _no_claim(
    low: FloatArray, high: FloatArray, pairs: _Pairs, result: TransitionResult
) -> Iterator[Condition]:
    """Yield that no step looks like a collapse: abrupt, or one from which growth with T is gone."""
    limits, settings, heads = result.limits, result.settings, pairs.heads
    lengths = pairs.cells.grid.lengths
    least, most = _step_bounds(low, high)
    for k in range(1, len(heads)):
        drop = most[:, k - 1]
        if np.isnan(drop[0]):
            continue
        is_claim = np.zeros(len(drop), dtype=bool)
        if k >= 2 and len(heads) >= 4:
            is_claim |= _excess(most, least, k, heads) >= limits.min_excess
        if result.by is not None and len(lengths) > 1:
            above, _ = _slopes(low, high, lengths, k, len(heads))
            _, below = _slopes(low, high, lengths, 0, k)
            change = np.where(below > limits.delta_T, 0.0, limits.delta_T)
            is_claim |= (above <= limits.delta_T) & (below > 0) & (below - above > change)
        if k == 1:
            flat = np.minimum(limits.min_drop, settings.rho * drop)
            is_claim |= _later_fall(high, low, k) <= flat
        yield Condition(
            ~(is_claim & (drop >= limits.min_drop)),
            f"the error may collapse at {heads[k]:g}",
            (k - 1, k),
        )


def _step_bounds(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest drop of each step, shapes [B, K - 1]."""
    bounds = []
    for first, second in ((low, high), (high, low)):
        steps = [
            step_drops(np.stack([first[:, k - 1], second[:, k]], axis=1))[:, 0]
            for k in range(1, low.shape[1])
        ]
        bounds.append(np.stack(steps, axis=1))
    return bounds[0], bounds[1]


def _excess(drop: FloatArray, earlier: FloatArray, peak: int, heads: list[Number]) -> FloatArray:
    """Return the drop at ``peak`` beyond the median earlier drop per head over the same step."""
    steps = np.diff(np.array(heads, dtype=np.float64))
    per_head = (earlier / steps)[:, : peak - 1]
    per_head = per_head[:, np.isfinite(per_head[0])]
    usual = np.median(per_head, axis=1) if per_head.shape[1] else 0.0
    return np.asarray(drop[:, peak - 1] - usual * steps[peak - 1])


def _later_fall(low: FloatArray, high: FloatArray, star: int) -> FloatArray:
    """Return the largest fall of the mean over T from ``star`` to a later head count, shape [B]."""
    if star + 1 >= low.shape[1]:
        return np.full(len(low), np.inf)
    return np.asarray(
        np.nanmean(high[:, star], axis=1) - np.nanmean(low[:, star + 1 :], axis=2).min(axis=1)
    )


def _slopes(
    low: FloatArray, high: FloatArray, lengths: FloatArray, first: int, end: int
) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and largest slope in log10 T, mean over the head counts first..end-1."""
    x_all = np.log10(lengths)
    bounds = []
    for k in range(first, end):
        present = ~np.isnan(low[0, k])
        if present.sum() < 2:
            continue
        x = x_all[present] - x_all[present].mean()
        weight = x / (x @ x)
        rising, falling = np.maximum(weight, 0), np.minimum(weight, 0)
        bottom, top = low[:, k, present], high[:, k, present]
        bounds.append((bottom @ rising + top @ falling, top @ rising + bottom @ falling))
    if not bounds:
        nothing = np.full(len(low), np.nan)
        return nothing, nothing
    return np.mean([least for least, _ in bounds], axis=0), np.mean([m for _, m in bounds], axis=0)


def _more_seeds(
    pairs: _Pairs, budget: Number, decisive: tuple[int, ...]
) -> tuple[BudgetTrials, ...]:
    """Return as many seeds again in the decisive cells."""
    return tuple(
        BudgetTrials(
            pairs.heads[k], by, cell.size, budget, "too few seeds to tell what is still to come"
        )
        for k in sorted(set(decisive))
        for by, cell in zip(pairs.lengths, pairs.last[k], strict=True)
        if cell.size
    )


def _longer(
    result: TransitionResult, budgets: list[Number], decisive: object, why: str
) -> tuple[BudgetTrials, ...]:
    """Return the next budget of every cell, decisive cells first."""
    ratio = min(float(after) / float(before) for before, after in pairwise(budgets[-2:]))
    budget = number(round(float(budgets[-1]) * ratio))
    heads, lengths = _axes(result)
    first = [heads[k] for k in sorted(set(decisive))]  # type: ignore[call-overload]
    order = [*first, *(x for x in heads if x not in first)]
    counts = {(cell.x, cell.by): cell.complete for cell in result.counts}
    return tuple(
        BudgetTrials(x, by, n, budget, why)
        for x in order
        for by in lengths
        if (n := counts.get((x, by), 0))
    )
