"""Would a transition survive more training?"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from analysis.questions.transition.cells import Grid, read_cells, resampled_cells, seed_noise
from analysis.questions.transition.judge import Judge
from analysis.questions.transition.location import Indices
from analysis.questions.transition.result import TransitionResult
from analysis.runs.ladder import Ladder
from analysis.runs.table import Runs
from analysis.sensitivity import (
    SURE,
    BudgetAnswer,
    Quantity,
    Sensitivity,
    Verdicts,
    paired_curve,
    sensitivity,
)
from analysis.statistics.values import FloatArray, Mask
from analysis.values import AxisValue, Number, number

DRAWS: Final = 400
Cell = tuple[Number, Number | None]


def with_training(
    result: TransitionResult, ladder: Ladder, answer: Callable[[Runs], TransitionResult]
) -> TransitionResult:
    """Return the answer with whether it is settled.

    Args:
        result: the answer, that of the largest budget that all cells have.
        ladder: the runs of each budget.
        answer: answers by the runs of one budget.
    """
    if result.verdict == "open":
        return result
    blank = Sensitivity(unit=ladder.unit, column=ladder.column)
    # A setting that competes has lost no run.
    pruned = (cell for cell in result.counts if cell.pruned or cell.not_needed)
    if not ladder.obstacle and any(c.setting is None or not c.setting.competed for c in pruned):
        reason = "runs were stopped early, so that budgets hold different runs"
        return replace(result, sensitivity=replace(blank, reason=reason))
    own = len(ladder.rungs) - 1
    found = [
        result if k == own else answer(rung.runs)
        for k, rung in enumerate((*ladder.rungs, *ladder.further))
    ]
    quantities = _quantities(result, found, own)
    told, missing = sensitivity(
        quantities,
        _Again(result, quantities).verdicts,
        ladder,
        answers=[
            BudgetAnswer(number(rung.budget), len(each.runs), _says(each))
            for rung, each in zip(ladder.rungs, found, strict=False)
        ],
        is_log=result.scale != "loss",
        exponent=result.settings.budget_exponent,
        draws=DRAWS,
        rng=np.random.default_rng([result.settings.rng_seed, 3]),
    )
    return replace(result, sensitivity=told, missing=result.missing or missing)


def _says(result: TransitionResult) -> str:
    if not result.is_claimed:
        return {"none": "no collapse", "open": "open"}[result.verdict]
    growth = "" if result.growth is None else f", growth with {result.by}: {result.growth}"
    return f"collapse at {result.x} = {result.h_star:g}{growth}"


def _quantities(
    result: TransitionResult, found: list[TransitionResult], own: int
) -> list[Quantity]:
    by_seed = [_by_seed(each) for each in found]
    sign = -1.0 if result.scale == "loss" else 1.0
    chosen = {(cell.x, cell.by): cell.setting for cell in result.counts}
    heads = sorted({cell.x for cell in result.cells})
    quantities = []
    for cell in result.cells:
        place = (cell.x, cell.by)
        curve = None
        if found:
            curve = paired_curve([each.get(place, {}) for each in by_seed], own)
        at: dict[str, AxisValue] = {result.x: cell.x}
        if result.by is not None and cell.by is not None:
            at[result.by] = cell.by
        if (setting := chosen.get(place)) is not None:
            at |= setting.values
        curve = None if curve is None else sign * curve
        # Values from h* on are alike, but for what shows otherwise.
        group = heads.index(cell.x)
        if result.is_claimed and result.h_star is not None:
            group = min(group, heads.index(result.h_star))
        quantities.append(Quantity(at, cell.n, curve, group, group))
    return quantities


def _by_seed(result: TransitionResult) -> dict[Cell, dict[str, float]]:
    found: dict[Cell, dict[str, float]] = {}
    for run in result.runs:
        found.setdefault((run.x, run.by), {})[run.replicate] = run.y
    return found


class _Again:
    """Answers again after changes of the cells of a transition."""

    def __init__(self, result: TransitionResult, quantities: list[Quantity]) -> None:
        self._result = result
        heads = sorted({cell.x for cell in result.cells})
        lengths = sorted({cell.by for cell in result.cells}, key=lambda by: by or 0)
        self._heads = heads
        self._places = [(heads.index(c.x), lengths.index(c.by)) for c in result.cells]
        self._sign = -1.0 if result.scale == "loss" else 1.0
        runs: Mapping[Cell, list[float]] = {
            cell: list(values.values()) for cell, values in _by_seed(result).items()
        }
        grid = Grid(
            np.array(heads, dtype=np.float64),
            np.array([np.nan if by is None else by for by in lengths], dtype=np.float64),
            tuple(tuple(np.sort(runs.get((x, by), [])) for by in lengths) for x in heads),
        )
        limits, settings = result.limits, result.settings
        noise = seed_noise(grid, limits, settings.assumed_sd)
        fewest = int(grid.counts[grid.counts > 0].min())
        cells = read_cells(grid, noise, None if result.reading == "typical" else fewest)
        self._judge = Judge(cells, settings, limits, np.random.default_rng(settings.rng_seed))
        rng = np.random.default_rng([settings.rng_seed, 4])
        self._z = resampled_cells(cells, DRAWS, rng)
        self._typical = cells.z[None]

    def verdicts(self, change: FloatArray) -> Verdicts:
        result, limits = self._result, self._result.limits
        z = (self._z if change.shape[1] > 1 else self._typical).copy()
        for (k, j), each in zip(self._places, change, strict=True):
            z[:, k, j] += self._sign * each
        judged = self._judge.judge(z)
        if not result.is_claimed:
            return self._without_claim(judged.collapses, judged.places.star)
        assert result.h_star is not None
        star = self._heads.index(result.h_star)
        # That it is more than scatter was tested, and what training may add to that is no scatter.
        falls = (judged.places.drop >= limits.min_drop) & (judged.gap >= limits.min_excess)
        if result.shown_by == "abruptness":
            falls &= judged.places.excess >= limits.min_excess
        same_place = judged.places.star == star
        same = falls & same_place
        caveat = self._growth_caveat(judged.above[same] > limits.max_growth)
        gone, moved = ~falls, falls & ~same_place
        if gone.sum() >= moved.sum():
            turning = self._cells_at(star - 1, star)
            return Verdicts(same, "no longer be a collapse", turning, caveat)
        to = int(np.bincount(judged.places.star[moved]).argmax())
        otherwise = f"move to {result.x} = {self._heads[to]:g}"
        return Verdicts(same, otherwise, self._cells_at(star - 1, star, to - 1, to), caveat)

    def _growth_caveat(self, grows: Mask) -> str:
        """Return that growth with T may not stay as it is."""
        result = self._result
        if result.growth not in ("gone", "stays") or not grows.size:
            return ""
        stays = grows if result.growth == "stays" else ~grows
        if stays.mean() >= SURE:
            return ""
        change = "vanish" if result.growth == "stays" else "come back"
        return f"growth with {result.by} from there on may {change}"

    def _without_claim(self, collapses: Mask, star: Indices) -> Verdicts:
        if not collapses.any():
            return Verdicts(~collapses, "be a collapse", ())
        to = int(np.bincount(star[collapses]).argmax())
        otherwise = f"be a collapse at {self._result.x} = {self._heads[to]:g}"
        return Verdicts(~collapses, otherwise, self._cells_at(to - 1, to))

    def _cells_at(self, *heads: int) -> list[int]:
        return [place for place, (k, _) in enumerate(self._places) if k in heads]
