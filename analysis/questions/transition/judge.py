"""Is there a collapse, and where? The rules, for many versions of a sweep's cells at once.

A version is one z of every cell: the cells as measured, with resampled seeds, or after more
training. All are judged by the noise of the cells as measured.
"""

from dataclasses import dataclass, replace

import numpy as np

from analysis.questions.transition.cells import Cells
from analysis.questions.transition.lengths import (
    Slopes,
    fit_slopes,
    level_variance,
    mean_levels,
    pool_slopes,
    slopes_of,
)
from analysis.questions.transition.location import Indices, Places, locate, step_drops
from analysis.questions.transition.result import TransitionSettings
from analysis.runs.scale import Thresholds
from analysis.statistics.abruptness import break_ratio, convex_fit
from analysis.statistics.values import FloatArray, Mask

_SCATTERS = (1.0, 2.0, 4.0)
"""Scatter of single head counts that is thought possible, in units of the least."""
_FEWEST_FOR_A_BREAK = 4
_FEWEST_DF = 2.0
"""Degrees of freedom granted at least to the noise of a level."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What versions of the cells say, each array of shape [B].

    Attributes:
        places: where the largest drop of each ends, and h*.
        gap: how far the levels below h* lie above h*, at the least, and above the median from there
            on.
        p: of a decline without a break; 1 where a drop is too small or the grid allows no test.
        scatter: sd of single head counts about a smooth decline.
        below, above: growth with T below h* and from there on; NaN where it is not known.
        below_se, above_se: their standard errors.
        abrupt: more than diminishing returns.
        vanishing: growth with T is there below h* and gone from there on.
    """

    places: Places
    gap: FloatArray
    p: FloatArray
    scatter: FloatArray
    below: FloatArray
    above: FloatArray
    below_se: FloatArray
    above_se: FloatArray
    abrupt: Mask
    vanishing: Mask

    @property
    def collapses(self) -> Mask:
        return self.abrupt | self.vanishing


class Judge:
    """Judges versions of a sweep's cells by the noise of those that were measured.

    Attributes:
        slopes: growth with T as measured.
        level: mean of z over T at each head count as measured, shape [K].
        variance: of the levels between seeds, shape [K].
    """

    def __init__(
        self,
        cells: Cells,
        settings: TransitionSettings,
        limits: Thresholds,
        rng: np.random.Generator,
    ) -> None:
        self._cells, self._settings, self._limits = cells, settings, limits
        self._heads = cells.grid.heads
        self.slopes: Slopes = fit_slopes(cells)
        self.level = mean_levels(cells, cells.z[None])[0]
        self.variance = level_variance(cells, self.slopes)
        self._scatters = limits.head_sd * np.array(_SCATTERS)
        self._weights = self.variance + limits.head_sd**2
        self._null = self._draw_null(rng)

    def judge(self, z: FloatArray) -> Judgement:
        """Judge versions of the cells, shape [B, K, J]."""
        settings, limits = self._settings, self._limits
        level = mean_levels(self._cells, z)
        places = self._located(level, step_drops(z))
        gap, is_clear = self._gap(level, places.star)
        p, scatter = self._tested(level, places, is_clear)
        below, below_se, above, above_se = self._growth(z, places.star)
        t = self.slopes.quantile(1 - settings.alpha)
        vanishing = np.zeros(len(z), dtype=bool)
        if np.isfinite(above).any():
            surely = below - above - t * np.hypot(below_se, above_se)
            vanishing = (
                (places.drop >= limits.min_drop)
                & (places.star - places.peak < settings.threshold_width)
                & (self._left_gap(level, places.star) >= limits.min_excess)
                & (below > 0)
                & (above + t * above_se <= limits.max_growth)
                & (surely > np.where(below > limits.max_growth, 0.0, limits.max_growth))
            )
        return Judgement(
            places=places,
            gap=gap,
            p=p,
            scatter=scatter,
            below=below,
            above=above,
            below_se=below_se,
            above_se=above_se,
            abrupt=p <= settings.alpha,
            vanishing=vanishing,
        )

    def is_testable(self, peak: int) -> bool:
        """Whether a break at index ``peak`` can be told from diminishing returns."""
        return len(self._heads) >= _FEWEST_FOR_A_BREAK and peak >= 2

    def place(self, z: FloatArray) -> Indices:
        """Return the index of h* in versions of the cells, shape [B, K, J]."""
        return self._located(mean_levels(self._cells, z), step_drops(z)).star

    def _located(self, level: FloatArray, drops: FloatArray) -> Places:
        """Return where versions fall. Smaller steps move h* on past the largest drop only if every
        head count that they pass is clearly worse; a drop to the second head count goes on as far
        as they go, as a power law does."""
        places = locate(drops, self._heads, self._settings.rho, self._limits.d_min)
        _, is_clear = self._gap(level, places.star)
        _, is_clear_before = self._gap(level, places.peak)
        stays = ~is_clear & is_clear_before & (places.peak >= 2)
        star = np.where(stays, places.peak, places.star)
        return replace(places, star=star)

    def _left_gap(self, level: FloatArray, star: Indices) -> FloatArray:
        before = np.arange(level.shape[1]) < star[:, None]
        lowest = np.where(before, level, np.inf).min(axis=1)
        return np.asarray(lowest - level[np.arange(len(level)), star])

    def _gap(self, level: FloatArray, star: Indices) -> tuple[FloatArray, Mask]:
        before = np.arange(level.shape[1]) < star[:, None]
        after = np.nanmedian(np.where(before, np.nan, level), axis=1)
        here = level[np.arange(len(level)), star]
        gap = np.where(before, level, np.inf).min(axis=1) - np.maximum(after, here)
        return gap, gap >= self._limits.min_excess

    def _tested(
        self, level: FloatArray, places: Places, is_clear: Mask
    ) -> tuple[FloatArray, FloatArray]:
        """Return p of each version, and the scatter of head counts that goes with it.

        How much head counts scatter is not known: p is the mean of those at each scatter thought
        possible, weighted by how well it explains what two convex pieces leave over.
        """
        p = np.ones(len(level))
        scatter = np.full(len(level), self._limits.head_sd)
        rows = np.flatnonzero(self._is_large(places) & is_clear)
        if not rows.size or not self._null:
            return p, scatter
        ratio, left = break_ratio(self._heads, level[rows], self._weights)
        each = np.stack(
            [
                (1 + null.size - np.searchsorted(null, ratio - 1e-12)) / (draws + 1)
                for null, draws in self._null
            ]
        )
        weight = self._plausibility(left)
        p[rows] = (weight * each).sum(axis=0)
        scatter[rows] = self._scatters @ weight
        return p, scatter

    def _plausibility(self, left: FloatArray) -> FloatArray:
        """Return the weight of each scatter, shape [scatters, rows], given the misfit Q1."""
        usual = float(self._weights.mean())
        seeds = usual - self._limits.head_sd**2
        variance = seeds + self._scatters[:, None] ** 2
        freedom = (len(self._heads) - 3) / 2
        likelihood = -freedom / 2 * np.log(variance) - left * usual / 2 / variance
        weight = np.exp(likelihood - likelihood.max(axis=0))
        return np.asarray(weight / weight.sum(axis=0))

    def _is_large(self, places: Places) -> Mask:
        limits = self._limits
        return np.asarray(
            (places.peak >= 2)
            & (places.drop >= limits.min_drop)
            & (places.excess >= limits.min_excess)
        )

    def _draw_null(self, rng: np.random.Generator) -> list[tuple[FloatArray, int]]:
        """Return the ratios of simulated declines that pass for a collapse otherwise, ascending,
        at each scatter, and how many declines there were."""
        heads, settings = self._heads, self._settings
        if len(heads) < _FEWEST_FOR_A_BREAK:
            return []
        null = convex_fit(heads, self.level, self._weights)
        df = max(self.slopes.df or float(self._cells.noise.df.sum()), _FEWEST_DF)
        found = []
        for scatter in self._scatters:
            shape = (settings.n_mc, len(heads))
            wider = df / rng.chisquare(df, (settings.n_mc, 1))
            noise = rng.standard_normal(shape) * np.sqrt(self.variance * wider + scatter**2)
            level = null + noise
            places = self._located(level, level[:, :-1] - level[:, 1:])
            _, is_clear = self._gap(level, places.star)
            rows = self._is_large(places) & is_clear
            ratio, _ = break_ratio(heads, level[rows], self._weights)
            found.append((np.sort(ratio), settings.n_mc))
        return found

    def _growth(
        self, z: FloatArray, star: Indices
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        estimate = slopes_of(self._cells, z)
        found = np.full((4, len(z)), np.nan)
        index = np.arange(len(self._heads))
        for k in np.unique(star):
            rows = star == k
            for at, side in ((0, index < k), (2, index >= k)):
                pooled = pool_slopes(estimate[rows], self.slopes.se, side)
                if pooled is not None:
                    found[at, rows], found[at + 1, rows] = pooled
        return found[0], found[1], found[2], found[3]
