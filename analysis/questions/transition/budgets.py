"""Would the answer survive more training? The transition at each budget, and what is still to come.

The change of a cell between the last two budgets is estimated from seeds that were trained to both,
so that most of their noise cancels. What it can still change is bounded by `still_to_come`. Where
between its value and that bound each cell ends is not known: the answer is settled if all
combinations leave it as it is, in enough draws of the seeds behind the changes. The noise of the
answer itself is not drawn again: the answer's own tests and intervals are about that.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from analysis.questions.transition.budget_conditions import PLACED, Condition, Ends, conditions
from analysis.questions.transition.budget_result import BudgetAnswer, Budgets, BudgetTrials
from analysis.questions.transition.cells import (
    Cells,
    Grid,
    SeedNoise,
    read_cells,
    resampled_cells,
    seed_noise,
)
from analysis.questions.transition.lengths import fit_slopes
from analysis.questions.transition.location import step_drops
from analysis.questions.transition.result import TransitionResult
from analysis.runs.ladder import Ladder
from analysis.runs.table import Runs
from analysis.statistics.training import centre, pulled_together, still_to_come
from analysis.statistics.values import FloatArray, Interval
from analysis.values import Number, number

_UNTESTED: Final = ("inconclusive", "suggested")
_SAME_CLAIM: Final = {"threshold": "transition"}
"""Both say that the error collapses to where it no longer grows with T."""


def with_budgets(
    result: TransitionResult, ladder: Ladder, answer: Callable[[Runs], TransitionResult]
) -> TransitionResult:
    """Return the answer with what every budget says, and whether it is settled.

    Args:
        result: the answer, that of the largest budget.
        ladder: the runs of each budget.
        answer: fits the runs of one budget.
    """
    return replace(result, budgets=_budgets(result, ladder, answer))


def _budgets(
    result: TransitionResult, ladder: Ladder, answer: Callable[[Runs], TransitionResult]
) -> Budgets:
    blank = Budgets("unknown", "", ladder.unit, ladder.column)
    if ladder.obstacle:
        return replace(blank, reason=ladder.obstacle)
    found = [*(answer(rung.runs) for rung in ladder.rungs[:-1]), result]
    budgets = [number(rung.budget) for rung in ladder.rungs]
    before, last = budgets[-2:]
    answers = tuple(_answer(*each) for each in zip(budgets, found, strict=True))
    known = replace(blank, answers=answers)
    earlier = ladder.at(before)
    pairs = _Pairs.of(found[-2], result)
    if reason := _too_little(found[-2], result, pairs, earlier):
        return replace(known, reason=reason)
    longer = number(round(last * last / before))
    if _claimed(found[-2]) != _claimed(result):
        places = [
            pairs.heads.index(each.h_star) for each in found[-2:] if each.h_star in pairs.heads
        ]
        beside = {k for place in places for k in (place - 1, place)}
        missing = _longer(result, pairs, beside, longer)
        reason = f"{_in_words(found[-2], result)} at {earlier}"
        return replace(known, verdict="moving", reason=reason, missing=missing)
    settings = result.settings
    changes = _changes(pairs, settings.B, settings.rng_seed)
    slopes = fit_slopes(_cells(result))

    def rest_on(change: FloatArray, *, all_go_on: bool = False) -> list[Condition]:
        come = change
        if not all_go_on:
            come = still_to_come(
                change,
                last / before,
                exponent=settings.budget_exponent,
                steep=settings.steep_exponent,
                is_log=result.scale != "loss",
            )
        low, high = pairs.z + np.minimum(come, 0), pairs.z + np.maximum(come, 0)
        ends = (low, high) if not all_go_on else (pairs.z + come, pairs.z + come)
        return list(conditions(Ends(pairs.heads, pairs.lengths, *ends), result, slopes))

    ahead = rest_on(changes)
    same = _share(ahead)
    known = replace(known, same=same)
    if same >= settings.set_mass:
        return replace(known, verdict="settled", reason=f"the same at {earlier}")
    on_course = rest_on(changes, all_go_on=True)
    if _share(on_course) <= 1 - settings.set_mass:
        worst = min(on_course, key=lambda each: each.holds.mean())
        reason = f"at {ladder.at(longer)} {worst.what} would {worst.otherwise}"
        missing = _longer(result, pairs, worst.heads, longer)
        return replace(known, verdict="moving", reason=reason, missing=missing)
    worst = min(ahead, key=lambda each: each.holds.mean())
    # Where the changes as estimated would not matter, their noise does.
    is_noise = _share(rest_on(np.median(changes, axis=0, keepdims=True))) == 1
    missing = (
        _more_seeds(result, pairs, worst.heads)
        if is_noise
        else _longer(result, pairs, worst.heads, longer)
    )
    reason = f"with more training {worst.what} may {worst.otherwise}"
    return replace(known, reason=reason, missing=missing)


def _too_little(
    before: TransitionResult, result: TransitionResult, pairs: "_Pairs", earlier: str
) -> str:
    """Return why the last two budgets cannot be compared; empty where they can."""
    if result.verdict in _UNTESTED:
        return "the largest budget has no answer that is tested"
    # A setting that competes has lost no run.
    pruned = (cell for cell in result.counts if cell.pruned)
    if any(cell.setting is None or not cell.setting.competed for cell in pruned):
        return "runs were stopped early, so that budgets hold different runs"
    if before.verdict in _UNTESTED:
        return f"no answer is tested at {earlier}"
    if pairs.lacking:
        return f"{pairs.lacking} cells hold no seed that was trained to both of the last budgets"
    return f"{pairs.noise.gap} at both of the last budgets" if pairs.noise.gap else ""


def _share(found: Sequence[Condition]) -> float:
    return float(np.logical_and.reduce([condition.holds for condition in found]).mean())


def _claimed(result: TransitionResult) -> tuple[str, Number | None]:
    place = result.h_star if result.verdict in PLACED else None
    return _SAME_CLAIM.get(result.verdict, result.verdict), place


def _in_words(before: TransitionResult, result: TransitionResult) -> str:
    if before.verdict not in PLACED:
        return f"no transition in {before.x} was established"
    kind = f"a {before.verdict.replace('_only', '')} "
    if _claimed(before)[0] == _claimed(result)[0]:
        kind = ""
    return f"it was {kind}at {before.x} = {before.h_star:g}"


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
    heads, _ = _axes(result)
    rng = np.random.default_rng([result.settings.rng_seed, 2])
    drops = step_drops(resampled_cells(_cells(result), result.settings.B, rng))
    low, high = np.quantile(drops[:, heads.index(result.h_peak) - 1], [0.025, 0.975])
    return Interval(result.drop, float(low), float(high))


def _cells(result: TransitionResult) -> Cells:
    """Return the cells that an answer was read from."""
    runs: dict[tuple[Number, Number | None], list[float]] = {}
    for run in result.runs:
        runs.setdefault((run.x, run.by), []).append(run.y)
    grid = _grid(*_axes(result), {cell: np.sort(y) for cell, y in runs.items()})
    noise = seed_noise(grid, result.limits, result.settings.assumed_sd)
    fewest = int(grid.counts[grid.counts > 0].min())
    return read_cells(grid, noise, None if result.reading == "typical" else fewest)


def _axes(result: TransitionResult) -> tuple[list[Number], list[Number | None]]:
    heads = sorted({cell.x for cell in result.cells})
    return heads, sorted({cell.by for cell in result.cells}, key=lambda by: by or 0)


def _grid(
    heads: list[Number],
    lengths: list[Number | None],
    cells: dict[tuple[Number, Number | None], FloatArray],
) -> Grid:
    return Grid(
        np.array(heads, dtype=np.float64),
        np.array([np.nan if by is None else by for by in lengths], dtype=np.float64),
        tuple(tuple(cells.get((x, by), np.zeros(0)) for by in lengths) for x in heads),
    )


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The cells of the largest budget, and how their seeds changed from the budget before.

    Attributes:
        z: the answer's own cell values, shape [K, J].
        changes: y there less y at the budget before, of seeds that have both.
        noise: of the changes of single seeds.
        lacking: cells without such a seed.
    """

    heads: list[Number]
    lengths: FloatArray
    z: FloatArray
    changes: Grid
    noise: SeedNoise
    lacking: int

    @classmethod
    def of(cls, before: TransitionResult, result: TransitionResult) -> "_Pairs":
        heads, lengths = _axes(result)
        earlier = {(run.x, run.by, run.replicate): run.y for run in before.runs}
        changes: dict[tuple[Number, Number | None], list[float]] = {}
        for run in result.runs:
            y = earlier.get((run.x, run.by, run.replicate))
            if y is not None:
                changes.setdefault((run.x, run.by), []).append(run.y - y)
        grid = _grid(heads, lengths, {cell: np.sort(each) for cell, each in changes.items()})
        known = {(cell.x, cell.by): cell.z for cell in result.cells}
        z = np.array([[known.get((x, by), np.nan) for by in lengths] for x in heads])
        lacking = int((~np.isnan(z) & (grid.counts == 0)).sum()) if heads else 0
        noise = seed_noise(grid, result.limits, None)
        return cls(heads, grid.lengths, z, grid, noise, lacking)


def _changes(pairs: _Pairs, draws: int, rng_seed: int) -> FloatArray:
    """Return draws of the change of every cell, shape [draws, K, J].

    Seeds are resampled as in `cells.resampled_cells`. Over T a cell's change is smoothed by a line
    in log10 T; lines of head counts are pulled together as far as they differ by noise.
    """
    rng = np.random.default_rng([rng_seed, 3])
    found = np.full((draws, *pairs.z.shape), np.nan)
    for k, row in enumerate(pairs.changes.runs):
        df = pairs.noise.df[k]
        for j, cell in enumerate(row):
            if not cell.size:
                continue
            n = cell.size
            picks = rng.integers(0, n, size=(draws, n))
            scale = pairs.noise.sd[k] / np.sqrt(max(n * (n - 1), 1))
            extra = rng.standard_t(df, draws) if df > 0 else rng.standard_normal(draws)
            found[:, k, j] = centre(cell[picks]) + scale * extra
    return _smoothed(found, pairs.lengths)


def _smoothed(found: FloatArray, lengths: FloatArray) -> FloatArray:
    """Return changes, shape [draws, K, J], as a line in log10 T for each head count. Their means
    are pulled together, and so are their slopes."""
    level = np.nanmean(found, axis=2)
    shift = (pulled_together(level) - level)[:, :, None]
    present = ~np.isnan(found[0])
    rows = np.flatnonzero(present.sum(axis=1) >= 2)
    if not rows.size:
        return np.asarray(found + shift)
    x = np.where(present, np.log10(lengths), np.nan)[rows]
    x -= np.nanmean(x, axis=1, keepdims=True)
    slope = np.nansum(found[:, rows] * x, axis=2) / np.nansum(x**2, axis=1)
    found[:, rows] = level[:, rows, None] + pulled_together(slope)[:, :, None] * x
    return np.asarray(found + shift)


def _more_seeds(
    result: TransitionResult, pairs: _Pairs, decisive: Collection[int]
) -> tuple[BudgetTrials, ...]:
    """Return as many seeds again in the decisive cells, at the budgets that there are."""
    return tuple(
        BudgetTrials(
            cell.x, cell.by, cell.n, None, "too few seeds to tell what training still changes"
        )
        for cell in result.cells
        if pairs.heads.index(cell.x) in decisive
    )


def _longer(
    result: TransitionResult, pairs: _Pairs, decisive: Collection[int], longer: Number
) -> tuple[BudgetTrials, ...]:
    """Return every cell's runs at a longer budget, decisive cells first."""
    order = sorted(result.cells, key=lambda cell: pairs.heads.index(cell.x) not in decisive)
    return tuple(
        BudgetTrials(cell.x, cell.by, cell.n, longer, "more training may change the answer")
        for cell in order
    )
