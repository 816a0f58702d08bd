"""Would a transition survive more training?"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from analysis.questions.transition.cells import Grid, read_cells, resampled_cells, seed_noise
from analysis.questions.transition.judge import Judge
from analysis.questions.transition.result import Place, TransitionResult, axis_values
from analysis.runs.ladder import Ladder
from analysis.runs.statuses import DROPPED
from analysis.runs.table import Runs
from analysis.sensitivity import SURE, BudgetAnswer, Quantity, Verdicts, paired_curve, sensitivity
from analysis.statistics.values import FloatArray, Mask
from analysis.values import number

DRAWS: Final = 400


def with_training(
    result: TransitionResult, ladder: Ladder, answer: Callable[[Runs], TransitionResult]
) -> TransitionResult:
    """Return the answer, that of the largest budget that all cells have, with whether it is
    settled; ``answer`` answers by the runs of one budget."""
    if result.verdict == "open":
        return result
    # A cell whose settings compete counts as having lost no run.
    is_stopped = any(cell.count(*DROPPED) and not cell.is_whole for cell in result.counts)
    answer_index = len(ladder.rungs) - 1
    answers = [
        result if k == answer_index else answer(rung.runs)
        for k, rung in enumerate(() if is_stopped else (*ladder.rungs, *ladder.further))
    ]
    settled, missing = sensitivity(
        _quantities(result, answers, answer_index),
        _ChangedAnswers(result).verdicts,
        ladder,
        is_stopped=is_stopped,
        answers=[
            BudgetAnswer(number(rung.budget), len(rung_answer.runs), _verdict_text(rung_answer))
            for rung, rung_answer in zip(ladder.rungs, answers, strict=False)
        ],
        is_log=result.scale != "loss",
        draws=DRAWS,
        rng=np.random.default_rng([result.settings.rng_seed, 3]),
    )
    return replace(result, sensitivity=settled, missing=result.missing or missing)


def _verdict_text(result: TransitionResult) -> str:
    if not result.is_claimed:
        return {"none": "no collapse", "open": "open"}[result.verdict]
    growth = "" if result.growth is None else f", growth with {result.by}: {result.growth}"
    return f"collapse at {result.x} = {result.h_star:g}{growth}"


def _quantities(
    result: TransitionResult, answers: list[TransitionResult], answer_index: int
) -> list[Quantity]:
    values = [_by_seed(rung_answer) for rung_answer in answers]
    sign = -1.0 if result.scale == "loss" else 1.0
    settings = {(cell.x, cell.by): cell.setting for cell in result.counts}
    heads = sorted({cell.x for cell in result.cells})
    quantities = []
    for cell in result.cells:
        place = (cell.x, cell.by)
        at = axis_values(result.x, result.by, place)
        if (setting := settings.get(place)) is not None:
            at |= setting.values
        curve = None
        if answers:
            curve = paired_curve([by_place.get(place, {}) for by_place in values], answer_index)
        # Values from h* on count as alike unless their curves differ by more than noise.
        group = heads.index(cell.x)
        if result.is_claimed and result.h_star is not None:
            group = min(group, heads.index(result.h_star))
        signed = None if curve is None else sign * curve
        quantities.append(Quantity(at, cell.n, signed, group, group))
    return quantities


def _by_seed(result: TransitionResult) -> dict[Place, dict[str, float]]:
    by_place: dict[Place, dict[str, float]] = {}
    for run in result.runs:
        by_place.setdefault((run.x, run.by), {})[run.replicate] = run.y
    return by_place


class _ChangedAnswers:
    """Answers the question again after the values of a transition's cells have changed."""

    def __init__(self, result: TransitionResult) -> None:
        self._result, limits, settings = result, result.limits, result.settings
        self._heads = heads = sorted({cell.x for cell in result.cells})
        lengths = sorted({cell.by for cell in result.cells}, key=lambda by: by or 0)
        self._places = [(heads.index(c.x), lengths.index(c.by)) for c in result.cells]
        self._sign = -1.0 if result.scale == "loss" else 1.0
        runs = {cell: np.sort(list(values.values())) for cell, values in _by_seed(result).items()}
        grid = Grid(
            np.array(heads, dtype=np.float64),
            np.array([np.nan if by is None else by for by in lengths], dtype=np.float64),
            tuple(tuple(runs.get((x, by), np.zeros(0)) for by in lengths) for x in heads),
        )
        noise = seed_noise(grid, limits, settings.assumed_sd)
        cells = read_cells(grid, noise, None if result.reading == "typical" else grid.fewest)
        self._judge = Judge(
            cells, limits, np.random.default_rng(settings.rng_seed), settings.alpha, settings.n_mc
        )
        rng = np.random.default_rng([settings.rng_seed, 4])
        self._z = resampled_cells(cells, DRAWS, rng)
        self._typical = cells.z[None]

    def verdicts(self, change: FloatArray) -> Verdicts:
        """Return the answers after a change of each cell, shape [cells, B]."""
        result, limits = self._result, self._result.limits
        z = (self._z if change.shape[1] > 1 else self._typical).copy()
        for (k, j), shift in zip(self._places, change, strict=True):
            z[:, k, j] += self._sign * shift
        judged = self._judge.judge(z)
        if not result.is_claimed:
            collapses = judged.collapses
            if not collapses.any():
                return Verdicts(~collapses, "be a collapse", ())
            to = int(np.bincount(judged.falls.star[collapses]).argmax())
            otherwise = f"be a collapse at {result.x} = {self._heads[to]:g}"
            return Verdicts(~collapses, otherwise, self._beside(to))
        assert result.h_star is not None
        star, falls = self._heads.index(result.h_star), judged.falls
        # That the fall exceeds scatter was tested, and changes by training are not scatter.
        is_large = (falls.drop >= limits.min_drop) & (judged.gap >= limits.min_excess)
        if result.shown_by == "abruptness":
            is_large &= falls.excess >= limits.min_excess
        is_there = falls.star == star
        same = is_large & is_there
        caveat = self._growth_caveat(judged.above[0, same] > limits.max_growth)
        moved = is_large & ~is_there
        if (~is_large).sum() >= moved.sum():
            return Verdicts(same, "no longer be a collapse", self._beside(star), caveat)
        to = int(np.bincount(falls.star[moved]).argmax())
        otherwise = f"move to {result.x} = {self._heads[to]:g}"
        return Verdicts(same, otherwise, self._beside(star, to), caveat)

    def _growth_caveat(self, grows: Mask) -> str:
        """Return in words that growth with T may change with training; empty where it stays."""
        result = self._result
        if result.growth not in ("gone", "stays") or not grows.size:
            return ""
        stays = grows if result.growth == "stays" else ~grows
        if stays.mean() >= SURE:
            return ""
        change = "vanish" if result.growth == "stays" else "come back"
        return f"growth with {result.by} from there on may {change}"

    def _beside(self, *stars: int) -> list[int]:
        """Return the places of the cells on both sides of steps that end at these head counts."""
        heads = {side for star in stars for side in (star - 1, star)}
        return [place for place, (k, _) in enumerate(self._places) if k in heads]
