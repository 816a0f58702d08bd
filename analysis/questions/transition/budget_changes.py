"""How the cells of a transition changed between budgets, and where training may take them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.questions.transition.budget_conditions import Ends
from analysis.questions.transition.cells import NO_SPREAD, Grid, seed_noise
from analysis.questions.transition.result import RunValue, TransitionResult
from analysis.runs.columns import plain
from analysis.runs.ladder import Rung
from analysis.runs.table import Runs
from analysis.statistics.training import Trained, centre, pulled_together, still_to_come
from analysis.statistics.values import FloatArray, Mask
from analysis.values import Number

Cell = tuple[Number, Number | None]


def axes_of(result: TransitionResult) -> tuple[list[Number], list[Number | None]]:
    """Return the values of x and of by that the answer is read at."""
    heads = sorted({cell.x for cell in result.cells})
    return heads, sorted({cell.by for cell in result.cells}, key=lambda by: by or 0)


def grid_of(
    heads: Sequence[Number], lengths: Sequence[Number | None], cells: dict[Cell, list[float]]
) -> Grid:
    """Return y of the cells that there are as a grid."""
    return Grid(
        np.array(heads, dtype=np.float64),
        np.array([np.nan if by is None else by for by in lengths], dtype=np.float64),
        tuple(tuple(np.sort(cells.get((x, by), [])) for by in lengths) for x in heads),
    )


At = tuple[float, Sequence[RunValue]]
"""A budget and its runs."""


@dataclass(frozen=True, slots=True)
class Step:
    """How cells changed from the last budget that they had to a longer one, by seeds with both.

    Attributes:
        after: the longer budget.
        before: the other of each cell, shape [K, J]; NaN for a cell without seeds that have both.
        change: draws of the change of y, shape [B, K, J].
        gap: why the noise of single seeds' changes is not measured; empty where it is.
    """

    after: float
    before: FloatArray
    change: FloatArray
    gap: str

    @classmethod
    def of(
        cls,
        earlier: Sequence[At],
        after: At,
        result: TransitionResult,
        rng: np.random.Generator,
        fewest: int = 1,
    ) -> "Step":
        """Return the step to ``after``.

        Args:
            earlier: the shorter budgets, ascending.
            fewest: seeds that a cell must have at both.
        """
        heads, lengths = axes_of(result)
        now = {(run.x, run.by, run.replicate): run.y for run in after[1]}
        before = np.full((len(heads), len(lengths)), np.nan)
        draws = np.full((result.settings.B, *before.shape), np.nan)
        gap, taken = "", set[Cell]()
        for budget, runs in reversed(earlier):
            changes: dict[Cell, list[float]] = {}
            for run in runs:
                y = now.get((run.x, run.by, run.replicate))
                if y is not None and (run.x, run.by) not in taken:
                    changes.setdefault((run.x, run.by), []).append(y - run.y)
            changes = {cell: found for cell, found in changes.items() if len(found) >= fewest}
            taken |= changes.keys()
            at = [k for k, x in enumerate(heads) if any((x, by) in changes for by in lengths)]
            if at:
                grid = grid_of([heads[k] for k in at], lengths, changes)
                noise = seed_noise(grid, result.limits, None)
                if noise.gap == NO_SPREAD:  # as where no error is left at either budget
                    noise = seed_noise(grid, result.limits, result.limits.sd_floor)
                drawn = _draws(grid, noise.sd, noise.df, result.settings.B, rng)
                gap = gap or noise.gap
                here = np.zeros(before.shape, dtype=bool)
                here[at] = grid.counts > 0
                draws[:, here] = drawn[:, here[at]]
                before[here] = budget
        return cls(after[0], before, draws, gap)


def _draws(
    grid: Grid, sd: FloatArray, df: FloatArray, number: int, rng: np.random.Generator
) -> FloatArray:
    """Return draws of the change of every cell, shape [draws, K, J].

    Seeds are resampled as in `cells.resampled_cells`. Over T a cell's change is smoothed by a line
    in log10 T; lines of head counts are pulled together as far as they differ by noise.
    """
    found = np.full((number, len(grid.heads), len(grid.lengths)), np.nan)
    for k, row in enumerate(grid.runs):
        for j, cell in enumerate(row):
            if not cell.size:
                continue
            n = cell.size
            picks = rng.integers(0, n, size=(number, n))
            scale = sd[k] / np.sqrt(max(n * (n - 1), 1))
            known = rng.standard_t(df[k], number) if df[k] > 0 else rng.standard_normal(number)
            found[:, k, j] = centre(cell[picks]) + scale * known
    return _smoothed(found, grid.lengths)


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


def further_steps(
    rungs: Sequence[Rung], result: TransitionResult, answer: Callable[[Runs], TransitionResult]
) -> list[Step]:
    """Return the steps from the answer's budget, that of the first rung, to longer ones.

    A cell is looked at in its chosen settings, which are those that were trained longer.
    """
    if len(rungs) < 2:
        return []
    found = [(rung.budget, answer(_at_settings(rung.runs, result)).runs) for rung in rungs]
    seed = result.settings.rng_seed
    return [
        Step.of(found[:i], found[i], result, np.random.default_rng([seed, 3, i]), fewest=2)
        for i in range(1, len(found))
    ]


def _at_settings(runs: Runs, result: TransitionResult) -> Runs:
    if not result.nuisance:
        return runs
    names = [result.x, *([] if result.by is None else [result.by]), *result.nuisance]
    chosen = {
        (cell.x, *([] if cell.by is None else [cell.by]), *cell.setting.values.values())
        for cell in result.counts
        if cell.setting is not None
    }
    rows = zip(*(map(plain, runs.frame[name].tolist()) for name in names), strict=True)
    return Runs(runs.frame[[row in chosen for row in rows]], runs.metric, runs.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course(Trained):
    """Where the cells are after all their training, and how they go on, each by its own last step.

    Budgets and ratios have the shape [K, J].

    Attributes:
        z: the answer's own cell values, shape [K, J].
        since: draws of what changed after the answer's budget, shape [B, K, J].
        last: draws of the change over each cell's last step, the same shape; NaN without one.
        gap: why the noise of changes is not measured; empty where it is.
    """

    heads: list[Number]
    lengths: FloatArray
    z: FloatArray
    since: FloatArray
    last: FloatArray
    gap: str
    result: TransitionResult

    @classmethod
    def of(cls, steps: Sequence[Step], answered: float, result: TransitionResult) -> "Course":
        heads, lengths = axes_of(result)
        known = {(cell.x, cell.by): cell.z for cell in result.cells}
        z = np.array([[known.get((x, by), np.nan) for by in lengths] for x in heads])
        last = np.full((result.settings.B, *z.shape), np.nan)
        since = np.zeros_like(last)
        budget, ratio = np.full(z.shape, answered), np.full(z.shape, np.nan)
        for step in steps:
            here = ~np.isnan(step.before)
            last[:, here] = step.change[:, here]
            ratio[here] = step.after / step.before[here]
            if step.after > answered:
                since[:, here] += step.change[:, here]
                budget[here] = step.after
        gap = next((step.gap for step in steps if step.gap), "")
        at = grid_of(heads, lengths, {}).lengths
        return cls(
            heads=heads,
            lengths=at,
            z=z,
            since=since,
            last=last,
            budgets=budget,
            ratios=ratio,
            answered=answered,
            gap=gap,
            result=result,
        )

    def place(self, by: Number | None) -> int:
        """Return the index of a length."""
        return 0 if by is None else self.lengths.tolist().index(by)

    def typical(self) -> "Course":
        """Return the same with the median of its draws for each change."""
        since, last = (np.median(each, axis=0, keepdims=True) for each in (self.since, self.last))
        return replace(self, since=since, last=last)

    @property
    def unknown(self) -> Mask:
        """The cells without a step, shape [K, J]."""
        return np.asarray(~np.isnan(self.z) & np.isnan(self.ratios))

    def ends(self) -> Ends:
        """Return between what each cell lies, wherever its training stops from here on."""
        come, settings = np.full_like(self.last, np.nan), self.result.settings
        for ratio in np.unique(self.ratios[~np.isnan(self.ratios)]):
            here = self.ratios == ratio
            come[:, here] = still_to_come(
                self.last[:, here],
                float(ratio),
                exponent=settings.budget_exponent,
                steep=settings.steep_exponent,
                is_log=self.result.scale != "loss",
            )
        now = self.z + self.since
        low, high = now + np.minimum(come, 0), now + np.maximum(come, 0)
        return Ends(self.heads, self.lengths, low, high)

    def at(self, budget: float) -> Ends:
        """Return where each cell is at a budget if it goes on as over its last step."""
        steps = np.log(budget / self.budgets) / np.log(self.ratios)
        there = self.z + self.since + self.last * steps
        return Ends(self.heads, self.lengths, there, there)

    def went_on(self, heads: Collection[int]) -> bool:
        """Whether all cells of these head counts were trained beyond the answer's budget."""
        here = [k for k in range(len(self.heads)) if k in heads]
        return bool((self.budgets > self.answered)[here][~np.isnan(self.z[here])].all())

    def are_behind(self, heads: Collection[int]) -> bool:
        """Whether a cell of these head counts was not trained to the longest budget."""
        here = [k for k in range(len(self.heads)) if k in heads]
        is_behind = (self.budgets < self.longest) & ~np.isnan(self.z)
        return bool(is_behind[here].any())
